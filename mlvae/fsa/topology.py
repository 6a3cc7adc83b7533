"""Topologies: in which ways each unit of an acceptor can be spoken."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from .checks import checked_floats, checked_int, listed, shown
from .layout import NONE


@dataclass(frozen=True)
class UnitBranches:
    """Branches of every unit, unit by unit; within a unit the correct one comes last.

    Attributes:
        begin, count: (N,), where the branches of a unit lie in the other arrays.
        heard: what a branch says was spoken; -1 for "something else".
        mispronounced: bool.
        num_states: left-to-right states.
        score: natural-log score of choosing the branch, float32.
    """

    begin: np.ndarray
    count: np.ndarray
    heard: np.ndarray
    mispronounced: np.ndarray
    num_states: np.ndarray
    score: np.ndarray


def single_branches(num_units: int, states: int) -> UnitBranches:
    """One branch a unit: forced alignment."""
    every = np.arange(num_units)
    return UnitBranches(
        begin=every,
        count=np.ones_like(every),
        heard=every,
        mispronounced=np.zeros(num_units, dtype=bool),
        num_states=np.full(num_units, states),
        score=np.zeros(num_units, dtype=np.float32),
    )


def ml_branches(num_units: int, states: int) -> UnitBranches:
    """The paper's two: "something else", which has one state, and the unit."""
    every = np.arange(num_units)
    return UnitBranches(
        begin=2 * every,
        count=np.full(num_units, 2),
        heard=np.stack([np.full(num_units, NONE), every], axis=1).reshape(-1),
        mispronounced=np.tile([True, False], num_units),
        num_states=np.tile([1, states], num_units),
        score=np.zeros(2 * num_units, dtype=np.float32),
    )


def substitution_branches(num_units: int, states: int, log_confusion: np.ndarray) -> UnitBranches:
    """One branch a competitor, with its prior as score, and the unit.

    Args:
        num_units: N.
        states: states of every branch.
        log_confusion: (N, N), log p(heard | canonical, mispronounced); -inf for no competitor.
    """
    possible = np.isfinite(log_confusion) | np.eye(num_units, dtype=bool)
    count = possible.sum(1)
    unit = np.repeat(np.arange(num_units), count)
    # Competitors in order, the unit itself last.
    heard = np.concatenate(
        [
            np.append(np.flatnonzero(row & (np.arange(num_units) != u)), u)
            for u, row in enumerate(possible)
        ]
    )
    wrong = heard != unit
    score = np.where(wrong, log_confusion[unit, heard], 0.0).astype(np.float32)
    return UnitBranches(
        begin=np.cumsum(count) - count,
        count=count,
        heard=heard,
        mispronounced=wrong,
        num_states=np.full(len(heard), states),
        score=score,
    )


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
            "log p(heard | canonical, mispronounced) is wanted"
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
