"""Builds the arcs of a whole batch of acceptors as arrays.

A topology only says which branches a unit has (:mod:`.branches`); one builder joins them for all.
Units meet in *junctions*: a junction is the state "the last frame of what came before has been
read". The first frame of a branch leaves one, the last frame of a branch enters the next, and a
direct arc stands for branches of a single frame::

            start            hold            hold
      (J) --------> (state) ------> (J')     self-loop on the state: hold
       '------------------------------^      one frame: start

So the arcs of a unit grow with its branches, and not with their square. Silence is a self-loop on
the junctions between words; a filler has a state beside each junction; to skip a unit is an arc
from an earlier junction into a later unit (or to the end).

States of an utterance: the junctions, the states of its slots in order, the fillers, the final
state. Within a slot mispronounced branches come first: k2 gives a tie to the later arc, so among
paths with the same segments the correct one wins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .branches import UnitBranches
from .layout import KIND_FILLER, KIND_SILENCE, KIND_UNIT, NONE, ColumnLayout
from .slots import Slots

#: Most units left out in a row.
MAX_SKIPS = 2


@dataclass(frozen=True)
class Detours:
    """What may happen besides saying the units; scores are natural-log odds, None for never.

    Attributes:
        skip_score: score of leaving out a unit.
        filler_score: score of each stretch of sound between units that belongs to none.
    """

    skip_score: float | None = None
    filler_score: float | None = None


@dataclass
class Arcs:
    """Arcs of an FsaVec, sorted by FSA and source state.

    Attributes:
        arcs: (n, 4) int32: source and destination state within the FSA, label, bits of the score.
        states_per_fsa, arcs_per_fsa: (B,) int64.
        attributes: int32 arrays (n,) by attribute name.
    """

    arcs: np.ndarray
    states_per_fsa: np.ndarray
    arcs_per_fsa: np.ndarray
    attributes: dict[str, np.ndarray]


_FIELDS = (
    "utterance",
    "source",
    "target",
    "label",
    "slot",
    "heard",
    "kind",
    "is_start",
    "is_mispronounced",
    "num_skipped",
    "skipped",
    "skipped_before",
)


class _ArcTable:
    """Collects blocks of arcs; fields left out mean "does not apply"."""

    def __init__(self) -> None:
        self.blocks: list[np.ndarray] = []
        self.scores: list[np.ndarray] = []

    def add(self, score=0.0, **fields) -> None:
        defaults = dict(
            slot=NONE,
            heard=NONE,
            kind=NONE,
            is_start=0,
            is_mispronounced=0,
            num_skipped=0,
            skipped=NONE,
            skipped_before=NONE,
        )
        columns = [fields[name] if name in fields else defaults[name] for name in _FIELDS]
        block = np.stack(np.broadcast_arrays(*columns))
        self.blocks.append(block)
        self.scores.append(np.broadcast_to(np.float32(score), block.shape[1:]))

    def sorted(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """All arcs by utterance and source state, else in the order they came; and their scores."""
        table = np.concatenate(self.blocks, axis=1)
        order = np.lexsort((table[1], table[0]))
        scores = np.concatenate(self.scores)[order]
        return dict(zip(_FIELDS, table[:, order])), scores


def build_arcs(
    slots: Slots, layout: ColumnLayout, unit_branches: UnitBranches, detours: Detours
) -> Arcs:
    """Build the frame-synchronous acceptors; see :mod:`.compiler` for their form."""
    branches = _Branches(slots, unit_branches)
    final = branches.first_filler + (slots.num_junctions if detours.filler_score is not None else 0)
    table = _ArcTable()
    _add_stays(table, branches, layout)
    _add_starts(table, branches, layout, slots.left[branches.slot])
    every = np.arange(len(slots.num_words))
    table.add(utterance=every, source=slots.num_words, target=final, label=-1)
    if detours.skip_score is not None:
        _add_skips(table, branches, layout, slots, final, detours)
    if layout.silence:
        utterance, word = _ragged(slots.num_words + 1)
        table.add(utterance=utterance, source=word, target=word, label=0, kind=KIND_SILENCE)
    if detours.filler_score is not None:
        _add_fillers(table, slots, layout, branches.first_filler, detours.filler_score)

    fields, scores = table.sorted()
    utterance, slot, kind = fields["utterance"], fields["slot"], fields["kind"]
    in_unit = slot >= 0
    first_slot = slots.first_slot[utterance]
    attributes = {
        "unit_pos": _within(slot, first_slot),
        "word_pos": np.where(in_unit, slots.word[slot], NONE),
        "unit": np.where(in_unit, slots.unit[slot], NONE),
        "heard": fields["heard"],
        "kind": kind,
        "is_start": fields["is_start"],
        "is_mispronounced": fields["is_mispronounced"],
        "num_skipped": fields["num_skipped"],
        "skipped_pos": _within(fields["skipped"], first_slot),
        "skipped_before_pos": _within(fields["skipped_before"], first_slot),
        "min_frames": _fewest_frames(slots, unit_branches, detours)[utterance],
        "layout_id": np.full_like(kind, layout.fingerprint),
    }
    arcs = np.stack(
        [fields["source"], fields["target"], fields["label"], scores.view(np.int32)], axis=1
    )
    return Arcs(
        arcs=arcs,
        states_per_fsa=final + 1,
        arcs_per_fsa=np.bincount(utterance, minlength=len(final)),
        attributes={name: values.astype(np.int32) for name, values in attributes.items()},
    )


class _Branches:
    """All branches of all slots of a batch, slot by slot.

    Attributes:
        slot, utterance, unit: (n,) of each branch.
        heard: what it says was spoken; -1 where it cannot say.
        mispronounced: 0 or 1.
        score: of choosing it.
        num_states: its states.
        source, target: junctions that it leads from and to.
        state: its first state.
        first_filler: (B,), first state of each utterance that is not a junction's or a branch's.
    """

    def __init__(self, slots: Slots, of_unit: UnitBranches) -> None:
        count = of_unit.count[slots.unit]
        self.slot, position = _ragged(count)
        index = of_unit.begin[slots.unit[self.slot]] + position
        self.utterance = slots.utterance[self.slot]
        self.unit = slots.unit[self.slot]
        self.heard = of_unit.heard[index]
        self.mispronounced = of_unit.mispronounced[index].astype(np.int64)
        self.score = of_unit.score[index]
        self.num_states = of_unit.num_states[index]
        self.target = slots.right[self.slot]
        before = np.cumsum(self.num_states) - self.num_states
        totals = np.bincount(self.utterance, self.num_states, len(slots.num_words)).astype(np.int64)
        origin = np.cumsum(totals) - totals
        self.state = before - origin[self.utterance] + slots.num_junctions[self.utterance]
        self.first_filler = slots.num_junctions + totals

    def fields(self, which=slice(None)) -> dict[str, np.ndarray]:
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


def _add_stays(table: _ArcTable, branches: _Branches, layout: ColumnLayout) -> None:
    """Arcs between the states of a branch, and from its last frame into the next junction."""
    for state in range(int(branches.num_states.max())):
        which = np.flatnonzero(branches.num_states > state)
        fields = branches.fields(which)
        here, label = branches.state[which] + state, branches.hold(layout, which, state)
        table.add(source=here, target=here, label=label, **fields)
        if state > 0:
            table.add(source=here - 1, target=here, label=label, **fields)
        ends = np.flatnonzero(branches.num_states == state + 1)
        fields = branches.fields(ends)
        here, label = branches.state[ends] + state, branches.hold(layout, ends, state)
        table.add(source=here, target=branches.target[ends], label=label, **fields)
        if state > 0:
            table.add(source=here - 1, target=branches.target[ends], label=label, **fields)


def _add_starts(
    table: _ArcTable,
    branches: _Branches,
    layout: ColumnLayout,
    source: np.ndarray,
    which: np.ndarray | slice = slice(None),
    extra_score: float = 0.0,
    **more,
) -> None:
    """Arcs from the junctions ``source`` into the branches ``which``."""
    which = np.arange(len(branches.slot))[which]
    label = branches.start(layout, which)
    score = branches.score[which] + extra_score
    table.add(
        score=score,
        source=source,
        target=branches.state[which],
        label=label,
        is_start=1,
        **branches.fields(which),
        **more,
    )
    single = branches.num_states[which] == 1
    short = which[single]
    table.add(
        score=score[single],
        source=source[single],
        target=branches.target[short],
        label=label[single],
        is_start=1,
        **branches.fields(short),
        **{name: np.broadcast_to(value, which.shape)[single] for name, value in more.items()},
    )


def _add_skips(table, branches: _Branches, layout, slots: Slots, final, detours: Detours) -> None:
    """Arcs that leave out units: from a junction into a later unit, or to the final state."""
    stride = int(slots.num_junctions.max()) + 1
    left = slots.utterance * stride + slots.left
    right = slots.utterance * stride + slots.right
    branch_left = branches.utterance * stride + slots.left[branches.slot]
    end = np.arange(len(final)) * stride + slots.num_words
    # A chain of skipped slots, by the junctions around it and its slots.
    every = np.arange(len(left))
    source, target, last, before = left, right, every, np.full(len(left), NONE)
    for count in range(1, MAX_SKIPS + 1):
        score = count * detours.skip_score
        chain, branch = _equal_pairs(target, branch_left)
        _add_starts(
            table,
            branches,
            layout,
            source[chain] % stride,
            branch,
            score,
            num_skipped=count,
            skipped=last[chain],
            skipped_before=before[chain],
        )
        chain, utterance = _equal_pairs(target, end)
        table.add(
            score=score,
            utterance=utterance,
            source=source[chain] % stride,
            target=final[utterance],
            label=-1,
            num_skipped=count,
            skipped=last[chain],
            skipped_before=before[chain],
        )
        chain, slot = _equal_pairs(target, left)
        source, target, last, before = source[chain], right[slot], slot, last[chain]


def _add_fillers(table: _ArcTable, slots: Slots, layout, first_filler, score: float) -> None:
    """A state beside each junction for sounds of no unit."""
    utterance, junction = _ragged(slots.num_junctions)
    state = first_filler[utterance] + junction
    common = dict(utterance=utterance, kind=KIND_FILLER)
    start = dict(label=layout.start_filler, is_start=1, score=score)
    table.add(source=junction, target=state, **start, **common)
    table.add(source=junction, target=junction, **start, **common)
    table.add(source=state, target=state, label=layout.hold_filler, **common)
    table.add(source=state, target=junction, label=layout.hold_filler, **common)


def _fewest_frames(slots: Slots, of_unit: UnitBranches, detours: Detours) -> np.ndarray:
    """(B,): frames of the shortest path."""
    fewest = slots.fewest_units
    if detours.skip_score is not None:
        # The most units are left out by keeping one after every MAX_SKIPS.
        fewest = -(-(fewest - MAX_SKIPS) // (MAX_SKIPS + 1))
    return np.maximum(fewest * int(of_unit.num_states.min()), 1)


def _within(slot: np.ndarray, first_slot: np.ndarray) -> np.ndarray:
    return np.where(slot >= 0, slot - first_slot, NONE)


def _ragged(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row of each element of a ragged array with these row lengths, and its place in the row."""
    row = np.repeat(np.arange(len(counts)), counts)
    return row, np.arange(len(row)) - (np.cumsum(counts) - counts)[row]


def _equal_pairs(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All (i, j) with left[i] == right[j]."""
    order = np.argsort(right, kind="stable")
    begin = np.searchsorted(right[order], left, side="left")
    count = np.searchsorted(right[order], left, side="right") - begin
    row, position = _ragged(count)
    return row, order[begin[row] + position]
