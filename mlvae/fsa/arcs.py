"""Builds the arcs of a whole batch of acceptors as arrays.

A topology only says which branches a unit has (:func:`_branches`); one builder joins units,
silence and edges for all of them. States of an utterance with K slots of n states and W words:
0 is the start, then the slots' states in order, then with silence one state after each word, and
last the final state. Within a slot the mispronounced branch comes first: k2 gives a tie to the
later arc, so among paths with the same segments the correct one wins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .layout import KIND_SILENCE, KIND_UNIT, NONE, ColumnLayout
from .slots import Slots


@dataclass
class Arcs:
    """Arcs of an FsaVec, sorted by FSA and source state.

    Attributes:
        arcs: (n, 4) int64: source and destination state within the FSA, label, score bits (0).
        states_per_fsa, arcs_per_fsa: (B,) int64.
        attributes: int32 arrays (n,) by attribute name.
    """

    arcs: np.ndarray
    states_per_fsa: np.ndarray
    arcs_per_fsa: np.ndarray
    attributes: dict[str, np.ndarray]


@dataclass(frozen=True)
class Branch:
    """One way to say a unit: ``num_states`` states from ``offset`` in the slot's states."""

    offset: int
    num_states: int
    mispronounced: bool

    def start(self, layout: ColumnLayout, unit: np.ndarray) -> np.ndarray:
        """Label of the arc that enters this branch."""
        return layout.start_mismatch(unit) if self.mispronounced else layout.start(unit)

    def hold(self, layout: ColumnLayout, unit: np.ndarray, state: int) -> np.ndarray:
        """Label of the arcs that go on in ``state``, or enter it from the one before."""
        return layout.hold_mismatch(unit) if self.mispronounced else layout.hold(unit, state)


def _branches(layout: ColumnLayout) -> list[Branch]:
    if layout.topology == "single":
        return [Branch(0, layout.states_per_unit, mispronounced=False)]
    return [
        Branch(0, 1, mispronounced=True),
        Branch(1, layout.states_per_unit, mispronounced=False),
    ]


class _ArcList:
    """Collects blocks of arcs; ``slot`` is -1 where an arc belongs to no unit."""

    def __init__(self) -> None:
        self.blocks: list[np.ndarray] = []

    def add(self, utterance, source, target, label, slot, kind, is_start=0, mispronounced=0):
        fields = (utterance, source, target, label, slot, kind, is_start, mispronounced)
        block = np.empty((len(fields), len(utterance)), dtype=np.int64)
        for row, field in zip(block, fields):
            row[:] = field
        self.blocks.append(block)

    def sorted(self) -> np.ndarray:
        """All arcs, (8, n), by utterance and source state, else in the order they came."""
        table = np.concatenate(self.blocks, axis=1)
        place = table[0] * (table[1].max() + 1) + table[1]
        return table[:, place.argsort(kind="stable")]


