"""The baselines in the registry of systems: trained, read, and left out where unavailable."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from lhotse import CutSet

from mlvae.config import RecipeConfig, System
from mlvae.data.dataset import UnitDataset
from mlvae.data.manifests import write_json
from mlvae.nn import NarrowAcousticModelConfig
from mlvae.systems import KINDS, Setup, load_localizers
from mlvae.systems.align import AlignConfig, Aligner
from mlvae.tiers import has_tier
from tests.systems.sounds import TONES, tone_cuts, write_checkpoint
from tests.systems.test_w2v_ctc import CONFIG
from tests.train.tiny import CPU, NUM_FEATURES, TABLE, dataset, spoken_cuts

RECIPE = RecipeConfig(
    align=AlignConfig(NarrowAcousticModelConfig(states_per_unit=2, hidden_size=8)),
    systems={
        "fa": System("fa", "align"),
        "two-pass-fa": System("two-pass-fa", "two_pass"),
        "w2v-ctc": System("w2v-ctc", "w2v_ctc"),
    },
)


def through_the_registry(name, config, cuts, data, folder):
    setup = Setup(name, config, data, CPU, 0, folder)
    training = KINDS[config.system(name).kind].train(setup, cuts, cuts)
    write_json(folder / "training.json", training)
    return training, load_localizers(setup, cuts)


def test_two_pass_fa_uses_features_without_deltas(tmp_path):
    aligner = Aligner(NUM_FEATURES, len(TABLE), False, RECIPE.align, CPU)
    aligner.save(tmp_path / "fa" / "model.safetensors")
    cuts = spoken_cuts(4)[0]
    data = UnitDataset(TABLE, deltas=True)
    folder = tmp_path / "two-pass-fa"
    training, answers = through_the_registry("two-pass-fa", RECIPE, cuts, data, folder)
    assert {"num_params", "training_seconds", "insertion_score"} <= set(training)
    found, short = answers["two-pass-fa"](cuts)
    assert short == []
    assert all(has_tier(cut, "mlvae_perceived") for cut in found)


def test_w2v_ctc_starts_from_the_checkpoint_of_the_configuration(tmp_path):
    checkpoint = write_checkpoint(tmp_path / "tiny.pth")
    settings = replace(CONFIG, epochs=1, checkpoint=str(checkpoint))
    config = RecipeConfig(systems={"w2v-ctc": System("w2v-ctc", "w2v_ctc", settings=settings)})
    cuts = tone_cuts(tmp_path / "wav", 3)
    data = UnitDataset(TONES)
    training, answers = through_the_registry("w2v-ctc", config, cuts, data, tmp_path / "w2v-ctc")
    assert {"num_params", "training_seconds", "iterations", "best_iteration"} <= set(training)
    found, without = answers["w2v-ctc"](cuts)
    assert (len(found), without) == (3, [])
    assert all(has_tier(cut, "mlvae_perceived") for cut in found)


def test_w2v_ctc_without_weights_has_no_answers(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path / "hub"))
    cuts = spoken_cuts(2)[0]
    folder = tmp_path / "w2v-ctc"
    training, answers = through_the_registry("w2v-ctc", RECIPE, cuts, dataset(), folder)
    assert training == {"unavailable": "no weights at hand"}
    assert answers == {}
    trained, read = capsys.readouterr().out.splitlines()
    assert "w2v-ctc: no weights at hand: name a checkpoint" in trained
    assert "w2v-ctc: no answers: no weights at hand" in read
    assert [path.name for path in folder.iterdir()] == ["training.json"]


def test_what_is_missing_is_named(tmp_path):
    cuts: CutSet = spoken_cuts(2)[0]
    for name in ("two-pass-fa", "w2v-ctc"):
        with pytest.raises(ValueError, match=f"there is no model .*{name}/model.safetensors"):
            load_localizers(Setup(name, RECIPE, dataset(), CPU, 0, tmp_path / name), cuts)


def test_of_forced_alignment_nothing_is_left_to_do(tmp_path):
    assert load_localizers(Setup("fa", RECIPE, dataset(), CPU, 0, tmp_path), CutSet()) == {}
