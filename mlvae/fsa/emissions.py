"""From network posteriors to the scores of an acceptor's arcs.

The score of a frame is that of Appendix "MAP estimation" of the paper (its equations map_deriv and
map2): the unit's scaled likelihood q(y)/p(y), times q(b) of the boundary detector, times q(pi) of
the speech generator where a unit starts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import k2
import torch

from .checks import (
    check_values,
    checked_blank,
    checked_lengths,
    checked_names,
    checked_pairs,
    checked_posteriors,
    checked_prior,
    checked_scale,
)
from .frames import FrameRows
from .layout import ColumnLayout
from .mismatch import LOWEST, floored, log_sum_of_others

#: q(b_t = 1) and q(pi_t = 1) where the caller has no network for them.
CONSTANT_BOUNDARY_RATE = 0.1
CONSTANT_MISPRONUNCIATION_RATE = 0.15


@dataclass
class Emissions:
    """Scores of a batch, ready for intersection, and what is needed to read the answers.

    The matrix of scores is several times as large as the network's output. What differs in it is
    computed at once, and is put together when the matrix is asked for.

    Attributes:
        order: int64 (B,) on CPU; ``order[i]`` is the caller's index of the i-th longest.
        num_frames: int64 (B,) on CPU, in the caller's order.
        layout: which column holds what; graphs must be compiled with the same.
        names: what messages call the utterances.
    """

    order: torch.Tensor
    num_frames: torch.Tensor
    layout: ColumnLayout
    names: Sequence[str]
    _rows: FrameRows
    _blocks: list[tuple[torch.Tensor, torch.Tensor]]

    @property
    def device(self) -> torch.device:
        """Where the scores are."""
        return self._blocks[0][0].device

    @property
    def row_splits(self) -> torch.Tensor:
        """int64 (B + 1,) on CPU: where the rows of each in ``order`` begin in ``dense``."""
        return self._rows.splits

    @functools.cached_property
    def dense(self) -> k2.DenseFsaVec:
        """The scores of all as k2 wants them, longest utterance first."""
        # Who asks first may want no gradient, and who asks next may.
        with torch.enable_grad():
            return self._make(0, len(self.order))

    def part(self, begin: int, end: int) -> k2.DenseFsaVec:
        """Scores of some utterances, from ``begin`` to ``end`` (exclusive) in ``order``."""
        if not 0 <= begin < end <= len(self.order):
            raise ValueError(f"there is no part {begin} to {end} of {len(self.order)} utterances")
        return self.dense if end - begin == len(self.order) else self._make(begin, end)

    def _make(self, begin: int, end: int) -> k2.DenseFsaVec:
        rows = self._rows.of(begin, end)
        blocks = [(values[rows], terms[rows]) for values, terms in self._blocks]
        return self._rows.dense_fsa_vec(begin, end, blocks)


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
        log_posteriors: float (B, T, N * S [+ 1 silence] [+ 1 blank]) natural-log probabilities, a
            tensor or, as all of these, an array of numpy;
            columns by unit, then state; silence last of those. Rows should sum to one. Frames at
            and after ``num_frames`` are not read. Half and double precision become float32.
        num_frames: integer (B,), frames of each utterance, in any order; 0 is allowed. A list is
            taken too.
        log_prior: log-probability per column of ``log_posteriors``, which need not sum to one (a
            prior may be scaled); a list is taken too; None means uniform.
        log_boundary: (B, T, 2), log q(b_t = 0) and log q(b_t = 1); None means q(b_t = 1) = 0.1.
        log_correctness: (B, T, 2), log q(pi_t = 0) and log q(pi_t = 1); None means
            q(pi_t = 1) = 0.15.
        acoustic_scale: factor of the acoustic part, above 0 and at most 1e6.
        blank: column of the blank symbol in ``log_posteriors``.
        names: (B,), what messages call the utterances; by default their index.

    Returns:
        Emissions on the device of ``log_posteriors``.

    Raises:
        ValueError: a shape, dtype or length does not fit, or a value is NaN, +inf, above log 1, or
            -inf in all columns of a frame; the message names the utterance and the frame.
    """
    blank = checked_blank(layout, blank)
    log_posteriors = checked_posteriors(layout, log_posteriors, blank)
    batch, width, _ = log_posteriors.shape
    names = checked_names(names, batch)
    num_frames = torch.from_numpy(checked_lengths(num_frames, batch, width, names))
    log_boundary = checked_pairs(log_boundary, "log_boundary", log_posteriors)
    log_correctness = checked_pairs(log_correctness, "log_correctness", log_posteriors)
    log_prior = checked_prior(log_prior, log_posteriors)
    acoustic_scale = checked_scale(acoustic_scale)

    rows = FrameRows(num_frames, width, log_posteriors.device)

    def checked_rows(padded: torch.Tensor, what: str, are_probabilities: bool) -> torch.Tensor:
        values = rows.gather(padded.float())
        check_values(values, rows, names, what, are_probabilities)
        return values

    log_q = checked_rows(log_posteriors, "log_posteriors", layout.has_mismatch)
    if log_prior is None:
        log_prior = _uniform(log_q)
    if blank is not None:
        log_q, log_prior = _share_blank(log_q, log_prior, blank)
    if log_boundary is None:
        log_b = _constant_rate(CONSTANT_BOUNDARY_RATE, log_q)
    else:
        log_b = checked_rows(log_boundary, "log_boundary", True)
    log_b = log_b.index_fill(0, rows.first, 0.0)
    if log_correctness is None:
        log_pi = _constant_rate(CONSTANT_MISPRONUNCIATION_RATE, log_q)
    else:
        log_pi = checked_rows(log_correctness, "log_correctness", True)
    blocks = _blocks(layout, log_q, log_prior, log_b, log_pi, acoustic_scale)
    return Emissions(rows.order, num_frames, layout, names, rows, blocks)


