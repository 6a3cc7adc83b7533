"""Phone strings for espeak-ng, and their times from its phoneme events.

A phone is an ARPAbet symbol, a vowel with its stress digit (``AH0``); ``err:x`` stands for a sound
that English lacks, by espeak-ng's own name of it. espeak-ng adapts what it is given to its
neighbours: it reduces vowels, taps ``t``, assimilates ``n`` to a velar, melts a final ``l`` or ``r`` into its vowel
(so that it has no length) and links vowels with glides. The spelling below avoids what would make another phone of the 39 of it; `join_events` checks for
every utterance that what was spoken is what was meant.

Pure Python: the process that speaks should start quickly.
"""

from __future__ import annotations

from collections.abc import Sequence

SOUNDS = {
    "AA": "A:",
    "AE": "a",
    "AH": "V",
    "AO": "O:",
    "AW": "aU",
    "AY": "aI",
    "EH": "E",
    "ER": "3:",
    "EY": "eI",
    "IH": "I",
    "IY": "i:",
    "OW": "oU",
    "OY": "OI",
    "UH": "U",
    "UW": "u:",
    "B": "b",
    "CH": "tS",
    "D": "d",
    "DH": "D",
    "F": "f",
    "G": "g",
    "HH": "h",
    "JH": "dZ",
    "K": "k",
    "L": "l",
    "M": "m",
    "N": "n",
    "NG": "N",
    "P": "p",
    "R": "r",
    "S": "s",
    "SH": "S",
    "T": "t2",  # the one that is not tapped between vowels
    "TH": "T",
    "V": "v",
    "W": "w",
    "Y": "j",
    "Z": "z",
    "ZH": "Z",
}
"""espeak-ng's name (voice en-us, espeak-ng 1.52) of each ARPAbet phone."""

VOWELS = frozenset(list(SOUNDS)[:15])
STOPS = frozenset(["P", "T", "K", "CH", "B", "D", "G", "JH"])

ERR_CONSONANTS = ("x", "R", "C", "Q", "n^", "l^")
ERR_VOWELS = ("A~", "O~")
"""Sounds for ``err``: velar, uvular and palatal consonants, and nasal vowels."""

_EVENT_NAMES = {"AH": ("V", "@"), "ER": ("3:", "3"), "T": ("t2", "t"), "L": ("l", "l/2", "l/")}
_STRESS = {"0": "", "1": "'", "2": ","}
_STRESS_MARKS = "',%="
_VELARS = frozenset(["K", "G", "NG"])
_GLIDE = ";"  # between IY, IH or AY and a vowel
_LINKING_R = ("r", "r-")  # between ER and a vowel
_LIQUIDS = frozenset(["R", "L"])
_RELEASE = "@-"  # a schwa of some 15 ms, no syllable
_PAUSE = "_:"


class PhoneMismatch(ValueError):
    """espeak-ng has spoken other phones than it was given; the message says where."""


def base(phone: str) -> str:
    """A phone without its stress digit."""
    return phone if phone.startswith("err:") else phone.rstrip("012")


def is_vowel(phone: str) -> bool:
    """Whether a phone (with or without stress, or ``err:...``) is a vowel."""
    return phone[4:] in ERR_VOWELS if phone.startswith("err:") else base(phone) in VOWELS


def event_names(phone: str) -> tuple[str, ...]:
    """The names under which a phone comes back, without stress marks."""
    if phone.startswith("err:"):
        return (phone[4:],)
    symbol = base(phone)
    return _EVENT_NAMES.get(symbol, (SOUNDS[symbol],))


def _spell(phone: str, following: str | None, next_word: str | None) -> str:
    """One phone.

    Args:
        phone: the phone.
        following: the next one in the same word.
        next_word: the first one of the next word, if no pause goes before it.
    """
    if phone.startswith("err:"):
        return phone[4:]
    symbol = base(phone)
    sound = SOUNDS[symbol]
    after = following or next_word
    if symbol == "N" and following is not None:
        velar = base(following) in _VELARS or following.startswith("err:")
        # A word boundary keeps n from becoming ng.
        return sound + "||" if velar else sound
    if symbol in _LIQUIDS and (after is None or not is_vowel(after)):
        # Else it would only colour the end of the vowel before it, without a length of its own.
        return sound + _RELEASE
    if symbol not in VOWELS:
        return sound
    stress = _STRESS[phone[-1:] if phone[-1:] in _STRESS else "0"]
    if symbol == "AH" and not stress:
        # An unstressed one would become the vowel of ER before an r.
        return ",V" if after is not None and base(after) == "R" else "@"
    if symbol == "IH" and stress != "'" and (following is None or is_vowel(following)):
        return "'I"  # it would become i, as in "happy"
    return stress + sound


def espeak_text(words: Sequence[Sequence[str]], pauses: Sequence[int]) -> str:
    """What to give to espeak-ng (flag espeakPHONEMES).

    Args:
        words: the phones of each word; a word may be empty.
        pauses: for each word, the length of the pause after it, in espeak-ng's long pauses.

    Returns:
        A text such as ``[[D@ k|w|'I|k]]``.
    """
    spelled = []
    for position, (word, pause) in enumerate(zip(words, pauses)):
        later = [] if pause else [other[0] for other in words[position + 1 :] if other]
        sounds = [
            _spell(phone, word[i + 1] if i + 1 < len(word) else None, later[0] if later else None)
            for i, phone in enumerate(word)
        ]
        sounds += [_PAUSE] * pause
        if sounds:
            spelled.append("|".join(sounds))  # "|" keeps two sounds from being read as one
    return f"[[{' '.join(spelled)}]]"


def join_events(
    words: Sequence[Sequence[str]], events: Sequence[tuple[str, int]]
) -> list[tuple[int, int]]:
    """Find the phones in espeak-ng's phoneme events.

    Glides that link a vowel to the next one belong to the first, and so does the release of a
    liquid. Pauses separate; where they belong is left to the caller.

    Args:
        words: what was given to `espeak_text`.
        events: name and sample index of every phoneme event, pauses included; the last one marks
            the end of the speech.

    Returns:
        (start, end) of each phone in samples, in order; where a pause follows, the end lies
        before it.

    Raises:
        PhoneMismatch: if there are more, fewer or other phones.
    """
    wanted = [phone for word in words for phone in word]
    times: list[tuple[int, int]] = []
    for index, (mark, start) in enumerate(events):
        name = mark.lstrip(_STRESS_MARKS)
        end = events[index + 1][1] if index + 1 < len(events) else start
        if name.startswith("_"):
            continue
        expected = wanted[len(times)] if len(times) < len(wanted) else None
        if expected is not None and name in event_names(expected):
            times.append((start, end))
        elif times and _links(name, wanted[len(times) - 1]):
            times[-1] = (times[-1][0], end)
        else:
            raise PhoneMismatch(
                f"espeak-ng spoke {name!r} as phone {len(times)}, where {expected or 'none'} was "
                "to be"
            )
    if len(times) < len(wanted):
        raise PhoneMismatch(f"espeak-ng spoke {len(times)} of {len(wanted)} phones")
    return times


def _links(name: str, previous: str) -> bool:
    """Whether a sound is a glide or release that belongs to the phone before it."""
    if base(previous) == "ER":
        return name in _LINKING_R
    if base(previous) in _LIQUIDS:
        return name == _RELEASE
    return name == _GLIDE and is_vowel(previous)
