"""Spans of many cuts in little memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence

import numpy as np
import torch

from mlvae.fsa import UnitSpan
from mlvae.fsa.layout import KIND_NAMES
from mlvae.train.loop import text_of, text_tensor

_KINDS = {name: number for number, name in enumerate(KIND_NAMES)}
_INTEGERS = ("position", "unit", "start", "end", "perceived", "word", "slot")
#: The fields of a span, its kind by number.
_ROW = np.dtype(
    [
        (name, np.int32 if name in _INTEGERS else other)
        for name, other in zip(
            UnitSpan._fields, [None] * 4 + [np.uint8, np.bool_, None, np.float64, None, None]
        )
    ]
)
_KIND = UnitSpan._fields.index("kind")


class PackedSpans(MutableMapping[str, Sequence[UnitSpan]]):
    """Spans by cut id, in the order in which cuts came, at 38 bytes a span.

    In lists they take 130 and more. What is read is a list that was made for the reader.

    Args:
        spans: to begin with.

    Example:
        >>> spans = PackedSpans({"a1": [UnitSpan(0, 3, 0, 9, "unit", False, 3, -1.5, 0, 0)]})
        >>> spans["a1"][0].end
        9
    """

    def __init__(self, spans: Mapping[str, Sequence[UnitSpan]] | None = None) -> None:
        self._rows: dict[str, np.ndarray] = {}
        self.update(spans or {})

    def __getitem__(self, cut_id: str) -> list[UnitSpan]:
        return [
            UnitSpan(*row[:_KIND], KIND_NAMES[row[_KIND]], *row[_KIND + 1 :])
            for row in self._rows[cut_id].tolist()
        ]

    def __setitem__(self, cut_id: str, spans: Sequence[UnitSpan]) -> None:
        rows = [(*s[:_KIND], _KINDS[s.kind], *s[_KIND + 1 :]) for s in spans]
        self._rows[cut_id] = np.array(rows, dtype=_ROW)

    def __delitem__(self, cut_id: str) -> None:
        del self._rows[cut_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, cut_id: object) -> bool:
        return cut_id in self._rows

    def update(self, spans: Mapping[str, Sequence[UnitSpan]]) -> None:
        """Take over the spans of others, which replace those of the same cuts."""
        if isinstance(spans, PackedSpans):
            self._rows.update(spans._rows)  # they are never changed
        else:
            super().update(spans)

    def some(self, cut_ids: Sequence[str]) -> PackedSpans:
        """Those of some cuts, in their order."""
        found = PackedSpans()
        found._rows = {cut_id: self._rows[cut_id] for cut_id in cut_ids}
        return found

    def tensors(self) -> dict[str, torch.Tensor]:
        """All that a checkpoint needs for :meth:`from_tensors`."""
        lengths = [len(rows) for rows in self._rows.values()]
        rows = np.concatenate([np.zeros(0, _ROW), *self._rows.values()])
        return {
            "names": text_tensor(list(self._rows)),
            "lengths": torch.tensor(lengths, dtype=torch.int64),
            "rows": torch.from_numpy(rows.view(np.uint8)),
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, torch.Tensor]) -> PackedSpans:
        """What :meth:`tensors` gave."""
        spans, rows = cls(), tensors["rows"].numpy().view(_ROW)
        ends = tensors["lengths"].cumsum(0)[:-1].tolist()
        spans._rows = dict(zip(text_of(tensors["names"]), np.split(rows, ends)))
        return spans
