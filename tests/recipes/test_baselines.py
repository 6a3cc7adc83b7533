"""The baselines through the stages, with and without weights of wav2vec 2.0."""

from __future__ import annotations

import json

import pytest
import torch

from mlvae.data.dataset import load_cuts
from mlvae.tiers import tier
from tests.data.conftest import load_script
from tests.recipes.conftest import Recipe
from tests.recipes.test_reference import scramble
from tests.systems.sounds import write_checkpoint

SYSTEMS = ("two-pass-fa", "w2v-ctc")


@pytest.fixture
def with_weights(prepared, tmp_path) -> Recipe:
    """A tiny checkpoint, named in the configuration."""
    checkpoint = write_checkpoint(tmp_path / "tiny.pth")
    config = tmp_path / "baselines.yaml"
    config.write_text(
        prepared.config.read_text()
        + f"  w2v-ctc: {{checkpoint: {checkpoint}, epochs: 2, learning_rate: 1.0e-3}}\n"
    )
    prepared.config, prepared.systems = config, " ".join(SYSTEMS)
    return prepared


def test_reference_changes_no_weight_and_no_answer(with_weights, tmp_path):
    assert with_weights.run(3, 4, 5, 6) == [0] * 4
    results = json.loads((with_weights.exp / "results.json").read_text())
    assert {"FA", "Two-Pass-FA", "w2v-CTC"} <= set(results["systems"])
    scramble(with_weights.data / "reference.jsonl.gz")
    folders = (with_weights.data, tmp_path / "other", with_weights.config)
    other = Recipe(*folders, systems=with_weights.systems)
    assert other.run(3, 4, 5) == [0] * 3
    for system in SYSTEMS:
        for name in ("model.safetensors", "cuts_test.jsonl.gz"):
            mine, theirs = (run.exp / system / name for run in (with_weights, other))
            assert mine.read_bytes() == theirs.read_bytes(), mine
        for cut in load_cuts(with_weights.exp / system / "cuts_test.jsonl.gz"):
            units = [item.symbol for item in tier(cut, "mlvae")]
            assert units == cut.supervisions[0].custom["units"]


def test_without_weights_the_run_goes_on(prepared, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path / "hub"))
    prepared.systems = "fa w2v-ctc two-pass-fa"
    assert prepared.run(3, 4, 5, 6) == [0] * 4
    assert capsys.readouterr().out.count("w2v-ctc: no weights at hand: name a checkpoint") == 1
    table = (prepared.exp / "table.txt").read_text().splitlines()
    (row,) = [line for line in table if "no weights at hand" in line]
    assert row.startswith("w2v-CTC")
    assert any(line.startswith("Two-Pass-FA") and "no weights" not in line for line in table)


def test_the_option_names_the_weights(with_weights, tmp_path, capsys):
    assert with_weights.run(3) == [0]
    words = ["--data-dir", with_weights.data, "--exp-dir", with_weights.exp, "--device", "cpu"]
    words += ["--config", with_weights.config, "--systems", "w2v-ctc"]
    train = load_script("local/train.py")
    missing = tmp_path / "nowhere.pth"
    assert train([str(word) for word in [*words, "--w2v-checkpoint", missing]]) == 1
    assert f"no weights of wav2vec 2.0 in {missing}: no such file" in capsys.readouterr().err
    other = write_checkpoint(tmp_path / "other.pth", seed=3)
    assert train([str(word) for word in [*words, "--w2v-checkpoint", other]]) == 0
    assert f"parameters of {other} on cpu" in capsys.readouterr().out
