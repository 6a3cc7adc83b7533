"""How often units are mispronounced, and as what: the M-step of the ML-FSA's own parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch

from mlvae.fsa import UnitSpan


def estimate_confusions(
    spans: Mapping[str, Iterable[UnitSpan]],
    num_units: int,
    units_of_prior: float = 20.0,
    prior_rate: float = 0.15,
    pseudo_count: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Estimate p(pi) and p(heard | canonical, mispronounced) from best paths.

    A rate of mispronunciation that is learned from its own decisions can run away; it is held by a
    prior worth some units, and every competitor by a pseudo-count.

    Args:
        spans: best paths by cut; spans whose ``heard`` is not known count for the rate alone.
        num_units: N.
        units_of_prior: how many units the prior of the rate is worth.
        prior_rate: its mean.
        pseudo_count: added to each pair of different units.

    Returns:
        log p(pi = 0) and log p(pi = 1), float32 (2,); and log p(heard | canonical, mispronounced),
        float32 (N, N), -inf on the diagonal, rows summing to one.
    """
    counts = torch.full((num_units, num_units), pseudo_count, dtype=torch.float64)
    counts.fill_diagonal_(0.0)
    total, wrong = units_of_prior, units_of_prior * prior_rate
    for utterance in spans.values():
        for span in utterance:
            if span.kind != "unit":
                continue
            total += 1
            wrong += span.mispronounced
            if span.mispronounced and span.heard >= 0:
                counts[span.unit, span.heard] += 1
    rate = wrong / total
    correctness = torch.tensor([1 - rate, rate], dtype=torch.float64).log()
    confusion = (counts / counts.sum(1, keepdim=True).clamp(min=1e-300)).log()
    return correctness.float(), confusion.fill_diagonal_(-math.inf).float()
