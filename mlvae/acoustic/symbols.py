"""From the symbols of somebody's acoustic model to the units of a recipe.

Each column of a model's posteriors has a symbol. Symbols are brought to units by a table, or, where
there is none, by their names. What several symbols say of a unit is added up; a symbol that stands
for several units in a row (a vowel with its r) is divided evenly among them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from mlvae.data.lexicon import PHONES, fold_phone
from mlvae.errors import system_reason

#: The table that comes along: English in the IPA, as espeak-ng and others write it, to ARPAbet.
IPA = "ipa"
IPA_TABLE = Path(__file__).parent / "ipa_arpabet.tsv"
#: What a blank is called.
BLANKS = ("<blk>", "<blank>", "<pad>", "[PAD]", "<eps>", "<b>")
#: Symbols that icefall lists behind those of the model, to tell homophones apart.
_DISAMBIGUATION = re.compile(r"#\d+$")
#: Marks of stress, length, ties and joints in the IPA.
_MARKS = re.compile("[ˈˌ'ʼːˑ͜͡‿.\u0329\u0330\u0325\u02de]")
#: Where in a word a phone stands, as Kaldi's and icefall's lexicons have it.
_POSITION = re.compile(r"_[BIES]$")
_STRESS = re.compile(r"(?<=[A-Za-z])[0-2]$")


def read_tokens(path: Path) -> tuple[str, ...]:
    """The symbols of a ``tokens.txt``: a line has a symbol and its number, from 0 on.

    Raises:
        ValueError: the file cannot be read, or numbers are missing or come twice; names file and
            line.
    """
    symbols: dict[int, str] = {}
    for number, line in _lines(path):
        parts = line.split()
        if len(parts) != 2 or not parts[1].isdecimal():
            raise ValueError(f"{path}:{number}: a symbol and its number are wanted: {line!r:.60}")
        if _DISAMBIGUATION.match(parts[0]):
            continue
        if int(parts[1]) in symbols:
            raise ValueError(f"{path}:{number}: the number {parts[1]} comes twice")
        symbols[int(parts[1])] = parts[0]
    if not symbols or max(symbols) != len(symbols) - 1:
        raise ValueError(f"{path}: the numbers of its symbols are not 0, 1, 2 and so on")
    return tuple(symbols[number] for number in range(len(symbols)))


def read_map(path: Path) -> dict[str, tuple[str, ...]]:
    """A table of symbols and units: on each line a symbol, a tab, and a unit.

    Several units, divided by blanks, are what a symbol stands for one after the other; none says
    that it stands for no unit. Lines that begin with ``#`` and a blank are comments.

    Raises:
        ValueError: the file cannot be read, a line has no tab, or a symbol comes twice; names file
            and line.
    """
    found: dict[str, tuple[str, ...]] = {}
    for number, line in _lines(path):
        if line.startswith("# "):
            continue
        symbol, tab, units = line.partition("\t")
        symbol = unicodedata.normalize("NFC", symbol.strip())
        if not tab or not symbol:
            raise ValueError(
                f"{path}:{number}: a symbol, a tab and a unit are wanted: {line!r:.60}"
            )
        if symbol in found:
            raise ValueError(f"{path}:{number}: the symbol {symbol!r} comes twice")
        found[symbol] = tuple(units.split())
    if not found:
        raise ValueError(f"{path}: holds no symbols")
    return found


def _lines(path: Path) -> list[tuple[int, str]]:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as error:
        reason = system_reason(error)
        raise ValueError(f"{path} cannot be read: {reason}") from None
    lines = enumerate(text.split("\n"), start=1)
    return [(number, line.rstrip("\r")) for number, line in lines if line.strip()]


@dataclass(frozen=True)
class SymbolMap:
    """What the symbols of a model stand for."""

    #: float32 (V, N), the fraction of each symbol's posterior that a unit gets; rows sum to one, or
    #: to zero for a symbol of no unit.
    matrix: torch.Tensor
    unused: tuple[str, ...]  # symbols of no unit, without the blank
    missing: tuple[str, ...]  # units of no symbol

    def describe(self) -> str:
        """What is left on either side, in one line."""
        num_symbols, num_units = self.matrix.shape
        units, symbols = (", ".join(names) or "none" for names in (self.missing, self.unused))
        return (
            f"{num_symbols} symbols for {num_units} units; units without a symbol, which are never "
            f"flagged: {units}; symbols of no unit: {symbols}"
        )


def map_symbols(
    symbols: Sequence[str],
    units: Sequence[str],
    table: Mapping[str, Sequence[str]] | None = None,
    blank: int | None = None,
) -> SymbolMap:
    """Map the symbols of a model to units.

    A symbol is looked up as it is, then without its marks of stress, length and place in a word.
    Without a table, it stands for the unit of its own name. Names of units are compared likewise,
    without regard to capitals; where all units are the folded phones of the CMU dictionary, phones
    are folded as there (``AO`` to ``aa``).

    Args:
        symbols: V symbols.
        units: N units.
        table: units by symbol, as :func:`read_map` gives them; None: by name.
        blank: which symbol is the blank; None: none.

    Raises:
        ValueError: no symbol stands for any unit; or one is looked up without its marks, and those
            of the table that are alike but for marks stand for different units.
    """
    ids = {plain(unit): index for index, unit in reversed(list(enumerate(units)))}
    ids.update({unit: index for index, unit in enumerate(units)})
    folds = set(units) <= set(PHONES)
    unmarked: dict[str, dict[tuple[str, ...], str]] = {}  # by plain symbol units, and who has them
    for symbol, own in (table or {}).items():
        unmarked.setdefault(plain(symbol), {}).setdefault(tuple(own), symbol)

    def units_of(symbol: str) -> Sequence[str]:
        if table is None:
            return [symbol]
        symbol = unicodedata.normalize("NFC", symbol)
        for name in (symbol, plain(symbol)):
            if name in table:
                return table[name]
        found = unmarked.get(plain(symbol), {(): symbol})
        if len(found) > 1:
            raise ValueError(
                f"the table of symbols has no {symbol!r}, and different units for "
                f"{_some(sorted(found.values()))}, which differ only in marks: add {symbol!r}"
            )
        return next(iter(found))

    def id_of(unit: str) -> int | None:
        if unit in ids or plain(unit) in ids:
            return ids.get(unit, ids.get(plain(unit)))
        return ids.get(fold_phone(plain(unit))) if folds and unit.strip() else None

    matrix = torch.zeros(len(symbols), len(units))
    unused = []
    for row, symbol in enumerate(symbols):
        if row == blank:
            continue
        found = [id_of(unit) for unit in units_of(symbol)]
        if not found or None in found:
            unused.append(symbol)
            continue
        for unit in found:
            matrix[row, unit] += 1 / len(found)
    missing = [unit for unit, total in zip(units, matrix.sum(0).tolist()) if not total]
    if len(missing) == len(units):
        raise ValueError(
            f"no symbol of the model stands for a unit: symbols are {_some(symbols)}; units are "
            f"{_some(units)}"
        )
    return SymbolMap(matrix, tuple(unused), tuple(missing))


def plain(symbol: str) -> str:
    """A symbol without marks of stress, length and place in a word, in small letters."""
    bare = _MARKS.sub("", _POSITION.sub("", unicodedata.normalize("NFC", symbol)))
    return _STRESS.sub("", bare).casefold() or symbol


def _some(names: Sequence[str]) -> str:
    return " ".join(names[:8]) + (" ..." if len(names) > 8 else "")
