"""w2v-CTC from a tiny checkpoint on tones: fine-tuning, going on after a kill, localisation."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from lhotse import CutSet
from lhotse.utils import fastcopy

from mlvae.acoustic.posteriors import read_waveform
from mlvae.config import RecipeConfig, System
from mlvae.data.dataset import UnitDataset
from mlvae.data.units import UnitTable
from mlvae.device import num_parameters
from mlvae.systems import Setup
from mlvae.systems.w2v_ctc import (
    MODEL,
    FineTuner,
    W2vCtcConfig,
    freeze,
    pretrained,
    read_w2v,
    train_w2v,
)
from mlvae.tiers import tier, with_units
from mlvae.train.loop import read_tensors
from tests.systems.sounds import RATE, TONES, tone_cut, tone_cuts, write_checkpoint
from tests.train.tiny import CPU

CONFIG = W2vCtcConfig(
    epochs=16,
    batch_cuts=4,
    learning_rate=2e-3,
    output_learning_rate=2e-3,
    warmup_steps=5,
    dropout=0.0,
    layer_drop=0.0,
)
#: With everything that is random in training.
RANDOM = replace(CONFIG, epochs=3, dropout=0.2, layer_drop=0.3)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("w2v")
    write_checkpoint(folder / "tiny.pth")
    return folder


@pytest.fixture(scope="module")
def cuts(place) -> tuple[CutSet, CutSet]:
    return tone_cuts(place / "wav", 40), tone_cuts(place / "wav", 10, seed=1)


def setup_of(config, folder, seed=0) -> Setup:
    recipe = RecipeConfig(systems={"w2v-ctc": System("w2v-ctc", "w2v_ctc", settings=config)})
    return Setup("w2v-ctc", recipe, UnitDataset(TONES), CPU, seed, folder)


def train(config, cuts, folder, place, seed=0) -> dict:
    config = replace(config, checkpoint=str(place / "tiny.pth"))
    return train_w2v(setup_of(config, folder, seed), *cuts)


@pytest.fixture(scope="module")
def trained(place, cuts):
    """The folder of the system, and what training returned."""
    return place / "w2v-ctc", train(CONFIG, cuts, place / "w2v-ctc", place)


def test_training_says_what_it_did(place, trained):
    folder, training = trained
    assert training["iterations"] == len(training["history"]) == CONFIG.epochs
    losses = [scalars["loss/valid"] for scalars in training["history"]]
    assert training["best_iteration"] == 1 + losses.index(min(losses))
    assert min(losses) < 0.2 * losses[0]
    model = read_w2v(folder / MODEL, TONES, 0.5, CPU).model
    extractor = num_parameters(model.network.feature_extractor)
    assert training["num_params"] == num_parameters(model)
    assert training["num_params_trained"] == num_parameters(model) - extractor
    assert training["training_seconds"] > 0
    assert list((folder / "tensorboard").iterdir())
    json.dumps(training, allow_nan=False)


def test_the_feature_extractor_stays_and_the_rest_learns(place, trained):
    before = pretrained(place / "tiny.pth", len(TONES), 0.0, 0.0).state_dict()
    after = read_tensors(trained[0] / MODEL)[0]
    assert set(before) == set(after)
    for name, value in after.items():
        assert torch.equal(value, before[name]) == ("feature_extractor" in name), name


def test_what_was_said_is_perceived_and_where(place, trained):
    cuts = tone_cuts(place / "wav", 20, seed=2)
    system = read_w2v(trained[0] / MODEL, TONES, 0.5, CPU)
    errors = []
    for cut in cuts:
        items = system.recognize(cut)
        assert [item.symbol for item in items] == cut.supervisions[0].custom["units"]
        assert all(0.5 < item.score <= 1 for item in items)
        errors += [abs(item.start - 0.2 * place) for place, item in enumerate(items)]
        errors.append(abs(items[-1].end - cut.duration))
    assert np.mean(errors) < 0.02


def test_a_unit_said_otherwise_is_flagged_in_its_place(place, trained):
    said, written = ["low", "mid", "high"], ["low", "low", "high"]
    cuts = [
        tone_cut(place / "wav", "wrong", said, written, 7),
        tone_cut(place / "wav", "right", said, said, 8),
    ]
    system = read_w2v(trained[0] / MODEL, TONES, 0.5, CPU)
    found, without = system.localize(CutSet.from_cuts(cuts))
    assert without == []
    assert [cut.id for cut in found] == ["wrong", "right"]
    for cut, text in zip(found, (written, said)):
        units, perceived = tier(cut, "mlvae"), tier(cut, "mlvae_perceived")
        assert [item.symbol for item in units] == text
        assert [item.symbol for item in perceived] == said
        assert [item.start for item in units] == pytest.approx([0, 0.2, 0.4], abs=0.03)


def test_a_margin_keeps_segments_near_their_frames(trained, cuts):
    wide, narrow = (read_w2v(trained[0] / MODEL, TONES, m, CPU) for m in (10.0, 0.0))
    cut = cuts[1][0]
    tiled, tight = wide.recognize(cut), narrow.recognize(cut)
    assert tiled[0].start == 0 and tiled[-1].end == pytest.approx(cut.duration, abs=1e-5)
    for item, following in zip(tiled[:-1], tiled[1:]):
        assert item.end == pytest.approx(following.start, abs=1e-5)
    assert sum(item.duration for item in tight) < 0.8 * cut.duration


def test_a_finished_training_is_not_repeated_and_one_of_other_settings_starts_afresh(
    place, cuts, tmp_path, monkeypatch
):
    some = (CutSet.from_cuts(list(cuts[0])[:4]), CutSet.from_cuts(list(cuts[1])[:2]))
    config = replace(CONFIG, epochs=1)
    folder = tmp_path / "run"
    first = train(config, some, folder, place)
    with monkeypatch.context() as patch:
        patch.setattr(FineTuner, "_train_epoch", lambda *_: pytest.fail("trained once more"))
        assert train(config, some, folder, place)["history"] == first["history"]
    longer = train(replace(config, epochs=2), some, folder, place)
    assert longer["history"][0] == first["history"][0] and longer["iterations"] == 2
    afresh = train(replace(config, learning_rate=1e-3), some, folder, place)
    assert afresh["iterations"] == 1 and afresh["history"] != first["history"]
    assert train(config, some, tmp_path / "other", place, seed=1)["history"] != first["history"]
    # The same settings from other weights.
    shutil.copy(place / "tiny.pth", tmp_path / "tiny.pth")
    write_checkpoint(tmp_path / "tiny.pth", seed=5)
    other = train(replace(config, learning_rate=1e-3), some, folder, tmp_path)
    assert other["iterations"] == 1 and other["history"] != afresh["history"]


def test_frozen_layers_do_not_learn(place, cuts, tmp_path):
    some = (CutSet.from_cuts(list(cuts[0])[:4]), CutSet.from_cuts(list(cuts[1])[:2]))
    train(replace(CONFIG, epochs=1, frozen_layers=1), some, tmp_path, place)
    before = pretrained(place / "tiny.pth", len(TONES), 0.0, 0.0).state_dict()
    after = read_tensors(tmp_path / MODEL)[0]
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    top = "network.encoder.transformer.layers.1."
    assert changed == {name for name in after if name.startswith((top, "network.aux."))}
    with pytest.raises(ValueError, match="frozen_layers is 3, of 2 layers"):
        freeze(pretrained(place / "tiny.pth", len(TONES), 0.0, 0.0), 3)


def test_audio_is_resampled(cuts):
    cut = cuts[0][0]
    waveform = read_waveform(cut, 16000)[0]
    assert cut.sampling_rate == RATE == 8000
    assert waveform.shape == (round(16000 * cut.duration),)
    assert waveform.dtype == torch.float32


def test_a_cut_without_use_is_named_and_the_rest_goes_on(place, cuts, tmp_path, trained, capsys):
    good = list(cuts[0])[:4]
    short = with_units(good[0], ["low"] * 40)  # too many units for CTC
    lost = tone_cut(tmp_path, "lost", ["low"], ["low"], 0)
    (tmp_path / "lost.wav").unlink()
    silent = fastcopy(good[0], id="silent", recording=None)
    few = CutSet.from_cuts([fastcopy(short, id="short"), lost, silent, *good[1:]])
    training = train(replace(CONFIG, epochs=1), (few, few), tmp_path / "run", place)
    assert training["iterations"] == 1
    said = capsys.readouterr().out
    num_frames = int(16000 * good[0].duration - 400) // 320 + 1
    assert f"left out: short: {num_frames} frames, its units take 79" in said
    assert f"left out: lost: {tmp_path}/lost.wav: no such file" in said

    assert "left out: silent: no audio" in said

    system = read_w2v(trained[0] / MODEL, TONES, 0.5, CPU)
    tiny = tone_cut(tmp_path, "tiny", ["low"], ["low"], 0).truncate(duration=0.02)
    tiny = fastcopy(tiny, id="tiny")
    found, without = system.localize(CutSet.from_cuts([lost, good[1], tiny]))
    assert ([cut.id for cut in found], without) == ([good[1].id], ["lost", "tiny"])
    said = capsys.readouterr().out
    assert f"no answer: lost: {tmp_path}/lost.wav: no such file" in said
    assert "no answer: tiny: 320 samples are too short for wav2vec 2.0" in said

    with pytest.raises(ValueError, match="w2v-ctc: no usable training cut"):
        nothing = CutSet.from_cuts([lost])
        train(CONFIG, (nothing, cuts[1]), tmp_path / "none", place)


def test_what_does_not_fit_is_named(trained, tmp_path):
    with pytest.raises(ValueError, match=r"there is no model .*model.safetensors"):
        read_w2v(tmp_path / MODEL, TONES, 0.5, CPU)
    with pytest.raises(ValueError, match="model.safetensors is of other units"):
        read_w2v(trained[0] / MODEL, UnitTable(("a", "b", "c")), 0.5, CPU)