def build_arcs(slots: Slots, layout: ColumnLayout) -> Arcs:
    """Build the frame-synchronous acceptors; see :mod:`mlvae.fsa.compiler` for their form."""
    branches = _branches(layout)
    states_per_slot = sum(branch.num_states for branch in branches)
    num_fsas = len(slots.num_slots)
    slot_begin = np.cumsum(slots.num_slots) - slots.num_slots
    # State 0 of each slot, within its utterance.
    base = 1 + (np.arange(len(slots.unit)) - slot_begin[slots.utterance]) * states_per_slot
    first_silence = 1 + slots.num_slots * states_per_slot
    final = first_silence + (slots.num_words if layout.silence else 0)

    arcs = _ArcList()
    is_first_word = slots.word[slots.first] == 0
    is_last_word = slots.word[slots.last] == slots.num_words[slots.utterance[slots.last]] - 1
    opening = slots.first[is_first_word]
    closing = slots.last[is_last_word]

    for branch in branches:
        _add_inside(arcs, branch, slots, layout, base)
    for branch in branches:
        for previous in branches:
            source = base[slots.join_from] + previous.offset + previous.num_states - 1
            _add_starts(arcs, branch, slots, layout, base, source, slots.join_to)
        _add_starts(arcs, branch, slots, layout, base, np.zeros_like(opening), opening)
        exits = base[closing] + branch.offset + branch.num_states - 1
        utterance = slots.utterance[closing]
        arcs.add(utterance, exits, final[utterance], -1, NONE, NONE)
    if layout.silence:
        _add_silence(arcs, branches, slots, layout, base, first_silence, final)

    table = arcs.sorted()
    utterance, source, target, label, slot, kind, is_start, mispronounced = table
    in_unit = slot >= 0
    unit = np.where(in_unit, slots.unit[slot], NONE)
    # A mispronounced branch that stands for every other unit cannot say which one was heard.
    heard = np.where(mispronounced == 1, NONE, unit)
    shortest_unit = min(branch.num_states for branch in branches)
    attributes = {
        "unit_pos": np.where(in_unit, slot - slot_begin[utterance], NONE),
        "word_pos": np.where(in_unit, slots.word[slot], NONE),
        "unit": unit,
        "heard": heard,
        "kind": kind,
        "is_start": is_start,
        "is_mispronounced": mispronounced,
        "num_skipped": np.zeros_like(kind),
        "min_frames": (slots.fewest_units * shortest_unit)[utterance],
        "layout_id": np.full_like(kind, layout.fingerprint),
    }
    return Arcs(
        arcs=np.stack([source, target, label, np.zeros_like(label)], axis=1),
        states_per_fsa=final + 1,
        arcs_per_fsa=np.bincount(utterance, minlength=num_fsas),
        attributes={name: values.astype(np.int32) for name, values in attributes.items()},
    )


def _add_inside(arcs, branch: Branch, slots: Slots, layout: ColumnLayout, base) -> None:
    """Self-loops of a branch's states, and arcs from each state to the next."""
    every = np.arange(len(slots.unit))
    wrong = int(branch.mispronounced)
    for state in range(branch.num_states):
        here = base + branch.offset + state
        label = branch.hold(layout, slots.unit, state)
        if state > 0:
            arcs.add(slots.utterance, here - 1, here, label, every, KIND_UNIT, mispronounced=wrong)
        arcs.add(slots.utterance, here, here, label, every, KIND_UNIT, mispronounced=wrong)


def _add_starts(arcs, branch: Branch, slots: Slots, layout: ColumnLayout, base, source, slot):
    """Arcs from the states ``source`` into the first state of ``branch`` of ``slot``."""
    arcs.add(
        slots.utterance[slot],
        source,
        base[slot] + branch.offset,
        branch.start(layout, slots.unit[slot]),
        slot,
        KIND_UNIT,
        is_start=1,
        mispronounced=int(branch.mispronounced),
    )


def _add_silence(arcs, branches, slots: Slots, layout: ColumnLayout, base, first_silence, final):
    """Optional silence: a self-loop on the start, and a state with one after each word."""
    num_fsas = len(slots.num_words)
    every = np.arange(num_fsas)
    arcs.add(every, np.zeros_like(every), np.zeros_like(every), 0, NONE, KIND_SILENCE)
    utterance = np.repeat(every, slots.num_words)
    word = np.arange(len(utterance)) - np.repeat(
        np.cumsum(slots.num_words) - slots.num_words, slots.num_words
    )
    silence = first_silence[utterance] + word
    arcs.add(utterance, silence, silence, 0, NONE, KIND_SILENCE)
    after_last = first_silence + slots.num_words - 1
    arcs.add(every, after_last, final, -1, NONE, NONE)
    later = slots.first[slots.word[slots.first] > 0]
    before = first_silence[slots.utterance[later]] + slots.word[later] - 1
    for branch in branches:
        exits = base[slots.last] + branch.offset + branch.num_states - 1
        utterance = slots.utterance[slots.last]
        target = first_silence[utterance] + slots.word[slots.last]
        arcs.add(utterance, exits, target, 0, NONE, KIND_SILENCE)
        _add_starts(arcs, branch, slots, layout, base, before, later)
