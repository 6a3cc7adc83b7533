from __future__ import annotations

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from mlvae.nn import SpeechGenerator, SpeechGeneratorConfig
from mlvae.nn.generator import RewardBaseline
from tests.nn.padding import batch, check_padding

NUM_UNITS, NUM_VARIANTS, NUM_FEATURES, LATENT = 4, 3, 3, 5


def generator(**changes) -> SpeechGenerator:
    torch.manual_seed(0)
    sizes = {
        "encoder_fc_size": 6,
        "encoder_lstm_layers": 2,
        "encoder_lstm_size": 7,
        "latent_size": LATENT,
        "variant_fc_size": 6,
        "correctness_fc_size": 6,
        "decoder_layers": 2,
        "decoder_size": 6,
        **changes,
    }
    return SpeechGenerator(NUM_FEATURES, NUM_UNITS, SpeechGeneratorConfig(**sizes))


def arguments(lengths=(5, 9, 1, 7)):
    """features, num_frames, unit, unit_posteriors, boundary_mean."""
    features, num_frames = batch(NUM_FEATURES, list(lengths))
    source = torch.Generator().manual_seed(1)
    shape = features.shape[:2]
    return [
        features,
        num_frames,
        torch.randint(NUM_UNITS, shape, generator=source),
        torch.rand(*shape, NUM_UNITS, generator=source).softmax(2),
        torch.rand(shape, generator=source),
    ]


def always(module: SpeechGenerator, mispronounced: bool) -> None:
    """Make q(pi_t = 1) certainly 1 or 0."""
    with torch.no_grad():
        module.correctness[-1].weight.zero_()
        module.correctness[-1].bias.fill_(1000.0 if mispronounced else -1000.0)


def number_components(module: SpeechGenerator) -> None:
    """Component v of unit u has mean 10 u + v and log-variance (10 u + v) / 100."""
    components = module.component_mean.shape[1]
    unit, variant = torch.meshgrid(torch.arange(NUM_UNITS), torch.arange(components), indexing="ij")
    number = (10.0 * unit + variant).unsqueeze(2)
    with torch.no_grad():
        module.component_mean.copy_(number.expand_as(module.component_mean))
        module.component_log_variance.copy_(number.expand_as(module.component_mean) / 100)


def test_one_component_for_each_unit_and_variant_with_numbers_of_its_own():
    module = generator()
    components = NUM_UNITS * (NUM_VARIANTS + 1)
    for table in (module.component_mean, module.component_log_variance):
        assert isinstance(table, torch.nn.Parameter)
        assert table.numel() == components * LATENT


def test_shapes():
    args = arguments()
    output = generator()(*args)
    assert output.mean.shape == output.log_variance.shape == args[0].shape
    assert output.kl.shape == output.correctness_logit.shape == args[0].shape[:2]
    for values in vars(output).values():
        assert torch.isfinite(values).all()


def test_a_correct_frame_takes_the_first_component_of_its_unit():
    module = generator()
    number_components(module)
    features, _, unit, *_ = arguments()
    mean, log_variance = module._select(features, unit, torch.zeros(2, *unit.shape))
    expected = 10.0 * unit.unsqueeze(2).expand(2, *unit.shape, LATENT)
    torch.testing.assert_close(mean, expected)
    torch.testing.assert_close(log_variance, expected / 100)


def test_a_mispronounced_frame_takes_one_variant_of_its_unit():
    module = generator()
    number_components(module)
    features, unit = torch.randn(1, 300, NUM_FEATURES), torch.arange(300).view(1, -1) % NUM_UNITS
    mean, log_variance = module._select(features, unit, torch.ones(1, 1, 300))
    variant = mean[..., 0] - 10.0 * unit
    torch.testing.assert_close(variant, variant.round(), atol=1e-4, rtol=0)  # hard, not mixed
    assert set(variant.round().flatten().tolist()) == {1.0, 2.0, 3.0}
    torch.testing.assert_close(log_variance, mean / 100)


def test_the_variant_depends_on_speech_and_unit():
    """Scores of the network outweigh the noise of the Gumbel softmax."""
    module = generator()
    number_components(module)
    last = module.variant[-1]
    features, unit = torch.zeros(1, 40, NUM_FEATURES), torch.ones(1, 40, dtype=torch.int64)
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor([0.0, 1000.0, 0.0]))
    mean, _ = module._select(features, unit, torch.ones(1, 1, 40))
    torch.testing.assert_close(mean, torch.full_like(mean, 12.0))
    scores = []
    module.variant.register_forward_hook(lambda *args: scores.append(args[2].detach()))
    with torch.no_grad():
        last.weight.normal_()
    for speech, chosen in ((features, unit), (features + 1, unit), (features, unit + 1)):
        module._select(speech, chosen, torch.ones(1, 1, 40))
    assert not torch.allclose(scores[0], scores[1])
    assert not torch.allclose(scores[0], scores[2])


