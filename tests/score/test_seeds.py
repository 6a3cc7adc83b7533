import json

import numpy as np
import pytest
from lhotse import CutSet, MonoCut, SupervisionSegment, SupervisionSet
from lhotse.supervision import AlignmentItem
from scipy.stats import t as student_t

from benchmarks import seeds
from benchmarks.seeds import compare_over_seeds
from mlvae.score.metrics import Outcomes
from tests.score.experiments import SYSTEMS_FILE
from tests.score.test_intervals import paired_difference

NUM_CLUSTERS, UNITS_EACH = 40, 3


def make_outcomes(iou):
    """One utterance a cluster; what is flagged is the same for all."""
    rng = np.random.default_rng(7)
    count = NUM_CLUSTERS * UNITS_EACH
    flagged = rng.random(count) < 0.5
    clusters = np.repeat(np.arange(NUM_CLUSTERS), UNITS_EACH)
    return Outcomes(rng.random(count) < 0.5, flagged, iou, clusters), clusters


def make_runs(rng, num_runs=3, spread_runs=0.05, spread_clusters=0.05, difference=0.1):
    """Runs whose IoU differ by a known amount, but for what a run and a recording add."""
    of_clusters = np.repeat(rng.normal(0, spread_clusters, NUM_CLUSTERS), UNITS_EACH)
    runs = []
    for _ in range(num_runs):
        base = rng.uniform(0.3, 0.5, NUM_CLUSTERS * UNITS_EACH)
        better = base + difference + rng.normal(0, spread_runs) + of_clusters
        runs.append((make_outcomes(np.clip(better, 0, 1))[0], make_outcomes(base)[0]))
    return runs, make_outcomes(base)[1]


def test_the_mean_and_both_errors_by_hand():
    runs, clusters = make_runs(np.random.default_rng(0))
    found = compare_over_seeds(runs, clusters, ["average_iou"], num_resamples=200)["average_iou"]
    differences = [first.iou.mean() - second.iou.mean() for first, second in runs]
    assert found.mean.estimate == pytest.approx(np.mean(differences))
    assert [one.estimate for one in found.each] == pytest.approx(differences)
    assert found.first == pytest.approx([first.iou.mean() for first, _ in runs])
    assert found.second == pytest.approx([second.iou.mean() for _, second in runs])
    assert found.error_runs == pytest.approx(np.std(differences, ddof=1) / np.sqrt(3))
    by_cluster = np.mean([a.iou - b.iou for a, b in runs], axis=0).reshape(NUM_CLUSTERS, -1)
    expected = by_cluster.mean(axis=1).std() / np.sqrt(NUM_CLUSTERS)
    assert found.error_clusters == pytest.approx(expected, rel=0.2)
    variance = found.error_runs**2 + found.error_clusters**2
    degrees = variance**2 / (found.error_runs**4 / 2 + found.error_clusters**4 / 39)
    assert found.degrees == pytest.approx(degrees)
    width = student_t.ppf(0.975, degrees) * variance**0.5
    assert found.mean.high - found.mean.estimate == pytest.approx(width)
    # The interval of each run is that of the two systems alone.
    alone = paired_difference(*runs[1], clusters, "average_iou", num_resamples=200)
    assert found.each[1] == alone


@pytest.mark.parametrize("metric", ["average_iou", "pooled_f1", "macro_f1"])
def test_one_run_varies_by_recordings_only(metric):
    runs, clusters = make_runs(np.random.default_rng(1), num_runs=1)
    found = compare_over_seeds(runs, clusters, [metric], num_resamples=500)[metric]
    assert found.error_runs is None and found.degrees == pytest.approx(NUM_CLUSTERS - 1)
    alone = paired_difference(*runs[0], clusters, metric, num_resamples=500)
    assert found.mean.estimate == alone.estimate
    assert found.mean.high - found.mean.low == pytest.approx(alone.high - alone.low, rel=0.15)


