"""Builds the arcs of a whole batch of acceptors as arrays.

A topology only says which branches a unit has (:mod:`.branches`); one builder joins them for all.
Units meet in *junctions*: a junction is the state "the last frame of what came before has been
read". The first frame of a branch leaves one, the last frame of a branch enters the next, and a
direct arc stands for branches of a single frame::

            start            hold            hold
      (J) --------> (state) ------> (J')     self-loop on the state: hold
       '------------------------------^      one frame: start

So the arcs of a unit grow with its branches, and not with their square. Where units have one or two
branches and nothing but units is spoken, junctions would only cost: there the last state of a
branch leads to the first state of the next ones directly, which accepts the same with fewer arcs.
:mod:`.spoken` has the arcs of units, :mod:`.detours` those of silence, fillers and units left out.

States of an utterance: the junctions, the states of its slots in order, the fillers, the final
state. Within a slot mispronounced branches come first: k2 gives a tie to the later arc, so among
paths with the same segments the correct one wins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .branches import UnitBranches
from .detours import Detours, add_fillers, add_silence, add_skips, fewest_frames
from .layout import NONE, ColumnLayout
from .slots import Slots
from .spoken import SlotBranches, add_ends, add_joins, add_starts, add_stays
from .table import ArcTable


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


def build_arcs(
    slots: Slots, layout: ColumnLayout, unit_branches: UnitBranches, detours: Detours
) -> Arcs:
    """Build the frame-synchronous acceptors; see :mod:`.compiler` for their form."""
    table = ArcTable()
    has_fillers = detours.filler_score is not None
    has_detours = has_fillers or layout.silence or detours.skip_score is not None
    if has_detours or layout.topology == "substitution":
        branches = SlotBranches(slots, unit_branches, slots.num_junctions)
        final = branches.end_state + (slots.num_junctions if has_fillers else 0)
        add_stays(table, branches, layout)
        add_ends(table, branches, layout)
        add_starts(table, branches, layout, np.arange(len(branches.slot)), branches.source)
        every = np.arange(len(slots.num_words))
        table.add(utterance=every, source=slots.num_words, target=final, label=-1)
        if detours.skip_score is not None:
            add_skips(table, branches, layout, slots, final, detours.skip_score)
        if layout.silence:
            add_silence(table, slots)
        if has_fillers:
            add_fillers(table, slots, layout, branches.end_state, detours.filler_score)
    else:
        branches = SlotBranches(slots, unit_branches, np.ones_like(slots.num_words))
        final = branches.end_state
        add_stays(table, branches, layout)
        add_joins(table, branches, layout, slots, final)

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
        "min_frames": fewest_frames(slots, unit_branches, layout, detours)[utterance],
        "layout_id": np.full_like(kind, layout.fingerprint),
    }
    arcs = np.stack(
        [fields["source"], fields["target"], fields["label"], scores.view(np.int32)], axis=1
    )
    return Arcs(
        arcs=arcs,
        states_per_fsa=final + 1,
        arcs_per_fsa=np.bincount(utterance, minlength=len(final)),
        attributes={
            name: values.astype(np.int32, copy=False) for name, values in attributes.items()
        },
    )


def _within(slot: np.ndarray, first_slot: np.ndarray) -> np.ndarray:
    return np.where(slot >= 0, slot - first_slot, NONE)
