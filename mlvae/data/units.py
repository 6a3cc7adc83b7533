"""Canonical units: of a cut, and the table of their symbols and ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lhotse import CutSet
from lhotse.cut import Cut
from rapidfuzz.distance import Levenshtein

from mlvae.stage import atomic_path


def canonical_units(cut: Cut) -> list[str]:
    """The canonical units of a cut, as its one supervision has them.

    Raises:
        ValueError: if the cut has not exactly one supervision, or that one has no units.
    """
    if len(cut.supervisions) != 1:
        raise ValueError(f"{cut.id}: {len(cut.supervisions)} supervisions where one is expected")
    units = (cut.supervisions[0].custom or {}).get("units")
    if not units:
        raise ValueError(f"{cut.id}: no canonical units")
    return list(units)


@dataclass(frozen=True)
class UnitTable:
    """Symbols of the units; the position of a symbol is its id. There is no epsilon.

    Example:
        >>> table = UnitTable(("aa", "n", "t"))
        >>> table.ids(["n", "aa", "t"], utterance="knot")
        [1, 0, 2]
    """

    symbols: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.symbols)) < len(self.symbols):
            raise ValueError("a symbol occurs twice in the unit table")
        for symbol in self.symbols:
            if not symbol or len(symbol.split()) != 1:
                raise ValueError(f"{symbol!r} cannot be a symbol: empty, or with a space in it")
        object.__setattr__(self, "_ids", {symbol: i for i, symbol in enumerate(self.symbols)})

    def __len__(self) -> int:
        return len(self.symbols)

    def __contains__(self, symbol: str) -> bool:
        return symbol in self._ids

    def ids(self, units: Sequence[str], utterance: str) -> list[int]:
        """Ids of units; ValueError names one that is not in the table, and the utterance."""
        for unit in units:
            if unit not in self._ids:
                raise ValueError(f"{utterance}: unit {unit!r} is not in the unit table")
        return [self._ids[unit] for unit in units]

    def units(self, ids: Iterable[int]) -> list[str]:
        """Symbols of ids; IndexError where one is out of range."""
        ids = list(ids)
        if any(not 0 <= i < len(self) for i in ids):
            raise IndexError(f"unit ids {ids} are not all within 0 to {len(self) - 1}")
        return [self.symbols[i] for i in ids]

    @classmethod
    def load(cls, path: Path) -> UnitTable:
        """Read ``tokens.txt``, a ``symbol id`` a line, as Kaldi and k2 have it.

        Raises:
            ValueError: if there is no such file, a line is not of that form, or the ids are not
                0, 1, 2, ...
        """
        if not Path(path).is_file():
            raise ValueError(f"no unit table {path}: run stage 2 (units) first")
        pairs = []
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            fields = line.split()
            if len(fields) != 2 or not fields[1].isdecimal():
                raise ValueError(f"{path}: {line!r} is not 'symbol id'")
            pairs.append((int(fields[1]), fields[0]))
        pairs.sort()
        if [i for i, _ in pairs] != list(range(len(pairs))):
            raise ValueError(f"{path}: ids must be 0, 1, 2, ... without a gap")
        return cls(tuple(symbol for _, symbol in pairs))

    def save(self, path: Path) -> None:
        """Write ``tokens.txt``, atomically."""
        with atomic_path(Path(path)) as temporary:
            lines = [f"{symbol} {i}\n" for i, symbol in enumerate(self.symbols)]
            temporary.write_text("".join(lines), encoding="utf-8")


def align_symbols(wanted: Sequence[str], found: Sequence[str]) -> list[int | None]:
    """For each of ``wanted`` the index of its counterpart in ``found``, equal or not, or None.

    The alignment is one with the fewest edits (rapidfuzz).

    Example:
        >>> align_symbols(["k", "ae", "t", "s"], ["k", "eh", "t"])
        [0, 1, 2, None]
    """
    indexes: list[int | None] = [None] * len(wanted)
    for block in Levenshtein.opcodes(list(wanted), list(found)):
        if block.tag in ("equal", "replace"):  # as many on either side
            for offset in range(block.src_end - block.src_start):
                indexes[block.src_start + offset] = block.dest_start + offset
    return indexes


def count_units(cuts: CutSet) -> Counter[str]:
    """How often each unit occurs in the canonical sequences of the cuts."""
    return Counter(unit for cut in cuts for unit in canonical_units(cut))
