"""From units, or words with pronunciations, to the acceptors of a whole batch, by arrays.

A *slot* is one unit of one pronunciation of one word. A *junction* is a point between slots: two
slots follow each other where the junction after one is that before the other. As a state of the
acceptor, a junction is "the last frame of what came before has been read".

A topology says which branches a unit has (:mod:`.topology`); one builder joins them for all. The
first frame of a branch leaves a junction, the last frame of a branch enters the next, and a direct
arc stands for branches of a single frame::

            start            hold            hold
      (J) --------> (state) ------> (J')     self-loop on the state: hold
       '------------------------------^      one frame: start

So the arcs of a unit grow with its branches, and not with their square. Where units have one or two
branches and nothing but units is spoken, junctions would only cost: there the last state of a
branch leads to the first state of the next ones directly, which accepts the same with fewer arcs.

Silence is a self-loop on the junctions at both edges and between words, or on all. An insertion has
a state beside each junction, and a self-loop on the junction for a single frame.

A deletion is a skip arc: it leaves the junction before the deleted units and reads the first frame
of what follows, or nothing and ends the path. Silence and insertions beside deleted units would
sound the same before, between or behind them; they stand before them, so that every path is counted
once. There is one exception. Behind the last units of a word may be silence, where none may be
before them, inside the word: an arc from inside the word then reads the first frame of that
silence.

States of an utterance: the junctions, the states of its slots in order, the insertions, the final
state. Within a slot mispronounced branches come first: k2 gives a tie to the later arc, so among
paths with the same segments the correct one wins.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import k2
import numpy as np
import torch

from .checks import checked_names, integer_array, listed, shown
from .layout import (
    DELETED_ATTRIBUTES,
    EVERYWHERE,
    KIND_INSERTION,
    KIND_SILENCE,
    KIND_UNIT,
    ColumnLayout,
)
from .topology import NONE, UnitBranches

#: Most deletions in a row: an arc names each of them by an attribute of its own, all of which
#: ``_Chains.deleted`` must fill.
MAX_DELETIONS = len(DELETED_ATTRIBUTES)
_DEFAULTS = {
    "slot": NONE,
    "perceived": NONE,
    "kind": NONE,
    "is_start": 0,
    "is_mispronounced": 0,
    "num_deleted": 0,
    "deleted": NONE,
    "deleted_before": NONE,
}
_FIELDS = ("utterance", "source", "target", "label", *_DEFAULTS)


@dataclass
class Slots:
    """All slots of a batch; every array is int64.

    Junctions are numbered within an utterance: 0 .. W around its W words, then those inside
    pronunciations.

    Attributes:
        num_words: (B,) words an utterance; also the number of its last junction.
        num_junctions: (B,) junctions an utterance.
        first_slot: (B,) where the slots of an utterance begin.
        utterance, word, unit: (n,) of each slot; ``word`` counts within the utterance.
        left, right: (n,) junctions before and after each slot.
    """

    num_words: np.ndarray
    num_junctions: np.ndarray
    first_slot: np.ndarray
    utterance: np.ndarray
    word: np.ndarray
    unit: np.ndarray
    left: np.ndarray
    right: np.ndarray

    @cached_property
    def first_junction(self) -> np.ndarray:
        """(B,) where the junctions of an utterance begin, numbered over the whole batch."""
        return np.cumsum(self.num_junctions) - self.num_junctions

    def numbered(self, utterance: np.ndarray, junction: np.ndarray) -> np.ndarray:
        """Junctions of utterances numbered over the whole batch, to match slots and chains by."""
        return self.first_junction[utterance] + junction


def read_utterances(
    utterances: Iterable, num_units: int, names: Sequence[str] | None = None
) -> Slots:
    """Read and check a batch; see ``MlFsaCompiler.compile`` for the two forms.

    Raises:
        ValueError: as ``MlFsaCompiler.compile``.
    """
    batch = _as_list(utterances, "the list of utterances")
    names = checked_names(names, len(batch))
    if len(batch) == 0:
        raise ValueError("no utterances to compile")
    batch = [_as_list(utterance, name) for name, utterance in zip(names, batch)]
    for name, utterance in zip(names, batch):
        if len(utterance) == 0:
            raise ValueError(f"{name} has no units")
    plain = all(isinstance(utterance[0], numbers.Integral) for utterance in batch)
    slots = _read_plain(batch, names) if plain else _read_words(batch, names)
    _check_range(slots, num_units, names)
    return slots


def _as_list(value: object, place: str) -> list:
    try:
        return listed(value)
    except TypeError:
        raise ValueError(f"{place} is {shown(value)}, not a list") from None


def _check_range(slots: Slots, num_units: int, names: Sequence[str]) -> None:
    wrong = np.flatnonzero((slots.unit < 0) | (slots.unit >= num_units))
    if len(wrong):
        slot = wrong[0]
        raise ValueError(
            f"{names[slots.utterance[slot]]}: unit {slots.unit[slot]} is out of range; "
            f"units are 0 to {num_units - 1}"
        )


def _read_plain(batch: list[list[int]], names: Sequence[str]) -> Slots:
    lengths = np.array([len(utterance) for utterance in batch])
    try:
        unit = integer_array([unit for utterance in batch for unit in utterance])
    except TypeError:
        name = next(name for name, utterance in zip(names, batch) if not _are_integers(utterance))
        raise ValueError(
            f"{name}: units must be integers: an utterance is a list of units, or a list of words, "
            "each a list of pronunciations"
        ) from None
    utterance = np.repeat(np.arange(len(batch)), lengths)
    first_slot = np.cumsum(lengths) - lengths
    word = np.arange(len(unit)) - first_slot[utterance]
    return Slots(
        num_words=lengths,
        num_junctions=lengths + 1,
        first_slot=first_slot,
        utterance=utterance,
        word=word,
        unit=unit,
        left=word,
        right=word + 1,
    )


def _are_integers(units: list) -> bool:
    try:
        integer_array(units)
    except TypeError:
        return False
    return True


def _read_words(batch: list[list], names: Sequence[str]) -> Slots:
    num_words, num_junctions, first_slot = [], [], []
    utterance_of, word_of, unit_of, left, right = [], [], [], [], []
    for index, words in enumerate(batch):
        first_slot.append(len(unit_of))
        junctions = len(words) + 1
        for word_index, word in enumerate(words):
            for pronunciation in _pronunciations(f"{names[index]}, word {word_index}", word):
                inside = list(range(junctions, junctions + len(pronunciation) - 1))
                junctions += len(inside)
                left += [word_index, *inside]
                right += [*inside, word_index + 1]
                unit_of += pronunciation
                utterance_of += [index] * len(pronunciation)
                word_of += [word_index] * len(pronunciation)
        num_words.append(len(words))
        num_junctions.append(junctions)
    columns = (num_words, num_junctions, first_slot, utterance_of, word_of)
    num_words, num_junctions, first_slot, utterance, word, left, right = (
        np.array(values, dtype=np.int64) for values in (*columns, left, right)
    )
    unit = integer_array(unit_of)
    return Slots(num_words, num_junctions, first_slot, utterance, word, unit, left, right)


def _pronunciations(place: str, word: object) -> list[tuple[int, ...]]:
    """Check one word and return its distinct pronunciations in order."""
    if isinstance(word, numbers.Integral) and not isinstance(word, bool):
        raise ValueError(
            f"{place}: found a unit where a word is expected; do not mix units and words"
        )
    if isinstance(word, (numbers.Number, str, bytes)):
        raise ValueError(f"{place}: units must be integers, not {shown(word)}")
    word = _as_list(word, place)
    if len(word) == 0:
        raise ValueError(f"{place} has no pronunciation")
    distinct: dict[tuple[int, ...], None] = {}
    for pronunciation in word:
        if isinstance(pronunciation, numbers.Integral):
            raise ValueError(
                f"{place}: a word is a list of pronunciations, each a list of units, not a list "
                "of units"
            )
        units = tuple(_as_list(pronunciation, f"{place}: a pronunciation"))
        if len(units) == 0:
            raise ValueError(f"{place} has a pronunciation without units")
        if not _are_integers(list(units)):
            raise ValueError(f"{place}: units must be integers, not {shown(list(units))}")
        distinct[units] = None
    return list(distinct)


def build_arcs(
    slots: Slots,
    layout: ColumnLayout,
    unit_branches: UnitBranches,
    deletion_score: float | None,
    insertion_score: float | None,
) -> k2.Fsa:
    """Build the frame-synchronous acceptors; see :mod:`.compiler` for their form.

    Args:
        slots: of the batch.
        layout: of the emission columns.
        unit_branches: branches of each unit.
        deletion_score: natural-log odds of deleting a unit; None: never.
        insertion_score: natural-log odds of each stretch of sound between units that belongs to
            none; None: never.

    Returns:
        An FsaVec on CPU with the attributes of ``MlFsaCompiler.compile``.
    """
    table = ArcTable()
    has_insertions = insertion_score is not None
    has_detours = has_insertions or layout.silence or deletion_score is not None
    if has_detours or layout.topology.junctions:
        branches = SlotBranches(slots, unit_branches, slots.num_junctions)
        final = branches.end_state + (slots.num_junctions if has_insertions else 0)
        add_stays(table, branches)
        add_ends(table, branches)
        add_starts(table, branches, np.arange(len(branches.slot)), branches.source)
        every = np.arange(len(slots.num_words))
        table.add(utterance=every, source=slots.num_words, target=final, label=-1)
        if deletion_score is not None:
            add_deletions(table, branches, layout, slots, final, deletion_score)
        if layout.silence:
            everywhere = layout.silence == EVERYWHERE
            add_silence(table, slots.num_junctions if everywhere else slots.num_words + 1)
        if has_insertions:
            add_insertions(table, slots, layout, branches.end_state, insertion_score)
    else:
        branches = SlotBranches(slots, unit_branches, np.ones_like(slots.num_words))
        final = branches.end_state
        add_stays(table, branches)
        add_joins(table, branches, slots, final)

    fields, scores = table.sorted()
    utterance, slot, kind = fields["utterance"], fields["slot"], fields["kind"]
    in_unit = slot >= 0
    first_slot = slots.first_slot[utterance]
    shortest = fewest_frames(slots, unit_branches, layout, deletion_score, insertion_score)
    attributes = {
        "unit_pos": _within(slot, first_slot),
        "word_pos": np.where(in_unit, slots.word[slot], NONE),
        "unit": np.where(in_unit, slots.unit[slot], NONE),
        "perceived": fields["perceived"],
        "kind": kind,
        "is_start": fields["is_start"],
        "is_mispronounced": fields["is_mispronounced"],
        "num_deleted": fields["num_deleted"],
        "deleted_pos": _within(fields["deleted"], first_slot),
        "deleted_before_pos": _within(fields["deleted_before"], first_slot),
        "min_frames": shortest[utterance],
        "layout_id": np.full_like(kind, layout.fingerprint),
    }
    arcs = np.stack(
        [fields["source"], fields["target"], fields["label"], scores.view(np.int32)], axis=1
    )
    return fsa_vec(arcs, final + 1, np.bincount(utterance, minlength=len(final)), attributes)


def _within(slot: np.ndarray, first_slot: np.ndarray) -> np.ndarray:
    return np.where(slot >= 0, slot - first_slot, NONE)


def fsa_vec(
    arcs: np.ndarray,
    states_per_fsa: np.ndarray,
    arcs_per_fsa: np.ndarray,
    attributes: dict[str, np.ndarray],
) -> k2.Fsa:
    """An FsaVec on CPU with int32 arc attributes.

    Args:
        arcs: as in :func:`fsa_vec_tensor`.
        states_per_fsa: as there.
        arcs_per_fsa: as there.
        attributes: integers (n,) by attribute name.
    """
    fsas = k2.Fsa(fsa_vec_tensor(arcs, states_per_fsa, arcs_per_fsa))
    for name, values in attributes.items():
        setattr(fsas, name, torch.from_numpy(values.astype(np.int32, copy=False)))
    return fsas


def fsa_vec_tensor(
    arcs: np.ndarray, states_per_fsa: np.ndarray, arcs_per_fsa: np.ndarray
) -> torch.Tensor:
    """Lay out an FsaVec as the one int32 tensor that k2 reads and writes FsaVecs as.

    This is the format of ``k2.Fsa.as_dict()["arcs"]``: number of FSAs, 0, row splits of states, row
    splits of arcs, then four numbers an arc. It avoids making one k2.Fsa an utterance.

    Args:
        arcs: integers (n, 4), source and target state within the FSA, label, and bits of the
            score, sorted by FSA and source state.
        states_per_fsa: integers (B,).
        arcs_per_fsa: integers (B,).
    """
    num_fsas = len(states_per_fsa)
    head = np.array([num_fsas, 0])
    state_splits = np.concatenate([[0], np.cumsum(states_per_fsa)])
    arc_splits = np.concatenate([[0], np.cumsum(arcs_per_fsa)])
    flat = np.concatenate([head, state_splits, arc_splits, arcs.reshape(-1)])
    return torch.from_numpy(flat.astype(np.int32))


class ArcTable:
    """Collects blocks of arcs; fields left out mean "does not apply"."""

    def __init__(self) -> None:
        self._blocks: list[dict[str, np.ndarray | float]] = []

    def add(self, score: np.ndarray | float = 0.0, **fields: np.ndarray | int) -> None:
        """Add a block of arcs; fields are arrays of one length, or numbers for all of them."""
        self._blocks.append({"score": score, **fields})

    def sorted(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """All arcs by utterance and source state, else in the order they came; and their scores."""
        ends = np.cumsum([np.size(block["utterance"]) for block in self._blocks]).tolist()
        places = [slice(begin, end) for begin, end in zip([0, *ends], ends)]

        def joined(name: str, missing: float, dtype: type) -> np.ndarray:
            column = np.empty(ends[-1], dtype=dtype)
            for block, place in zip(self._blocks, places):
                column[place] = block.get(name, missing)
            return column

        utterance, source = (joined(name, NONE, np.int64) for name in ("utterance", "source"))
        order = (utterance * (source.max() + 1) + source).argsort(kind="stable")
        # Most graphs have no use for some of the fields.
        used = set().union(*self._blocks)
        fields = {
            name: joined(name, _DEFAULTS.get(name, NONE), np.int32)[order]
            if name in used
            else np.full(ends[-1], _DEFAULTS[name], dtype=np.int32)
            for name in _FIELDS
        }
        return fields, joined("score", 0.0, np.float32)[order]


def ragged(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row of each element of a ragged array with these row lengths, and its place in the row."""
    row = np.repeat(np.arange(len(counts)), counts)
    return row, np.arange(len(row)) - (np.cumsum(counts) - counts)[row]


