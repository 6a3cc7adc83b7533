"""TextGrid files (Praat's format) of the tiers of a cut."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from lhotse import CutSet, MonoCut
from lhotse.supervision import AlignmentItem
from praatio.data_classes.interval_tier import IntervalTier
from praatio.data_classes.point_tier import PointTier
from praatio.data_classes.textgrid import Textgrid

from mlvae.data.textgrid import save_grid
from mlvae.made import Record, path_of_id
from mlvae.stage import atomic_path, log
from mlvae.tiers import tier

POINTS = "_points"
# Times are written with this many decimals (microseconds): below one sample of any recording, and
# enough to make ends and starts equal that differ by rounding only.
DECIMALS = 6
# Two times that are meant to be equal may still differ by one in the last decimal.
ROUNDING = 1.5e-6
# What frames may reach past the end of the audio: one frame.
MAX_OVERHANG = 0.0101


def textgrid_paths(cut_ids: Iterable[str], folder: Path) -> dict[str, Path]:
    """By id of a cut its file in a folder; ids that cannot be names of files are omitted."""
    paths = {}
    for cut_id in cut_ids:
        with contextlib.suppress(ValueError):
            paths[cut_id] = path_of_id(folder, cut_id, ".TextGrid")
    return paths


def write_textgrids(cuts: CutSet, folder: Path, tiers: Sequence[str]) -> dict[str, str]:
    """Write a file for each cut, and remove those that were made for cuts which are not among them.

    A file that was not made here, or was changed since, is neither replaced nor removed. A folder
    above has a record, see :class:`mlvae.made.Record`.

    Returns:
        By id of a cut without a file the reason.

    Raises:
        OSError: a file cannot be written; names it.
    """
    folder = Path(os.path.abspath(folder))
    record = Record.begin(folder) if (found := Record.above(folder)) is None else found
    remove_other_textgrids(record, folder, set(textgrid_paths(cuts.ids, folder).values()))
    reasons = {}
    for cut in cuts:
        try:
            write_textgrid(cut, path_of_id(folder, cut.id, ".TextGrid"), tiers, record)
        except ValueError as error:
            reasons[cut.id] = str(error)
    return reasons


def remove_other_textgrids(record: Record, folder: Path, wanted: Collection[Path]) -> None:
    """Remove the files of a folder that were made here and are not wanted; changed ones stay.

    The record is that of a folder above.
    """
    changed = []
    folder = Path(os.path.abspath(folder))
    wanted = set(map(os.path.abspath, wanted))
    for path in (record.folder / name for name in record.names()):
        if folder in path.parents and str(path) not in wanted and os.path.lexists(path):
            if record.is_ours(path):
                record.remove(path)
            else:
                changed.append(path)
    if changed:
        log(f"{len(changed)} changed TextGrids of cuts without a hypothesis stay, as {changed[0]}")


def write_textgrid(
    cut: MonoCut, path: Path, tiers: Sequence[str], record: Record | None = None
) -> None:
    """Write tiers of a cut as a TextGrid file in long text form, UTF-8, from top to bottom.

    Each tier becomes an interval tier of the same name from 0 to the cut's duration; stretches
    that belong to no unit (silence) become intervals with empty text. An interval tier cannot hold
    a unit without length, such as a deleted one: these go to a point tier named after the tier,
    e.g. ``mlvae_points``, which exists only where there are any; several at the same time make one
    point with their symbols in order and separated by spaces. Scores are not written. The file is
    replaced whole or left alone.

    Raises:
        KeyError: the cut has no such tier.
        ValueError: units overlap, or lie outside the cut by more than one frame of 10 ms; names
            the cut, the tier and the unit.
    """
    duration = round(cut.duration, DECIMALS)
    grid = Textgrid(0.0, duration)
    for name in tiers:
        intervals, points = _split(cut.id, name, tier(cut, name), duration)
        grid.addTier(IntervalTier(name, intervals, 0.0, duration), reportingMode="error")
        if points:
            entries = [(time, " ".join(symbols)) for time, symbols in points.items()]
            grid.addTier(PointTier(name + POINTS, entries, 0.0, duration), reportingMode="error")
    with atomic_path(path, record) as temporary:
        save_grid(grid, temporary)


def _split(
    cut_id: str, name: str, items: Sequence[AlignmentItem], duration: float
) -> tuple[list[tuple[float, float, str]], dict[float, list[str]]]:
    """Round times; separate the units with a length from those without."""
    intervals: list[tuple[float, float, str]] = []
    points: dict[float, list[str]] = {}
    last = 0.0
    for item in items:
        place = f"cut {cut_id}, tier {name}, unit {item.symbol!r} at {item.start} s"
        start, end = round(item.start, DECIMALS), round(item.end, DECIMALS)
        if start < -MAX_OVERHANG or end > duration + MAX_OVERHANG:
            raise ValueError(f"{place} lies outside the cut of {duration} s")
        start, end = (min(max(time, 0.0), duration) for time in (start, end))
        if abs(start - last) < ROUNDING:
            start = last
        if abs(end - duration) < ROUNDING:
            end = duration
        if end <= start:
            points.setdefault(start, []).append(item.symbol)
            continue
        if start < last:
            raise ValueError(f"{place} starts before the unit before it ends ({last} s)")
        intervals.append((start, end, item.symbol))
        last = end
    return intervals, points
