from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mlvae.config import load_config
from mlvae.device import num_parameters
from mlvae.nn import MlVae, MlVaeConfig
from mlvae.nn.layers import frame_mask
from mlvae.train.losses import boundary_loss, estimator_loss, generator_loss
from tests.nn.padding import batch, check_padding
from tests.train.tiny import tiny_model_config

MODULES = ("boundary", "estimator", "generator")
CONF = Path(__file__).resolve().parents[2] / "recipes" / "audiomnist" / "conf"


def tiny(silence=False, bidirectional=True, num_features=3, num_units=4, states=1) -> MlVae:
    torch.manual_seed(0)
    config = tiny_model_config(bidirectional)
    return MlVae(num_features, num_units, silence, config, states).eval()


@pytest.mark.parametrize("silence", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("states", [1, 3])
def test_posteriors_have_the_shapes_of_the_emissions_and_do_not_see_padding(
    silence, bidirectional, states
):
    model = tiny(silence, bidirectional, states=states)
    inputs, num_frames = batch(3)
    found = model(inputs, num_frames)
    assert found.units.shape == (4, 9, 4 * states + silence)
    assert found.boundary.shape == found.correctness.shape == (4, 9, 2)
    assert model.log_prior.shape == (4 * states + silence,)
    for name in ("units", "boundary", "correctness"):
        values = getattr(found, name)
        torch.testing.assert_close(values.exp().sum(2), torch.ones(4, 9))
        check_padding(lambda *a, name=name: getattr(model(*a), name), inputs, num_frames)


def test_the_second_column_is_that_of_a_start_and_of_a_mispronunciation():
    model = tiny()
    with torch.no_grad():
        model.boundary.alpha.bias.fill_(50.0)  # q(b = 1) = 50 / (50 + less than 5)
        model.generator.correctness[-1].weight.zero_()
        model.generator.correctness[-1].bias.fill_(3.0)
    found = model(*batch(3))
    assert float(found.boundary[..., 1].exp().min()) > 0.9
    expected = torch.full((4, 9), 3.0).sigmoid()
    torch.testing.assert_close(found.correctness[..., 1].exp(), expected)


def test_without_a_boundary_detector_units_start_at_one_rate():
    model = MlVae(3, 4, False, tiny_model_config(), boundary_detector=False).eval()
    model.log_boundary.copy_(torch.tensor([0.7, 0.3]).log())
    found = model(*batch(3))
    torch.testing.assert_close(found.boundary.exp(), torch.tensor([0.7, 0.3]).expand(4, 9, 2))
    assert found.correctness.shape == (4, 9, 2)  # the generator is told that rate
    assert "log_boundary" not in tiny().state_dict()


@pytest.mark.parametrize("silence", [False, True])
def test_a_unit_is_as_likely_as_its_states_together(silence):
    model = tiny(silence, states=2)
    log_probs = torch.randn(3, 5, 8 + silence).log_softmax(2)
    found, probs = model.unit_probs(log_probs), log_probs.exp()
    assert found.shape == (3, 5, 4 + silence)
    for unit in range(4):
        together = probs[..., 2 * unit] + probs[..., 2 * unit + 1]
        torch.testing.assert_close(found[..., unit], together)
    if silence:
        torch.testing.assert_close(found[..., 4], probs[..., 8])
    plain = tiny(silence)
    log_probs = torch.randn(3, 5, 4 + silence).log_softmax(2)
    torch.testing.assert_close(plain.unit_probs(log_probs), log_probs.exp())


def test_states_change_the_size_of_the_estimator_alone():
    sizes = [
        {name: num_parameters(getattr(tiny(states=states), name)) for name in MODULES}
        for states in (1, 3)
    ]
    grown = [name for name in MODULES if sizes[0][name] != sizes[1][name]]
    assert grown == ["estimator"]
    assert sizes[1]["estimator"] - sizes[0]["estimator"] == 9 * 8  # outputs: 8 inputs and a bias


def test_rate_and_confusions_before_any_are_estimated():
    model = tiny()
    torch.testing.assert_close(model.log_correctness.exp(), torch.tensor([0.85, 0.15]))
    expected = (torch.ones(4, 4) - torch.eye(4)) / 3
    torch.testing.assert_close(model.log_confusion.exp(), expected)
    assert {"log_correctness", "log_confusion", "log_prior"} <= set(model.state_dict())
    alone = tiny(num_units=1)
    assert alone.log_confusion.exp().tolist() == [[0.0]]


def test_correctness_is_finite_however_sure_the_network_is():
    model = tiny()
    with torch.no_grad():
        model.generator.correctness[-1].bias.fill_(1e4)
    found = model(*batch(3)).correctness
    assert torch.isfinite(found).all()


def test_modules_see_scaled_features():
    model = tiny()
    inputs, num_frames = batch(3)
    before = model(inputs, num_frames)
    model.scale.set(torch.full((3,), 4.0))
    after = model(inputs * 4, num_frames)
    for name in ("units", "boundary", "correctness"):
        torch.testing.assert_close(getattr(before, name), getattr(after, name))
        changed = getattr(model(inputs, num_frames), name)
        assert not torch.allclose(changed, getattr(before, name))


@pytest.fixture(scope="module")
def paper_model() -> MlVae:
    config = load_config(CONF / "paper.yaml")
    assert config.deltas
    torch.manual_seed(0)
    return MlVae(120, 10, config.silence, config.systems["ml-vae"].settings.model)


def test_the_paper_model_has_the_size_that_the_paper_gives(paper_model):
    assert num_parameters(paper_model) == pytest.approx(24e6, rel=0.03)
    # Counted by hand: LSTM 4 (in + 512 + 2) 512, two of them; 512 -> 128 -> 128; two outputs.
    lstm = 4 * 512 * ((120 + 512 + 2) + (512 + 512 + 2))
    hidden = 513 * 128 + 129 * 128
    assert num_parameters(paper_model.boundary) == lstm + hidden + 2 * 129
    assert num_parameters(paper_model.estimator) == lstm + hidden + 129 * 10
    generator = paper_model.generator
    assert generator.component_mean.shape == (10, 4, 32)
    assert len(generator.decoder.layers) == 4
    assert generator.decoder.output_size == 1024
    assert generator.speech_mean.out_features == generator.speech_log_variance.out_features == 120


def test_the_paper_model_takes_a_step(paper_model):
    features, num_frames = batch(120, [12, 7])
    mask = frame_mask(num_frames, 12)
    unit = torch.where(mask, torch.arange(24).view(2, 12) % 10, torch.tensor(-100))
    start = (torch.arange(12) % 4 == 0).float().expand(2, 12)
    model = paper_model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def losses() -> list[float]:
        torch.manual_seed(1)
        optimizer.zero_grad()
        log_probs = model.estimator(features, num_frames)
        alpha, beta = model.boundary(features, num_frames)
        output = model.generator(
            features, num_frames, log_probs.argmax(2), log_probs.exp(), alpha / (alpha + beta)
        )
        parts = [
            estimator_loss(log_probs, unit),
            boundary_loss(alpha, beta, start, mask, (0.5, 9.5), 0.01),
            generator_loss(output, features, start, mask, 1.0, 0.001)[0],
        ]
        sum(parts).backward()
        optimizer.step()
        return [float(part.detach()) for part in parts]

    before, after = losses(), losses()
    assert all(new < old for old, new in zip(before, after)), (before, after)


def test_the_defaults_are_the_paper_model(paper_model):
    model = MlVae(120, 10, False, MlVaeConfig())
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    assert shapes == {name: value.shape for name, value in paper_model.state_dict().items()}
