"""Arcs of what happens besides saying the units: silence, units left out, sounds of no unit.

Silence is a self-loop on the junctions at both edges and between words. A filler has a state beside
each junction, and a self-loop on the junction for a single frame.

To leave out units is an arc from the junction before them that reads the first frame of what
follows: of a later unit, or nothing and the final state. What sounds beside units left out would
sound the same before, between or behind them; it stands before them, so that it counts once. There
is one exception. Behind the last units of a word may be silence, where none may be before them,
inside the word: an arc from inside the word then reads the first frame of that silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .branches import UnitBranches
from .layout import KIND_FILLER, KIND_SILENCE, NONE, SKIPPED_ATTRIBUTES, ColumnLayout
from .slots import Slots
from .spoken import SlotBranches, add_starts
from .table import ArcTable, equal_pairs, ragged

#: Most units left out in a row. It cannot be raised alone: an arc names each of them by an
#: attribute of its own (``SKIPPED_ATTRIBUTES`` and ``_Chains.left_out``).
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
class _Chains:
    """Stretches of ``count`` slots in a row; arrays of one length.

    Attributes:
        count: slots of each.
        utterance: of each.
        source, target: junctions before and after, numbered within the utterance.
        last, before: the last slot and the one before it; -1 where there is none.
    """

    count: int
    utterance: np.ndarray
    source: np.ndarray
    target: np.ndarray
    last: np.ndarray
    before: np.ndarray

    def left_out(self, which: np.ndarray) -> dict[str, np.ndarray]:
        """Fields of an arc that leaves these chains out."""
        skipped = {"skipped": self.last[which], "skipped_before": self.before[which]}
        return {"num_skipped": self.count, **skipped}


class _Junctions:
    """Junctions numbered over the whole batch, to match slots and chains by."""

    def __init__(self, slots: Slots) -> None:
        self.first = np.cumsum(slots.num_junctions) - slots.num_junctions
        self.total = int(slots.num_junctions.sum())

    def number(self, utterance: np.ndarray, junction: np.ndarray) -> np.ndarray:
        return self.first[utterance] + junction


def _chains(slots: Slots) -> Iterator[_Chains]:
    """Chains of 0 slots, which are the junctions themselves, of 1, and so on to MAX_SKIPS."""
    if len(SKIPPED_ATTRIBUTES) < MAX_SKIPS:
        raise ValueError(
            f"arcs can name {len(SKIPPED_ATTRIBUTES)} units left out in a row, not {MAX_SKIPS}: "
            "the others would be lost from spans and posteriors"
        )
    junctions = _Junctions(slots)
    left = junctions.number(slots.utterance, slots.left)
    utterance, junction = ragged(slots.num_junctions)
    none = np.full(len(junction), NONE)
    chains = _Chains(0, utterance, junction, junction, none, none)
    yield chains
    for count in range(1, MAX_SKIPS + 1):
        chain, slot = equal_pairs(junctions.number(chains.utterance, chains.target), left)
        chains = _Chains(
            count=count,
            utterance=chains.utterance[chain],
            source=chains.source[chain],
            target=slots.right[slot],
            last=slot,
            before=chains.last[chain],
        )
        yield chains


def _before_silence(chains: _Chains, slots: Slots) -> np.ndarray:
    """Which chains lead from inside a word to its end, where silence may follow."""
    edge = slots.num_words[chains.utterance]
    inside = (chains.source > edge) & (chains.target <= edge)
    if chains.count > 1:
        inside &= slots.left[chains.last] > edge
    return np.flatnonzero(inside & (chains.count > 0))


def add_skips(
    table: ArcTable,
    branches: SlotBranches,
    layout: ColumnLayout,
    slots: Slots,
    final: np.ndarray,
    skip_score: float,
) -> None:
    """Add arcs that leave out units."""
    junctions = _Junctions(slots)
    begin = junctions.number(branches.utterance, branches.source)
    for chains in _chains(slots):
        if chains.count == 0:
            continue
        score = chains.count * skip_score
        chain, branch = equal_pairs(junctions.number(chains.utterance, chains.target), begin)
        add_starts(
            table,
            branches,
            layout,
            branch,
            chains.source[chain],
            score,
            **chains.left_out(chain),
        )
        if layout.silence:
            chain = _before_silence(chains, slots)
            table.add(
                score=score,
                utterance=chains.utterance[chain],
                source=chains.source[chain],
                target=chains.target[chain],
                label=0,
                kind=KIND_SILENCE,
                **chains.left_out(chain),
            )
        chain = np.flatnonzero(chains.target == slots.num_words[chains.utterance])
        utterance = chains.utterance[chain]
        table.add(
            score=score,
            utterance=utterance,
            source=chains.source[chain],
            target=final[utterance],
            label=-1,
            **chains.left_out(chain),
        )


def add_silence(table: ArcTable, slots: Slots) -> None:
    """Add optional silence at both edges and between words."""
    utterance, word = ragged(slots.num_words + 1)
    table.add(utterance=utterance, source=word, target=word, label=0, kind=KIND_SILENCE)


def add_fillers(
    table: ArcTable, slots: Slots, layout: ColumnLayout, first_state: np.ndarray, score: float
) -> None:
    """Add a state beside each junction, from ``first_state`` (B,) on, for sounds of no unit."""
    utterance, junction = ragged(slots.num_junctions)
    state = first_state[utterance] + junction
    common = dict(utterance=utterance, kind=KIND_FILLER)
    start = dict(label=layout.start_filler, is_start=1, score=score)
    table.add(source=junction, target=state, **start, **common)
    table.add(source=junction, target=junction, **start, **common)
    table.add(source=state, target=state, label=layout.hold_filler, **common)
    table.add(source=state, target=junction, label=layout.hold_filler, **common)


def fewest_frames(
    slots: Slots, of_unit: UnitBranches, layout: ColumnLayout, detours: Detours
) -> np.ndarray:
    """Frames of the shortest path of each utterance, int64 (B,)."""
    states = np.minimum.reduceat(of_unit.num_states, of_unit.begin)
    # Alternatives have more slots than a chain with as many junctions.
    is_chain = len(slots.unit) == (slots.num_junctions - 1).sum()
    if detours.skip_score is None and is_chain:
        frames = np.bincount(slots.utterance, states[slots.unit], len(slots.num_junctions))
        return frames.astype(np.int64)
    junctions = _Junctions(slots)
    left = junctions.number(slots.utterance, slots.left)
    sources, targets, costs, keys = [], [], [], []
    for chains in _chains(slots):
        chain, slot = equal_pairs(junctions.number(chains.utterance, chains.target), left)
        sources.append(junctions.number(chains.utterance, chains.source)[chain])
        targets.append(junctions.number(slots.utterance, slots.right)[slot])
        costs.append(states[slots.unit[slot]])
        keys.append(slot)
        if layout.silence:
            chain = _before_silence(chains, slots)
            sources.append(junctions.number(chains.utterance, chains.source)[chain])
            targets.append(junctions.number(chains.utterance, chains.target)[chain])
            costs.append(np.ones_like(chain))
            keys.append(chains.last[chain])
        if detours.skip_score is None:
            break
    # Slots that lead into a junction come before those that leave it, so in this order all ways
    # into a junction are known before it is left.
    order = np.argsort(np.concatenate(keys), kind="stable")
    steps = zip(*(np.concatenate(part)[order].tolist() for part in (sources, targets, costs)))
    fewest = [np.inf] * junctions.total
    for first in junctions.first.tolist():
        fewest[first] = 0
    for source, target, cost in steps:
        reached = fewest[source] + cost
        if reached < fewest[target]:
            fewest[target] = reached
    result = np.full(len(slots.num_words), np.inf)
    at = np.array(fewest)
    for chains in _chains(slots):
        last = chains.target == slots.num_words[chains.utterance]
        ends = at[junctions.number(chains.utterance, chains.source)[last]]
        np.minimum.at(result, chains.utterance[last], ends)
        if detours.skip_score is None:
            break
    # Where all units may be left out, something else has to be there, or one of them.
    anything = layout.silence or detours.filler_score is not None
    alone = 1 if anything else int(states.min())
    return np.where(result == 0, alone, result).astype(np.int64)
