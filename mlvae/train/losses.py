"""M-step losses of the paper, as means over frames."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch.distributions import Beta, kl_divergence

from mlvae.nn import GeneratorOutput
from mlvae.train.targets import IGNORE


def masked_mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean of ``values``, (B, T), over the frames of ``mask``, bool (B, T).

    Frames that do not count may hold anything finite.
    """
    return (values * mask).sum() / mask.sum().clamp(min=1)


def estimator_loss(
    log_probs: torch.Tensor, target: torch.Tensor, label_smoothing: float = 0.0
) -> torch.Tensor:
    """Negative log-likelihood of the pseudo labels (Eq. loss_p).

    Args:
        log_probs: (B, T, N), log q(y_t | x_t).
        target: int64 (B, T), outputs of the aligned canonical units; ``IGNORE`` where none.
        label_smoothing: fraction of a target's probability that is spread over all outputs.

    Returns:
        Scalar, the mean over frames with a target.
    """
    return F.cross_entropy(
        log_probs.flatten(0, 1),
        target.flatten(),
        ignore_index=IGNORE,
        label_smoothing=label_smoothing,
    )


def boundary_loss(
    alpha: torch.Tensor,
    beta: torch.Tensor,
    boundary: torch.Tensor,
    mask: torch.Tensor,
    prior: tuple[float, float],
    kl_weight: float,
) -> torch.Tensor:
    """Likelihood of the aligned boundaries under a sampled eta_t, and KL to the prior (Eq. loss_b).

    Args:
        alpha: (B, T), of q(eta_t | x_t).
        beta: (B, T), of q(eta_t | x_t).
        boundary: float (B, T), b-bar_t.
        mask: bool (B, T), frames that count.
        prior: alpha and beta of p(eta).
        kl_weight: lambda_b.
    """
    posterior, rate = sampled_rate(alpha, beta, mask)
    nll, kl = boundary_terms(posterior, rate, boundary, prior)
    return masked_mean(kl_weight * kl + nll, mask)


def sampled_rate(
    alpha: torch.Tensor, beta: torch.Tensor, mask: torch.Tensor
) -> tuple[Beta, torch.Tensor]:
    """q(eta_t | x_t) and a sample of it, (B, T), that gradients go through.

    Args:
        alpha: (B, T), of q(eta_t | x_t).
        beta: (B, T), of q(eta_t | x_t).
        mask: bool (B, T), frames that count; in others q(eta) is uniform.
    """
    # Padding may hold anything, and a distribution refuses bad parameters.
    one = torch.ones_like(alpha)
    posterior = Beta(torch.where(mask, alpha, one), torch.where(mask, beta, one))
    return posterior, posterior.rsample().clamp(1e-6, 1 - 1e-6)


def boundary_terms(
    posterior: Beta, rate: torch.Tensor, boundary: torch.Tensor, prior: tuple[float, float]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each frame, -log p(b-bar_t | eta_t) and KL(q(eta_t | x_t) || p(eta)), (B, T) each.

    Args:
        posterior: q(eta_t | x_t) by :func:`sampled_rate`.
        rate: the sample of eta_t, (B, T).
        boundary: float (B, T), b-bar_t.
        prior: alpha and beta of p(eta).
    """
    nll = -(boundary * rate.log() + (1 - boundary) * (-rate).log1p())
    one = torch.ones_like(rate)
    return nll, kl_divergence(posterior, Beta(*(one * value for value in prior)))


def reconstruction_loss(
    mean: torch.Tensor, log_variance: torch.Tensor, features: torch.Tensor
) -> torch.Tensor:
    """-log p(x_t | h_t) of each frame, (B, T), summed over dimensions; arguments (B, T, F)."""
    error = (features - mean).pow(2) * (-log_variance).exp()
    return 0.5 * (error + log_variance + math.log(2 * math.pi)).sum(2)


def frame_losses(
    output: GeneratorOutput, features: torch.Tensor, mispronounced: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each frame, -log p(x_t | h_t) and -log q(pi_t = pi-hat_t), (B, T) each.

    Args:
        output: what the speech generator gave.
        features: (B, T, F), the speech to reconstruct, scaled.
        mispronounced: float (B, T), pi-hat of the E-step.
    """
    correctness = F.binary_cross_entropy_with_logits(
        output.correctness_logit, mispronounced, reduction="none"
    )
    return reconstruction_loss(output.mean, output.log_variance, features), correctness


def generator_loss(
    output: GeneratorOutput,
    features: torch.Tensor,
    mispronounced: torch.Tensor,
    mask: torch.Tensor,
    kl_weight: float,
    correctness_weight: float,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """L_h = L_r + lambda_l L_l (Eqs. loss_r, loss_h, loss_l).

    Args:
        output: what the speech generator gave.
        features: (B, T, F), the speech to reconstruct, scaled.
        mispronounced: float (B, T), pi-hat of the E-step.
        mask: bool (B, T), frames that count.
        kl_weight: lambda_r.
        correctness_weight: lambda_l.

    Returns:
        The loss, and its detached parts ``reconstruction``, ``kl`` and ``correctness``.
    """
    nll, correctness = frame_losses(output, features, mispronounced)
    parts = {
        "reconstruction": masked_mean(nll, mask),
        "kl": masked_mean(output.kl, mask),
        "correctness": masked_mean(correctness, mask),
    }
    loss = (
        parts["reconstruction"]
        + kl_weight * parts["kl"]
        + correctness_weight * parts["correctness"]
    )
    return loss, {name: value.detach() for name, value in parts.items()}
