"""Topologies: in which ways each unit of an acceptor can be spoken.

A :class:`Topology` is declared once, here: which emission columns it has beside those of the units'
states and how they are scored, and which branches a unit has. Layout, emissions, graph, compiler
and drawings ask the object. A new topology is one more object in ``TOPOLOGIES``.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from .checks import checked_choice, checked_floats, checked_int, listed, shown

if TYPE_CHECKING:
    from .layout import ColumnLayout

#: Value of the arc attributes unit, perceived, unit_pos and word_pos where none applies.
NONE = -1

#: Floor of 1 - q(c): a saturated estimator must not make a mispronunciation impossible.
MISMATCH_FLOOR = 1e-5
#: Log of a probability of zero where -inf would make gradients NaN.
LOWEST = -1e4


class Term(enum.Enum):
    """What a column adds to an acoustic score."""

    HOLD = "log q(b_t = 0)"
    START = "log q(b_t = 1)"
    START_CORRECT = "log q(b_t = 1) + log q(pi_t = 0)"
    START_MISPRONOUNCED = "log q(b_t = 1) + log q(pi_t = 1)"


@dataclass(frozen=True)
class Columns:
    """Emission columns whose acoustic score is not that of a unit's state: one set for each term.

    Attributes:
        log_sum: from log-probabilities, float32 (R, N * S), unit by unit, and N to (R, N), or to
            (R, 1) without ``per_unit``. The acoustic score is its value for the posteriors minus
            that for the prior.
        terms: what the sets of columns add to it, in order.
        per_unit: whether a set has a column for each unit, or one for all.
    """

    log_sum: Callable[[torch.Tensor, int], torch.Tensor]
    terms: tuple[Term, ...]
    per_unit: bool = True


@dataclass(frozen=True)
class UnitBranches:
    """Branches of every unit, unit by unit; within a unit the correct one comes last.

    Attributes:
        begin, count: (N,), where the branches of a unit lie in the other arrays, which are (n,).
        perceived: what a branch says was spoken; -1 for "something else".
        mispronounced: bool.
        num_states: left-to-right states.
        score: natural-log score of choosing the branch, float32.
        start: emission column of the first frame.
        hold: (n, S), of going on in each state, or of entering it from the one before.
    """

    begin: np.ndarray
    count: np.ndarray
    perceived: np.ndarray
    mispronounced: np.ndarray
    num_states: np.ndarray
    score: np.ndarray
    start: np.ndarray
    hold: np.ndarray


@dataclass(frozen=True, repr=False)
class Topology:
    """In which ways each unit can be spoken.

    Attributes:
        name: what users call it.
        branches: from the layout, and the table of :func:`read_competitors` or None, to the
            branches of all units.
        starts: terms of the columns "first frame of unit u in its first state"; the first one is
            that of a unit as it should be.
        columns: further columns.
        takes_competitors: whether what may be spoken in place of a unit is given by the caller.
        junctions: whether units always meet in junctions, which pays where a unit has more than two
            branches; see :mod:`.graph`.
        in_paper: whether the paper draws it, so that there is a figure of it.
    """

    name: str
    branches: Callable[[ColumnLayout, np.ndarray | None], UnitBranches]
    starts: tuple[Term, ...]
    columns: tuple[Columns, ...] = ()
    takes_competitors: bool = False
    junctions: bool = False
    in_paper: bool = False

    def __repr__(self) -> str:
        return repr(self.name)

    @property
    def has_mismatch(self) -> bool:
        """Whether a unit may be mispronounced."""
        terms = (*self.starts, *(term for columns in self.columns for term in columns.terms))
        return Term.START_MISPRONOUNCED in terms


def find_topology(topology: str | Topology) -> Topology:
    """A declared topology by its name; one that is given as an object stays as it is.

    Raises:
        ValueError: there is none of this name.
    """
    if isinstance(topology, Topology):
        return topology
    return TOPOLOGIES[checked_choice(topology, "topology", tuple(TOPOLOGIES))]


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


def log_sum_of_all(log_probs: torch.Tensor, num_units: int) -> torch.Tensor:
    """Log of the probability of all units together, (R, 1), with the same floor."""
    return floored(log_probs.clamp(min=LOWEST).logsumexp(1, keepdim=True))


#: A sound that belongs to no unit, with topologies of every kind.
INSERTION = Columns(log_sum_of_all, (Term.START_MISPRONOUNCED, Term.HOLD), per_unit=False)


def _single(layout: ColumnLayout, competitors: np.ndarray | None) -> UnitBranches:
    every = np.arange(layout.num_units)
    return UnitBranches(
        begin=every,
        count=np.ones_like(every),
        perceived=every,
        mispronounced=np.zeros(len(every), dtype=bool),
        num_states=np.full(len(every), layout.states_per_unit),
        score=np.zeros(len(every), dtype=np.float32),
        start=layout.start(every),
        hold=layout.holds(every),
    )


def _ml(layout: ColumnLayout, competitors: np.ndarray | None) -> UnitBranches:
    every = np.arange(layout.num_units)
    perceived = np.stack([np.full(len(every), NONE), every], axis=1).reshape(-1)
    hold = layout.holds(perceived)
    # "Something else" has one state.
    hold[::2] = NONE
    hold[::2, 0] = layout.column(0, 1, every)
    return UnitBranches(
        begin=2 * every,
        count=np.full(len(every), 2),
        perceived=perceived,
        mispronounced=np.tile([True, False], len(every)),
        num_states=np.tile([1, layout.states_per_unit], len(every)),
        score=np.zeros(2 * len(every), dtype=np.float32),
        start=np.stack([layout.column(0, 0, every), layout.start(every)], axis=1).reshape(-1),
        hold=hold,
    )


def _substitution(layout: ColumnLayout, competitors: np.ndarray | None) -> UnitBranches:
    num_units = layout.num_units
    possible = np.isfinite(competitors) | np.eye(num_units, dtype=bool)
    count = possible.sum(1)
    unit = np.repeat(np.arange(num_units), count)
    # Competitors in order, the unit itself last.
    perceived = np.concatenate(
        [
            np.append(np.flatnonzero(row & (np.arange(num_units) != u)), u)
            for u, row in enumerate(possible)
        ]
    )
    wrong = perceived != unit
    return UnitBranches(
        begin=np.cumsum(count) - count,
        count=count,
        perceived=perceived,
        mispronounced=wrong,
        num_states=np.full(len(perceived), layout.states_per_unit),
        score=np.where(wrong, competitors[unit, perceived], 0.0).astype(np.float32),
        start=layout.start(perceived, wrong.astype(np.int64)),
        hold=layout.holds(perceived),
    )


_DECLARED = (
    # One branch per unit: forced alignment.
    Topology("single", _single, starts=(Term.START,), in_paper=True),
    # The paper's two: "something else" and the unit.
    Topology(
        "ml",
        _ml,
        starts=(Term.START_CORRECT,),
        columns=(Columns(log_sum_of_others, (Term.START_MISPRONOUNCED, Term.HOLD)),),
        in_paper=True,
    ),
    # One branch per competitor, with its prior as score, and the unit.
    Topology(
        "substitution",
        _substitution,
        starts=(Term.START_CORRECT, Term.START_MISPRONOUNCED),
        takes_competitors=True,
        junctions=True,
    ),
)
#: All topologies by name.
TOPOLOGIES = {topology.name: topology for topology in _DECLARED}


def read_competitors(
    competitors: Sequence[Sequence[int]] | torch.Tensor | np.ndarray | None, num_units: int
) -> np.ndarray:
    """Bring the forms of ``MlFsaCompiler``'s argument to (N, N) log-probabilities.

    Raises:
        ValueError: wrong type or shape, a unit out of range or its own competitor, a NaN, or a row
            of probabilities whose sum is above 1.
    """
    diagonal = np.eye(num_units, dtype=bool)
    if competitors is None:
        table = np.full((num_units, num_units), -math.log(max(num_units - 1, 1)))
    elif isinstance(competitors, (torch.Tensor, np.ndarray)):
        floats = checked_floats(competitors, "competitors").detach()
        table = floats.cpu().double().numpy().copy()
        if table.shape != (num_units, num_units):
            raise ValueError(
                f"competitors must be ({num_units}, {num_units}) log-probabilities, "
                f"not {table.shape}"
            )
    else:
        table = _table_of_lists(competitors, num_units)
    table[diagonal] = -np.inf
    with np.errstate(over="ignore"):
        total = np.exp(table).sum(1)
    wrong = np.flatnonzero(~(total <= 1 + 1e-3))
    if len(wrong):
        unit = wrong[0]
        reason = "holds NaN" if np.isnan(total[unit]) else f"sums to {total[unit]:.4g}, above 1"
        raise ValueError(
            f"competitors: the row of unit {unit} {reason}; "
            "log p(perceived | canonical, mispronounced) is wanted"
        )
    return table


def _table_of_lists(competitors: Sequence[Sequence[int]], num_units: int) -> np.ndarray:
    """Competitors of each unit, all of one unit equally likely."""
    try:
        lists = [listed(others) for others in listed(competitors)]
    except TypeError:
        raise ValueError(
            "competitors must be a list of units for each unit, or a table, "
            f"not {shown(competitors)}"
        ) from None
    if len(lists) != num_units:
        raise ValueError(f"competitors has {len(lists)} lists for {num_units} units")
    table = np.full((num_units, num_units), -np.inf)
    for unit, others in enumerate(lists):
        distinct = {_competitor(other, unit, num_units) for other in others}
        if distinct:
            table[unit, list(distinct)] = -math.log(len(distinct))
    return table


def _competitor(other: object, unit: int, num_units: int) -> int:
    """Check one competitor of ``unit``; integers of numpy and torch are taken too."""
    try:
        index = checked_int(other, "a competitor", 0, num_units - 1)
    except ValueError:
        index = unit
    if index == unit:
        raise ValueError(
            f"unit {unit} cannot have the competitor {shown(other)}: competitors are other units, "
            f"0 to {num_units - 1}"
        )
    return index


def competitors_refused(topology: Topology) -> str:
    """What is said where competitors are given for a topology that takes none."""
    names = " or ".join(repr(one) for one in _DECLARED if one.takes_competitors)
    return f"competitors go with topology {names}, not {topology!r}"
