"""TextGrid files as people's tools have left them, parsed by praatio.

praatio reads long and short text form, any ends of lines, doubled quotes, and UTF-8 and UTF-16 with
a byte order mark. What it does not read is made right before it sees it: UTF-16 without such a
mark, Latin-1, numbers in exponential form, a missing blank line in the header. A tier in short form
it reads as far as it understands, so that ends are compared here. Its tier classes refuse
intervals that overlap; its parser alone is used, and times are made right here.
"""

from __future__ import annotations

import codecs
import math
import re
from dataclasses import dataclass
from pathlib import Path

from praatio.utilities.textgrid_io import parseTextgridStr

CUT_OFF = 0.05
"""Seconds: a file whose last tier ends earlier before its own end than this is not all there."""

_EXPONENTIAL = re.compile(r"^([^\"\n]*?)(-?\d+(?:\.\d+)?[eE][-+]?\d+)[ \t]*$", re.MULTILINE)


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


def decode_textgrid(content: bytes) -> str:
    """The text of a TextGrid file: UTF-8 or UTF-16, with or without byte order mark, or Latin-1."""
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


def read_textgrid(path: Path) -> dict[str, list[Interval]]:
    """The interval tiers of a file by their names in lower case, as the file has them.

    Of two tiers of one name the upper one counts. Labels are without blanks around them; intervals
    with an empty label are there as well.

    Raises:
        TextGridError: if the file is no TextGrid, its last tier, or in the short form any, ends
            before its own end (the file is cut off or damaged), or an interval ends before it
            starts or has times that are no numbers.
        OSError: if the file cannot be read.
    """
    text = decode_textgrid(Path(path).read_bytes()).lstrip()
    if "ooTextFile" not in text[:200] or "TextGrid" not in text[:200]:
        raise TextGridError("not a TextGrid in text form")
    lines = text.split("\n")
    if len(lines) > 2 and lines[2].strip():
        lines.insert(2, "")  # praatio counts lines in the header
    text = _EXPONENTIAL.sub(lambda m: f"{m[1]}{float(m[2]):.9f}", "\n".join([*lines, ""]))
    try:
        content = parseTextgridStr(text, includeEmptyIntervals=True)
        found: dict[str, tuple[float, list[Interval]]] = {}
        for tier in content["tiers"]:
            if tier["class"] == "IntervalTier":
                intervals = [Interval(float(a), float(b), str(c)) for a, b, c in tier["entries"]]
                name = str(tier["name"]).strip().lower()
                found.setdefault(name, (float(tier["xmax"]), intervals))
    except Exception as error:  # praatio raises many kinds
        reason = " ".join(str(error).split()) or type(error).__name__
        raise TextGridError(f"not readable as a TextGrid: {reason}") from None
    is_short = "ooTextFile short" in text or "item [" not in text  # as praatio tells them
    for place, (name, (end, intervals)) in enumerate(found.items(), start=1):
        last = max((interval.end for interval in intervals), default=end)
        if (is_short or place == len(found)) and last < end - CUT_OFF:
            raise TextGridError(f"cut off: tier {name!r} ends at {last:.3f} s of {end:.3f} s")
        for interval in intervals:
            if not (math.isfinite(interval.start) and math.isfinite(interval.end)):
                raise TextGridError(
                    f"tier {name!r}: an interval from {interval.start} s to {interval.end} s"
                )
            if interval.end < interval.start:
                raise TextGridError(
                    f"tier {name!r}: an interval from {interval.start} s ends at {interval.end} s"
                )
    return {name: intervals for name, (_, intervals) in found.items()}


def tidy_intervals(
    intervals: list[Interval], duration: float
) -> tuple[list[Interval], list[Repair]]:
    """Intervals in order, without overlaps, and within the recording.

    Where two overlap, the earlier one ends where the later one starts. What reaches past the end
    of the recording is shortened; beyond it only silence is dropped.

    Args:
        intervals: of one tier.
        duration: of the recording, in seconds.

    Returns:
        The intervals, and what had to be changed.

    Raises:
        TextGridError: if something is labelled wholly after the end of the recording.
    """
    repairs: list[Repair] = []
    tidy: list[Interval] = []
    for interval in sorted(intervals, key=lambda interval: (interval.start, interval.end)):
        start, end = max(interval.start, 0.0), max(interval.end, 0.0)
        silent = interval.label.strip().lower() in ("", "sil", "sp")
        if start >= duration and not silent:
            raise TextGridError(
                f"{interval.label!r} at {start:.3f} s is after the end of the recording, "
                f"{duration:.3f} s"
            )
        if end > duration + 1e-3:
            repairs.append(
                Repair(start, "past the end", f"{interval.label!r} ended at {end:.3f} s")
            )
        if start >= duration:
            continue
        if tidy and tidy[-1].end > start + 1e-6:
            before = tidy[-1]
            what = f"{before.label!r} reached {before.end - start:.3f} s into {interval.label!r}"
            repairs.append(Repair(start, "overlap", what))
            tidy[-1] = Interval(before.start, start, before.label)
        tidy.append(Interval(start, min(end, duration), interval.label))
    return tidy, repairs