@pytest.mark.parametrize("mispronounced", [False, True])
def test_kl_is_that_of_the_encoder_to_the_selected_component(mispronounced):
    module = generator(num_variants=1)
    always(module, mispronounced)
    with torch.no_grad():
        module.component_log_variance.normal_()
    args = arguments()
    features, num_frames, unit, *_ = args
    found = module(*args).kl

    hidden = module.encoder_hidden(module.encoder_lstm(module.encoder_fc(features), num_frames))
    posterior = Normal(module.latent_mean(hidden), (0.5 * module.latent_log_variance(hidden)).exp())
    component = unit, int(mispronounced)
    prior = Normal(
        module.component_mean[component], (0.5 * module.component_log_variance[component]).exp()
    )
    torch.testing.assert_close(found, kl_divergence(posterior, prior).sum(2))


def test_the_sample_has_the_mean_and_variance_that_the_encoder_says():
    module = generator()
    given = []
    module.decoder.register_forward_pre_hook(lambda _, args: given.append(args[0].detach()))
    with torch.no_grad():
        for layer, value in ((module.latent_mean, 3.0), (module.latent_log_variance, -2.0)):
            layer.weight.zero_()
            layer.bias.fill_(value)
    module(*arguments([2000]))
    (latent,) = given
    assert float(latent.mean()) == pytest.approx(3.0, abs=0.05)
    assert float(latent.var().log()) == pytest.approx(-2.0, abs=0.1)


def test_alone_and_in_a_padded_batch():
    """What is random is taken out; the variance of the encoder then is too small to matter."""
    module = generator(num_variants=1, bidirectional=True)
    always(module, True)
    module.LOG_VARIANCE_RANGE = (-100.0, 8.0)
    with torch.no_grad():
        module.latent_log_variance.weight.zero_()
        module.latent_log_variance.bias.fill_(-60.0)
    features, num_frames, unit, posteriors, boundary = arguments()
    rows = {length: row for row, length in enumerate(num_frames.tolist())}

    def run(name):
        def output(inputs, lengths):
            # A lone row is told by its length; all lengths differ.
            index = [rows[length] for length in lengths.tolist()]
            width = inputs.shape[1]
            rest = [values[index, :width] for values in (unit, posteriors, boundary)]
            return getattr(module(inputs, lengths, *rest), name)

        return output

    for name in ("mean", "log_variance", "kl", "correctness_logit"):
        check_padding(run(name), features, num_frames, contents=(0.0, 30.0, -30.0))


def test_variances_stay_in_range():
    module = generator()
    with torch.no_grad():
        for layer in (module.latent_log_variance, module.speech_log_variance):
            layer.bias.fill_(1000.0)
        module.component_log_variance.fill_(-1000.0)
    output = module(*arguments())
    low, high = module.LOG_VARIANCE_RANGE
    assert float(output.log_variance.max()) <= high
    assert torch.isfinite(output.kl).all()


def gradient_sizes(module: SpeechGenerator, loss: torch.Tensor) -> dict[str, float]:
    module.zero_grad(set_to_none=True)
    loss.backward()
    return {
        name: 0.0 if value.grad is None else float(value.grad.abs().max())
        for name, value in module.named_parameters()
    }


def test_reconstruction_and_kl_do_not_teach_q_of_pi():
    module = generator()
    output = module(*arguments())
    sizes = gradient_sizes(module, output.mean.sum() + output.log_variance.sum() + output.kl.sum())
    for name, size in sizes.items():
        assert (size == 0) is name.startswith("correctness."), name


def test_the_likelihood_of_pi_teaches_q_of_pi_alone():
    module = generator()
    sizes = gradient_sizes(module, module(*arguments()).correctness_logit.sum())
    for name, size in sizes.items():
        assert (size > 0) is name.startswith("correctness."), name


def test_no_gradient_reaches_the_other_modules():
    module = generator()
    features, num_frames, unit, posteriors, boundary = arguments()
    posteriors.requires_grad_()
    boundary.requires_grad_()
    features.requires_grad_()
    output = module(features, num_frames, unit, posteriors, boundary)
    sum(values.sum() for values in vars(output).values()).backward()
    assert posteriors.grad is None
    assert boundary.grad is None
    assert features.grad is not None


