"""Joint optimisation of the three modules: the paper's second ablation."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Beta, kl_divergence
from torch.distributions.relaxed_bernoulli import RelaxedBernoulli

from mlvae.em.algorithm import Algorithm
from mlvae.em.batches import Batch, Means
from mlvae.em.epochs import step_together
from mlvae.em.losses import estimator_loss, masked_mean, reconstruction_loss
from mlvae.nn import GeneratorOutput, SpeechGenerator


class _Soft(nn.Module):
    """The speech generator, called by its method ``soft``, as learners call modules."""

    def __init__(self, generator: SpeechGenerator) -> None:
        super().__init__()
        self.generator = generator

    def forward(self, *args: torch.Tensor | float) -> GeneratorOutput:
        return self.generator.soft(*args)


class Joint(Algorithm):
    """All three modules at every step, on the joint ELBO (Eq. joint_elbo) and the pseudo labels.

    There is no E-step. y stands by its posterior, b and pi by relaxed samples (b through its Beta),
    so that the reconstruction teaches all three modules. The loss is the mean over frames of ::

        - log p(x | h) + lambda_r KL(q(h) || p(h | y, pi)) + KL(q(y) || p(y))
        + KL(q(eta) || p(eta)) + KL(q(pi) || p(pi))
        - log q(y = c-tilde) - log p(b-bar | eta)

    where p(y) are the frequencies in the training alignment, p(eta) a Beta of mean L/T, and p(pi)
    has a constant mean; KL(q(h) || p(h | y, pi)) is its mean over q(y) and the relaxed pi.
    """

    def taught(self, name: str) -> nn.Module:
        """The module of the model that a learner trains and calls."""
        module = super().taught(name)
        return _Soft(module) if name == "generator" else module

    def iterate(self, iteration: int) -> dict[str, float]:
        """Train all modules for an epoch."""
        self.set_learning_rate(iteration)
        self.model.train()
        means = Means(self.device)
        for batch in self.batches.epoch(iteration, self.aligned, "joint", means):
            loss, parts = self.loss(batch)
            step_together(list(self.learners.values()), loss)
            means.add(**parts)
        self.model.eval()
        return means.result()

    def loss(self, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss of a batch, and its parts by name."""
        config, model, mask = self.config, self.model, batch.mask
        log_probs = self.learners["estimator"](batch.features, batch.num_frames)
        unit_probs = model.unit_probs(log_probs)

        alpha, beta = self.learners["boundary"](batch.features, batch.num_frames)
        one = torch.ones_like(alpha)  # padding may hold anything
        eta = Beta(torch.where(mask, alpha, one), torch.where(mask, beta, one))
        rate = eta.rsample().clamp(1e-6, 1 - 1e-6)
        temperature = rate.new_tensor(config.joint.temperature)
        boundary = RelaxedBernoulli(temperature, probs=rate).rsample()

        output = self.learners["generator"](
            batch.features, batch.num_frames, unit_probs, boundary, config.joint.temperature
        )
        logit = output.correctness_logit
        pi = torch.sigmoid(logit)
        prior = config.joint.mispronunciation_rate
        # KL(q(pi) || p(pi)): the cross-entropy with a constant target, less the entropy.
        kl_pi = pi * (F.logsigmoid(logit) - math.log(prior)) + (1 - pi) * (
            F.logsigmoid(-logit) - math.log1p(-prior)
        )
        log_prior = model.log_prior
        kl_unit = (log_probs.exp() * (log_probs - log_prior)).sum(2)
        kl_boundary = kl_divergence(eta, Beta(*(one * value for value in self.boundary_prior)))
        target = batch.targets.boundary
        nll_boundary = -(target * rate.log() + (1 - target) * (-rate).log1p())
        parts = {
            "reconstruction": masked_mean(
                reconstruction_loss(output.mean, output.log_variance, batch.features), mask
            ),
            "kl": masked_mean(output.kl, mask),
            "kl_unit": masked_mean(kl_unit, mask),
            "kl_boundary": masked_mean(kl_boundary, mask),
            "kl_correctness": masked_mean(kl_pi, mask),
            "estimator": estimator_loss(log_probs, batch.targets.column, config.label_smoothing),
            "boundary": masked_mean(nll_boundary, mask),
        }
        weights = {"kl": config.generator_kl_weight}
        return sum(weights.get(name, 1.0) * value for name, value in parts.items()), parts
