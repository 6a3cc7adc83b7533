"""TextGrid files as people's tools have left them.

Praat reads a text file as free-standing numbers, texts in quotes and flags in angle brackets, and
passes over everything else, so that its long form, its short form and whatever hands have done to
the lines between are read alike. So does `read_textgrid`. What the values contradict (one that is
missing, numbers of intervals, a tier that is not as long as it says) is refused or named.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from praatio.data_classes.textgrid import Textgrid as PraatioGrid

from mlvae.data.text import decode_text

CUT_OFF = 0.05
"""Seconds: a tier that lacks intervals and ends earlier before its own end is not all there."""

MAX_OVERLAP = 0.02
"""Seconds, two frames: what annotators' hands are out by. More is no slip of the hand."""

MAX_DIFFERENCE = 0.5
"""Seconds by which annotation and recording may differ in length: silence at an end."""

_TOKEN = re.compile(r'"((?:[^"]|"")*)"|(<[^<>\s]*>)|(![^\n]*)|([^\s"<]+|<)|(")')
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)(?:[eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?(?:nan|inf|infinity)|--undefined--", re.IGNORECASE)
_SILENT = ("", "sil", "sp")


class TextGridError(ValueError):
    """A file or tier that cannot be used; the message is the reason, without the file's name."""


@dataclass(frozen=True)
class Interval:
    """A label from ``start`` to ``end``, in seconds."""

    start: float
    end: float
    label: str


@dataclass(frozen=True)
class Repair:
    """Something untidy, and how it was read; ``time`` in seconds."""

    time: float
    kind: str
    what: str


@dataclass(frozen=True)
class Tier:
    """A tier of intervals, or of points, which have no length; its own axis in seconds."""

    start: float
    end: float
    intervals: tuple[Interval, ...]
    is_points: bool = False


@dataclass(frozen=True)
class TextGrid:
    """What a file holds."""

    start: float  # of the axis, in seconds
    end: float  # of the axis, in seconds
    tiers: dict[str, Tier]  # by their names in lower case, without blanks around them
    repairs: tuple[Repair, ...] = ()  # where the file contradicts itself without harm


def read_textgrid(path: Path) -> TextGrid:
    """Read a file in long or short text form, in any encoding of `decode_text`.

    Of two tiers of one name the upper one with intervals counts. Labels are without blanks around
    them; intervals with an empty label are there as well. Numbers may have an exponent or a decimal
    comma.

    Raises:
        TextGridError: if the file is no TextGrid, a value is missing or is not what its place asks
            for, a tier lacks intervals that it announces (the file is cut off or damaged), or an
            interval ends before it starts or has times that are no numbers.
        OSError: if the file cannot be read.
    """
    text = decode_text(Path(path).read_bytes())
    if "ooTextFile" not in text[:200] or "TextGrid" not in text[:200]:
        raise TextGridError("not a TextGrid in text form")
    values = _Values(text)
    values.text("the file type")
    values.text("the object class")
    start, end = values.time("the start"), values.time("the end")
    if not values.flag():
        return TextGrid(start, end, {})
    announced = values.number("the number of tiers")
    tiers: dict[str, Tier] = {}
    repairs: list[Repair] = []
    number = 0
    while not values.at_end():
        number += 1
        name, tier = _tier(values, number, repairs)
        if name in tiers:
            repairs.append(Repair(tier.start, "tier", f"there are two tiers {name!r}"))
        if name not in tiers or (tiers[name].is_points and not tier.is_points):
            tiers[name] = tier
    if number != announced:
        what = f"{announced:g} tiers are announced, {number} are there"
        repairs.append(Repair(start, "count", what))
    return TextGrid(start, end, tiers, tuple(repairs))


def _tier(values: _Values, number: int, repairs: list[Repair]) -> tuple[str, Tier]:
    """The next tier and its name; checks that it is whole."""
    kind = values.text(f"the class of tier {number}")
    if kind not in ("IntervalTier", "TextTier"):
        raise TextGridError(f"tier {number} is of class {kind!r}, not IntervalTier or TextTier")
    name = " ".join(values.text(f"the name of tier {number}").split()).lower()
    where = f"tier {name!r}"
    start, end = values.time(f"the start of {where}"), values.time(f"the end of {where}")
    announced = values.number(f"the number of intervals of {where}")
    is_points = kind == "TextTier"
    intervals = []
    while values.has_number():
        place = f"{where}, {'point' if is_points else 'interval'} {len(intervals) + 1}"
        first = values.time(f"{place}: a time")
        last = first if is_points else values.time(f"{place}: an end")
        label = values.text(f"{place}: a label").strip()
        if last < first:
            raise TextGridError(f"{where}: an interval from {first} s ends at {last} s")
        intervals.append(Interval(first, last, label))
    what = f"{len(intervals)} of {announced:g} {'points' if is_points else 'intervals'}"
    if len(intervals) < announced:
        ends = [start, *(interval.end for interval in intervals)]
        if is_points:
            raise TextGridError(f"cut off: {where} has {what}")
        if max(ends) < end - CUT_OFF:
            raise TextGridError(
                f"cut off: {where} ends at {max(ends):.3f} s of {end:.3f} s, {what} are there"
            )
        if any(interval.start - end > 1e-3 for interval, end in zip(intervals, ends)):
            raise TextGridError(f"{where} has a gap, {what} are there")
    if len(intervals) != announced:
        repairs.append(Repair(start, "count", f"{where}: {what} are there"))
    return name, Tier(start, end, tuple(intervals), is_points)


class _Values:
    """The free-standing values of a file, one after the other."""

    def __init__(self, text: str) -> None:
        self._values = list(_values(text))
        self._next = 0

    def at_end(self) -> bool:
        return self._next == len(self._values)

    def has_number(self) -> bool:
        return not self.at_end() and isinstance(self._values[self._next], float)

    def flag(self) -> bool:
        """Take the flag that there are tiers, where it stands."""
        return not self.at_end() and self._take() == _Flag("<exists>")

    def number(self, what: str) -> float:
        return self._expect(float, what, "number")

    def time(self, what: str) -> float:
        value = self.number(what)
        if not math.isfinite(value):
            raise TextGridError(f"{what} is {value}, which is no time")
        return value

    def text(self, what: str) -> str:
        return self._expect(str, what, "text")

    def _expect(self, kind: type, what: str, name: str) -> str | float:
        if self.at_end():
            raise TextGridError(f"cut off: {what} is missing at the end of the file")
        value = self._take()
        if not isinstance(value, kind) or isinstance(value, _Flag):
            raise TextGridError(f"{what} is missing: {name} expected, found {value!r}")
        return value

    def _take(self) -> str | float:
        self._next += 1
        return self._values[self._next - 1]


class _Flag(str):
    """A flag, such as ``<exists>``."""


def _values(text: str) -> Iterator[str | float]:
    """Numbers, texts and flags; words around them (``xmin =``, ``intervals [1]:``) are left out."""
    for match in _TOKEN.finditer(text):
        label, flag, _comment, word, unclosed = match.groups()
        if label is not None:
            yield label.replace('""', '"')
        elif flag is not None:
            yield _Flag(flag)
        elif unclosed is not None:
            raise TextGridError("cut off: a label is not closed")
        elif word is not None:
            word = word.rpartition("=")[2]
            if _NUMBER.fullmatch(word):
                yield float(word.replace(",", "."))
            elif _NO_NUMBER.fullmatch(word):
                raise TextGridError(f"{word} where a number is expected")


def shift_to_recording(
    grid: TextGrid, name: str, duration: float
) -> tuple[list[Interval], list[Repair]]:
    """The intervals of a tier on the axis of the recording, which begins at 0.

    An axis that begins elsewhere (a part that was cut out of a longer recording and has kept its
    times) is shifted if its length is that of the recording, ``duration`` seconds; one that ends
    where the recording ends lacks its beginning, and is right as it is.

    Raises:
        TextGridError: if there is no such tier of intervals, file and tier have other axes, or the
            axis is not as long as the recording by more than `MAX_DIFFERENCE`.
    """
    if name not in grid.tiers:
        raise TextGridError(f"no tier {name!r}, there are: {', '.join(grid.tiers) or 'none'}")
    tier = grid.tiers[name]
    if tier.is_points:
        raise TextGridError(f"tier {name!r} has points, not intervals")
    apart = abs(tier.start - grid.start), abs(tier.end - grid.end)
    if apart[0] > MAX_OVERLAP or apart[1] > MAX_DIFFERENCE:
        raise TextGridError(
            f"tier {name!r} lasts from {tier.start:.3f} s to {tier.end:.3f} s, the file from "
            f"{grid.start:.3f} s to {grid.end:.3f} s"
        )
    begins_at_0 = abs(grid.start) < 1e-3
    length = grid.end - grid.start
    is_shifted = not begins_at_0 and abs(length - duration) <= abs(grid.end - duration)
    end = length if is_shifted else grid.end
    if abs(end - duration) > MAX_DIFFERENCE:
        raise TextGridError(
            f"the annotation lasts from {grid.start:.3f} s to {grid.end:.3f} s, the recording "
            f"{duration:.3f} s"
        )
    if begins_at_0:
        return list(tier.intervals), []
    if not is_shifted:
        what = f"the axis begins at {grid.start:.3f} s and ends with the recording: times are kept"
        return list(tier.intervals), [Repair(0.0, "axis", what)]
    what = f"the axis begins at {grid.start:.3f} s: times are moved to begin at 0 s"
    moved = [
        Interval(round(i.start - grid.start, 9), round(i.end - grid.start, 9), i.label)
        for i in tier.intervals
    ]
    return moved, [Repair(0.0, "axis", what)]


def tidy_intervals(
    intervals: list[Interval], duration: float
) -> tuple[list[Interval], list[Repair]]:
    """Intervals of a tier in order, without overlaps, within the recording; and what was changed.

    Where two overlap by `MAX_OVERLAP` at most, the earlier one ends where the later one starts.
    What reaches past an end of the recording (``duration`` seconds) is shortened; beyond it only
    silence is dropped, as is silence without length. Between two intervals there may be nothing,
    which counts as silence.

    Raises:
        TextGridError: if something is labelled wholly after the end of the recording, or two
            intervals overlap by more; names them.
    """
    repairs: list[Repair] = []
    tidy: list[Interval] = []
    for interval in sorted(intervals, key=lambda interval: (interval.start, interval.end)):
        start, end = max(interval.start, 0.0), max(interval.end, 0.0)
        silent = interval.label.strip().lower() in _SILENT
        if start >= duration and not silent:
            raise TextGridError(
                f"{interval.label!r} at {start:.3f} s is after the end of the recording, "
                f"{duration:.3f} s"
            )
        if interval.start < -1e-3:
            what = f"{interval.label!r} began at {interval.start:.3f} s"
            repairs.append(Repair(start, "before the start", what))
        if end > duration + 1e-3:
            repairs.append(
                Repair(start, "past the end", f"{interval.label!r} ended at {end:.3f} s")
            )
        if start >= duration:
            continue
        if start == end:
            repairs.append(Repair(start, "no length", f"{interval.label!r} has no length"))
            if silent:
                continue
        if tidy:
            repairs += _meeting(tidy, Interval(start, end, interval.label))
        tidy.append(Interval(start, min(end, duration), interval.label))
    return tidy, repairs


def _meeting(tidy: list[Interval], interval: Interval) -> Iterator[Repair]:
    """Shorten the last interval if the next one begins in it; name a gap between both."""
    before = tidy[-1]
    if interval.start - before.end > MAX_OVERLAP:
        what = f"no interval between {before.label!r} and {interval.label!r}: silence"
        yield Repair(before.end, "gap", what)
    if before.end <= interval.start + 1e-6:
        return
    overlap = before.end - interval.start
    if overlap > MAX_OVERLAP + 1e-6:
        raise TextGridError(
            f"{_shown(before)} and {_shown(interval)} overlap by {overlap:.3f} s, "
            f"at most {MAX_OVERLAP} s can be made right"
        )
    what = f"{before.label!r} reached {overlap:.3f} s into {interval.label!r}"
    yield Repair(interval.start, "overlap", what)
    tidy[-1] = Interval(before.start, interval.start, before.label)


def _shown(interval: Interval) -> str:
    return f"{interval.label!r} ({interval.start:.3f} s to {interval.end:.3f} s)"


def save_grid(grid: PraatioGrid, path: Path) -> None:
    """Write a grid in long text form: praatio's default would drop short units without a word."""
    options = {"includeBlankSpaces": True, "minimumIntervalLength": None, "reportingMode": "error"}
    grid.save(str(path), format="long_textgrid", **options)
