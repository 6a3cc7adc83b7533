"""What a topology says: in which ways each unit can be spoken."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

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
        ValueError: wrong shape, a unit out of range or its own competitor, or a NaN or value above
            log 1.
    """
    diagonal = np.eye(num_units, dtype=bool)
    if competitors is None:
        table = np.full((num_units, num_units), -math.log(max(num_units - 1, 1)))
    elif isinstance(competitors, (torch.Tensor, np.ndarray)):
        table = np.array(torch.as_tensor(competitors).detach().cpu(), dtype=np.float64)
        if table.shape != (num_units, num_units):
            raise ValueError(
                f"competitors must be ({num_units}, {num_units}) log-probabilities, "
                f"not {table.shape}"
            )
        off = table[~diagonal]
        if np.isnan(off).any() or (off > 1e-3).any():
            raise ValueError("competitors holds NaN or a value above log 1 = 0")
    else:
        if len(competitors) != num_units:
            raise ValueError(f"competitors has {len(competitors)} lists for {num_units} units")
        table = np.full((num_units, num_units), -np.inf)
        for unit, others in enumerate(competitors):
            for other in others:
                if not 0 <= other < num_units or other == unit:
                    raise ValueError(
                        f"unit {unit} cannot have the competitor {other}: competitors are other "
                        f"units, 0 to {num_units - 1}"
                    )
                table[unit, other] = -math.log(len(set(others)))
    table[diagonal] = -np.inf
    return table