def equal_pairs(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All (i, j) with left[i] == right[j], by i and then by j."""
    order = np.argsort(right, kind="stable")
    begin = np.searchsorted(right[order], left, side="left")
    count = np.searchsorted(right[order], left, side="right") - begin
    row, position = ragged(count)
    return row, order[begin[row] + position]


class SlotBranches:
    """All branches of all slots of a batch, slot by slot.

    Attributes:
        slot, utterance, unit: (n,) of each branch.
        perceived: what it says was spoken; -1 where it cannot say.
        mispronounced: 0 or 1.
        score: of choosing it.
        num_states: its states.
        source, target: junctions that it leads from and to.
        state: its first state; last_state: its last.
        start: emission column of its first frame; hold: (n, S), of going on in its states.
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
        self.perceived = of_unit.perceived[index]
        self.mispronounced = of_unit.mispronounced[index].astype(np.int64)
        self.score = of_unit.score[index]
        self.start, self.hold = of_unit.start[index], of_unit.hold[index]
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
            perceived=self.perceived[which],
            kind=KIND_UNIT,
            is_mispronounced=self.mispronounced[which],
        )


def add_stays(table: ArcTable, branches: SlotBranches) -> None:
    """Add arcs between the states of a branch."""
    for state in range(int(branches.num_states.max())):
        which = np.flatnonzero(branches.num_states > state)
        fields = branches.fields(which)
        here, label = branches.state[which] + state, branches.hold[which, state]
        table.add(source=here, target=here, label=label, **fields)
        if state > 0:
            table.add(source=here - 1, target=here, label=label, **fields)


