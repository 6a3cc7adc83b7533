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

ROOT = Path(__file__).resolve().parents[1]


def test_pairs_of_recording_and_text_become_cuts(tmp_path, monkeypatch, capsys):
    noise = np.random.RandomState(0).randn(22050) * 0.1
    for split in ("train", "valid", "test"):
        folder = tmp_path / "mine" / split
        folder.mkdir(parents=True)
        for name, text in (("good", "One, two."), ("unknown", "one blorptz")):
            soundfile.write(folder / f"{split}-{name}.wav", noise, 22050)
            (folder / f"{split}-{name}.txt").write_text(text)
    data = tmp_path / "data"
    command = ["--corpus", "mine", "--corpus-dir", tmp_path / "mine", "--data-dir", data]
    monkeypatch.setattr(sys, "argv", ["prepare.py", *map(str, command), "--seed", "0"])
    runpy.run_path(str(ROOT / "examples" / "own_corpus.py"), run_name="__main__")

    assert capsys.readouterr().out.count("(blorptz)") == 3
    assert json.loads((data / "corpus.json").read_text())["sampling_rate"] == 16000
    counts = compute_fbank(data, StageReport(stage="1 fbank", folder=data))
    assert counts == {"train": 1, "valid": 1, "test": 1}
    (cut,) = load_cuts(data / "fbank" / "cuts_test.jsonl.gz")
    assert cut.id == "test-good"
    assert cut.duration == pytest.approx(1.0)
    assert canonical_units(cut) == ["w", "ah", "n", "t", "uw"]
    assert units_of_words(cut) == [0, 0, 0, 1, 1]
