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
from itertools import accumulate

import k2
import numpy as np
import torch

from .checks import (
    INT32_MAX,
    checked_floats,
    checked_int,
    checked_integers,
    checked_names,
    checked_number,
    shown,
)
from .k2_private import dense_fsa_vec
from .layout import ColumnLayout
from .topology import Term

#: q(b_t = 1) and q(pi_t = 1) where the caller has no network for them.
CONSTANT_BOUNDARY_RATE = 0.1
CONSTANT_MISPRONUNCIATION_RATE = 0.15
#: No logarithm of a probability lies below: that of the smallest double is -745.
LOWEST_LOG_PRIOR = -1e4
#: More than any use of an acoustic scale; sums of scores stay far from infinity.
MAX_ACOUSTIC_SCALE = 1e6


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

    def rows(self, position: int) -> np.ndarray:
        """Scores of one utterance, float32 (T, num_columns), without those of final arcs; on CPU.

        Args:
            position: in ``order``.
        """
        begin, end = self.row_splits[position : position + 2].tolist()
        return self.dense.scores.detach()[begin : end - 1, 1:].numpy()

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

        start(k, 1) = a_t(k, 0) + log q(b_t = 1) + log q(pi_t = 1)

    An insertion is any unit at all, a_t(insertion) = acoustic_scale * log(sum of q / sum of p) over
    the units with the same floor; it starts and holds as "not c" does, also in topology ``single``.

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

    largest: dict[str, torch.Tensor] = {}

    def gathered(padded: torch.Tensor, what: str) -> torch.Tensor:
        values = rows.gather(padded.float())
        # The maximum over columns tells all that can be wrong: NaN wins every comparison.
        largest[what] = values.detach().amax(dim=1)
        return values

    log_q = gathered(log_posteriors, "log_posteriors")
    if log_prior is None:
        columns = log_q.shape[1]
        log_prior = log_q.new_full((columns,), -math.log(columns))
    if blank is not None:
        log_q, log_prior = _share_blank(log_q, log_prior, blank)
    if log_boundary is None:
        log_b = _constant_rate(CONSTANT_BOUNDARY_RATE, log_q)
    else:
        log_b = gathered(log_boundary, "log_boundary")
    log_b = log_b.index_fill(0, rows.first, 0.0)
    if log_correctness is None:
        log_pi = _constant_rate(CONSTANT_MISPRONUNCIATION_RATE, log_q)
    else:
        log_pi = gathered(log_correctness, "log_correctness")
    check_largest(largest, rows, names, () if layout.has_mismatch else ("log_posteriors",))
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
    correct_or_not = start + log_pi
    terms = {
        Term.HOLD: hold,
        Term.START: start,
        Term.START_CORRECT: correct_or_not[:, :1],
        Term.START_MISPRONOUNCED: correct_or_not[:, 1:],
    }

    def added(*names: Term) -> torch.Tensor:
        return torch.cat([terms[name] for name in names], dim=1)

    units, prior = log_q[:, : layout.num_states], log_prior[None, : layout.num_states]
    others = []
    for columns in layout.columns:
        values = columns.log_sum(units, layout.num_units)
        others.append(values.sub_(columns.log_sum(prior, layout.num_units)))
    ratio = log_q - log_prior if log_q.requires_grad else log_q.sub_(log_prior)
    if scale != 1.0:
        ratio, others = ratio * scale, [values * scale for values in others]

    units = ratio[:, : layout.num_states]
    if layout.silence:
        blocks = [(ratio[:, layout.num_states :], hold)]
    else:
        blocks = [(torch.zeros_like(hold), torch.zeros_like(hold))]
    starts = layout.topology.starts
    if layout.states_per_unit == 1:
        blocks.append((units, added(Term.HOLD, *starts)))
    else:
        blocks += [(units, hold), (units[:, :: layout.states_per_unit], added(*starts))]
    return blocks + [
        (values, added(*columns.terms)) for columns, values in zip(layout.columns, others)
    ]


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


