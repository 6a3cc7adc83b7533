"""The probability that something else was said than a unit: that of all others together."""

from __future__ import annotations

import math

import torch

#: Floor of 1 - q(c): a saturated estimator must not make a mispronunciation impossible.
MISMATCH_FLOOR = 1e-5

#: Log of a probability of zero where -inf would make gradients NaN.
LOWEST = -1e4


def floored(log_probs: torch.Tensor) -> torch.Tensor:
    """Log-probabilities with the floor of ``MISMATCH_FLOOR`` for the value, not the gradient."""
    at_floor = log_probs - log_probs.detach() + math.log(MISMATCH_FLOOR)
    return torch.where(log_probs < math.log(MISMATCH_FLOOR), at_floor, log_probs)


def log_sum_of_others(log_probs: torch.Tensor, num_units: int) -> torch.Tensor:
    """For each unit, log of the probability of all other units, floored at 1e-5.

    Computed as total minus own, which equals a logsumexp over the others: the total is kept as the
    nearest float and the rest that is missing from it, so that rounding does not show in the
    difference, however little is left. The floor holds for the value alone. The gradient stays that
    of the logsumexp, so that an estimator which is all but sure of a unit can still be told that it
    is wrong.

    Args:
        log_probs: float32 (R, N * S), unit by unit.
        num_units: N.

    Returns:
        float32 (R, N).
    """
    probs = log_probs.exp()
    if log_probs.shape[-1] > num_units:
        probs = probs.unflatten(-1, (num_units, -1)).sum(-1)
    # Some rows at a time, because torch makes a copy in double precision.
    total = [rows.sum(-1, keepdim=True, dtype=torch.float64) for rows in probs.split(4096)]
    total = torch.cat(total)
    nearest = total.float()
    rest = (total - nearest).float()
    if not probs.requires_grad:
        others = torch.sub(nearest, probs, out=probs).add_(rest)
        return others.clamp_(min=MISMATCH_FLOOR).log_()
    others = (nearest - probs).add_(rest)
    result = others.clamp(min=MISMATCH_FLOOR).log_()
    below = others < MISMATCH_FLOOR
    if bool(below.any()):
        unfloored = _unfloored(log_probs, others)
        floored = unfloored - unfloored.detach() + math.log(MISMATCH_FLOOR)
        result = torch.where(below, floored, result)
    return result


def _unfloored(log_probs: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Log of ``others`` (..., N), also where it is too little for a float.

    That can only be so for the likeliest unit: to any other the likeliest is one of the others.
    """
    units = log_probs.clamp(min=LOWEST).unflatten(-1, (others.shape[-1], -1)).logsumexp(-1)
    likeliest = torch.zeros_like(units, dtype=torch.bool)
    likeliest.scatter_(-1, units.argmax(-1, keepdim=True), True)
    rest = units.masked_fill(likeliest, LOWEST).logsumexp(-1, keepdim=True)
    return torch.where(likeliest, rest, others.clamp(min=torch.finfo(others.dtype).tiny).log())
