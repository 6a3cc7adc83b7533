import time

import numpy as np
import pytest

from mlvae.score.intervals import bootstrap_intervals, mean_standard_error
from mlvae.score.metrics import METRICS, Outcomes, score


def paired_difference(first, second, clusters, metric="pooled_f1", num_resamples=300):
    """Of two systems alone."""
    both = {"first": first, "second": second}
    intervals = bootstrap_intervals(both, clusters, num_resamples)
    return intervals.paired_difference("first", "second", metric)


def make_world(seed, num_utterances=300, num_recordings=300, by_use=0.3, quality=0.75):
    """Utterances of units from recordings; what is right or wrong depends on the recording.

    Returns:
        The outcomes of one system and the recording of each unit.
    """
    rng = np.random.default_rng(seed)
    utterance = np.repeat(np.arange(num_utterances), rng.integers(3, 8, num_utterances))
    recording = rng.integers(0, num_recordings, len(utterance))
    positive = (rng.random(num_recordings) < 0.2)[recording]
    hard = rng.random(num_recordings)[recording] * (1 - by_use) + by_use * rng.random(
        len(recording)
    )
    flagged = np.where(hard < quality, positive, ~positive)
    iou = np.clip(0.8 + 0.1 * rng.standard_normal(num_recordings)[recording], 0, 1)
    clusters = np.unique(recording, return_inverse=True)[1]
    return Outcomes(positive, flagged, iou, utterance), clusters


def oracle_of(outcomes):
    ones = np.ones(len(outcomes.iou))
    return Outcomes(outcomes.positive, outcomes.positive, ones, outcomes.utterance)


def test_intervals_hold_the_estimate_and_are_reproducible():
    outcomes, clusters = make_world(0)
    systems = {"ours": outcomes, "oracle": oracle_of(outcomes)}
    first = bootstrap_intervals(systems, clusters, num_resamples=300, seed=1)
    again = bootstrap_intervals(systems, clusters, num_resamples=300, seed=1)
    other = bootstrap_intervals(systems, clusters, num_resamples=300, seed=2)
    for metric in METRICS:
        low, high = first.interval("ours", metric)
        assert 0 <= low < getattr(first.scores["ours"], metric) < high <= 1
        assert first.interval("ours", metric) == again.interval("ours", metric)
    assert first.interval("ours", "pooled_f1") != other.interval("ours", "pooled_f1")
    assert first.scores["ours"] == score(outcomes)
    assert first.interval("oracle", "pooled_f1") == (1.0, 1.0)
    low, high = first.interval("oracle", "macro_f1")
    assert low < first.scores["oracle"].macro_f1 < high


@pytest.mark.parametrize("num_recordings", [120, 3000])
def test_widths_are_those_of_repeated_experiments(num_recordings):
    """The spread over 150 worlds is what the intervals of one world say it is."""
    worlds = [make_world(seed, num_recordings=num_recordings) for seed in range(150)]
    points = np.array([list(score(outcomes).as_dict().values()) for outcomes, _ in worlds])
    for column, metric in enumerate(METRICS):
        widths = []
        for outcomes, clusters in worlds[:12]:
            intervals = bootstrap_intervals({"ours": outcomes}, clusters, num_resamples=200)
            low, high = intervals.interval("ours", metric)
            widths.append((high - low) / (2 * 1.96))
        assert 0.75 < np.mean(widths) / points[:, column].std() < 1.3, metric


def test_units_of_one_recording_are_not_independent():
    outcomes, clusters = make_world(0, num_recordings=60)
    alone = np.arange(len(clusters))
    for metric in ("pooled_f1", "macro_f1"):
        widths = []
        for grouping in (clusters, alone):
            intervals = bootstrap_intervals({"ours": outcomes}, grouping, num_resamples=300)
            low, high = intervals.interval("ours", metric)
            widths.append(high - low)
        assert widths[0] > 1.5 * widths[1]