class FrameRows:
    """Which frame each row of a DenseFsaVec holds: the frames of a batch laid end to end.

    k2's DenseFsaVec has one row for each frame, longest utterance first, and after each utterance
    one more for the final arc. Its constructor picks these rows from a padded emission matrix,
    which is several times as wide as the network's output. Here they are picked from the network's
    output, so that nothing is computed for padding, and the matrix is written once and never
    copied; or it is written for some utterances at a time, which then need little memory, and stay
    in the cache until they are searched.

    k2 refuses utterances without frames. One row stands in for none; what is found on it is
    dropped, because every unit needs a frame and such an utterance is reported as too short.

    Args:
        num_frames: int64 (B,) on CPU.
        width: T of the padded tensors (B, T, C).
        device: of the padded tensors.

    Attributes:
        order: int64 (B,) on CPU; ``order[i]`` is the caller's index of the i-th longest utterance.
        splits: int64 (B + 1,) on CPU; where the rows of the i-th longest utterance begin.
        first: int64 (B,) on the device; row of the first frame of the i-th longest utterance.
    """

    def __init__(self, num_frames: torch.Tensor, width: int, device: torch.device) -> None:
        # numpy, because torch takes many times as long for so few numbers, and wakes its threads.
        frames = num_frames.numpy()
        order = np.argsort(-frames, kind="stable")
        last = np.maximum(frames[order], 1) - 1
        size = last + 2
        splits = np.append(0, np.cumsum(size))
        # The row of a final arc repeats the last frame until dense_fsa_vec overwrites it.
        place = np.arange(splits[-1]) + np.repeat(order * width - splits[:-1], size)
        place[splits[1:] - 1] -= 1
        # Place of each row among the B * T frames of a padded tensor.
        self._place = torch.from_numpy(place).to(device)
        self._width = width
        self.splits, self._ends = torch.from_numpy(splits), splits.tolist()
        self.order = torch.from_numpy(order)
        self.first = self.splits[:-1].to(device)
        empty = num_frames[self.order] == 0
        self._stand_in = None
        if bool(empty.any()):
            self._stand_in = empty.repeat_interleave(torch.from_numpy(size)).unsqueeze(1).to(device)

    def __len__(self) -> int:
        return len(self._place)

    def gather(self, padded: torch.Tensor) -> torch.Tensor:
        """Rows (R, C) of a padded tensor (B, T, C), which is not read at and after num_frames."""
        rows = padded.reshape(-1, padded.shape[2]).index_select(0, self._place)
        return rows if self._stand_in is None else rows.masked_fill(self._stand_in, 0)

    def first_place(self, chosen: torch.Tensor) -> tuple[int, int, int]:
        """The first of some rows in the caller's order: its row, utterance and frame.

        Args:
            chosen: bool (R,), true somewhere.
        """
        row = int(self._place.masked_fill(~chosen, self._place.max() + 1).argmin())
        return (row, *divmod(int(self._place[row]), self._width))

    def of(self, begin: int, end: int) -> slice:
        """Rows of the utterances from ``begin`` to ``end`` (exclusive), in the order here."""
        return slice(self._ends[begin], self._ends[end])

    def dense_fsa_vec(
        self, begin: int, end: int, blocks: Sequence[tuple[torch.Tensor, torch.Tensor]]
    ) -> k2.DenseFsaVec:
        """Put together blocks of columns, label 0 first.

        Args:
            begin: first utterance in the order here.
            end: last utterance, exclusive.
            blocks: of each block, float32 (R, C) and (R, K), where R counts the rows of these
                utterances. It stands for K * C columns: those of the first with the first column
                of the second added to each, then with the second column, and so on.

        Returns:
            The DenseFsaVec. Its scores have one more column before label 0, of the final arcs: 0 in
            their rows and -inf in all others.
        """
        columns = [
            (values, terms[:, term : term + 1])
            for values, terms in blocks
            for term in range(terms.shape[1])
        ]
        like = blocks[0][0]
        if torch.is_grad_enabled() and any(addend.requires_grad for addend in sum(columns, ())):
            no_final = like.new_full((len(like), 1), -math.inf)
            scores = torch.cat([no_final, *(values + term for values, term in columns)], dim=1)
        else:
            # The same without copies, which would take as long as all the rest.
            ends = list(accumulate((values.shape[1] for values, _ in columns), initial=1))
            scores = like.new_empty(len(like), ends[-1])
            for (values, term), first, last in zip(columns, ends, ends[1:]):
                torch.add(values, term, out=scores[:, first:last])
            # Last, when the rows are in the cache.
            scores[:, 0] = -math.inf
        splits = (self.splits[begin : end + 1] - self._ends[begin]).to(scores.device)
        final = splits[1:] - 1
        scores.index_fill_(0, final, -math.inf)
        scores[:, 0].index_fill_(0, final, 0.0)
        return dense_fsa_vec(scores, splits.int())


def checked_scale(value: object) -> float:
    """A factor of the acoustic part of scores."""
    scale = checked_number(value, "acoustic_scale")
    if not scale > 0 or math.isinf(scale):
        raise ValueError(f"acoustic_scale must be positive and finite, not {scale}")
    if scale > MAX_ACOUSTIC_SCALE:
        raise ValueError(f"acoustic_scale must be at most {MAX_ACOUSTIC_SCALE:g}, not {scale}")
    return scale


