"""Texts as words: the one tokenizer of the project.

Everything in a text is either a word, known punctuation, or a sign that somebody may have read
aloud or typed by mistake (``&``, ``%``, a stray accent). The last are never passed over: who makes
units of a text gets them by name (`UnknownWords`), as words that are in no lexicon.

Words are compared in small letters and in one spelling: where Unicode has several signs for a
letter or an apostrophe, one stands for all, and signs that nobody sees are left out. Accents and
vowel signs belong to their letter, in all scripts.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mlvae.made import InTheWayError, atomic_path, remove_made

UNKNOWN_WORDS = "unknown_words.txt"

WORD, SIGN, PUNCTUATION = "word", "sign", "punctuation"

_APOSTROPHES = frozenset(
    "'`\u00b4\u02b9\u02bb\u02bc\u02bd\u02c8\u02ca\u02cb\u055a\u2018\u2019\u201b\u2032\u2035\uff40\ua78b\ua78c"
)
_DASHES = frozenset("-\u02d7\u05be\u2010\u2011\u2012\u2013\u2027\u2043")
_READ_ALOUD = frozenset("#%&*@\\\u00a7\u00b6\u066a\u2020\u2021\u2030\u2031\u203b")
"""What Unicode calls punctuation, though people say something where they read it."""

_SEEN = frozenset(
    map(chr, (*range(0x600, 0x606), 0x6DD, 0x70F, 0x8E2, 0x110BD, 0x110CD))
)  # Unicode's "format" signs that are seen
_FILLERS = frozenset(
    map(chr, (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0))
)  # letters and marks that are not seen
_ZERO_WIDTH = "\u200b\u200c\u200d"
_SPACE = _ZERO_WIDTH[0]
_FOLDED_FORMS = frozenset(
    f"<{form}>"
    for form in (
        *("compat", "wide", "narrow", "small", "font", "noBreak"),
        *("isolated", "initial", "medial", "final", "vertical"),
    )
)  # not super, sub, circle, square, fraction: they mean more than their letters

_MARKS = "".join(
    sign for sign in map(chr, range(0x300, 0x20000)) if unicodedata.category(sign)[0] == "M"
)  # vowel signs and accents: \w, and so [^\W_], is without them
_LETTERS = rf"[^\W_](?:[^\W_]|[{_MARKS}\u200c\u200d])*"
_PART = re.compile(rf"('?{_LETTERS}(?:'{_LETTERS})*'?)|\S")
_EUROPEAN = r"[a-z\u00df-\u02af\u0370-\u058f\u1e00-\u1fff]"
_DOUBLED = re.compile(rf"(?<={_EUROPEAN})(?:''+|[\"\u201c\u201d\u2033])(?={_EUROPEAN})")
_MINUS = re.compile(r"(?<=[^\W\d_])\u2212(?=[^\W\d_])")
_INVISIBLE = re.compile(rf"[{_ZERO_WIDTH}]+")


@dataclass(frozen=True)
class Token:
    """A piece of a text."""

    text: str  # as words are compared, see `normalized`
    kind: str  # ``word``, ``sign`` or ``punctuation``
    written: str  # what stands between two blanks of the text, where the token is from
    place: int  # the number of that, from 1


class UnknownWords(ValueError):
    """A text with words that nobody can say, or signs that are no words.

    Attributes:
        words: the words and signs, each once, sorted.
    """

    def __init__(self, tokens: Sequence[Token], why: str) -> None:
        """Name words and signs of one text; ``why`` is of the words, ``not in the lexicon``."""
        self.words = sorted({token.text for token in tokens})
        words = sorted({token.text for token in tokens if token.kind == WORD})
        reasons = [f"{why}: {', '.join(words)}"] if words else []
        signs = [_described(token) for token in tokens if token.kind == SIGN]
        if signs:
            reasons.append(f"neither a word nor known punctuation: {', '.join(signs)}")
        super().__init__("; ".join(reasons))


def _described(token: Token) -> str:
    name = unicodedata.name(token.text, "no name in Unicode")
    where = f"in {token.written!r}, the text's word {token.place}"
    return f"{token.text!r} (U+{ord(token.text):04X} {name}) {where}"


def decode_text(content: bytes) -> str:
    """The text of a file: UTF-8 or UTF-16, with or without byte order mark, or Latin-1.

    Every line ends in a single line feed.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = content.decode("utf-16", errors="replace")
    elif b"\0" in content[:2]:  # the first sign is an ASCII one
        encoding = "utf-16-be" if content[0] == 0 else "utf-16-le"
        text = content.decode(encoding, errors="replace")
    else:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = content.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def lines_of_table(text: str) -> Iterator[str]:
    """Lines for the readers of :mod:`csv`, which from Python 3.11 on let a NUL pass.

    Raises:
        csv.Error: a line has a NUL.
    """
    for line in io.StringIO(text):
        if "\0" in line:
            raise csv.Error("line contains NUL")
        yield line


