"""The example of a stage 0 for recordings of one's own gives cuts that stages 1 and 2 read."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from mlvae.data.dataset import load_cuts
from mlvae.data.features import compute_fbank
from mlvae.data.units import canonical_units
from mlvae.stage import StageReport
from mlvae.tiers import units_of_words

ROOT = Path(__file__).resolve().parents[2]


def prepare(corpus: Path, data: Path, monkeypatch) -> int:
    command = ["--corpus", "mine", "--corpus-dir", corpus, "--data-dir", data, "--seed", "0"]
    monkeypatch.setattr(sys, "argv", ["prepare.py", *map(str, command)])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / "examples" / "own_corpus.py"), run_name="__main__")
    return end.value.code


def write(folder: Path, name: str, text: str | None, channels: int = 1) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    noise = np.random.RandomState(sum(name.encode())).randn(22050, channels) * 0.1
    soundfile.write(folder / f"{name}.wav", noise, 22050)
    if text is not None:
        (folder / f"{name}.txt").write_text(text)


def test_pairs_of_recording_and_text_become_cuts(tmp_path, monkeypatch, capsys):
    mine, data = tmp_path / "mine", tmp_path / "data"
    for split in ("train", "valid", "test"):
        write(mine / split, f"{split}-good", "One, two.")
    write(mine / "train", "odd", "one blorptz")
    write(mine / "train", "alone", None)
    write(mine / "valid", "mute", " ... ")
    write(mine / "valid", "stereo", "one", channels=2)
    write(mine / "test", "train-good", "two")
    assert prepare(mine, data, monkeypatch) == 0

    captured = capsys.readouterr()
    assert "8 in = 3 done + 5 skipped" in captured.out
    for name, reason in {
        "odd": "not in the lexicon: blorptz",
        "alone": "No such file",
        "mute": "its text has no words",
        "stereo": "2 channels",
        "train-good": "another recording has the same name",
    }.items():
        (line,) = [line for line in captured.err.splitlines() if f"skipped {name} (" in line]
        assert f"{name}.{'txt' if name == 'odd' else 'wav'})" in line and reason in line
    assert json.loads((data / "corpus.json").read_text())["sampling_rate"] == 16000

    counts = compute_fbank(data, StageReport(stage="1 fbank", folder=data))
    assert counts == {"train": 1, "valid": 1, "test": 1}
    (cut,) = load_cuts(data / "fbank" / "cuts_test.jsonl.gz")
    assert cut.id == "test-good"
    assert cut.duration == pytest.approx(1.0)
    assert canonical_units(cut) == ["w", "ah", "n", "t", "uw"]
    assert units_of_words(cut) == [0, 0, 0, 1, 1]


def test_a_part_without_recordings_is_named(tmp_path, monkeypatch, capsys):
    write(tmp_path / "mine" / "train", "good", "one")
    assert prepare(tmp_path / "mine", tmp_path / "data", monkeypatch) == 1
    assert f"no recording to use in {tmp_path / 'mine' / 'valid'}" in capsys.readouterr().err
    assert not (tmp_path / "data" / "corpus.json").exists()