def test_runs_that_agree_leave_the_error_of_recordings():
    runs, clusters = make_runs(np.random.default_rng(2), num_runs=1)
    one = compare_over_seeds(runs, clusters, ["macro_f1"], num_resamples=100)["macro_f1"]
    three = compare_over_seeds(3 * runs, clusters, ["macro_f1"], num_resamples=100)["macro_f1"]
    assert three.error_runs == pytest.approx(0, abs=1e-12)
    assert three.error_clusters == pytest.approx(one.error_clusters)
    assert three.mean.low == pytest.approx(one.mean.low)


def test_the_interval_holds_the_difference_as_often_as_it_says():
    """0.1 is the difference before runs and recordings add to it."""
    rng, hits, trials = np.random.default_rng(3), 0, 300
    for _ in range(trials):
        runs, clusters = make_runs(rng)
        mean = compare_over_seeds(runs, clusters, ["average_iou"], 60)["average_iou"].mean
        hits += mean.low <= 0.1 <= mean.high
    assert 0.9 <= hits / trials <= 1


@pytest.fixture
def folders(tmp_path, make_reference):
    """A corpus of two utterances and two runs of two systems."""
    data = tmp_path / "data"
    data.mkdir()
    reference = [make_reference("a", "35", "37"), make_reference("b", "12", "12")]
    SupervisionSet.from_segments(reference).to_file(data / "reference.jsonl.gz")
    runs = [tmp_path / "run 0", tmp_path / "run 1"]
    for run, perceived in zip(runs, ("3*", "*5")):
        for system, said in (("ml-vae", "35"), ("ml-vae-rl", perceived)):
            cuts = [make_cut("a", "35", said), make_cut("b", "12", "12")]
            (run / system).mkdir(parents=True)
            CutSet.from_cuts(cuts).to_file(run / system / "cuts_test.jsonl.gz")
    return data, runs


def make_cut(name, text, perceived):
    tiers = {
        tier: [AlignmentItem(symbol, i * 0.5, 0.5) for i, symbol in enumerate(symbols)]
        for tier, symbols in (("mlvae", text), ("mlvae_perceived", perceived))
    }
    supervision = SupervisionSegment(name, name, 0.0, 1.0, alignment=tiers)
    return MonoCut(name, 0.0, 1.0, 0, supervisions=[supervision])


def run_script(data, runs, *options):
    dirs = ["--exp-dirs", *map(str, runs), "--config", str(SYSTEMS_FILE)]
    return seeds.main(["--data-dir", str(data), *dirs, "--num-resamples", "20", *options])


def test_script_reads_the_runs_in_order(folders, tmp_path, capsys):
    data, runs = folders
    path = tmp_path / "seeds.json"
    assert run_script(data, runs, "--json", str(path)) == 0
    content = json.loads(path.read_text())
    assert (content["first"], content["second"], content["num_runs"]) == ("ML-VAE-RL", "ML-VAE", 2)
    hard = content["metrics"]["hard_f1"]
    assert (hard["first"], hard["second"]) == ([1.0, 0.0], [0.0, 0.0])
    assert hard["mean"]["estimate"] == 0.5
    assert hard["error_runs"] == 0.5
    out = capsys.readouterr().out
    assert out.startswith("ML-VAE-RL minus ML-VAE ")
    for line in ("run 1: ML-VAE-RL ", "run 2: difference ", "mean difference ", "  standard error"):
        assert f"\n{line}" in out
    assert max(map(len, out.splitlines())) <= 120


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--first", "ml-vae-top"], "there is no system 'ml-vae-top'; there are: fa, "),
        (["--first", "ablation-1"], "ablation-1/cuts_test.jsonl.gz is missing; stage 5"),
        (["--data-dir", "nowhere"], "nowhere/reference.jsonl.gz"),
    ],
)
def test_script_says_what_is_wrong_in_one_line(folders, capsys, options, message):
    assert run_script(*folders, *options) == 1
    err = capsys.readouterr().err
    assert err.startswith("seeds.py: ") and message in err and err.count("\n") == 1
