"""Arcs of the units that are spoken: the branches of every slot, between its two junctions."""

from __future__ import annotations

import numpy as np

from .branches import UnitBranches
from .layout import KIND_UNIT, NONE, ColumnLayout
from .slots import Slots
from .table import ArcTable, equal_pairs, ragged


class SlotBranches:
    """All branches of all slots of a batch, slot by slot.

    Attributes:
        slot, utterance, unit: (n,) of each branch.
        heard: what it says was spoken; -1 where it cannot say.
        mispronounced: 0 or 1.
        score: of choosing it.
        num_states: its states.
        source, target: junctions that it leads from and to.
        state: its first state; last_state: its last.
        end_state: (B,), first state of each utterance after those of junctions and branches.

    Args:
        slots: of the batch.
        of_unit: branches of each unit.
        num_junctions: (B,), junctions of each utterance that have a state.
    """

    def __init__(self, slots: Slots, of_unit: UnitBranches, num_junctions: np.ndarray) -> None:
        count = of_unit.count[slots.unit]
        self.slot, position = ragged(count)
        index = of_unit.begin[slots.unit[self.slot]] + position
        self.utterance = slots.utterance[self.slot]
        self.unit = slots.unit[self.slot]
        self.heard = of_unit.heard[index]
        self.mispronounced = of_unit.mispronounced[index].astype(np.int64)
        self.score = of_unit.score[index]
        self.num_states = of_unit.num_states[index]
        self.source = slots.left[self.slot]
        self.target = slots.right[self.slot]
        before = np.cumsum(self.num_states) - self.num_states
        totals = np.bincount(self.utterance, self.num_states, len(slots.num_words)).astype(np.int64)
        origin = np.cumsum(totals) - totals
        self.state = before - origin[self.utterance] + num_junctions[self.utterance]
        self.last_state = self.state + self.num_states - 1
        self.end_state = num_junctions + totals

    def fields(self, which: np.ndarray) -> dict[str, np.ndarray]:
        """Fields that all arcs of the branches ``which`` share."""
        return dict(
            utterance=self.utterance[which],
            slot=self.slot[which],
            heard=self.heard[which],
            kind=KIND_UNIT,
            is_mispronounced=self.mispronounced[which],
        )

    def hold(self, layout: ColumnLayout, which: np.ndarray, state: int) -> np.ndarray:
        """Label of going on in state number ``state``, or of entering it from the one before."""
        heard = self.heard[which]
        mismatch = layout.hold_mismatch(self.unit[which])
        return np.where(heard == NONE, mismatch, layout.hold(heard, state))

    def start(self, layout: ColumnLayout, which: np.ndarray) -> np.ndarray:
        """Label of the first frame."""
        heard = np.where(self.heard[which] == NONE, self.unit[which], self.heard[which])
        wrong = self.mispronounced[which] == 1
        return np.where(wrong, layout.start_mismatch(heard), layout.start(heard))


def add_stays(table: ArcTable, branches: SlotBranches, layout: ColumnLayout) -> None:
    """Add arcs between the states of a branch."""
    for state in range(int(branches.num_states.max())):
        which = np.flatnonzero(branches.num_states > state)
        fields = branches.fields(which)
        here, label = branches.state[which] + state, branches.hold(layout, which, state)
        table.add(source=here, target=here, label=label, **fields)
        if state > 0:
            table.add(source=here - 1, target=here, label=label, **fields)


def add_ends(table: ArcTable, branches: SlotBranches, layout: ColumnLayout) -> None:
    """Add arcs of the last frames of branches, into the junctions behind them."""
    for state in range(int(branches.num_states.max())):
        ends = np.flatnonzero(branches.num_states == state + 1)
        fields = branches.fields(ends)
        here, label = branches.state[ends] + state, branches.hold(layout, ends, state)
        table.add(source=here, target=branches.target[ends], label=label, **fields)
        if state > 0:
            table.add(source=here - 1, target=branches.target[ends], label=label, **fields)


def add_joins(
    table: ArcTable, branches: SlotBranches, layout: ColumnLayout, slots: Slots, final: np.ndarray
) -> None:
    """Join branches directly: from the last state of each to the first of each that may follow."""
    junctions = np.cumsum(slots.num_junctions) - slots.num_junctions
    before = junctions[branches.utterance] + branches.source
    behind = junctions[branches.utterance] + branches.target
    opening = np.flatnonzero(branches.source == 0)
    _enter(table, branches, layout, opening, np.zeros_like(opening))
    previous, following = equal_pairs(behind, before)
    _enter(table, branches, layout, following, branches.last_state[previous])
    closing = np.flatnonzero(branches.target == slots.num_words[branches.utterance])
    utterance = branches.utterance[closing]
    source = branches.last_state[closing]
    table.add(utterance=utterance, source=source, target=final[utterance], label=-1)


def _enter(table, branches, layout, which: np.ndarray, source: np.ndarray) -> None:
    fields = {**branches.fields(which), "label": branches.start(layout, which), "is_start": 1}
    target, score = branches.state[which], branches.score[which]
    table.add(score=score, source=source, target=target, **fields)


def add_starts(
    table: ArcTable,
    branches: SlotBranches,
    layout: ColumnLayout,
    which: np.ndarray,
    source: np.ndarray,
    extra_score: float = 0.0,
    **more: np.ndarray | int,
) -> None:
    """Add arcs of first frames: from the junctions ``source`` into the branches ``which``.

    Args:
        table: gets the arcs.
        branches: all branches.
        layout: gives the labels.
        which: (n,) indices of branches.
        source: (n,) where their arcs come from.
        extra_score: score besides that of choosing the branch.
        more: further fields, (n,) or numbers.
    """
    target, label = branches.state[which], branches.start(layout, which)
    score = branches.score[which] + extra_score
    fields = {**branches.fields(which), **more, "is_start": 1}
    table.add(score=score, source=source, target=target, label=label, **fields)
    # A branch of one state may be over after a single frame.
    one = branches.num_states[which] == 1
    fields = {name: np.broadcast_to(value, one.shape)[one] for name, value in fields.items()}
    target = branches.target[which[one]]
    table.add(score=score[one], source=source[one], target=target, label=label[one], **fields)
