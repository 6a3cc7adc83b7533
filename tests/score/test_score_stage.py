import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from lhotse import (
    CutSet,
    LilcomChunkyWriter,
    MonoCut,
    Recording,
    SupervisionSegment,
    SupervisionSet,
)
from lhotse.audio import AudioSource
from lhotse.features import Features
from lhotse.supervision import AlignmentItem

from mlvae.score.answers import truth_of
from mlvae.score.experiment import choose_example, score_experiment
from mlvae.score.metrics import FIGURES
from mlvae.score.table import format_count
from mlvae.tiers import with_tiers

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "local" / "score.py"
ROWS = ["oracle", "flag-all (FA)", "flag-all (ours)", "FA", "ML-VAE"]
TEXTS = {"t0": "312", "t1": "35467", "t2": "90121", "t3": "4455"}
SAID = {"t0": "312", "t1": "35467", "t2": "94121", "t3": "4415"}
HEARD = {"t0": "312", "t1": "35*67", "t2": "9*121", "t3": "4415"}
UNIT = 0.5


def with_features(cut, writer):
    frames = np.random.default_rng(0).standard_normal((round(cut.duration * 100), 40))
    key = writer.write(cut.id, frames.astype(np.float32))
    features = Features(
        type="fbank",
        num_frames=len(frames),
        num_features=40,
        frame_shift=0.01,
        sampling_rate=8000,
        start=0,
        duration=cut.duration,
        storage_type=writer.name,
        storage_path=str(writer.storage_path),
        storage_key=key,
        recording_id=cut.id,
        channels=0,
    )
    cut.features = features
    return cut


@pytest.fixture
def folders(tmp_path, make_truth):
    """A corpus folder and an experiment folder of four utterances, as stages 0 to 5 leave them."""
    data, exp = tmp_path / "data", tmp_path / "exp"
    data.mkdir()
    corpus = {"corpus": "tiny", "title": "Mismatch-tiny", "synthetic": True, "mismatch_rate": 0.2}
    (data / "corpus.json").write_text(json.dumps(corpus))
    truth = [make_truth(name, TEXTS[name], SAID[name], seconds=UNIT) for name in TEXTS]
    truth.append(make_truth("v0", "12", "12", split="valid"))
    SupervisionSet.from_segments(truth).to_file(data / "truth.jsonl.gz")
    for model, size in (("fa", 20_000), ("ml-vae", 1_500_000)):
        (exp / model).mkdir(parents=True)
        training = {"num_params": size, "training_seconds": 1.5, "rounds": 8}
        (exp / model / "training.json").write_text(json.dumps(training))
    cuts = []
    with LilcomChunkyWriter(tmp_path / "feats") as writer:
        for name, text in TEXTS.items():
            seconds = UNIT * len(text)
            cut = MonoCut(
                name,
                0.0,
                seconds,
                0,
                supervisions=[SupervisionSegment(name, name, 0.0, seconds)],
                recording=Recording(
                    name, [AudioSource("file", [0], "none.wav")], 8000, int(8000 * seconds), seconds
                ),
            )
            # Every start but the first is a tenth of a second late.
            starts = [max(0.0, UNIT * i + (0.1 if i else 0)) for i in range(len(text))]
            spans = list(zip(starts, [*starts[1:], seconds]))
            tiers = {
                tier: [AlignmentItem(s, b, e - b, 0.5) for s, (b, e) in zip(symbols, spans)]
                for tier, symbols in (("fa", text), ("mlvae", text), ("mlvae_heard", HEARD[name]))
            }
            cuts.append(with_tiers(with_features(cut, writer), tiers))
    CutSet.from_cuts(cuts).to_file(exp / "cuts_test.jsonl.gz")
    return data, exp


def test_end_to_end(folders, capsys):
    data, exp = folders
    assert score_experiment(data, exp, seed=3, num_resamples=50) == 0

    results = json.loads((exp / "results.json").read_text())
    assert results["seed"] == 3
    assert results["counts"] == {
        "num_utterances": 4,
        "num_units": 17,
        "num_mismatched": 2,
        "mismatch_rate": pytest.approx(2 / 17),
    }
    assert {"torch", "k2", "lhotse", "mlvae", "python"} <= set(results["versions"])
    assert results["corpus"]["title"] == "Mismatch-tiny"
    assert list(results["systems"]) == ROWS
    for row in results["systems"].values():
        for figure in FIGURES:
            low, high = row[f"{figure}_interval"]
            assert 0 <= low <= high <= 1
    ours = results["systems"]["ML-VAE"]
    # Three flags, two of them right, on spans with IoU 0.4 / 0.6.
    assert ours["pooled_precision"] == pytest.approx(2 * (0.4 / 0.6) / 3)
    assert ours["pooled_recall"] == pytest.approx(0.4 / 0.6)
    assert ours["hard_f1"] == pytest.approx(0.8)
    assert (ours["num_params"], ours["training_seconds"]) == (1_500_000, 1.5)
    assert results["systems"]["oracle"]["pooled_f1"] == 1.0
    assert results["systems"]["oracle"]["macro_f1"] == 0.5
    assert results["systems"]["FA"]["hard_f1"] == 0.0
    assert results["systems"]["flag-all (FA)"]["hard_recall"] == 1.0

    table = (exp / "table.txt").read_text()
    heading = table.splitlines()[0]
    assert heading == (
        "Mismatch-tiny (synthetic speech): 4 test utterances, 17 units, 11.8 % of them mismatched"
    )
    shown = [line.split("  ")[0] for line in table.splitlines()]
    assert [name for name in shown if name in ROWS][:5] == ROWS
    for shown in ("1.5 M", "20 k", "80.0", "66.7", "100", "pooled", "macro", "hard", "average IoU"):
        assert shown in table
    out = capsys.readouterr().out
    assert table in out
    assert "stage 6 score: 4 in = 4 done + 0 skipped" in out
    assert (exp / "utterance.png").read_bytes().startswith(b"\x89PNG")