def normalized(text: str) -> str:
    """A text as words are compared: small letters, one spelling of what looks the same.

    * Letters, marks, digits and punctuation in another form (ligatures, full width, mathematical
      letters, presentation forms) become the plain ones; symbols and raised or framed letters,
      which mean more, stay (the sign for a trade mark is not "tm").
    * What people and keyboards put for an apostrophe or a hyphen becomes one, and so do two
      apostrophes, or a quotation mark, between letters of European scripts.
    * What is not seen is left out: soft hyphens, byte order marks, signs of direction. Zero-width
      joiners stay, and a zero-width space is a blank, in scripts where they carry meaning.
    * Accents are composed (NFC).

    Example:
        >>> normalized("Don`t re-enter the ﬁle")
        "don't re-enter the file"
    """
    text = _INVISIBLE.sub(_invisible, "".join(map(_plain, text)))
    text = unicodedata.normalize("NFC", text.lower())
    return _MINUS.sub("-", _DOUBLED.sub("'", text))


@lru_cache(maxsize=4096)
def _plain(sign: str) -> str:
    """One sign in its plain form; zero-width ones are left for `_invisible`."""
    if sign in _APOSTROPHES:
        return "'"
    if sign in _DASHES:
        return "-"
    category = unicodedata.category(sign)
    if sign in _ZERO_WIDTH:
        return sign
    if (category == "Cf" and sign not in _SEEN) or sign in _FILLERS:
        return ""
    if 0xFE00 <= ord(sign) <= 0xFE0F or 0xE0100 <= ord(sign) <= 0xE01EF:  # choose a picture
        return ""
    form = unicodedata.decomposition(sign).partition(" ")[0]
    if form in _FOLDED_FORMS and (category[0] in "LMPZ" or category in ("Nd", "Sm", "Sc")):
        plain = unicodedata.normalize("NFKC", sign)
        return plain if len(plain) > 1 or plain == sign else _plain(plain)
    return sign


def _invisible(match: re.Match[str]) -> str:
    before = match.string[match.start() - 1 : match.start()]
    after = match.string[match.end() : match.end() + 1]
    if not (_has_meaning_beside(before) and _has_meaning_beside(after)):
        return ""
    return " " if _SPACE in match[0] else match[0]


def _has_meaning_beside(sign: str) -> bool:
    """Whether signs without width mean something beside it: not in European scripts."""
    if not sign or unicodedata.category(sign)[0] not in "LM":
        return False
    code = ord(sign)
    return not (code < 0x590 or 0x10A0 <= code < 0x1100 or 0x1E00 <= code < 0x2000)


def tokens_of_text(text: str) -> list[Token]:
    """The words, signs and punctuation of a text, in order; nothing but blanks is passed over."""
    tokens = []
    for place, written in enumerate(text.split(), start=1):
        for match in _PART.finditer(normalized(written)):
            kind = WORD if match[1] else _kind(match[0])
            tokens.append(Token(match[0], kind, written, place))
    return tokens


def _kind(sign: str) -> str:
    is_known = unicodedata.category(sign)[0] == "P" and sign not in _READ_ALOUD
    return PUNCTUATION if is_known else SIGN


def words_of_text(text: str) -> list[str]:
    """The words of a text alone: letters and digits, with apostrophes.

    For comparing texts; who makes units of one asks `spelt_words` or `Lexicon.read`, which do not
    pass over signs.

    Example:
        >>> words_of_text("Gad, I'm re-entering 'em.")
        ['gad', "i'm", 're', 'entering', "'em"]
    """
    return [token.text for token in tokens_of_text(text) if token.kind == WORD]


def spelt_words(text: str) -> list[str]:
    """The words of a text that is to be spelt, letter by letter.

    Raises:
        UnknownWords: if it has digits, which do not say how they are read, or signs.
    """
    tokens = tokens_of_text(text)
    unknown = [token for token in tokens if token.kind == SIGN or has_digits(token.text)]
    if unknown:
        raise UnknownWords(unknown, "not written in letters")
    return [token.text for token in tokens if token.kind == WORD]


def has_digits(word: str) -> bool:
    """Whether a word has a number sign of any script or form in it."""
    return any(unicodedata.category(sign)[0] == "N" for sign in word)


def list_unknown_words(
    words: Iterable[str], folder: Path, is_spelt: bool, texts: str, whose: str
) -> str:
    """Write words to ``unknown_words.txt`` in a folder, one a line, unless somebody has changed it.

    The line that is returned says so, what is wrong with the words, which were to be spelt or are
    in no lexicon, and what to do about it, in terms of the ``texts`` and ``whose`` they are.
    """
    path = Path(folder) / UNKNOWN_WORDS
    listed = sorted(set(words))
    also = ""
    with contextlib.suppress(InTheWayError):  # one that has got pronunciations is a lexicon now
        with atomic_path(path) as temporary:
            temporary.write_text("".join(f"{word}\n" for word in listed), encoding="utf-8")
        also = f" (also in {path})"
    why, remedy = "not in the lexicon", "give their pronunciations with --lexicon FILE"
    if is_spelt:
        why, remedy = "not written in letters", f"write them so in the {texts}"
    return (
        f"{len(listed)} words are {why}: {', '.join(listed)}{also}; {remedy}, or leave their "
        f"{whose} out with --unknown-words skip"
    )


def forget_unknown_words(folder: Path) -> None:
    """Remove what :func:`list_unknown_words` wrote, unless somebody has made it a lexicon."""
    with contextlib.suppress(InTheWayError):
        remove_made(Path(folder) / UNKNOWN_WORDS)