def _constant_rate(rate: float, like: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of no and yes in each row, (R, 2)."""
    return like.new_tensor([1 - rate, rate]).log().expand(len(like), 2)


def _blocks(
    layout: ColumnLayout,
    log_q: torch.Tensor,
    log_prior: torch.Tensor,
    log_b: torch.Tensor,
    log_pi: torch.Tensor,
    scale: float,
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Blocks of columns of the emission matrix, by the equations of make_emissions.

    Args:
        layout: of the columns.
        log_q: float32 (R, N * S [+ 1 silence]), posteriors of R frames; overwritten where no
            gradient is wanted.
        log_prior: float32, one value a column of ``log_q``.
        log_b: float32 (R, 2), 0 in first frames.
        log_pi: float32 (R, 2).
        scale: acoustic scale.

    Returns:
        Of each block, float32 (R, C), and what is added to it in turn, float32 (R, K); see
        :meth:`.FrameRows.dense_fsa_vec`.
    """
    hold, start = log_b.split(1, dim=1)
    right_or_wrong = start + log_pi
    spoken, spoken_prior = log_q[:, : layout.num_states], log_prior[: layout.num_states]
    others = []
    if layout.topology == "ml":
        mismatch = log_sum_of_others(spoken, layout.num_units)
        others.append(mismatch.sub_(log_sum_of_others(spoken_prior[None], layout.num_units)))
    if layout.filler:
        filler = floored(spoken.clamp(min=LOWEST).logsumexp(1, keepdim=True))
        others.append(filler - spoken_prior.logsumexp(0))
    ratio = log_q - log_prior if log_q.requires_grad else log_q.sub_(log_prior)
    if scale != 1.0:
        ratio, others = ratio * scale, [values * scale for values in others]

    correct = ratio[:, : layout.num_states]
    if layout.silence:
        blocks = [(ratio[:, layout.num_states :], hold)]
    else:
        blocks = [(torch.zeros_like(hold), torch.zeros_like(hold))]
    starts = {
        "single": start,
        "ml": right_or_wrong[:, :1],
        "substitution": right_or_wrong,
    }[layout.topology]
    if layout.states_per_unit == 1:
        blocks.append((correct, torch.cat([hold, starts], dim=1)))
    else:
        blocks += [(correct, hold), (correct[:, :: layout.states_per_unit], starts)]
    wrong = torch.cat([right_or_wrong[:, 1:], hold], dim=1)
    return blocks + [(values, wrong) for values in others]


def _uniform(log_posteriors: torch.Tensor) -> torch.Tensor:
    columns = log_posteriors.shape[-1]
    return log_posteriors.new_full((columns,), -math.log(columns))


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