def checked_lengths(num_frames: object, batch: int, width: int, names: Sequence[str]) -> np.ndarray:
    """Numbers of frames, int64 (B,), none of which is more than ``width``."""
    lengths = checked_integers(num_frames, "num_frames", batch)
    wrong = np.flatnonzero((lengths < 0) | (lengths > width))
    if len(wrong):
        index = wrong[0]
        raise ValueError(
            f"{names[index]} has {lengths[index]} frames, but log_posteriors has room for 0 to "
            f"{width}"
        )
    return lengths


def checked_posteriors(
    layout: ColumnLayout, log_posteriors: object, blank: int | None
) -> torch.Tensor:
    """Posteriors of the shape that the layout has; no empty ones."""
    found = checked_floats(log_posteriors, "log_posteriors")
    expected = layout.num_posteriors + (blank is not None)
    if found.ndim != 3 or found.shape[2] != expected:
        parts = f"{layout.num_units} units x {layout.states_per_unit} states"
        parts += " + silence" if layout.silence else ""
        parts += " + blank" if blank is not None else ""
        raise ValueError(
            f"log_posteriors must be (B, T, {expected}) for {parts}, not {tuple(found.shape)}"
        )
    if found.shape[0] == 0 or found.shape[1] == 0:
        raise ValueError(f"log_posteriors is empty: shape {tuple(found.shape)}")
    return found


def checked_blank(layout: ColumnLayout, blank: object) -> int | None:
    """The column of the blank, which comes on top of the layout's; None: there is none."""
    if blank is None:
        return None
    column = checked_int(blank, "blank", -INT32_MAX)
    if not 0 <= column <= layout.num_posteriors:
        raise ValueError(
            f"blank is column {column}, but log_posteriors has {layout.num_posteriors + 1} columns"
        )
    return column


def checked_pairs(values: object, name: str, like: torch.Tensor) -> torch.Tensor | None:
    """Log-probabilities of no and yes, (B, T, 2) beside ``like`` (B, T, C); None stays None."""
    if values is None:
        return None
    found = checked_floats(values, name)
    batch, frames, _ = like.shape
    if found.shape != (batch, frames, 2):
        raise ValueError(f"{name} must be ({batch}, {frames}, 2), not {tuple(found.shape)}")
    if found.device != like.device:
        raise ValueError(f"{name} is on {found.device}, but log_posteriors is on {like.device}")
    return found


def checked_prior(values: object, like: torch.Tensor) -> torch.Tensor | None:
    """Log-probabilities of the columns of ``like``, float32 on its device; None stays None.

    They need not sum to one: a prior may be scaled.
    """
    if values is None:
        return None
    if isinstance(values, (list, tuple)):
        try:
            values = torch.tensor(values)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            raise ValueError(f"log_prior must be numbers, not {shown(values)}") from None
    found = checked_floats(values, "log_prior").to(like.device, torch.float32)
    columns = like.shape[-1]
    if found.shape != (columns,):
        raise ValueError(
            f"log_prior must have one value a column of log_posteriors ({columns}), "
            f"not shape {tuple(found.shape)}"
        )
    least, most = torch.stack(torch.aminmax(found.detach())).tolist()
    # NaN is both the least and the most, and compares with nothing.
    if not -math.inf < least <= most < math.inf:
        raise ValueError("log_prior must be finite: a column without counts needs smoothing")
    if most > 1e-3:
        raise ValueError(
            f"log_prior has {most:.4g}, above log 1 = 0: log-probabilities are wanted, not "
            "probabilities or counts"
        )
    if least < LOWEST_LOG_PRIOR:
        raise ValueError(f"log_prior has {least:.4g}, which is the log of no probability")
    return found


def check_largest(
    largest: dict[str, torch.Tensor], rows: FrameRows, names: Sequence[str], scores: Sequence[str]
) -> None:
    """Refuse NaN, +inf, frames of -inf only, and log-probabilities above 0.

    Args:
        largest: float32 (R,), the largest value of each row, by what the message calls the values.
        rows: of which frames they are.
        names: (B,), what the message calls the utterances.
        scores: which values may be above 0.
    """
    right = [
        (best > -math.inf) & (best <= (torch.finfo(best.dtype).max if what in scores else 1e-3))
        for what, best in largest.items()
    ]
    if bool(torch.stack(right).all()):
        return
    what, wrong = next((what, ~one) for what, one in zip(largest, right) if not bool(one.all()))
    row, index, frame = rows.first_place(wrong)
    value = float(largest[what][row])
    if math.isnan(value):
        reason = "is NaN"
    elif value == -math.inf:
        reason = "is -inf in all columns"
    elif value == math.inf:
        reason = "is +inf"
    else:
        reason = f"has {value:.4g}, above log 1 = 0: log-probabilities are wanted, not logits"
    raise ValueError(f"{names[index]}: {what} {reason} at frame {frame}")
