"""From best paths to units with times, without a Python loop over frames."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .layout import KIND_NAMES, KIND_UNIT, NONE


class UnitSpan(NamedTuple):
    """A stretch of frames that a best path gives to one unit, or to silence.

    The spans of an utterance tile it. Exactly one span of kind ``unit`` stands for each unit of the
    pronunciation that the path chose, in order.

    Attributes:
        position: index of the unit in the chosen unit sequence, from 0; -1 for silence.
        unit: the canonical unit; -1 for silence.
        start: first frame, inclusive.
        end: end frame, exclusive.
        kind: ``unit``, ``silence`` or ``filler``.
        mispronounced: whether the path says that something else was spoken.
        heard: what was spoken; equal to ``unit`` where correct, -1 where the topology cannot say.
        score: natural-log score of the path over these frames.
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


def spans_of_paths(
    utterance, graph_arc, attributes, scores, num_utterances: int
) -> list[list[UnitSpan]]:
    """Cut best paths into spans.

    Args:
        utterance: int array (n,), the utterance of each emitting arc; non-decreasing, and within
            an utterance one arc a frame, in order.
        graph_arc: int array (n,), the arc of the graphs that each is a copy of.
        attributes: attributes of the graphs' arcs by name, int arrays: unit_pos, word_pos, unit,
            heard, kind, is_start, is_mispronounced.
        scores: float array (n,), arc scores.
        num_utterances: length of the result; utterances without arcs give an empty list.

    Returns:
        One list of spans an utterance.
    """
    result: list[list[UnitSpan]] = [[] for _ in range(num_utterances)]
    num_arcs = len(utterance)
    if num_arcs == 0:
        return result
    kind = attributes["kind"][graph_arc]
    first_of_utterance = np.empty(num_arcs, dtype=bool)
    first_of_utterance[0] = True
    first_of_utterance[1:] = utterance[1:] != utterance[:-1]
    begins = first_of_utterance | (attributes["is_start"][graph_arc] != 0)
    begins[1:] |= kind[1:] != kind[:-1]

    first = np.flatnonzero(begins)
    last = np.append(first[1:], num_arcs)
    utterance_begin = np.flatnonzero(first_of_utterance)
    # Frame 0 of the utterance that each span belongs to, as an index into the arcs.
    origin = utterance_begin[np.cumsum(first_of_utterance)[first] - 1]
    score = np.add.reduceat(scores.astype(np.float64), first)

    is_unit = kind[first] == KIND_UNIT
    units_so_far = np.cumsum(is_unit)
    first_span = np.searchsorted(first, utterance_begin)
    before = (units_so_far - is_unit)[first_span]
    position = units_so_far - 1 - before[np.cumsum(first_of_utterance)[first] - 1]
    position = np.where(is_unit, position, NONE)

    opening = graph_arc[first]
    columns = (
        position,
        attributes["unit"][opening],
        first - origin,
        last - origin,
        np.array(KIND_NAMES, dtype=object)[kind[first]],
        attributes["is_mispronounced"][opening] != 0,
        attributes["heard"][opening],
        score,
        attributes["word_pos"][opening],
        attributes["unit_pos"][opening],
    )
    spans = list(map(UnitSpan._make, zip(*(column.tolist() for column in columns))))
    bounds = np.append(first_span, len(spans)).tolist()
    for index, begin, end in zip(utterance[utterance_begin].tolist(), bounds, bounds[1:]):
        result[index] = spans[begin:end]
    return result
