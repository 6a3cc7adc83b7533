"""The default corpus, synthetic speech, at its smallest."""

from __future__ import annotations

import json

import pytest

from tests.recipes.conftest import Recipe


def test_all_stages_on_synthetic_speech(tmp_path, quick_config, monkeypatch):
    pytest.importorskip("espeakng_loader", reason="the extra synthesis is not installed")
    monkeypatch.setattr("mlvae.corpora.digits.espeak.VOICES", {"us-f1": "en-us+f1"})
    monkeypatch.setattr("mlvae.corpora.digits.espeak.NUM_RECORDINGS", 5)
    recipe = Recipe(tmp_path / "espeak", tmp_path / "exp", quick_config, ["--num-utterances", 10])
    assert recipe.run(*range(7)) == [0] * 7
    table = (recipe.exp / "table.txt").read_text()
    assert table.startswith("Mismatch-espeak (synthetic speech): 2 test utterances")
    results = json.loads((recipe.exp / "results.json").read_text())
    assert results["corpus"]["synthetic"]
    assert results["systems"]["oracle"]["average_iou"] == 1
    assert results["systems"]["FA"]["average_iou"] > 0.2
    assert {"GOP-FA", "ML-VAE", "ML-VAE-sub", "GOP-sub-ratio"} <= set(results["systems"])
    assert (recipe.exp / "utterance.png").stat().st_size > 10_000
