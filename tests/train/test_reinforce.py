"""ML-VAE-RL: what the reward does to q(pi)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import mlvae.train.algorithms
from mlvae.nn import GeneratorOutput
from mlvae.train.algorithms import frame_rewards, policy_loss
from mlvae.train.estep import EStepResult
from mlvae.train.losses import frame_losses, generator_loss
from tests.train.tiny import NUM_FEATURES, spoken_cuts
from tests.train.trainers import CONFIG, make_trainer

RL = replace(CONFIG, algorithm="reinforce", learning_rate=0.01, correctness_weight=0.0)


@pytest.fixture(scope="module")
def cuts():
    return spoken_cuts(16)[0], spoken_cuts(6, seed=1)[0]


class Toy:
    """Speech whose likely component is known: the variants' where feature 0 is above 0.5.

    Latents and components are given and stay as they are; q(pi) is the real network.
    """

    def __init__(self, cuts, folder, config=RL) -> None:
        self.algorithm = make_trainer(cuts, folder, config).algorithm
        generator = self.algorithm.model.generator
        generator._encode = self.encode
        with torch.no_grad():
            generator.component_mean[:, 0] = -2.0
            generator.component_mean[:, 1:] = 2.0
        for parameter in (generator.component_mean, generator.component_log_variance):
            parameter.requires_grad_(False)

    @staticmethod
    def wrong(features: torch.Tensor) -> torch.Tensor:
        return features[..., 0] > 0.5

    def encode(self, features, num_frames):
        mean = torch.where(self.wrong(features), 2.0, -2.0).unsqueeze(2).expand(-1, -1, 4)
        return mean, torch.zeros_like(mean)

    def train(self, epochs: int) -> dict[str, float]:
        assignments = EStepResult(self.algorithm.aligned, 0.0, 0.0)
        for epoch in range(epochs):
            scalars = self.algorithm.train_generator(epoch, assignments)
        return scalars

    def rates(self) -> tuple[float, float]:
        """Mean q(pi = 1) where the variants are likely, and elsewhere."""
        wrong, right = [], []
        model = self.algorithm.model
        for batch in self.algorithm.batches.epoch(0, self.algorithm.aligned, ""):
            with torch.no_grad():
                units = model.unit_probs(model.estimator(batch.features, batch.num_frames))
                alpha, beta = model.boundary(batch.features, batch.num_frames)
                logit = model.generator.correctness_logits(
                    batch.features, units, alpha / (alpha + beta)
                )
            mark = self.wrong(batch.features)
            wrong.append(logit.sigmoid()[mark & batch.mask])
            right.append(logit.sigmoid()[~mark & batch.mask])
        return float(torch.cat(wrong).mean()), float(torch.cat(right).mean())


def test_the_reward_moves_q_of_pi_to_what_makes_speech_likely(cuts, tmp_path):
    toy = Toy(cuts, tmp_path)
    before = toy.rates()
    assert all(0.3 < rate < 0.7 for rate in before)
    first, last = toy.train(1), toy.train(40)
    wrong, right = toy.rates()
    assert wrong > 0.8 and right < 0.05
    assert last["loss/kl"] < 0.5 * first["loss/kl"]
    assert last["loss/baseline"] < first["loss/baseline"]
    assert last["loss/entropy"] < first["loss/entropy"]


def test_with_the_sign_as_printed_it_would_move_the_other_way(cuts, tmp_path, monkeypatch):
    monkeypatch.setattr(
        mlvae.train.algorithms, "frame_rewards", lambda *args: -frame_rewards(*args)
    )
    toy = Toy(cuts, tmp_path)
    toy.train(40)
    wrong, right = toy.rates()
    assert wrong < 0.2 and right > 0.9


def test_without_a_difference_in_reward_the_targets_of_the_search_decide(cuts, tmp_path):
    toy = Toy(cuts, tmp_path, replace(RL, correctness_weight=1.0, learning_rate=0.05))
    with torch.no_grad():
        toy.algorithm.model.generator.component_mean.zero_()
    toy.train(8)  # nothing is mispronounced in these targets
    assert max(toy.rates()) < 0.15


def test_the_baseline_learns_from_features_alone_and_teaches_nobody(cuts, tmp_path):
    algorithm = make_trainer(cuts, tmp_path, RL).algorithm
    baseline = algorithm.modules["baseline"]
    given = []
    baseline.register_forward_pre_hook(lambda module, args: given.append(args))
    before = [value.detach().clone() for value in baseline.parameters()]
    algorithm.train_generator(0, EStepResult(algorithm.aligned, 0.0, 0.0))
    assert all(len(args) == 1 and not args[0].requires_grad for args in given)
    assert given[0][0].shape[2] == NUM_FEATURES
    assert any(not torch.equal(a, b) for a, b in zip(before, baseline.parameters()))
    # Its error is no part of what the generator is trained on, nor the reverse.
    mine = {id(p) for p in baseline.parameters()}
    assert mine.isdisjoint(map(id, algorithm.model.parameters()))
    (group,) = algorithm.learners["baseline"].optimizer.param_groups
    assert {id(p) for p in group["params"]} == mine


def output(samples: int = 3) -> GeneratorOutput:
    source = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=source)

    sampled = (draw(samples, 2, 4) > 0).float()
    sample_kl = draw(samples, 2, 4).exp()
    return GeneratorOutput(draw(2, 4, 5), draw(2, 4, 5), draw(2, 4), sampled, sample_kl)


def test_the_reward_is_the_negative_loss_of_a_frame():
    found = output()
    features, wrong = torch.randn(2, 4, 5), torch.tensor([[0.0, 1, 1, 0], [1, 0, 0, 0]])
    reward = frame_rewards(found, features, wrong, 0.7, 0.2)
    assert reward.shape == found.sample_kl.shape
    mask = torch.ones(2, 4, dtype=torch.bool)
    loss, _ = generator_loss(found, features, wrong, mask, 0.7, 0.2)
    torch.testing.assert_close(-reward.mean(), loss)
    nll, correctness = frame_losses(found, features, wrong)
    expected = nll[1, 2] + 0.7 * found.sample_kl[2, 1, 2] + 0.2 * correctness[1, 2]
    torch.testing.assert_close(-reward[2, 1, 2], expected)


def gradient(advantage, sampled, logit=0.0, entropy_weight=0.0) -> float:
    """d loss / d logit of one frame; the second frame does not count."""
    logits = torch.tensor([[logit, 0.3]], requires_grad=True)
    pad = [[[value, 99.0]] for value in advantage]
    mask = torch.tensor([[True, False]])
    samples = torch.tensor([[[value, 1.0]] for value in sampled])
    loss, _ = policy_loss(logits, samples, torch.tensor(pad), mask, entropy_weight)
    loss.backward()
    assert logits.grad[0, 1] == 0
    return float(logits.grad[0, 0])


def test_gradient_of_the_score_function():
    # Both values once, each with probability one half: the exact gradient, -p (1 - p) (A1 - A0),
    # where the standard deviation of the rewards is 1.
    assert gradient([1.0, 3.0], [0.0, 1.0]) == pytest.approx(-0.25 * 2.0)
    # What is common to all samples cancels where both values were drawn.
    assert gradient([101.0, 103.0], [0.0, 1.0]) == pytest.approx(-0.25 * 2.0, abs=1e-4)
    chance = 0.7310586
    assert gradient([1.0, 3.0], [1.0, 1.0], logit=1.0) == pytest.approx(-2 * (1 - chance), rel=1e-5)
    assert gradient([1.0, 3.0], [0.0, 0.0], logit=1.0) == pytest.approx(2 * chance, rel=1e-5)


def test_the_scale_of_the_reward_does_not_count():
    samples = [0.0, 1.0]
    for scale in (1.0, 50.0):
        assert gradient([scale, 3 * scale], samples) == pytest.approx(-0.5, rel=1e-5)
    # All alike: nothing to divide by, and the mean is not taken away.
    assert gradient([0.0, 0.0], samples) == 0.0
    assert gradient([2.0, 2.0], [1.0, 1.0]) < -1e5


@pytest.mark.parametrize("logit", [-3.0, 0.0, 0.8])
def test_entropy(logit):
    logits = torch.full((1, 2), logit, requires_grad=True)
    nothing = torch.zeros(1, 1, 2)
    mask = torch.ones(1, 2, dtype=torch.bool)
    loss, parts = policy_loss(logits, nothing, nothing, mask, 0.05)
    expected = torch.distributions.Bernoulli(logits=torch.tensor(logit)).entropy()
    torch.testing.assert_close(parts["entropy"], expected)
    torch.testing.assert_close(loss.detach(), -0.05 * expected)
    loss.backward()
    assert torch.sign(logits.grad[0, 0]) == torch.sign(torch.tensor(logit))  # towards one half
