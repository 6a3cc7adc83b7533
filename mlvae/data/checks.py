"""What stage 1 wants of cuts before long work: ids that name files, units that are symbols.

Later stages key their results by the ids of cuts, write files of that name, and put units into
tables and tiers, where some symbols have a meaning of their own. What would be mistaken for
something else there is refused here, by name.
"""

from __future__ import annotations

import math
import os
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from lhotse import MonoCut, Recording, SupervisionSegment
from lhotse.cut import Cut

from mlvae.made import MAX_NAME
from mlvae.tiers import DELETED, UNKNOWN, units_of_words

#: Longest id in bytes. Files are named by :func:`mlvae.made.path_of_id`, which has room for more.
LONGEST_ID = MAX_NAME
#: Symbols with a meaning of their own, in tiers and in the unit tables that k2 and Kaldi read.
RESERVED = {
    UNKNOWN: "it stands for an unknown unit",
    DELETED: "it stands for a unit that was left out",
    "<eps>": "it stands for the empty symbol",
}
_NAMED = 3
"""How many things of a kind a message names."""


def check_id(name: str) -> None:
    """ValueError where a cut's id cannot be the name of a file.

    It is empty, begins with a dot, holds a slash or a sign that ends a line or is invisible, is no
    text or is too long.
    """
    if not name:
        raise ValueError("its id is empty")
    if "/" in name or name.startswith("."):
        raise ValueError("its id is a path or begins with a dot, and files are named by it")
    _check_text("its id", name)
    if len(os.fsencode(name)) > LONGEST_ID:
        raise ValueError(
            f"its id has {len(os.fsencode(name))} bytes, names of files have room for {LONGEST_ID}"
        )


def check_unit(unit: Any) -> None:
    """ValueError where something cannot be the symbol of a unit.

    It is no text, empty, holds a blank or another sign that is not seen, or is `RESERVED`.
    """
    if not isinstance(unit, str):
        raise ValueError(f"{unit!r} is no unit: text is expected, not {type(unit).__name__}")
    if not unit or len(unit.split()) != 1 or unit.split()[0] != unit:
        raise ValueError(f"{unit!r} is no unit: empty, or with a blank in it")
    if unit in RESERVED:
        raise ValueError(f"{unit!r} cannot be a unit: {RESERVED[unit]}")
    _check_text(f"{unit!r} is no unit: it", unit)


def _check_text(name: str, text: str) -> None:
    if any(unicodedata.category(sign) in ("Cc", "Zl", "Zp") for sign in text):
        raise ValueError(f"{name} holds a line break or another control character")
    if any(unicodedata.category(sign) == "Cs" for sign in text):
        raise ValueError(f"{name} is not valid Unicode")


def check_cut(cut: Cut, units_come_later: bool = False) -> None:
    """ValueError where something of a cut is missing, of the wrong type, or cannot be; says what.

    With ``units_come_later``, stage 2 makes units of the words.
    """
    check_id(cut.id)
    if not isinstance(cut, MonoCut):
        raise ValueError(f"a {type(cut).__name__}, where a MonoCut is expected")
    _check_times("its", cut)
    if cut.recording is not None:
        _check_recording(cut.recording)
    if len(cut.supervisions) != 1:
        raise ValueError(f"{len(cut.supervisions)} supervisions where one is expected")
    (supervision,) = cut.supervisions
    _check_times("its supervision's", supervision)
    if not isinstance(supervision.id, str) or not isinstance(supervision.recording_id, str):
        raise ValueError("its supervision has no id, or none of a recording")
    custom = supervision.custom
    if not isinstance(custom, (dict, type(None))):
        raise ValueError("the supervision's custom fields are no table")
    custom = custom or {}
    if custom.get("words") is not None:
        _check_words(custom["words"])
    if units_come_later:
        if not custom.get("words"):
            raise ValueError("no words to make units of")
        return
    units = custom.get("units")
    if units is None or units == []:
        raise ValueError("no canonical units")
    _check_units("units", units)
    _check_fields(custom)
    units_of_words(cut)


def _check_times(whose: str, item: MonoCut | SupervisionSegment) -> None:
    for name in ("start", "duration"):
        value = getattr(item, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"{whose} {name} is no number: {value!r}")
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"{whose} {name} is {value}")
    if item.duration == 0:
        raise ValueError(f"{whose} duration is 0")


def _check_recording(recording: Recording) -> None:
    if not isinstance(recording.id, str):
        raise ValueError(f"its recording's id is {recording.id!r}")
    for name in ("sampling_rate", "num_samples"):
        value = getattr(recording, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"its recording's {name} is {value!r}")
    for source in recording.sources:
        named = source.source
        if source.type == "file" and not (isinstance(named, str) and named and "\0" not in named):
            raise ValueError(f"its recording's file is {named!r}")