def add_ends(table: ArcTable, branches: SlotBranches) -> None:
    """Add arcs of the last frames of branches, into the junctions behind them."""
    for state in range(int(branches.num_states.max())):
        ends = np.flatnonzero(branches.num_states == state + 1)
        fields = branches.fields(ends)
        here, label = branches.state[ends] + state, branches.hold[ends, state]
        table.add(source=here, target=branches.target[ends], label=label, **fields)
        if state > 0:
            table.add(source=here - 1, target=branches.target[ends], label=label, **fields)


def add_joins(table: ArcTable, branches: SlotBranches, slots: Slots, final: np.ndarray) -> None:
    """Join branches directly: from the last state of each to the first of each that may follow."""
    before = slots.numbered(branches.utterance, branches.source)
    behind = slots.numbered(branches.utterance, branches.target)
    opening = np.flatnonzero(branches.source == 0)
    _enter(table, branches, opening, np.zeros_like(opening))
    previous, following = equal_pairs(behind, before)
    _enter(table, branches, following, branches.last_state[previous])
    closing = np.flatnonzero(branches.target == slots.num_words[branches.utterance])
    utterance = branches.utterance[closing]
    source = branches.last_state[closing]
    table.add(utterance=utterance, source=source, target=final[utterance], label=-1)


