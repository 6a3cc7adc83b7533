"""TextGrid files of a simulated utterance, in the form of L2-ARCTIC's annotations.

Tiers ``words`` and ``phones``. A correct phone is labelled ``AH0``, a substitution ``AH0,EH,s``, a
deletion ``AH0,sil,d``, an insertion ``sil,EH,a``; an unstressed AH that was perceived is written
AX, as the annotators do. Silence is ``sil`` at the edges and ``sp`` inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from praatio.data_classes.interval_tier import IntervalTier
from praatio.data_classes.textgrid import Textgrid

from mlvae.corpora.simulate.errors import Segment
from mlvae.corpora.simulate.phones import base
from mlvae.data.textgrid import save_grid

DELETION_SECONDS = 0.03
"""Length of the interval of a deletion. It has none in reference, but a TextGrid needs one;
annotators find it where an aligner that knows the text has put the phone, three frames at least."""
_GIVES_UP = 1 / 3  # the part of a neighbour that deletions beside it may take, at most
_DECIMALS = 7  # exact for samples at 16 kHz
_NO_GAP = 1e-6

Interval = tuple[float, float, str]


@dataclass
class _Entry:
    """An interval in the making: a segment, or silence if it is None."""

    segment: Segment | None
    start: float
    end: float


def label(segment: Segment) -> str:
    """The annotators' label of a segment."""
    if segment.perceived is None:
        return f"{segment.canonical},sil,d"
    perceived = "AX" if segment.perceived == "AH0" else base(segment.perceived)
    if segment.canonical is None:
        return f"sil,{perceived},a"
    return segment.canonical if segment.kind == "c" else f"{segment.canonical},{perceived},s"


def annotation_tiers(
    words: Sequence[str],
    segments: Sequence[Segment],
    times: Sequence[tuple[float, float]],
    duration: float,
) -> tuple[dict[str, list[Interval]], dict[str, list[Interval]]]:
    """Tiers of what was spoken, and of what should have been.

    Of the segments, deletions included, those that are spoken have times (start, end), seconds.

    Returns:
        The tiers ``words`` and ``phones`` of the annotation, and of a canonical alignment, in
        which a phone keeps the time of its rendering and an insertion belongs to the phone before
        it. All tiers fill the recording without gaps.
    """
    entries = _lay_out(segments, times, duration)
    _make_room(entries)
    word_tier: list[Interval] = []
    phones: list[Interval] = []
    canonical: list[Interval] = []
    word: int | None = None
    for index, entry in enumerate(entries):
        start, end = round(entry.start, _DECIMALS), round(entry.end, _DECIMALS)
        if entry.segment is None:
            silence = "sil" if index in (0, len(entries) - 1) else "sp"
            phones.append((start, end, silence))
            canonical.append((start, end, silence))
            word_tier.append((start, end, ""))
            word = None
            continue
        phones.append((start, end, label(entry.segment)))
        if entry.segment.canonical is None:
            canonical[-1] = (canonical[-1][0], end, canonical[-1][2])
        else:
            canonical.append((start, end, entry.segment.canonical))
        if entry.segment.word == word:
            word_tier[-1] = (word_tier[-1][0], end, word_tier[-1][2])
        else:
            word = entry.segment.word
            word_tier.append((start, end, words[word]))
    return {"words": word_tier, "phones": phones}, {"words": word_tier, "phones": canonical}


def _lay_out(
    segments: Sequence[Segment], times: Sequence[tuple[float, float]], duration: float
) -> list[_Entry]:
    """Entries in order, silences between; deletions without length, in their word."""
    entries = [_Entry(None, 0.0, times[0][0])]
    left = iter(times)
    waiting: list[Segment] = []
    last_word = -1
    for segment in segments:
        if segment.spoken is None:
            waiting.append(segment)
            continue
        start, end = next(left)
        now = entries[-1].end
        if start - now > _NO_GAP:  # a pause: deletions of the word before it come first
            before = [other for other in waiting if other.word == last_word]
            waiting = waiting[len(before) :]
            entries += [_Entry(other, now, now) for other in before]
            entries.append(_Entry(None, now, start))
        entries += [_Entry(other, start, start) for other in waiting]
        entries.append(_Entry(segment, start, end))
        waiting, last_word = [], segment.word
    now = entries[-1].end
    entries += [_Entry(other, now, now) for other in waiting]
    entries.append(_Entry(None, now, duration))
    return entries


def _make_room(entries: list[_Entry]) -> None:
    """Give deletions `DELETION_SECONDS`, half from either neighbour, or less beside short ones."""
    lengths = [entry.end - entry.start for entry in entries]
    index = 0
    while index < len(entries):
        if lengths[index] > 0:
            index += 1
            continue
        stop = index
        while lengths[stop] == 0:  # silence at the end has a length
            stop += 1
        before, after = entries[index - 1], entries[stop]
        half = (stop - index) * DELETION_SECONDS / 2
        before.end -= min(half, lengths[index - 1] * _GIVES_UP)
        after.start += min(half, lengths[stop] * _GIVES_UP)
        step = (after.start - before.end) / (stop - index)
        for position in range(index, stop):
            entries[position].start = before.end + (position - index) * step
            entries[position].end = before.end + (position - index + 1) * step
        index = stop


def write_tiers(tiers: dict[str, list[Interval]], duration: float, path: Path) -> None:
    """Write tiers as a TextGrid file in long text form, UTF-8."""
    grid = Textgrid(0.0, duration)
    for name, intervals in tiers.items():
        grid.addTier(IntervalTier(name, intervals, 0.0, duration), reportingMode="error")
    path.parent.mkdir(parents=True, exist_ok=True)
    save_grid(grid, path)
