from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Beta, Normal, kl_divergence

from mlvae.nn import GeneratorOutput
from mlvae.nn.layers import frame_mask
from mlvae.train.losses import boundary_loss, estimator_loss, generator_loss, masked_mean
from mlvae.train.targets import IGNORE

LENGTHS = torch.tensor([3, 5])
MASK = frame_mask(LENGTHS, 5)


def test_masked_mean():
    values = torch.tensor([[1.0, 2.0, 100.0], [4.0, 5.0, 6.0]])
    mask = torch.tensor([[True, True, False], [False, False, True]])
    assert float(masked_mean(values, mask)) == pytest.approx(3.0)
    assert float(masked_mean(values, torch.zeros_like(mask))) == 0.0


def test_estimator_loss_is_the_mean_over_labelled_frames():
    torch.manual_seed(0)
    log_probs = torch.randn(2, 5, 4).log_softmax(2)
    unit = torch.tensor([[1, 1, 0, IGNORE, IGNORE], [3, IGNORE, 2, 2, 0]])
    terms = [
        -log_probs[row, frame, unit[row, frame]].item()
        for row in range(2)
        for frame in range(5)
        if unit[row, frame] != IGNORE
    ]
    assert len(terms) == 7
    assert float(estimator_loss(log_probs, unit)) == pytest.approx(sum(terms) / 7)


def test_boundary_likelihood_is_its_expectation_on_average():
    """E[log eta] under Beta(a, b) is digamma(a) - digamma(a + b)."""
    torch.manual_seed(0)
    alpha, beta = torch.rand(2, 5) * 3 + 0.5, torch.rand(2, 5) * 3 + 0.5
    boundary = torch.tensor([[1.0, 0, 0, 1, 0], [1, 0, 1, 0, 0]])
    draws = torch.stack(
        [boundary_loss(alpha, beta, boundary, MASK, (1.0, 9.0), 0.0) for _ in range(4000)]
    )
    total = torch.digamma(alpha + beta)
    expected = boundary * (torch.digamma(alpha) - total)
    expected += (1 - boundary) * (torch.digamma(beta) - total)
    expected = -expected[MASK].mean()
    error = float(draws.std()) / math.sqrt(len(draws))
    assert float(draws.mean()) == pytest.approx(float(expected), abs=4 * error)
    assert error < 0.02
    assert float(draws.std()) > 0.05  # eta is sampled, not its mean taken


def test_boundary_kl_is_weighted_and_taken_to_the_prior():
    alpha, beta = torch.rand(2, 5) + 0.5, torch.rand(2, 5) + 0.5
    boundary = torch.zeros(2, 5)
    prior = (0.8, 9.2)

    def loss(weight: float) -> float:
        torch.manual_seed(0)
        return float(boundary_loss(alpha, beta, boundary, MASK, prior, weight))

    kl = kl_divergence(Beta(alpha, beta), Beta(torch.tensor(prior[0]), torch.tensor(prior[1])))
    assert loss(0.5) - loss(0.0) == pytest.approx(0.5 * float(kl[MASK].mean()), rel=1e-4)


def test_boundary_loss_teaches_through_the_sample():
    """Gradient descent on the loss brings the mean to the label."""
    torch.manual_seed(0)
    raw = torch.zeros(2, 1, 2, requires_grad=True)
    boundary = torch.tensor([[1.0, 0.0]])
    optimizer = torch.optim.Adam([raw], lr=0.1)
    for _ in range(150):
        alpha, beta = torch.nn.functional.softplus(raw)
        mask = torch.ones(1, 2, dtype=torch.bool)
        loss = boundary_loss(alpha, beta, boundary, mask, (1.0, 9.0), 0.01)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    mean = (alpha / (alpha + beta)).detach().flatten()
    assert float(mean[0]) > 0.8
    assert float(mean[1]) < 0.2


def output_of(seed: int = 0) -> GeneratorOutput:
    torch.manual_seed(seed)
    return GeneratorOutput(
        torch.randn(2, 5, 3),
        torch.randn(2, 5, 3),
        torch.randn(2, 5),
        torch.zeros(1, 2, 5),
        torch.rand(1, 2, 5),
    )


def test_generator_loss_against_distributions():
    output, features = output_of(), torch.randn(2, 5, 3)
    wrong = torch.tensor([[1.0, 1, 0, 0, 0], [0, 0, 1, 0, 0]])
    loss, parts = generator_loss(output, features, wrong, MASK, 2.0, 0.3)
    speech = Normal(output.mean, (0.5 * output.log_variance).exp())
    nll = -speech.log_prob(features).sum(2)[MASK].mean()  # summed over dimensions
    chance = output.correctness_logit.sigmoid()
    right = torch.where(wrong == 1, chance, 1 - chance).log()
    expected = {
        "reconstruction": nll,
        "kl": output.kl[MASK].mean(),
        "correctness": -right[MASK].mean(),
    }
    assert parts.keys() == expected.keys()
    for name, value in expected.items():
        assert float(parts[name]) == pytest.approx(float(value), rel=1e-5), name
    weights = {"reconstruction": 1.0, "kl": 2.0, "correctness": 0.3}
    total = sum(weights[name] * float(value) for name, value in expected.items())
    assert float(loss) == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("content", [1e3, -1e3])
def test_padding_never_counts(content):
    """Neither in values nor in gradients, whatever the networks say of it."""
    padding = ~MASK

    def losses(fill: float | None):
        output, features = output_of(), torch.ones(2, 5, 3)
        torch.manual_seed(1)
        alpha, beta = torch.rand(2, 5) + 0.5, torch.rand(2, 5) + 0.5
        log_probs = torch.randn(2, 5, 4)
        unit = torch.ones(2, 5, dtype=torch.int64).masked_fill(padding, IGNORE)
        wrong, boundary = torch.zeros(2, 5), torch.zeros(2, 5)
        kl = output.kl
        shown = [output.mean, output.log_variance, kl, output.correctness_logit]
        inputs = [*shown, alpha, beta, log_probs]
        if fill is not None:
            for values in (*inputs, features):
                values[padding] = fill
            output.log_variance[padding] = max(min(fill, 8.0), -8.0)  # the network clamps it
            for values in (wrong, boundary):
                values[padding] = 1.0
        for values in inputs:
            values.requires_grad_()
        output.sample_kl = kl.unsqueeze(0)
        torch.manual_seed(2)
        found = [
            generator_loss(output, features, wrong, MASK, 1.0, 1.0)[0],
            boundary_loss(alpha, beta, boundary, MASK, (1.0, 9.0), 0.1),
            estimator_loss(log_probs, unit),
        ]
        sum(found).backward()
        return [float(value) for value in found], [values.grad for values in inputs]

    expected, gradients = losses(None)
    found, others = losses(content)
    # The draw of one frame may depend on how many numbers those before it took.
    assert found[0] == pytest.approx(expected[0])
    assert found[2] == pytest.approx(expected[2])
    assert math.isfinite(found[1])
    for gradient in others:
        assert not gradient[padding].any()
        assert torch.isfinite(gradient).all()
    assert all(gradient[MASK].any() for gradient in gradients)


def test_boundary_padding_may_even_be_no_distribution():
    alpha = torch.full((2, 5), 1.5)
    alpha[~MASK] = -1.0
    loss = boundary_loss(alpha, alpha, torch.zeros(2, 5), MASK, (1.0, 9.0), 1.0)
    assert torch.isfinite(loss)