def _enter(table: ArcTable, branches: SlotBranches, which: np.ndarray, source: np.ndarray) -> None:
    fields = {**branches.fields(which), "label": branches.start[which], "is_start": 1}
    target, score = branches.state[which], branches.score[which]
    table.add(score=score, source=source, target=target, **fields)


def add_starts(
    table: ArcTable,
    branches: SlotBranches,
    which: np.ndarray,
    source: np.ndarray,
    extra_score: float = 0.0,
    **more: np.ndarray | int,
) -> None:
    """Add arcs of first frames: from the junctions ``source`` into the branches ``which``.

    Args:
        table: gets the arcs.
        branches: all branches.
        which: (n,) indices of branches.
        source: (n,) where their arcs come from.
        extra_score: score besides that of choosing the branch.
        more: further fields, (n,) or numbers.
    """
    target, label = branches.state[which], branches.start[which]
    score = branches.score[which] + extra_score
    fields = {**branches.fields(which), **more, "is_start": 1}
    table.add(score=score, source=source, target=target, label=label, **fields)
    # A branch of one state may be over after a single frame.
    one = branches.num_states[which] == 1
    fields = {name: np.broadcast_to(value, one.shape)[one] for name, value in fields.items()}
    target = branches.target[which[one]]
    table.add(score=score[one], source=source[one], target=target, label=label[one], **fields)


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

    def deleted(self, which: np.ndarray) -> dict[str, np.ndarray]:
        """Fields of an arc that deletes these chains."""
        deleted = {"deleted": self.last[which], "deleted_before": self.before[which]}
        return {"num_deleted": self.count, **deleted}


