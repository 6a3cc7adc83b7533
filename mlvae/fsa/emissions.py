"""From network posteriors to the scores of an acceptor's arcs.

The score of a frame is that of Appendix "MAP estimation" of the paper (its equations map_deriv and
map2): the unit's scaled likelihood q(y)/p(y), times q(b) of the boundary detector, times q(pi) of
the speech generator where a unit starts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import k2
import torch

from .checks import checked_shapes, checked_values
from .layout import ColumnLayout

#: q(b_t = 1) and q(pi_t = 1) where the caller has no network for them.
CONSTANT_BOUNDARY_RATE = 0.1
CONSTANT_MISPRONUNCIATION_RATE = 0.15

#: Floor of 1 - q(c), and of q(any unit): a saturated estimator must not make a mispronunciation or
#: a filler impossible.
MISMATCH_FLOOR = 1e-5


@dataclass
class Emissions:
    """Scores of a batch, ready for intersection, and what is needed to read the answers.

    Attributes:
        dense: the scores as k2 wants them, longest utterance first.
        order: int64 (B,) on CPU; ``order[i]`` is the caller's index of the i-th longest.
        num_frames: int64 (B,) on CPU, in the caller's order.
        layout: which column holds what; graphs must be compiled with the same.
        names: what messages call the utterances.
    """

    dense: k2.DenseFsaVec
    order: torch.Tensor
    num_frames: torch.Tensor
    layout: ColumnLayout
    names: Sequence[str]


def make_emissions(
    layout: ColumnLayout,
    log_posteriors: torch.Tensor,
    num_frames: torch.Tensor,
    log_prior: torch.Tensor | None = None,
    log_boundary: torch.Tensor | None = None,
    log_correctness: torch.Tensor | None = None,
    acoustic_scale: float = 1.0,
    blank: int | None = None,
    names: Sequence[str] | None = None,
) -> Emissions:
    """Compute the emission matrix of a batch. Differentiable in every tensor argument.

    With a_t(c, s) = acoustic_scale * log(q(y_t = c, s) / p(c, s)), and for "not c"
    a_t(c*) = acoustic_scale * log((sum over other units of q) / (sum over other units of p)), where
    the sum of q is floored at 1e-5 and leaves silence and blank out::

        hold(c, s) = a_t(c, s) + log q(b_t = 0)
        start(c)   = a_t(c, 0) + log q(b_t = 1) + log q(pi_t = 0)
        hold(c*)   = a_t(c*)   + log q(b_t = 0)
        start(c*)  = a_t(c*)   + log q(b_t = 1) + log q(pi_t = 1)
        silence    = acoustic_scale * log(q(silence) / p(silence)) + log q(b_t = 0)

    A competitor k of topology ``substitution`` holds as unit k does, and starts with q(pi_t = 1)::

        start_mismatch(k) = a_t(k, 0) + log q(b_t = 1) + log q(pi_t = 1)

    A filler is any unit at all, a_t(filler) = acoustic_scale * log(sum of q / sum of p) over the
    units with the same floor, and starts and holds as "not c" does, also in topology ``single``.

    The first frame has no b term: a start is certain there. Units of topology ``single`` have no pi
    term.

    A CTC blank says nothing about the unit. Its probability is shared among the other columns in
    proportion to their prior, q'(c) = q(c) + q(blank) p(c), so that a pure blank frame scores
    0 = log 1 for "c" and for "not c" alike.

    Args:
        layout: column layout of the compiler.
        log_posteriors: float (B, T, N * S [+ 1 silence] [+ 1 blank]) natural-log probabilities;
            columns by unit, then state; silence last of those. Rows should sum to one. Frames at
            and after ``num_frames`` are not read. Half and double precision become float32.
        num_frames: integer (B,), frames of each utterance, in any order; 0 is allowed.
        log_prior: per column of ``log_posteriors``; None means uniform.
        log_boundary: (B, T, 2), log q(b_t = 0) and log q(b_t = 1); None means q(b_t = 1) = 0.1.
        log_correctness: (B, T, 2), log q(pi_t = 0) and log q(pi_t = 1); None means
            q(pi_t = 1) = 0.15.
        acoustic_scale: factor of the acoustic part, above 0.
        blank: column of the blank symbol in ``log_posteriors``.
        names: (B,), what messages call the utterances; by default their index.

    Returns:
        Emissions on the device of ``log_posteriors``.

    Raises:
        ValueError: a shape, dtype or length does not fit, or a value is NaN, +inf, above log 1, or
            -inf in all columns of a frame; the message names the utterance and the frame.
    """
    num_frames = checked_shapes(
        layout, log_posteriors, num_frames, log_boundary, log_correctness, blank
    )
    if not acoustic_scale > 0 or math.isinf(acoustic_scale):
        raise ValueError(f"acoustic_scale must be positive and finite, not {acoustic_scale}")
    batch = log_posteriors.shape[0]
    if names is None:
        names = [f"utterance {index}" for index in range(batch)]
    elif len(names) != batch:
        raise ValueError(f"{len(names)} names for {batch} utterances")

    log_posteriors = checked_values(
        log_posteriors.float(), num_frames, names, "log_posteriors", layout.has_mismatch
    )
    if log_boundary is not None:
        log_boundary = checked_values(log_boundary.float(), num_frames, names, "log_boundary", True)
    if log_correctness is not None:
        log_correctness = checked_values(
            log_correctness.float(), num_frames, names, "log_correctness", True
        )

    log_prior = _prior(log_posteriors, log_prior)
    if blank is not None:
        log_posteriors, log_prior = _share_blank(log_posteriors, log_prior, blank)
    columns = _columns(
        layout, log_posteriors, log_prior, log_boundary, log_correctness, acoustic_scale
    )

    order = torch.sort(num_frames, descending=True, stable=True).indices
    segments = torch.zeros(batch, 3, dtype=torch.int32)
    segments[:, 0] = order
    # k2 refuses empty segments. One frame stands in for none; what is found on it is dropped,
    # because every graph needs a frame and such an utterance is reported as too short.
    segments[:, 2] = num_frames[order].clamp(min=1)
    return Emissions(k2.DenseFsaVec(columns, segments), order, num_frames, layout, list(names))


def _columns(
    layout: ColumnLayout,
    log_posteriors: torch.Tensor,
    log_prior: torch.Tensor,
    log_boundary: torch.Tensor | None,
    log_correctness: torch.Tensor | None,
    scale: float,
) -> torch.Tensor:
    """The emission matrix, float32 (B, T, num_columns), by the equations of make_emissions."""
    batch, frames, _ = log_posteriors.shape
    num_units, states = layout.num_units, layout.states_per_unit
    like = {"dtype": torch.float32, "device": log_posteriors.device}
    if log_boundary is None:
        rate = torch.tensor([1 - CONSTANT_BOUNDARY_RATE, CONSTANT_BOUNDARY_RATE], **like)
        log_boundary = rate.log().expand(batch, frames, 2)
    no_boundary = log_boundary.new_zeros(batch, 1, 2)
    log_boundary = torch.cat([no_boundary, log_boundary[:, 1:]], dim=1)
    hold, start = log_boundary[..., :1], log_boundary[..., 1:]

    ratio = log_posteriors - log_prior
    if scale != 1.0:
        ratio = ratio * scale
    correct = ratio[..., : layout.num_states]
    first_state = correct[..., ::states]
    silence = ratio[..., layout.num_states :] + hold if layout.silence else torch.zeros_like(hold)
    columns = [silence, correct + hold, first_state + start]
    if not layout.has_mismatch:
        return torch.cat(columns, dim=2)

    if log_correctness is None:
        rate = CONSTANT_MISPRONUNCIATION_RATE
        log_correctness = torch.tensor([1 - rate, rate], **like).log()
    start_mismatch = start + log_correctness[..., 1:]
    if layout.topology == "substitution":
        columns.append(first_state + start_mismatch)
    if layout.topology == "ml":
        others = _log_sum_of_others(log_posteriors[..., : layout.num_states], num_units)
        others_prior = _log_sum_of_others(log_prior[: layout.num_states], num_units)
        mismatch = (others - others_prior) * scale
        columns += [mismatch + start_mismatch, mismatch + hold]
    if layout.topology != "single":
        columns[2] = columns[2] + log_correctness[..., :1]
    if layout.filler:
        spoken = log_posteriors[..., : layout.num_states].double().exp().sum(2, keepdim=True)
        spoken_prior = log_prior[: layout.num_states].logsumexp(0)
        filler = (_floored_log(spoken, spoken) - spoken_prior) * scale
        columns += [filler + start_mismatch, filler + hold]
    return torch.cat(columns, dim=2)


def _log_sum_of_others(log_probs: torch.Tensor, num_units: int) -> torch.Tensor:
    """For each unit, log of the probability of all other units, floored at 1e-5.

    Computed as total minus own in double precision: with probabilities at most 1 and the floor far
    above the rounding error of 1e-16, this equals a logsumexp over the others. The floor holds for
    the value alone. The gradient stays that of the logsumexp, so that an estimator which is all
    but sure of a unit can still be told that it is wrong.

    Args:
        log_probs: (..., N * S), unit by unit.
        num_units: N.

    Returns:
        float32 (..., N).
    """
    probs = log_probs.double().exp().unflatten(-1, (num_units, -1)).sum(-1)
    others = exact = probs.sum(-1, keepdim=True) - probs
    if probs.requires_grad and bool((others < MISMATCH_FLOOR).any()):
        # Total minus own leaves nothing but rounding error for the likeliest unit.
        likeliest = torch.zeros_like(probs, dtype=torch.bool)
        likeliest = likeliest.scatter(-1, probs.argmax(-1, keepdim=True), True)
        rest = probs.masked_fill(likeliest, 0).sum(-1, keepdim=True)
        exact = torch.where(likeliest, rest, others)
    return _floored_log(others, exact)


def _floored_log(probs: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Log of double-precision ``probs`` with their floor, as float32.

    Below the floor the gradient is that of the log of ``exact``, the same without rounding errors.
    """
    result = probs.clamp(min=MISMATCH_FLOOR).log()
    below = probs < MISMATCH_FLOOR
    if probs.requires_grad and bool(below.any()):
        unfloored = exact.clamp(min=1e-300).log()
        floored = unfloored - unfloored.detach() + math.log(MISMATCH_FLOOR)
        result = torch.where(below, floored, result)
    return result.float()


