"""Scoring against experts' scores: reading, metrics, intervals, and what is missing."""

from __future__ import annotations

import re

import numpy as np
import pytest
from lhotse import SupervisionSet

from mlvae.score.calibration import calibration
from mlvae.score.graded import (
    THRESHOLDS,
    changed_on_top,
    evaluate_graded,
    graded_of,
    hypothesis_of,
    is_graded,
    read_graded,
    read_graded_hypothesis,
    trivial_hypotheses,
)
from mlvae.score.graded_table import ChangedWords, format_graded, graded_results
from mlvae.score.reference import read_reference
from tests.score.graded import cut, line


def read(reference, *cuts, perceived="mlvae_perceived"):
    return read_graded_hypothesis("ours", reference, cuts, "mlvae", perceived)


def simulated(num_speakers=12, seed=0):
    """Utterances whose P knows something of the scores."""
    rng = np.random.default_rng(seed)
    items, probabilities = [], []
    for index in range(2 * num_speakers):
        scores = rng.integers(0, 11, 8) / 5
        items.append(line(f"u{index}", scores.tolist(), [3, 5], f"s{index % num_speakers}"))
        probabilities.append(np.clip(rng.normal(0.8 - scores / 3, 0.2), 0, 1).round(2))
    return graded_of(items), np.concatenate(probabilities)


def test_means_stand_in_where_words_have_no_scores():
    reference = graded_of(
        [line("u0", [2.0, 1.0, None, 0.0], [2, 1, 1]), line("u1", [1.0, 0.5], speaker="bob")]
    )
    np.testing.assert_array_equal(reference.scores, [2, 1, np.nan, 0, 1, 0.5])
    np.testing.assert_array_equal(reference.word, [0, 0, 1, 2, 3, 3])
    np.testing.assert_array_equal(reference.word_scores, [1.5, np.nan, 0, 0.75])
    np.testing.assert_array_equal(reference.utterance_scores, [1, 0.75])
    np.testing.assert_array_equal(reference.utterance_of_word, [0, 0, 0, 1])
    assert not reference.words_are_scored
    assert reference.base_rate(1.0) == 2 / 5
    scored = graded_of([line("u0", [2.0, 1.0], [1, 1], word_scores=[9, None], score=7)])
    np.testing.assert_array_equal(scored.word_scores, [9, np.nan])
    np.testing.assert_array_equal(scored.utterance_scores, [7])
    assert scored.words_are_scored


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"scores": [2.0]}, "reference of u0: numbers of fields differ"),
        ({"word_of_unit": [0, 2]}, "units are not of 1 words"),
        ({"changed_word": 1}, "no word 1 was changed"),
    ],
)
def test_fields_that_do_not_agree_are_named(change, reason):
    item = line("u0", [2.0, 1.0])
    item.custom.update(change)
    with pytest.raises(ValueError, match=reason):
        graded_of([item])


def test_references_of_the_two_kinds_are_told_apart(tmp_path, make_reference):
    graded, other = line("u0", [2.0, None]), make_reference("u1", "ab", "ac")
    path = tmp_path / "reference.jsonl.gz"
    for items, kind in (([graded, other], True), ([other, graded], False)):
        SupervisionSet.from_segments(items).to_file(path)
        assert is_graded(path) == kind
    with pytest.raises(ValueError, match="reference of u0 lacks a tier, canonical or perceived"):
        read_reference(path)
    with pytest.raises(ValueError, match="reference of u1 lacks units, scores, word_of_unit"):
        read_graded(path)
    for items in ([line("u0", [None])], [line("u0", [1.0])]):
        items[0].custom["changed_word"] = 0
        SupervisionSet.from_segments(items).to_file(path)
        with pytest.raises(ValueError, match="no unit of the split 'test' has a score"):
            read_graded(path)


def test_missing_utterances_have_the_lowest_probability():
    reference = graded_of(
        [line("u0", [0.0, 2.0], [1, 1]), line("u1", [0.0, 2.0, 0.0], [1, 2], speaker="bob")]
    )
    found = read(reference, cut("u1", [0.9, 0.1, 0.3], flagged=[0], words=[0.9, 0.35]))
    assert found.missing == ("u0",)
    np.testing.assert_array_equal(found.probabilities, [0, 0, 0.9, 0.1, 0.3])
    np.testing.assert_array_equal(found.word_probabilities, [0, 0, 0.9, 0.35])
    np.testing.assert_allclose(found.utterance_probabilities, [0, 1.3 / 3])
    np.testing.assert_array_equal(found.flags, [False, False, True, False, False])
    table = format_graded(evaluate_graded(reference, [found], num_resamples=10), {"title": "Tiny"})
    assert "no hypothesis for 1 of 2 utterances, which count as missed (u0):\n  ours" in table


