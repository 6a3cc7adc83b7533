"""A table that collects arcs, and two ways to pair rows of arrays."""

from __future__ import annotations

import numpy as np

from .layout import NONE

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
_DEFAULTS = {
    "slot": NONE,
    "heard": NONE,
    "kind": NONE,
    "is_start": 0,
    "is_mispronounced": 0,
    "num_skipped": 0,
    "skipped": NONE,
    "skipped_before": NONE,
}


class ArcTable:
    """Collects blocks of arcs; fields left out mean "does not apply"."""

    def __init__(self) -> None:
        self._blocks: list[np.ndarray] = []
        self._scores: list[np.ndarray] = []

    def add(self, score: np.ndarray | float = 0.0, **fields: np.ndarray | int) -> None:
        """Add a block of arcs; fields are arrays of one length, or numbers for all of them."""
        columns = [fields[name] if name in fields else _DEFAULTS[name] for name in _FIELDS]
        block = np.empty((len(columns), np.size(fields["utterance"])), dtype=np.int64)
        for row, column in zip(block, columns):
            row[:] = column
        self._blocks.append(block)
        self._scores.append(np.broadcast_to(np.float32(score), block.shape[1:]))

    def sorted(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """All arcs by utterance and source state, else in the order they came; and their scores."""
        table = np.concatenate(self._blocks, axis=1)
        place = table[0] * (table[1].max() + 1) + table[1]
        order = place.argsort(kind="stable")
        scores = np.concatenate(self._scores)[order]
        return dict(zip(_FIELDS, table.take(order, axis=1))), scores


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
