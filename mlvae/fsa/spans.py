"""From best paths to units with times, without a Python loop over frames."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .layout import DELETED_ATTRIBUTES, KIND_NAMES, KIND_UNIT
from .topology import NONE


class UnitSpan(NamedTuple):
    """A stretch of frames that a best path gives to one unit, to silence or to an insertion.

    The spans of an utterance tile it. Exactly one span of kind ``unit`` stands for each unit of the
    pronunciation that the path chose, in order; deleted ones have no length.

    Attributes:
        position: index of the unit in the chosen unit sequence, from 0; -1 for silence and
            insertions, as are unit, perceived, word and slot.
        unit: the canonical unit.
        start: first frame, inclusive.
        end: end frame, exclusive.
        kind: ``unit``, ``silence`` or ``insertion``.
        mispronounced: whether the path says that something else was spoken, or nothing.
        perceived: what was spoken; equal to ``unit`` where correct, -1 where the topology cannot
            say, and for a deletion.
        score: natural-log score of the path over these frames. What deletions cost is
            part of the span that follows them, or of the last of them at the end, so that the sum
            over spans is the score of the path.
        word: index of the word; equal to ``position`` for plain unit lists.
        slot: the unit's ``unit_pos`` in the graph, which indexes the result of ``posteriors``;
            equal to ``position`` unless words have alternative pronunciations.
    """

    position: int
    unit: int
    start: int
    end: int
    kind: str
    mispronounced: bool
    perceived: int
    score: float
    word: int
    slot: int

    @property
    def is_deletion(self) -> bool:
        """Whether the unit is deleted: it has no length, and lies where it would have been."""
        return self.kind == "unit" and self.start == self.end


def spans_of_paths(
    path: np.ndarray,
    label: np.ndarray,
    score: np.ndarray,
    graph_arc: np.ndarray,
    attributes: dict[str, np.ndarray],
    num_paths: int,
    slots: Sequence[tuple[np.ndarray, np.ndarray]],
) -> list[list[UnitSpan]]:
    """Cut best paths into spans, without a Python loop over frames or spans.

    The n arcs of the paths come path by path, each path with its final arc last.

    Args:
        path: int64 (n,), which path each arc is of; non-decreasing.
        label: int64 (n,), -1 on final arcs.
        score: float (n,).
        graph_arc: int64 (n,), the arc of the graphs behind each.
        attributes: of the arcs of the graphs, integer arrays by name: unit_pos, word_pos, unit,
            perceived, kind, is_start, is_mispronounced, num_deleted, deleted_pos and
            deleted_before_pos.
        num_paths: length of the result; paths without arcs give an empty list.
        slots: of each path's graph, unit and word of each slot; only read if there are deletions.

    Returns:
        One list of spans a path.
    """
    if len(path) == 0:
        return [[] for _ in range(num_paths)]
    kind, is_final = attributes["kind"][graph_arc], label == -1
    opens = np.empty(len(kind), dtype=bool)
    opens[0] = True
    opens[1:] = path[1:] != path[:-1]
    # A span begins with a path, with a start, and where the kind changes, as it does on the final
    # arc; what the final arc begins is only there for the deletions before it.
    begins = opens | (attributes["is_start"][graph_arc] != 0)
    begins[1:] |= kind[1:] != kind[:-1]
    first = np.flatnonzero(begins)
    origin = np.flatnonzero(opens)[np.cumsum(opens)[first] - 1]
    graph_arc = graph_arc[first]
    columns = {name: attributes[name][graph_arc] for name in _SPAN_ATTRIBUTES}
    columns["path"] = path[first]
    columns["start"], columns["end"] = first - origin, np.append(first[1:], len(kind)) - origin
    columns["score"] = np.add.reduceat(score.astype(np.float64), first)
    scored_ends = score[is_final].any()
    is_final = is_final[first]
    if scored_ends:
        # Where a caller gave scores to final arcs without deletions.
        plain = np.flatnonzero(is_final & (columns["num_deleted"] == 0))
        columns["score"][plain - 1] += columns["score"][plain]
    if columns["num_deleted"].any():
        columns = _with_deletions(columns, is_final, slots)
    else:
        columns = {name: values[~is_final] for name, values in columns.items()}
    path, kind = columns["path"], columns["kind"]
    bounds = np.searchsorted(path, np.arange(num_paths + 1))
    is_unit = kind == KIND_UNIT
    before = np.append(0, np.cumsum(is_unit))
    columns["position"] = np.where(is_unit, before[:-1] - before[bounds[path]], NONE)
    columns["kind"] = np.array(KIND_NAMES, dtype=object)[kind]
    columns["mispronounced"] = columns["is_mispronounced"] != 0
    columns["word"], columns["slot"] = columns["word_pos"], columns["unit_pos"]
    rows = zip(*(columns[name].tolist() for name in UnitSpan._fields))
    # What UnitSpan._make does, without Python code for each span.
    spans = list(map(functools.partial(tuple.__new__, UnitSpan), rows))
    return [spans[begin:stop] for begin, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist())]


def _with_deletions(
    columns: dict[str, np.ndarray],
    is_final: np.ndarray,
    slots: Sequence[tuple[np.ndarray, np.ndarray]],
) -> dict[str, np.ndarray]:
    """Columns of spans with rows for the deletions before each, and without those of final arcs.

    Args:
        columns: (n,) each, of spans and final arcs.
        is_final: (n,), which are final arcs.
        slots: as in :func:`spans_of_paths`.
    """
    count = columns["num_deleted"]
    size = count + ~is_final
    row = np.repeat(np.arange(len(size)), size)
    place = np.arange(len(row)) - (np.cumsum(size) - size)[row]
    # The last deleted unit has 1, the one before it 2, and the span that follows 0 or less.
    back = count[row] - place
    gone = back > 0
    slot = np.stack([columns[name] for name in DELETED_ATTRIBUTES])[back[gone] - 1, row[gone]]
    result = {name: values[row] for name, values in columns.items()}
    sizes = [len(unit) for unit, _ in slots]
    index = (np.cumsum(sizes) - sizes)[result["path"][gone]] + slot
    unit, word = (np.concatenate(values) for values in zip(*slots))
    result["unit_pos"][gone], result["unit"][gone], result["word_pos"][gone] = (
        slot,
        unit[index],
        word[index],
    )
    result["kind"][gone], result["perceived"][gone] = KIND_UNIT, NONE
    result["is_mispronounced"][gone] = 1
    result["end"][gone] = result["start"][gone]
    # What it costs goes to the span that follows, or to the last unit at the end.
    result["score"][gone & ~(is_final[row] & (back == 1))] = 0.0
    return result


_SPAN_ATTRIBUTES = (
    "kind",
    "unit",
    "perceived",
    "is_mispronounced",
    "word_pos",
    "unit_pos",
    "num_deleted",
    *DELETED_ATTRIBUTES,
)