def _chains(slots: Slots) -> Iterator[_Chains]:
    """Chains of 0 slots, which are the junctions themselves, of 1, and so on to MAX_DELETIONS."""
    left = slots.numbered(slots.utterance, slots.left)
    utterance, junction = ragged(slots.num_junctions)
    none = np.full(len(junction), NONE)
    chains = _Chains(0, utterance, junction, junction, none, none)
    yield chains
    for count in range(1, MAX_DELETIONS + 1):
        chain, slot = equal_pairs(slots.numbered(chains.utterance, chains.target), left)
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


def add_deletions(
    table: ArcTable,
    branches: SlotBranches,
    layout: ColumnLayout,
    slots: Slots,
    final: np.ndarray,
    deletion_score: float,
) -> None:
    """Add arcs that delete units."""
    begin = slots.numbered(branches.utterance, branches.source)
    for chains in _chains(slots):
        if chains.count == 0:
            continue
        score = chains.count * deletion_score
        chain, branch = equal_pairs(slots.numbered(chains.utterance, chains.target), begin)
        add_starts(
            table,
            branches,
            branch,
            chains.source[chain],
            score,
            **chains.deleted(chain),
        )
        if layout.silence and layout.silence != EVERYWHERE:
            chain = _before_silence(chains, slots)
            table.add(
                score=score,
                utterance=chains.utterance[chain],
                source=chains.source[chain],
                target=chains.target[chain],
                label=0,
                kind=KIND_SILENCE,
                **chains.deleted(chain),
            )
        chain = np.flatnonzero(chains.target == slots.num_words[chains.utterance])
        utterance = chains.utterance[chain]
        table.add(
            score=score,
            utterance=utterance,
            source=chains.source[chain],
            target=final[utterance],
            label=-1,
            **chains.deleted(chain),
        )