def test_systems_without_flags_or_words_or_probabilities():
    reference = graded_of([line("u0", [0.0, 2.0, 2.0], [1, 2])])
    found = read(reference, cut("u0", [0.5, 0.2, 0.4]), perceived=None)
    assert found.flags is None
    np.testing.assert_allclose(found.word_probabilities, [0.5, 0.3])
    assert read(reference, cut("u0", [None, None, None])) is None
    np.testing.assert_array_equal(read(reference).probabilities, [0, 0, 0])  # nothing is there
    with pytest.raises(ValueError, match="utterance u0 has 1 words in tier mlvae_word"):
        read(reference, cut("u0", [0.5, 0.2, 0.4], words=[0.5]))
    with pytest.raises(ValueError, match="there is no reference for utterance u9"):
        read(reference, cut("u9", [0.5]))


def test_metrics_of_the_whole_set_are_those_of_the_definitions():
    reference, probability = simulated()
    flags = probability > 0.6
    hypothesis = hypothesis_of(reference, "ours", probability, flags=flags)
    evaluation = evaluate_graded(reference, [hypothesis], num_resamples=50)

    def estimate(*key):
        return evaluation.estimate("ours", key).estimate

    for threshold in THRESHOLDS:
        wrong = reference.scores < threshold
        expected = calibration(probability, wrong)
        for metric in ("brier_score", "brier_skill", "expected_calibration_error"):
            assert estimate(threshold, metric) == pytest.approx(getattr(expected, metric))
        hits = (wrong & flags).sum()
        assert estimate(threshold, "hard_f1") == pytest.approx(
            2 * hits / (wrong.sum() + flags.sum())
        )
        assert estimate(threshold, "hard_flagged") == pytest.approx(flags.mean())
    for level, p, scores in (
        ("unit", probability, reference.scores),
        ("word", hypothesis.word_probabilities, reference.word_scores),
        ("utterance", hypothesis.utterance_probabilities, reference.utterance_scores),
    ):
        assert estimate("correlation", level) == pytest.approx(np.corrcoef(-p, scores)[0, 1])


def test_units_without_a_score_do_not_count():
    items = [line(f"u{i}", [0.0, 2.0, 2.0, None], speaker=f"s{i}") for i in range(4)]
    reference = graded_of(items)
    rows = [
        hypothesis_of(reference, str(p), np.tile([0.8, 0.2, 0.1, p], 4), flags=np.full(16, p > 0.5))
        for p in (0.0, 1.0)
    ]
    evaluation = evaluate_graded(reference, rows, num_resamples=20)
    for key in ((0.5, "average_precision"), (0.5, "brier_score"), ("correlation", "unit")):
        first, second = (evaluation.estimate(row.name, key) for row in rows)
        assert first == second
    assert evaluation.estimate("1.0", (0.5, "hard_flagged")).estimate == 1.0
    assert graded_results(evaluation)["counts"]["num_unscored"] == 4


def test_intervals_are_over_speakers_and_the_same_for_a_seed():
    reference, probability = simulated()
    good = hypothesis_of(reference, "good", probability)
    bad = hypothesis_of(reference, "bad", probability[::-1].copy())

    def evaluated(seed=0):
        return evaluate_graded(
            reference, [good, bad], [("good", "bad"), ("good", "none")], 200, seed
        )

    evaluation = evaluated()
    assert evaluation.num_speakers == 12 and evaluation.compared == (("good", "bad"),)
    found = evaluation.estimate("good", (1.0, "average_precision"))
    assert found.low < found.estimate < found.high
    assert evaluated().estimate("good", (1.0, "average_precision")) == found
    assert evaluated(1).estimate("good", (1.0, "average_precision")).low != found.low
    difference = evaluation.difference("good", "bad", 1.0)
    assert difference.estimate == pytest.approx(
        found.estimate - evaluation.estimate("bad", (1.0, "average_precision")).estimate
    )
    assert difference.excludes_zero and difference.low > 0


