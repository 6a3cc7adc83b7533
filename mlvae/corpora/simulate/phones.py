"""Phone strings as espeak-ng is to be given them.

A phone is an ARPAbet symbol, a vowel with its stress digit (``AH0``); ``err:x`` stands for a sound
that English lacks, by espeak-ng's own name of it. espeak-ng adapts what it is given to its
neighbours: it reduces vowels, taps ``t``, assimilates ``n`` to a velar, melts a final ``l`` or
``r`` into its vowel (so that it has no length) and links vowels with glides. The spelling below
avoids what would make one of the 39 phones another; `mlvae.corpora.simulate.times.join_events`
checks for every utterance that what was spoken is what was meant.

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
_VELARS = frozenset(["K", "G", "NG"])
LIQUIDS = frozenset(["R", "L"])
RELEASE = "@-"  # a schwa of some 15 ms, no syllable
_PAUSE = "_:"


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
    """One phone, before the next one in the same word, or the first one of the next word."""
    if phone.startswith("err:"):
        return phone[4:]
    symbol = base(phone)
    sound = SOUNDS[symbol]
    after = following or next_word
    if symbol == "N" and following is not None:
        velar = base(following) in _VELARS or following.startswith("err:")
        # A word boundary keeps n from becoming ng.
        return sound + "||" if velar else sound
    if symbol in LIQUIDS and (after is None or not is_vowel(after)):
        # Else it would only colour the end of the vowel before it, without a length of its own.
        return sound + RELEASE
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
    """What to give to espeak-ng (flag espeakPHONEMES), such as ``[[D@ k|w|'I|k]]``.

    Words may be empty; of each there is the length of the pause after it, in long pauses.
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
