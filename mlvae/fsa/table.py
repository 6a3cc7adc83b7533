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
