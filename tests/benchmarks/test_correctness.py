"""What q(pi) and its reward say of right and wrong units, on models whose hypothesis is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from lhotse import CutSet

from benchmarks import correctness
from mlvae.nn import MlVae
from tests.train.tiny import NUM_FEATURES, TABLE, dataset, make_cut, tiny_model_config

# Two units a cut, three frames each; the second of "b" is wrong.
UNITS = {"a": [(0, 3, False), (3, 6, False)], "b": [(0, 3, False), (3, 6, True)]}


@pytest.fixture
def cuts():
    rng = np.random.default_rng(0)
    return CutSet.from_cuts(
        make_cut(name, rng.standard_normal((6, NUM_FEATURES)), ["a", "c"]) for name in UNITS
    )


@pytest.fixture
def model():
    """A model without an opinion: q(pi = 1) is a quarter, and all components are the same."""
    torch.manual_seed(0)
    model = MlVae(NUM_FEATURES, len(TABLE), False, tiny_model_config())
    with torch.no_grad():
        model.generator.component_mean.zero_()
        model.generator.correctness[1].weight.zero_()
        model.generator.correctness[1].bias.fill_(math.log(1 / 3))
    return model


def measure(model, cuts):
    return correctness.measure(model, cuts, dataset(), UNITS, num_draws=2, seed=0)


def test_a_model_without_an_opinion(model, cuts):
    found = measure(model, cuts)
    assert (found.rate_right, found.rate_wrong) == pytest.approx((0.25, 0.25))
    assert (found.gain_right, found.gain_wrong) == pytest.approx((0.0, 0.0), abs=1e-6)


def test_variants_that_fit_worse_everywhere_have_a_negative_gain(model, cuts):
    with torch.no_grad():
        model.generator.component_mean[:, 1:] = 50.0
    found = measure(model, cuts)
    assert found.gain_right < -100 and found.gain_wrong < -100
    with torch.no_grad():
        model.generator.component_mean[:, 1:] = 0.0
        model.generator.component_mean[:, 0] = 50.0
    found = measure(model, cuts)
    assert found.gain_right > 100 and found.gain_wrong > 100


def test_a_correctness_that_knows_the_wrong_unit(model, cuts, monkeypatch):
    def knowing(features, *_):
        logit = torch.full(features.shape[:2], -2.0)
        own = [float(cut.load_features()[3, 0]) for cut in cuts if cut.id == "b"]
        scaled = (features[:, 3, 0] - own[0]).abs()
        logit[int(scaled.argmin()), 3:] = 2.0
        return logit

    monkeypatch.setattr(model.generator, "correctness_logits", knowing)
    found = measure(model, cuts)
    assert found.area_rate == 1
    assert (found.rate_right, found.rate_wrong) == pytest.approx((0.1192, 0.8808), abs=1e-4)


def test_nothing_to_compare_is_told(model, cuts, monkeypatch):
    monkeypatch.setitem(UNITS, "b", [(0, 6, False)])
    with pytest.raises(ValueError, match="no right units, or no wrong ones"):
        measure(model, cuts)


def test_a_system_without_a_speech_generator_is_refused(model, cuts):
    model.generator = None
    with pytest.raises(ValueError, match="without a speech generator has no"):
        measure(model, cuts)


def test_a_missing_experiment_is_one_line(tmp_path, capsys):
    config = tmp_path / "a.yaml"
    sections = "systems:\n  ml-vae: {kind: ml_vae, model: {boundary: {lstm_size: 8}}}\n"
    sections += "  ml-vae-rl: {base: ml-vae}\n"
    config.write_text(sections)
    folders = ["--data-dir", str(tmp_path), "--exp-dir", str(tmp_path), "--config", str(config)]
    assert correctness.main(folders) == 1
    err = capsys.readouterr().err
    assert err.startswith("correctness.py: ") and "tokens.txt" in err and err.count("\n") == 1