@pytest.mark.parametrize("changed", [0, 3, 4])
def test_q_of_pi_sees_speech_phone_posteriors_and_boundary(changed):
    module = generator()
    args = arguments()
    before = module.correctness_logits(args[0], args[3], args[4])
    args[changed] = args[changed] + 0.5
    assert not torch.allclose(module.correctness_logits(args[0], args[3], args[4]), before)


def test_several_samples_are_encoded_and_decoded_once():
    module = generator(num_variants=1)
    number_components(module)
    calls = []
    module.decoder.register_forward_hook(lambda *_: calls.append("decoder"))
    module.encoder_lstm.register_forward_hook(lambda *_: calls.append("encoder"))
    found = module(*arguments(), num_samples=7)
    assert calls == ["encoder", "decoder"]
    assert found.sampled.shape == found.sample_kl.shape == (7, *found.kl.shape)
    # With one variant the KL of a frame depends on its sample of pi alone, and both occur.
    mixed = (found.sampled.min(0).values == 0) & (found.sampled.max(0).values == 1)
    assert mixed.any()
    for value in (0.0, 1.0):
        chosen = torch.where(found.sampled == value, found.sample_kl, torch.nan)
        low, high = chosen.nan_to_num(1e9).min(0).values, chosen.nan_to_num(-1e9).max(0).values
        torch.testing.assert_close(low[mixed], high[mixed])


def test_samples_have_the_rate_of_q():
    module = generator()
    with torch.no_grad():
        module.correctness[-1].weight.zero_()
        module.correctness[-1].bias.fill_(-1.0986)  # q(pi = 1) = 1/4
    sampled = module(*arguments([50, 50]), num_samples=40).sampled
    assert float(sampled.mean()) == pytest.approx(0.25, abs=0.03)


def soft_arguments(unit_probs: torch.Tensor | None = None) -> dict:
    features, num_frames, _, probs, boundary = arguments()
    return {
        "features": features,
        "num_frames": num_frames,
        "unit_posteriors": (probs if unit_probs is None else unit_probs).requires_grad_(),
        "boundary": boundary.requires_grad_(),
        "temperature": 0.5,
    }


@pytest.mark.parametrize("mispronounced", [False, True])
def test_a_soft_unit_weights_the_kl_to_the_components_of_all_units(mispronounced):
    module = generator(num_variants=1)
    number_components(module)
    always(module, mispronounced)
    given = soft_arguments()
    found = module.soft(**given)
    mean, log_variance = module._encode(given["features"], given["num_frames"])
    encoded = Normal(mean, (0.5 * log_variance).exp())
    expected = 0.0
    for unit in range(NUM_UNITS):
        number = 10.0 * unit + mispronounced
        component = Normal(number, torch.tensor(number / 100 / 2).exp())
        kl = kl_divergence(encoded, component).sum(2)
        expected = expected + given["unit_posteriors"][..., unit] * kl
    torch.testing.assert_close(found.kl, expected, rtol=1e-4, atol=1e-3)


def test_soft_answers_are_differentiable_in_what_the_other_modules_say():
    module = generator()
    given = soft_arguments()
    found = module.soft(**given)
    assert ((found.sampled > 0) & (found.sampled < 1)).any()
    found.kl.sum().backward()
    for name in ("unit_posteriors", "boundary"):
        assert bool((given[name].grad.abs() > 0).any()), name


def test_to_the_baseline_a_frame_alone_gets_what_it_gets_among_others():
    torch.manual_seed(0)
    baseline, features = RewardBaseline(6, 8), torch.randn(3, 5, 6)
    found = baseline(features)
    assert found.shape == (3, 5)
    torch.testing.assert_close(baseline(features[1:2, 3:4]), found[1:2, 3:4])
    assert found.std().item() > 0


def test_the_baseline_reaches_rewards_of_tens_of_nats_in_few_steps():
    """Before it does, what it leaves of the reward is noise to q(pi)."""
    torch.manual_seed(0)
    baseline = RewardBaseline(40, 64)
    optimizer = torch.optim.Adam(baseline.parameters(), lr=2e-3)
    features = torch.randn(8, 50, 40)
    reward = -60 + 5 * features[..., 0]
    for _ in range(40):
        error = (baseline(features) - reward).pow(2).mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    assert error.item() < 0.02 * 60**2
    assert baseline(features).mean().item() == pytest.approx(-60, abs=10)
