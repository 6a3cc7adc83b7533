"""Pronunciations of words that are in no lexicon, as espeak-ng reads them.

espeak-ng has rules for more than a hundred languages, and brings them. (g2p_en and its forks, which
know English alone, fetch data of NLTK from the network when they are imported.) It names sounds in
IPA; a table says which units they are. Rules are right less often than dictionaries: what was made
so is kept in :attr:`G2p.made`, so that it can be read and corrected.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from mlvae.made import InTheWayError, Record, atomic_path
from mlvae.stage import log

Pronunciation = tuple[str, ...]

#: A file of the words that were made, which may be corrected and given as a lexicon.
MADE_WORDS = "g2p_words.txt"
#: What espeak-ng calls a language: ``en-us``, ``de``, ``pt-br``.
LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z0-9]{1,8}){0,3}")

ENGLISH = {
    ipa: tuple(phones.split())
    for ipa, phones in (
        *(("æ", "ae"), ("a", "ae"), ("ɑː", "aa"), ("ɒ", "aa"), ("ɔː", "aa"), ("ɔ", "aa")),
        *(("ʌ", "ah"), ("ə", "ah"), ("ɐ", "ah"), ("ɚ", "er"), ("ɜː", "er"), ("ɛ", "eh")),
        *(("ɪ", "ih"), ("ᵻ", "ih"), ("iː", "iy"), ("i", "iy"), ("ʊ", "uh"), ("uː", "uw")),
        *(("aɪ", "ay"), ("aʊ", "aw"), ("eɪ", "ey"), ("ɔɪ", "oy"), ("oʊ", "ow"), ("əʊ", "ow")),
        *(("ɑːɹ", "aa r"), ("ɔːɹ", "aa r"), ("oːɹ", "aa r"), ("ɛɹ", "eh r"), ("eə", "eh r")),
        *(("ɪɹ", "ih r"), ("ʊɹ", "uh r"), ("ʊə", "uh r"), ("aɪɚ", "ay er"), ("aɪə", "ay ah")),
        *(("iə", "iy ah"), ("əl", "ah l"), ("n̩", "ah n"), ("p", "p"), ("b", "b"), ("t", "t")),
        *(("ɾ", "t"), ("ʔ", "t"), ("d", "d"), ("k", "k"), ("x", "k"), ("ɡ", "g"), ("tʃ", "ch")),
        *(("dʒ", "jh"), ("f", "f"), ("v", "v"), ("θ", "th"), ("ð", "dh"), ("s", "s"), ("z", "z")),
        *(("ʃ", "sh"), ("ʒ", "sh"), ("h", "hh"), ("m", "m"), ("n", "n"), ("ŋ", "ng"), ("l", "l")),
        *(("ɬ", "l"), ("ɹ", "r"), ("r", "r"), ("w", "w"), ("j", "y")),
    )
}
"""The folded ARPAbet phones (:data:`mlvae.data.lexicon.PHONES`) of espeak-ng's English sounds."""

_IPA, _UTF8, _RETRIEVAL, _KEEP_RUNNING = 0x02, 1, 1, 0x8000  # flags of speak_lib.h
_SEPARATOR = "_"
_OTHER_LANGUAGE = re.compile(r"\([a-z-]+\)")
_STRESS = "ˈˌ"


class G2p:
    """Reads single words of a language, as espeak-ng calls it.

    A table has by IPA symbol of espeak-ng, without stress, the units that it is. A symbol that is
    not there is a unit itself, where ``units`` allow it (None: any). ``made`` are the words that
    were read up to now, with their units.

    Raises:
        ValueError: espeak-ng is not installed, or has no such language.

    Example:
        >>> from mlvae.data.lexicon import PHONES
        >>> G2p("en-us", ENGLISH, PHONES)("strengthener")
        ('s', 't', 'r', 'eh', 'ng', 'th', 'ah', 'n', 'er')
    """

    def __init__(
        self,
        language: str,
        table: Mapping[str, Sequence[str]],
        units: Collection[str] | None = None,
    ) -> None:
        self.language, self.table = language, table
        self.units = None if units is None else frozenset(units)
        self.made: dict[str, Pronunciation] = {}
        _ipa("", language)

    def __call__(self, word: str) -> Pronunciation:
        """The units of a word, which is spelt as :func:`mlvae.data.text.normalized` does.

        Raises:
            ValueError: it cannot be read; says why.
        """
        if word not in self.made:
            self.made[word] = self._read(word)
        return self.made[word]

    def _read(self, word: str) -> Pronunciation:
        said = _OTHER_LANGUAGE.sub("", _ipa(word, self.language))
        if " " in said:
            raise ValueError(f"espeak-ng ({self.language}) spells it letter by letter")
        symbols = [part.strip(_STRESS) for part in said.split(_SEPARATOR)]
        units = tuple(
            unit for symbol in symbols if symbol for unit in self.table.get(symbol, (symbol,))
        )
        if not units:
            raise ValueError(f"espeak-ng ({self.language}) says nothing")
        if self.units is not None and (strange := [u for u in units if u not in self.units]):
            raise ValueError(
                f"no unit for {', '.join(dict.fromkeys(strange))} of espeak-ng ({self.language})"
            )
        return units


