"""From best paths to units with times, without a Python loop over frames."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .layout import KIND_NAMES, KIND_UNIT, SKIPPED_ATTRIBUTES
from .topology import NONE


class UnitSpan(NamedTuple):
    """A stretch of frames that a best path gives to one unit, to silence or to a filler.

    The spans of an utterance tile it. Exactly one span of kind ``unit`` stands for each unit of the
    pronunciation that the path chose, in order; those left out have no length.

    Attributes:
        position: index of the unit in the chosen unit sequence, from 0; -1 for silence and
            fillers, as are unit, heard, word and slot.
        unit: the canonical unit.
        start: first frame, inclusive.
        end: end frame, exclusive.
        kind: ``unit``, ``silence`` or ``filler``.
        mispronounced: whether the path says that something else was spoken, or nothing.
        heard: what was spoken; equal to ``unit`` where correct, -1 where the topology cannot say,
            and for a unit that was left out.
        score: natural-log score of the path over these frames. What leaving units out costs is
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
    heard: int
    score: float
    word: int
    slot: int

    @property
    def is_deleted(self) -> bool:
        """Whether the unit was left out: it has no length, and lies where it would have been."""
        return self.kind == "unit" and self.start == self.end


@dataclass
class PathArcs:
    """Arcs of best paths, path by path, each with its final arc last; arrays of (n,).

    Attributes:
        path: int64, which path; non-decreasing.
        label: int64, -1 on final arcs.
        score: float.
        graph_arc: int64, the arc of the graphs behind each.
        attributes: of the arcs of the graphs, integer arrays by name: unit_pos, word_pos, unit,
            heard, kind, is_start, is_mispronounced, num_skipped, skipped_pos, skipped_before_pos.
    """

    path: np.ndarray
    label: np.ndarray
    score: np.ndarray
    graph_arc: np.ndarray
    attributes: dict[str, np.ndarray]

    def __getitem__(self, name: str) -> np.ndarray:
        """An attribute of the arcs of the paths."""
        return self.attributes[name][self.graph_arc]


def spans_of_paths(
    arcs: PathArcs, num_paths: int, slot_unit: Sequence[np.ndarray], slot_word: Sequence[np.ndarray]
) -> list[list[UnitSpan]]:
    """Cut best paths into spans.

    Args:
        arcs: the paths.
        num_paths: length of the result; paths without arcs give an empty list.
        slot_unit: unit of each slot of each path's graph.
        slot_word: word of each slot of each path's graph.

    Returns:
        One list of spans a path.
    """
    result: list[list[UnitSpan]] = [[] for _ in range(num_paths)]
    if len(arcs.path) == 0:
        return result
    kind = arcs["kind"]
    opens = np.empty(len(kind), dtype=bool)
    opens[0] = True
    opens[1:] = arcs.path[1:] != arcs.path[:-1]
    # A span begins with a path, with a start, and where the kind changes, as it does on the final
    # arc; what the final arc begins is only there for the units left out before it.
    begins = opens | (arcs["is_start"] != 0)
    begins[1:] |= kind[1:] != kind[:-1]
    first = np.flatnonzero(begins)
    origin = np.flatnonzero(opens)[np.cumsum(opens)[first] - 1]
    if not arcs["num_skipped"].any() and not arcs.score[arcs.label == -1].any():
        return _without_deletions(arcs, num_paths, first, origin)
    begin_arc = arcs.graph_arc[first]
    columns = zip(
        arcs.path[first].tolist(),
        (first - origin).tolist(),
        (np.append(first[1:], len(kind)) - origin).tolist(),
        arcs.label[first].tolist(),
        np.add.reduceat(arcs.score.astype(np.float64), first).tolist(),
        *(arcs.attributes[name][begin_arc].tolist() for name in _SPAN_ATTRIBUTES),
    )
    position = [0] * num_paths
    for (
        path,
        start,
        end,
        label,
        score,
        kind_id,
        unit,
        heard,
        wrong,
        word,
        slot,
        *skipped,
    ) in columns:
        for left_out in reversed(skipped[1 : 1 + skipped[0]]):
            cost = score if label == -1 and left_out == skipped[1] else 0.0
            result[path].append(
                UnitSpan(
                    position[path],
                    int(slot_unit[path][left_out]),
                    start,
                    start,
                    "unit",
                    True,
                    NONE,
                    cost,
                    int(slot_word[path][left_out]),
                    left_out,
                )
            )
            position[path] += 1
        if label == -1:
            if score != 0 and skipped[0] == 0:
                # Only where a caller gave scores to the final arcs.
                last = result[path][-1]
                result[path][-1] = last._replace(score=last.score + score)
            continue
        where = NONE
        if kind_id == KIND_UNIT:
            where = position[path]
            position[path] += 1
        result[path].append(
            UnitSpan(
                where, unit, start, end, KIND_NAMES[kind_id], bool(wrong), heard, score, word, slot
            )
        )
    return result


def _without_deletions(
    arcs: PathArcs, num_paths: int, first: np.ndarray, origin: np.ndarray
) -> list[list[UnitSpan]]:
    """The same where nothing is left out: all columns at once, which is several times faster."""
    score = np.add.reduceat(arcs.score.astype(np.float64), first)
    end = np.append(first[1:], len(arcs.path)) - origin
    emitting = arcs.label[first] != -1
    first, origin, score, end = first[emitting], origin[emitting], score[emitting], end[emitting]
    path = arcs.path[first]
    begin_arc = arcs.graph_arc[first]
    unit_pos, word_pos, unit, heard, kind, wrong = (
        arcs.attributes[name][begin_arc]
        for name in ("unit_pos", "word_pos", "unit", "heard", "kind", "is_mispronounced")
    )
    bounds = np.searchsorted(path, np.arange(num_paths + 1))
    is_unit = kind == KIND_UNIT
    before = np.append(0, np.cumsum(is_unit))
    position = np.where(is_unit, before[:-1] - before[bounds[path]], NONE)
    names = np.array(KIND_NAMES, dtype=object)[kind]
    columns = (position, unit, first - origin, end, names, wrong != 0, heard, score, word_pos)
    rows = zip(*(column.tolist() for column in (*columns, unit_pos)))
    # What UnitSpan._make does, without Python code for each span.
    spans = list(map(functools.partial(tuple.__new__, UnitSpan), rows))
    return [spans[begin:stop] for begin, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist())]


_SPAN_ATTRIBUTES = (
    "kind",
    "unit",
    "heard",
    "is_mispronounced",
    "word_pos",
    "unit_pos",
    "num_skipped",
    *SKIPPED_ATTRIBUTES,
)