def test_one_speaker_gives_no_intervals_and_one_kind_of_units_no_metrics():
    reference = graded_of([line("u0", [2.0, 2.0])])
    rows = trivial_hypotheses(reference)
    evaluation = evaluate_graded(reference, rows, [("random", "flag-all")], num_resamples=10)
    assert evaluation.estimate("random", (0.5, "average_precision")) is None
    assert evaluation.estimate("random", (0.5, "brier_skill")) is None
    assert evaluation.estimate("random", ("correlation", "unit")) is None
    brier = evaluation.estimate("flag-all", (0.5, "brier_score"))
    assert (brier.estimate, brier.low, brier.high) == (1.0, None, None)
    results = graded_results(evaluation)
    assert results["differences"]["random minus flag-all"]["1"] == {
        "average_precision": None,
        "average_precision_interval": None,
        "average_precision_excludes_zero": False,
    }
    assert "base rate 0.0000" in format_graded(evaluation, {"title": "Tiny"})


def test_flag_all_is_the_base_rate_and_random_is_near_it():
    reference, _ = simulated(60)
    evaluation = evaluate_graded(reference, trivial_hypotheses(reference), num_resamples=10)
    for threshold in THRESHOLDS:
        rate = reference.base_rate(threshold)
        every = {
            metric: evaluation.estimate("flag-all", (threshold, metric)).estimate
            for metric in ("average_precision", "auc", "hard_f1", "hard_flagged")
        }
        assert every == pytest.approx(
            {
                "average_precision": rate,
                "auc": 0.5,
                "hard_f1": 2 * rate / (1 + rate),
                "hard_flagged": 1,
            }
        )
        drawn = evaluation.estimate("random", (threshold, "average_precision")).estimate
        assert drawn == pytest.approx(rate, abs=0.07)


def test_a_changed_word_is_found_where_nothing_else_has_as_high_a_probability():
    words = [[1, 2, 1]] * 4 + [[1, 3]]
    items = [line(f"u{i}", [None] * 4, w, speaker=f"s{i}") for i, w in enumerate(words)]
    for item, place in zip(items, (0, 1, 2, 2, 0)):
        item.custom["changed_word"] = place
    reference = graded_of(items)
    np.testing.assert_array_equal(reference.changed, [0, 4, 8, 11, 12])
    cuts = [
        cut("u0", [0.9, 0.8, 0.1, 0.1]),  # found
        cut("u1", [0.9, 0.8, 0.8, 0.1]),  # another word is higher
        cut("u2", [0.1, 0.2, 0.0, 0.2], words=[0.1, 0.15, 0.2]),  # found, by the words' own P
        cut("u3", [0.3, 0.0, 0.0, 0.3]),  # a tie
    ]  # u4 is missing, whose changed word is the shortest
    rows = [*trivial_hypotheses(reference), read(reference, *cuts)]
    on_top = changed_on_top(reference, rows, num_resamples=100)
    assert on_top["flag-all"].by_p.estimate == on_top["flag-all"].by_evidence.estimate == 0
    found = on_top["ours"].by_p
    assert found.estimate == pytest.approx(2 / 5)
    assert 0 <= found.low < found.estimate < found.high <= 1
    # u1 is found, too: both units of that word are likely wrong, of the other one its only unit.
    assert on_top["ours"].by_evidence.estimate == pytest.approx(3 / 5)

    plain, probability = simulated()
    evaluation = evaluate_graded(plain, [hypothesis_of(plain, "ours", probability)], (), 10)
    changed = ChangedWords(reference, rows, on_top)
    table = format_graded(evaluation, {"title": "Tiny"}, changed)
    assert "5 strings of digits of 5 speakers" in table and re.search(
        r"^ours +0\.400 \[", table, re.M
    )
    assert "no hypothesis for 1 of 5 utterances" in table
    results = graded_results(evaluation, changed)["changed_words"]
    assert results["num_utterances"] == 5
    assert results["systems"]["ours"]["on_top"] == pytest.approx(0.4)
    assert results["systems"]["ours"]["on_top_by_evidence"] == pytest.approx(0.6)


def test_the_table_is_narrow_enough():
    reference, probability = simulated()
    rows = [
        *trivial_hypotheses(reference),
        hypothesis_of(reference, "ML-VAE-sub, no generator", probability, flags=probability > 0.5),
    ]
    evaluation = evaluate_graded(
        reference, rows, [("ML-VAE-sub, no generator", "random")], num_resamples=20
    )
    table = format_graded(evaluation, {"title": "Tiny"})
    assert max(map(len, table.splitlines())) <= 120
    assert (
        "wrong below 1.5: base rate" in table and "ML-VAE-sub, no generator minus random" in table
    )