def g2p_fields(language: str, table: Path | None) -> dict[str, Any]:
    """The field ``g2p`` of ``corpus.json`` and ``model.json``.

    A table is a file of lines ``symbol unit unit ...``, the IPA symbol of espeak-ng first.

    Raises:
        ValueError: the file cannot be read, or has a symbol twice; names it.
    """
    from mlvae.data.lexicon import read_words

    if table is None:
        return {"language": language}
    found = read_words(table)
    if twice := [symbol for symbol, several in found.items() if len(several) > 1]:
        raise ValueError(f"{table}: {twice[0]} has units on several lines")
    return {"language": language, "table": {name: list(own[0]) for name, own in found.items()}}


def g2p_of(said: Mapping[str, Any], arpabet: bool, units: Collection[str] | None) -> G2p:
    """What :func:`g2p_fields` describe; the table of ARPAbet phones is :data:`ENGLISH`.

    Raises:
        ValueError: it cannot be used; says why.
    """
    check_g2p(said, arpabet)
    return G2p(said["language"], ENGLISH if arpabet else said.get("table", {}), units)


def check_g2p(said: Mapping[str, Any], arpabet: bool) -> None:
    """Check :func:`g2p_fields`; arguments and errors as of :func:`g2p_of`."""
    language, table = said.get("language"), said.get("table", {})
    if not isinstance(language, str) or not LANGUAGE.fullmatch(language):
        raise ValueError(f"g2p: {language!r:.40} is no language of espeak-ng, such as en-us or de")
    if arpabet and language.split("-")[0] != "en":
        raise ValueError(f"g2p: {language}: the phones are English ones: en-us, en-gb")
    if not isinstance(table, dict) or not all(
        isinstance(found, list) and all(isinstance(unit, str) for unit in found)
        for found in table.values()
    ):
        raise ValueError("g2p: its table has no list of units for each symbol")
    if arpabet and table:
        raise ValueError("g2p: ARPAbet phones have a table already")


def write_made(made: Mapping[str, Pronunciation], folder: Path, record: Record, stage: str) -> None:
    """Say which words were made, and write them with their units to :data:`MADE_WORDS`.

    Where there are none, what an earlier run wrote is removed. One that somebody has corrected
    stays as it is.
    """
    path = Path(folder) / MADE_WORDS
    if not made:
        with contextlib.suppress(InTheWayError):
            record.remove(path)
        return
    text = "".join(f"{word}\t{' '.join(units)}\n" for word, units in sorted(made.items()))
    where = f"not listed, as {path} was changed"
    with contextlib.suppress(InTheWayError):
        with atomic_path(path, record) as temporary:
            temporary.write_text(text, encoding="utf-8")
        where = f"listed in {path}"
    some = ", ".join(sorted(made)[:10]) + (", ..." if len(made) > 10 else "")
    log(f"{stage}: words made by g2p: {len(made)} ({some}), {where}")


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    try:
        import espeakng_loader
    except ImportError:
        raise ValueError(
            "g2p needs the package espeakng-loader: pip install espeakng-loader"
        ) from None
    library = ctypes.CDLL(espeakng_loader.get_library_path())
    data = espeakng_loader.get_data_path().encode()
    if library.espeak_Initialize(_RETRIEVAL, 0, data, _KEEP_RUNNING) <= 0:
        raise ValueError("g2p: espeak-ng does not start")
    library.espeak_TextToPhonemes.restype = ctypes.c_char_p
    return library


def _ipa(word: str, language: str) -> str:
    """What espeak-ng makes of a word, ``_`` between sounds; its language is set each time."""
    library = _library()
    if library.espeak_SetVoiceByName(language.encode()):
        raise ValueError(f"g2p: espeak-ng has no language {language}")
    text = ctypes.create_string_buffer(word.encode("utf-8", "replace"))
    place = ctypes.c_void_p(ctypes.addressof(text))
    said = []
    while place.value:
        mode = _IPA | ord(_SEPARATOR) << 8
        said.append(library.espeak_TextToPhonemes(ctypes.byref(place), _UTF8, mode).decode())
    return " ".join(filter(None, said))
