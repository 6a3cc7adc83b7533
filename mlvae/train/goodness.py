"""Goodness of pronunciation by posteriors; what it is, :mod:`mlvae.systems.gop` says."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F

#: A log posterior below this one counts as this one, as that of 0 would.
LOG_ZERO = -1e4


class Goodness(NamedTuple):
    """Goodness of pronunciation of L units; of a unit without frames NaN, and -1.

    Attributes:
        gop: float64 (L,), mean log posterior, at most 0.
        ratio: float64 (L,), less that of the best other unit; infinite where there is no other.
        best_other: int64 (L,), that unit.
    """

    gop: torch.Tensor
    ratio: torch.Tensor
    best_other: torch.Tensor


def goodness_of_pronunciation(
    log_probs: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, units: torch.Tensor
) -> Goodness:
    """Goodness of pronunciation of the units of an utterance; see :mod:`mlvae.systems.gop`.

    Args:
        log_probs: float (T, N), log posteriors of units by frame, on any device. They may sum to
            less than one (silence).
        starts: int64 (L,), first frame of each unit, in any order.
        ends: int64 (L,), the frame after its last one, from its start up to T.
        units: int64 (L,), from 0 to N - 1, whose goodness is asked for.

    Returns:
        :class:`Goodness` on the device of ``log_probs``.

    Example:
        >>> log_probs = torch.tensor([[-1.0, -2.0], [-4.0, -0.5]])
        >>> found = goodness_of_pronunciation(log_probs, *torch.tensor([[0, 1], [1, 2], [0, 0]]))
        >>> found.gop.tolist(), found.ratio.tolist(), found.best_other.tolist()
        ([-1.0, -4.0], [1.0, -3.5], [1, 1])
    """
    return compare_units(mean_log_probs(log_probs, starts, ends), units)


def mean_log_probs(
    log_probs: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor
) -> torch.Tensor:
    """Mean log posteriors of all units in L spans: float64 (L, N), NaN where there is no frame.

    Arguments as in :func:`goodness_of_pronunciation`.
    """
    starts, ends = starts.to(log_probs.device), ends.to(log_probs.device)
    total = F.pad(log_probs.double().clamp(min=LOG_ZERO).cumsum(0), (0, 0, 1, 0))
    return (total[ends] - total[starts]) / (ends - starts).unsqueeze(1)


def compare_units(mean: torch.Tensor, units: torch.Tensor) -> Goodness:
    """Goodness of pronunciation of L units, from mean log posteriors.

    Args:
        mean: float64 (L, N), of :func:`mean_log_probs`.
        units: int64 (L,), from 0 to N - 1, whose goodness is asked for.

    Returns:
        :class:`Goodness` on the device of ``mean``.
    """
    column = units.to(mean.device).unsqueeze(1)
    gop = mean.gather(1, column).squeeze(1)
    other, best = mean.scatter(1, column, -torch.inf).max(1)
    return Goodness(gop, gop - other, torch.where(gop.isnan(), -1, best))


def unit_log_probs(
    log_probs: torch.Tensor, num_units: int, states_per_unit: int = 1
) -> torch.Tensor:
    """Log posteriors of units from those of their states.

    Args:
        log_probs: float (..., N * S [+ 1]), by unit and state; a last column (silence) is left out.
        num_units: N.
        states_per_unit: S.

    Returns:
        float (..., N).
    """
    states = log_probs[..., : num_units * states_per_unit]
    return states.unflatten(-1, (num_units, states_per_unit)).logsumexp(-1)