def _prior(log_posteriors: torch.Tensor, log_prior: torch.Tensor | None) -> torch.Tensor:
    columns = log_posteriors.shape[-1]
    if log_prior is None:
        return log_posteriors.new_full((columns,), -math.log(columns))
    log_prior = torch.as_tensor(log_prior, dtype=torch.float32, device=log_posteriors.device)
    if log_prior.shape != (columns,):
        raise ValueError(
            f"log_prior must have one value a column of log_posteriors ({columns}), "
            f"not shape {tuple(log_prior.shape)}"
        )
    if not torch.isfinite(log_prior).all():
        raise ValueError("log_prior must be finite: a column without counts needs smoothing")
    return log_prior


def _share_blank(
    log_posteriors: torch.Tensor, log_prior: torch.Tensor, blank: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Remove the blank column, sharing its probability in proportion to the prior of the rest."""
    keep = [column for column in range(log_posteriors.shape[-1]) if column != blank]
    log_prior = log_prior[keep].log_softmax(-1)
    shared = log_posteriors[..., blank : blank + 1] + log_prior
    kept = log_posteriors[..., keep]
    # The gradient of logaddexp(-inf, -inf) is NaN.
    impossible = torch.isneginf(kept) & torch.isneginf(shared)
    total = torch.logaddexp(kept.masked_fill(impossible, 0), shared)
    return total.masked_fill(impossible, -math.inf), log_prior