def _check_units(name: str, units: Any) -> None:
    if not isinstance(units, list):
        raise ValueError(f"{name} must be a list, not {type(units).__name__}")
    for index, unit in enumerate(units):
        try:
            check_unit(unit)
        except ValueError as error:
            raise ValueError(f"{name}, number {index + 1}: {error}") from None


def _check_words(words: Any) -> None:
    if not isinstance(words, list):
        raise ValueError(f"words must be a list, not {type(words).__name__}")
    for index, word in enumerate(words):
        if not isinstance(word, str) or not word.strip():
            raise ValueError(f"words, number {index + 1}: {word!r} is no word")
        _check_text(f"words, number {index + 1}: it", word)


def _check_fields(custom: Mapping[str, Any]) -> None:
    """Fields that go with units or words."""
    word_of = custom.get("word_of_unit")
    if word_of is not None and not (
        isinstance(word_of, list)
        and all(isinstance(word, int) and not isinstance(word, bool) for word in word_of)
    ):
        raise ValueError("word_of_unit must be a list of whole numbers")
    pronunciations = custom.get("pronunciations")
    if pronunciations is None:
        return
    words = custom.get("words") or custom["units"]
    if not isinstance(pronunciations, list) or len(pronunciations) != len(words):
        raise ValueError(f"pronunciations must be a list, one for each of {len(words)} words")
    for index, known in enumerate(pronunciations):
        if not isinstance(known, list) or not all(isinstance(one, list) and one for one in known):
            raise ValueError(f"pronunciations, number {index + 1}: not a list of lists of units")
        for one in known:
            _check_units(f"pronunciations, number {index + 1}", one)


def source_name(cut: Cut) -> str:
    """The file or other source of a cut's audio, as messages name it."""
    recording = getattr(cut, "recording", None)
    if recording is None or not recording.sources:
        return "no recording"
    source = recording.sources[0].source
    return source if isinstance(source, str) else f"recording {recording.id}"


def with_audio_digest(cut: MonoCut, digest: str) -> MonoCut:
    """A copy of a cut that knows what its audio was when it was read; see `read_cut`."""
    return replace(cut, custom={**(cut.custom or {}), "audio_digest": digest})


def shared_speakers(cuts: Mapping[str, Iterable[Cut]]) -> str | None:
    """One line about speakers that several splits have; None where none is."""
    splits_of: dict[str, list[str]] = defaultdict(list)
    for split, own in cuts.items():
        for speaker in {str(s.speaker) for cut in own for s in cut.supervisions if s.speaker}:
            splits_of[speaker].append(split)
    shared = {name: splits for name, splits in splits_of.items() if len(splits) > 1}
    if not shared:
        return None
    named = [f"{name} ({', '.join(shared[name])})" for name in sorted(shared)]
    return f"speakers in several of train, valid and test: {some(named)}"


def check_recordings_apart(cuts: Mapping[str, Iterable[Cut]]) -> None:
    """ValueError where a file or other source of audio is in two splits, under whichever name."""
    places: dict[str | bytes, dict[str, str]] = defaultdict(dict)
    for split, own in cuts.items():
        for cut in own:
            recording = cut.recording
            for source in [] if recording is None else recording.sources:
                is_file = source.type == "file"
                key = os.path.realpath(source.source) if is_file else source.source
                places[key].setdefault(split, cut.id)
    _refuse_shared("recordings", places)


def check_audio_apart(cuts: Mapping[str, Iterable[Cut]]) -> None:
    """ValueError where cuts of two splits have the same samples, by ``custom["audio_digest"]``."""
    places: dict[str, dict[str, str]] = defaultdict(dict)
    for split, own in cuts.items():
        for cut in own:
            places[cut.custom["audio_digest"]].setdefault(split, cut.id)
    _refuse_shared("cuts with the same audio", places)


def _refuse_shared(what: str, places: Mapping[Any, Mapping[str, str]]) -> None:
    shared = [splits for splits in places.values() if len(splits) > 1]
    if shared:
        named = [" and ".join(f"{i} ({split})" for split, i in own.items()) for own in shared]
        raise ValueError(
            f"{what} in several of train, valid and test: {some(named)}; "
            "--allow-shared-recordings true goes on all the same"
        )


def some(names: list[str]) -> str:
    """The first of some names, and how many more there are."""
    more = len(names) - _NAMED
    return "; ".join(names[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