def test_same_command_same_files(folders):
    data, exp = folders
    files = ("results.json", "table.txt", "utterance.png")
    score_experiment(data, exp, num_resamples=20)
    first = [(exp / file).read_bytes() for file in files]
    score_experiment(data, exp, num_resamples=20)
    assert first == [(exp / file).read_bytes() for file in files]


def test_skipped_utterances_are_counted(folders, capsys):
    data, exp = folders
    path = exp / "cuts_test.jsonl.gz"
    CutSet.from_cuts([cut for cut in CutSet.from_file(path) if cut.id != "t2"]).to_file(path)
    assert score_experiment(data, exp, num_resamples=20) == 0
    out, err = capsys.readouterr()
    assert "4 in = 3 done + 1 skipped" in out
    assert "no answer for 1 of 4 utterances" in out and "(t2)" in out
    assert "skipped t2" in err
    ours = json.loads((exp / "results.json").read_text())["systems"]["ML-VAE"]
    assert ours["num_missing"] == 1
    assert ours["hard_recall"] == 0.5
    skipped = [json.loads(line) for line in (exp / "skipped.jsonl").read_text().splitlines()]
    assert [line["id"] for line in skipped] == ["t2"]


def test_nothing_answered_is_a_failure(folders):
    data, exp = folders
    CutSet.from_cuts(
        MonoCut("t0", 0.0, 1.5, 0, supervisions=[SupervisionSegment("t0", "t0", 0.0, 1.5)])
        for _ in range(1)
    ).to_file(exp / "cuts_test.jsonl.gz")
    assert score_experiment(data, exp, num_resamples=20) == 1
    assert not (exp / "utterance.png").exists()


@pytest.mark.parametrize(
    ("folder", "name", "stage"),
    [
        (0, "corpus.json", "stage 0 (prepare)"),
        (0, "truth.jsonl.gz", "stage 0 (prepare)"),
        (1, "fa/training.json", "stage 3 (align)"),
        (1, "ml-vae/training.json", "stage 4 (train)"),
        (1, "cuts_test.jsonl.gz", "stage 5 (localize)"),
    ],
)
def test_missing_inputs(folders, folder, name, stage):
    missing = folders[folder] / name
    missing.unlink()
    with pytest.raises(FileNotFoundError) as caught:
        score_experiment(*folders)
    assert str(caught.value) == f"{missing} is missing; {stage} makes it"


def test_script(folders):
    data, exp = folders
    command = [sys.executable, str(SCRIPT), "--data-dir", str(data), "--exp-dir", str(exp)]
    options = ["--seed", "5", "--num-resamples", "20", "--cluster", "speaker"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([*command, *options], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    results = json.loads((exp / "results.json").read_text())
    assert results["seed"] == 5
    # There is one speaker only, which cannot be resampled.
    assert results["intervals"]["over"] == "speaker"
    assert results["systems"]["ML-VAE"]["pooled_f1_interval"] is None

    (data / "truth.jsonl.gz").unlink()
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    assert "stage 0 (prepare) makes it" in run.stderr


def test_the_picture_is_chosen_by_rule(make_truth):
    items = [
        make_truth("long-right", "12345", "12345"),
        make_truth("short-wrong", "12", "13"),
        make_truth("long-wrong", "12345", "12845"),
    ]
    truth = truth_of(items)
    assert choose_example(truth, set())[0] == "long-wrong"
    assert choose_example(truth, {"long-wrong"})[0] == "short-wrong"
    chosen, rule = choose_example(truth, {"long-wrong", "short-wrong"})
    assert chosen == "long-right" and "none has a mismatch" in rule
    with pytest.raises(ValueError, match="no test utterance"):
        choose_example(truth, set(truth.utterances))


def test_format_count():
    shown = [format_count(count) for count in (None, 0, 9999, 81_234, 999_499, 24_321_000)]
    assert shown == ["-", "0", "9999", "81 k", "999 k", "24.3 M"]