def test_resamples_against_loops():
    outcomes, clusters = make_world(3, num_utterances=8, num_recordings=6)
    intervals = bootstrap_intervals({"ours": outcomes}, clusters, num_resamples=20, seed=0)
    # A resample is a set in which each unit occurs as often as its cluster was drawn. scipy draws
    # indices in one call per batch; here are the same draws.
    drawn = np.random.default_rng(0).integers(0, clusters.max() + 1, (20, clusters.max() + 1))
    for row, chosen in enumerate(drawn):
        units = np.concatenate([np.flatnonzero(clusters == cluster) for cluster in chosen])
        one = np.zeros(len(units), dtype=np.int64)
        picked = Outcomes(
            outcomes.positive[units], outcomes.flagged[units], outcomes.iou[units], one
        )
        expected = score(picked)
        found = intervals.resamples[0, :, row]
        assert found[2] == pytest.approx(expected.pooled_f1)
        assert found[5] == pytest.approx(expected.hard_f1)
        assert found[6] == pytest.approx(expected.average_iou)


def test_standard_error_against_loops():
    outcomes, clusters = make_world(4, num_utterances=15, num_recordings=20)
    membership = bootstrap_intervals({"a": outcomes}, clusters, num_resamples=2).membership
    values = np.random.default_rng(0).random(15)
    members = [set(clusters[outcomes.utterance == u]) for u in range(15)]
    deviation = values - values.mean()
    total = 0.0
    for u in range(15):
        for v in range(15):
            shared = 1 if u == v else len(members[u] & members[v])
            total += shared * deviation[u] * deviation[v]
    expected = np.sqrt(max(total, (deviation**2).sum())) / 15
    assert mean_standard_error(values, membership) == pytest.approx(expected)


def test_paired_difference():
    better, clusters = make_world(5, quality=0.95)
    worse = Outcomes(
        better.positive, make_world(5, quality=0.85)[0].flagged, better.iou, better.utterance
    )
    for metric in ("pooled_f1", "macro_f1", "hard_recall"):
        difference = paired_difference(better, worse, clusters, metric, num_resamples=300)
        estimate = getattr(score(better), metric) - getattr(score(worse), metric)
        assert difference.estimate == pytest.approx(estimate)
        assert 0 < difference.low < estimate < difference.high
        opposite = paired_difference(worse, better, clusters, metric, num_resamples=300)
        assert opposite.high == pytest.approx(-difference.low)
    itself = paired_difference(better, better, clusters, num_resamples=300)
    assert (itself.estimate, itself.low, itself.high) == (0.0, 0.0, 0.0)


def test_one_cluster_has_no_interval():
    outcomes, clusters = make_world(0, num_utterances=5)
    intervals = bootstrap_intervals({"ours": outcomes}, np.zeros_like(clusters))
    assert intervals.interval("ours", "pooled_f1") is None
    assert intervals.interval("ours", "macro_f1") is None
    assert intervals.paired_difference("ours", "ours", "pooled_f1").low is None


def test_refused_input():
    outcomes, clusters = make_world(0)
    shorter, _ = make_world(0, num_utterances=10)
    with pytest.raises(ValueError, match="no system"):
        bootstrap_intervals({}, clusters)
    with pytest.raises(ValueError, match="other is scored on other units than ours"):
        bootstrap_intervals({"ours": outcomes, "other": shorter}, clusters)
    with pytest.raises(ValueError, match="with a cluster"):
        bootstrap_intervals({"ours": outcomes}, clusters[:-1])
    with pytest.raises(ValueError, match="at least 1"):
        bootstrap_intervals({"ours": outcomes}, clusters, num_resamples=0)


def test_fast_enough_for_a_whole_test_set():
    outcomes, clusters = make_world(0, num_utterances=600, num_recordings=600)
    begin = time.process_time()
    bootstrap_intervals({str(i): outcomes for i in range(5)}, clusters, num_resamples=1000)
    assert time.process_time() - begin < 10