def add_silence(table: ArcTable, num_junctions: np.ndarray) -> None:
    """Add optional silence at the first junctions of each utterance, int64 (B,) of them."""
    utterance, junction = ragged(num_junctions)
    table.add(utterance=utterance, source=junction, target=junction, label=0, kind=KIND_SILENCE)


def add_insertions(
    table: ArcTable, slots: Slots, layout: ColumnLayout, first_state: np.ndarray, score: float
) -> None:
    """Add a state beside each junction, from ``first_state`` (B,) on, for sounds of no unit."""
    utterance, junction = ragged(slots.num_junctions)
    state = first_state[utterance] + junction
    common = dict(utterance=utterance, kind=KIND_INSERTION)
    start = dict(label=layout.column(-1, 0), is_start=1, score=score)
    table.add(source=junction, target=state, **start, **common)
    table.add(source=junction, target=junction, **start, **common)
    table.add(source=state, target=state, label=layout.column(-1, 1), **common)
    table.add(source=state, target=junction, label=layout.column(-1, 1), **common)


def fewest_frames(
    slots: Slots,
    of_unit: UnitBranches,
    layout: ColumnLayout,
    deletion_score: float | None,
    insertion_score: float | None,
) -> np.ndarray:
    """Frames of the shortest path of each utterance, int64 (B,); see :func:`build_arcs`."""
    states = np.minimum.reduceat(of_unit.num_states, of_unit.begin)
    # Alternatives have more slots than a chain with as many junctions.
    is_chain = len(slots.unit) == (slots.num_junctions - 1).sum()
    if deletion_score is None and is_chain:
        frames = np.bincount(slots.utterance, states[slots.unit], len(slots.num_junctions))
        return frames.astype(np.int64)
    left = slots.numbered(slots.utterance, slots.left)
    sources, targets, costs, keys = [], [], [], []
    for chains in _chains(slots):
        chain, slot = equal_pairs(slots.numbered(chains.utterance, chains.target), left)
        sources.append(slots.numbered(chains.utterance, chains.source)[chain])
        targets.append(slots.numbered(slots.utterance, slots.right)[slot])
        costs.append(states[slots.unit[slot]])
        keys.append(slot)
        if layout.silence and layout.silence != EVERYWHERE:
            chain = _before_silence(chains, slots)
            sources.append(slots.numbered(chains.utterance, chains.source)[chain])
            targets.append(slots.numbered(chains.utterance, chains.target)[chain])
            costs.append(np.ones_like(chain))
            keys.append(chains.last[chain])
        if deletion_score is None:
            break
    # Slots that lead into a junction come before those that leave it, so in this order all ways
    # into a junction are known before it is left.
    order = np.argsort(np.concatenate(keys), kind="stable")
    steps = zip(*(np.concatenate(part)[order].tolist() for part in (sources, targets, costs)))
    fewest = [np.inf] * int(slots.num_junctions.sum())
    for first in slots.first_junction.tolist():
        fewest[first] = 0
    for source, target, cost in steps:
        reached = fewest[source] + cost
        if reached < fewest[target]:
            fewest[target] = reached
    result = np.full(len(slots.num_words), np.inf)
    at = np.array(fewest)
    for chains in _chains(slots):
        last = chains.target == slots.num_words[chains.utterance]
        ends = at[slots.numbered(chains.utterance, chains.source)[last]]
        np.minimum.at(result, chains.utterance[last], ends)
        if deletion_score is None:
            break
    # Where all units may be deleted, something else has to be there, or one of them.
    anything = layout.silence or insertion_score is not None
    alone = 1 if anything else int(states.min())
    return np.where(result == 0, alone, result).astype(np.int64)
