"""`mlvae compare`: answers against what a person has made of them, and where they differ.

Corrections are TextGrids that were changed in Praat, or a table of verdicts. They are read here and
nowhere else: nothing that trains or chooses sees them.
"""

from __future__ import annotations

import contextlib
import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tabulate import tabulate

from mlvae.answers import Answer, Unit, read_answers
from mlvae.data.audio import files_below
from mlvae.data.text import decode_text, lines_of_table
from mlvae.data.textgrid import TextGrid, read_textgrid, shift_to_recording, tidy_intervals
from mlvae.errors import one_line
from mlvae.made import path_of_id
from mlvae.report.textgrid import POINTS
from mlvae.score.calibration import calibration
from mlvae.score.hypotheses import Hypothesis, known_probabilities, outcomes, perceived_accuracy
from mlvae.score.metrics import score
from mlvae.score.reference import UNCLEAR, Reference, firsts
from mlvae.score.tables import TOLERANCE, tabulated
from mlvae.stage import log, made_table, write_csv

COMMAND = "compare"
COLUMNS = (
    *("utterance", "start", "end", "word", "index", "unit", "p_mispronounced", "answer"),
    *("correction", "difference", "corrected_start", "corrected_end"),
)
#: Tiers of a TextGrid with what was perceived, and of the units: `mlvae localize`'s, and stage 5's.
TIERS = (("perceived", "units"), ("mlvae_perceived", "mlvae"))
#: What a person writes who cannot tell.
UNSURE = "?"
VERDICTS = ("right", "wrong", "unsure")
#: Differences that are shown where no file is asked for.
MAX_SHOWN = 20
MISSED, FALSE, OTHER, BOUNDARY = "missed", "false alarm", "other sound", "boundary"
#: Two times are meant to be equal: a TextGrid has microseconds.
ROUNDING = 2e-6


@dataclass(frozen=True)
class Verdict:
    """What a person says of a unit."""

    # the unit that was said, ``-`` none, ``err`` one that has no name; the canonical one where it
    # is right
    perceived: str
    start: float | None = None  # seconds; None where nothing was said of times
    end: float | None = None  # seconds


class _Corrections:
    """What a person has made of answers, and what of it can be used."""

    has_times: bool

    def __init__(self) -> None:
        self.skipped: dict[str, str] = {}  # by file or line the reason why it cannot be used
        self.num_done = 0  # files or lines that were used
        self.num_unsure = 0  # units that the person cannot tell
        self.num_unchanged = 0  # files that say what the answers say

    def _skip(self, place: object, reason: object) -> None:
        self.skipped[str(place)] = one_line(reason)


class TextGrids(_Corrections):
    """A folder of TextGrids, named as the utterances.

    The tier ``perceived`` (of stage 5 ``mlvae_perceived``) is the correction: one label for each
    unit, in order, of an interval or, for what has no length, of a point. ``-`` is a unit that was
    left out, ``?`` one that the person cannot tell. The tier ``units``, where it is still there,
    says which units are meant, and its times count where only they were changed.
    """

    has_times = True

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._files: dict[str, Path] = {}
        for path in files_below(folder, lambda error: self._skip(error.filename, error)):
            if path.suffix.lower() == ".textgrid":
                other = self._files.setdefault(str(path.relative_to(folder).with_suffix("")), path)
                if other != path:
                    self._skip(path, f"{other.name} has the same name, and is used")

    def of(self, answer: Answer) -> dict[int, Verdict]:
        """By index of a unit the verdict; empty where there is no file, or one that is no use."""
        path = None
        with contextlib.suppress(ValueError):  # an id that names no file
            name = path_of_id(Path(), answer.id, ".TextGrid").with_suffix("")
            path = self._files.pop(str(name), None)
        if path is None:
            return {}
        try:
            found = verdicts_of(read_textgrid(path), answer)
        except (ValueError, OSError) as error:
            self._skip(path, error)
            return {}
        self.num_done += 1
        self.num_unsure += len(answer.units) - len(found)
        self.num_unchanged += len(found) == len(answer.units) and all(
            verdict.perceived == unit.perceived and not _moved(unit, verdict, ROUNDING)
            for verdict, unit in zip(found.values(), answer.units)
        )
        return found

    def finish(self) -> None:
        """Note files that no answer was there for."""
        for path in self._files.values():
            self._skip(path, "there is no answer for an utterance of this name")


def verdicts_of(grid: TextGrid, answer: Answer) -> dict[int, Verdict]:
    """By index of a unit what a corrected TextGrid says; units that are unsure are not there.

    Raises:
        ValueError: a tier is missing, or its units are not those of the answer.
    """
    names = next((names for names in TIERS if names[0] in grid.tiers), None)
    if names is None:
        there = ", ".join(grid.tiers) or "none"
        raise ValueError(f"no tier {TIERS[0][0]!r}, which is to be corrected; there are: {there}")
    units = _labels(grid, names[1], answer) if names[1] in grid.tiers else None
    expected = [unit.symbol for unit in answer.units]
    if units is not None and [label for label, *_ in units] != expected:
        raise ValueError(
            f"tier {names[1]!r} has the units {_short(label for label, *_ in units)}, and the "
            f"answer {_short(expected)}: correct the tier {names[0]!r} alone"
        )
    said = _labels(grid, names[0], answer)
    if len(said) != len(expected):
        raise ValueError(
            f"tier {names[0]!r} has {len(said)} labels for {len(expected)} units: each needs one, "
            "- where it was left out"
        )
    found = {}
    for index, (unit, (label, start, end)) in enumerate(zip(answer.units, said)):
        verdict = Verdict(label, start, end)
        if units is not None and not _moved(unit, verdict, ROUNDING):
            verdict = Verdict(label, *units[index][1:])
        if label != UNSURE:
            found[index] = verdict
    return found


def _labels(grid: TextGrid, name: str, answer: Answer) -> list[tuple[str, float, float]]:
    """Labels of a tier and of its points in order, with start and end; silence has none."""
    intervals, _ = shift_to_recording(grid, name, answer.duration)
    intervals, _ = tidy_intervals([one for one in intervals if one.label], answer.duration)
    points = grid.tiers.get(name + POINTS)
    found = [(one.start, 1, one.label, one.end) for one in intervals]
    for one in points.intervals if points is not None else ():
        found += [(one.start, 0, label, one.start) for label in one.label.split()]
    # What has no length comes before what begins there. (The sort is stable.)
    return [(label, start, end) for start, _, label, end in sorted(found, key=lambda f: f[:2])]


def _short(labels: Iterable[str]) -> str:
    text = " ".join(labels)
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


class Table(_Corrections):
    """A table (.csv, .tsv) of verdicts, a row for each unit that was judged.

    Columns are named as those of ``units.csv``: ``utterance``; ``index`` or ``start`` of the unit;
    ``verdict``: ``right`` where the sound is that of the text, ``wrong``, ``unsure``, or nothing;
    and where they are there ``unit``, which is checked, and ``said``, the sound that was said.
    """

    has_times = False

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._rows: dict[str, list[tuple[str, dict[str, str]]]] = {}
        lines = decode_text(path.read_bytes()).lstrip("\ufeff").split("\n")
        delimiter = max(",;\t", key=lines[0].count)
        reader = csv.DictReader(lines_of_table("\n".join(lines)), delimiter=delimiter)
        try:
            reader.fieldnames = [name.strip().lower() for name in reader.fieldnames or ()]
            columns = set(reader.fieldnames)
            if not {"utterance", "verdict"} <= columns or not {"index", "start"} & columns:
                raise ValueError(
                    f"{path} has the columns {_short(reader.fieldnames) if columns else 'none'}: "
                    "utterance, verdict, and index or start are needed"
                )
            for row in reader:
                cells = {name: (row.get(name) or "").strip() for name in columns}
                if cells["verdict"]:
                    rows = self._rows.setdefault(cells["utterance"], [])
                    rows.append((f"{path}, line {reader.line_num}", cells))
        except csv.Error as error:
            raise ValueError(f"{path}, line {reader.line_num + 1}: {error}") from error

    def of(self, answer: Answer) -> dict[int, Verdict]:
        """By index of a unit the verdict."""
        found: dict[int, Verdict] = {}
        judged: set[int] = set()
        for line, cells in self._rows.pop(answer.id, ()):
            try:
                place, verdict = _of_row(cells, answer)
                if place in judged:
                    raise ValueError(f"a second verdict on unit {place} of {answer.id}")
            except ValueError as error:
                self._skip(line, error)
                continue
            judged.add(place)
            self.num_done += 1
            if verdict is None:
                self.num_unsure += 1
            else:
                found[place] = verdict
        return found

    def finish(self) -> None:
        """Note rows that no answer was there for."""
        for name, rows in self._rows.items():
            for line, _ in rows:
                self._skip(line, f"there is no answer for the utterance {name!r}")


def _of_row(cells: dict[str, str], answer: Answer) -> tuple[int, Verdict | None]:
    """Index and verdict of a row; None where the person is unsure."""
    verdict = cells["verdict"].lower()
    if verdict not in VERDICTS:
        raise ValueError(f"the verdict {cells['verdict']!r} is none of {', '.join(VERDICTS)}")
    index = _index_of(cells, answer.units)
    unit = answer.units[index].symbol
    if cells.get("unit", unit) not in ("", unit):
        raise ValueError(f"unit {index} of {answer.id} is {unit!r}, not {cells['unit']!r}")
    said = cells.get("said", "")
    if verdict == "wrong" and said == unit:
        raise ValueError(f"unit {index} of {answer.id} is wrong, and {said!r} all the same")
    if verdict == "unsure":
        return index, None
    return index, Verdict(unit if verdict == "right" else said or UNCLEAR)


def _index_of(cells: dict[str, str], units: Sequence[Unit]) -> int:
    name = "index" if cells.get("index") else "start"
    try:
        value = float(cells.get(name, "").replace(",", "."))
    except ValueError:
        raise ValueError(f"{name} is {cells.get(name, '')!r}, which is no number") from None
    if name == "index":
        if value not in range(len(units)):
            raise ValueError(f"no unit {cells['index']}: there are {len(units)}, from 0 on")
        return int(value)
    if not math.isfinite(value):
        raise ValueError(f"start is {value}, which is no time")
    nearest = min(range(len(units)), key=lambda index: abs(units[index].start - value))
    if abs(units[nearest].start - value) > TOLERANCE:
        raise ValueError(f"no unit starts at {value:g} s")
    return nearest


def _moved(unit: Unit, verdict: Verdict, tolerance: float) -> bool:
    """Whether a boundary is elsewhere by more than some seconds."""
    if verdict.start is None or verdict.end is None:
        return False
    # What was left out has no boundaries.
    if unit.end <= unit.start and verdict.end <= verdict.start:
        return False
    return max(abs(unit.start - verdict.start), abs(unit.end - verdict.end)) > tolerance


@dataclass(frozen=True)
class _Judged:
    """A unit that was judged."""

    utterance: str
    unit: Unit
    verdict: Verdict


def _arrays(judged: Sequence[_Judged]) -> tuple[Reference, Hypothesis]:
    """Correction and answers as the project's metrics read them.

    A unit without a corrected time has that of the answer.
    """
    sizes = Counter(one.utterance for one in judged)
    units, verdicts = [one.unit for one in judged], [one.verdict for one in judged]
    spans = [(u.start, max(u.start, u.end)) for u in units]
    true = [
        span if v.start is None or v.end is None else (v.start, v.end)
        for span, v in zip(spans, verdicts)
    ]
    known = [u.p_mispronounced for u in units if u.p_mispronounced is not None]
    reference = Reference(
        list(sizes),
        list(sizes),
        firsts(list(sizes.values())),
        [unit.symbol for unit in units],
        [verdict.perceived for verdict in verdicts],
        *np.array(true, dtype=np.float64).T,
        [one.utterance for one in judged],
    )
    hypothesis = Hypothesis(
        COMMAND,
        *np.array(spans, dtype=np.float64).T,
        np.array([unit.flagged for unit in units]),
        probabilities=np.array(known) if len(known) == len(units) else None,
        perceived=tuple(unit.perceived for unit in units),
    )
    return reference, hypothesis


def compare(folder: Path, corrected: Path, out: Path | None = None) -> int:
    """Print how good the answers are by the corrections, and where they differ.

    Args:
        folder: what `mlvae localize` has written, or the folder of a system after stage 5.
        corrected: a folder of TextGrids, see :class:`TextGrids`, or a :class:`Table`.
        out: CSV file with all differences, see docs/formats.md, which is left as it is where no
            correction can be used; None: the first are printed.

    Returns:
        The exit status: 0, 1 where some corrections could not be used, 2 where none could.

    Raises:
        ValueError, OSError: something cannot be read or written, or is in the way.
    """
    corrected = Path(corrected)
    judged: list[_Judged] = []
    differences: list[Sequence[object]] = []

    def skip(name: str, reason: str, place: str) -> None:
        log(f"{COMMAND}: no answer of {name} ({place}): {reason}")

    with contextlib.nullcontext() if out is None else made_table(out, COMMAND, COLUMNS) as record:
        corrections = TextGrids(corrected) if corrected.is_dir() else Table(corrected)
        for answer in read_answers(folder, skip):
            verdicts = corrections.of(answer)
            judged += [_Judged(answer.id, answer.units[i], one) for i, one in verdicts.items()]
            differences += _differences(answer, verdicts)
        corrections.finish()
        for place, reason in corrections.skipped.items():
            log(f"{COMMAND}: skipped {place}: {reason}")
        if out is not None and corrections.num_done:
            write_csv(out, COLUMNS, differences, record)
    if judged:
        print(f"\n{_report(judged, corrections)}\n\n{_shown(differences, out)}\n", flush=True)
    done, skipped = corrections.num_done, len(corrections.skipped)
    log(f"{COMMAND}: {done + skipped} in = {done} done + {skipped} skipped")
    if not done:
        return 2
    return 1 if skipped else 0


def _differences(answer: Answer, verdicts: dict[int, Verdict]) -> Iterator[Sequence[object]]:
    """Rows of the units of which the correction says something else; see docs/formats.md."""
    for index, verdict in verdicts.items():
        unit = answer.units[index]
        is_wrong = verdict.perceived != unit.symbol
        kind = ""
        if is_wrong != unit.flagged:
            kind = MISSED if is_wrong else FALSE
        elif is_wrong and UNCLEAR not in (verdict.perceived, unit.perceived):
            kind = OTHER if verdict.perceived != unit.perceived else ""
        if not kind and _moved(unit, verdict, TOLERANCE):
            kind = BOUNDARY
        if kind:
            word = "" if unit.word is None else answer.words[unit.word].symbol
            numbers = (unit.start, unit.end, unit.p_mispronounced, verdict.start, verdict.end)
            start, end, p, true_start, true_end = (
                "" if number is None else round(number, 6) for number in numbers
            )
            yield (
                *(answer.id, start, end, word, index, unit.symbol, p, unit.perceived),
                *(verdict.perceived, kind, true_start, true_end),
            )


def _report(judged: Sequence[_Judged], corrections: _Corrections) -> str:
    """The metrics as text."""
    reference, hypothesis = _arrays(judged)
    # What both sides call left out is nowhere, and no boundary of it can be wrong.
    somewhere = (hypothesis.ends > hypothesis.starts) | (reference.ends > reference.starts)
    compared = replace(outcomes(reference, hypothesis), annotated=somewhere)
    scores, wrong = score(compared), reference.positive
    lines = [
        f"{len(wrong):,} units of {len(reference.utterances):,} utterances were judged: "
        f"{wrong.sum():,} mispronounced ({100 * wrong.mean():.1f} %), {hypothesis.flags.sum():,} "
        f"flagged; {corrections.num_unsure:,} more are unsure, and do not count"
    ]
    if corrections.num_unchanged:
        lines.append(
            f"{corrections.num_unchanged:,} of {corrections.num_done:,} files say what the answers "
            "say: they count as looked at and found right"
        )
    rows = [["hard", scores.hard_precision, scores.hard_recall, scores.hard_f1]]
    if corrections.has_times:
        pooled = (scores.pooled_precision, scores.pooled_recall, scores.pooled_f1)
        rows.append(["pooled", *pooled])
    shown = [[name, *(f"{100 * value:.1f}" for value in values)] for name, *values in rows]
    headers = ["", "precision", "recall", "F1"]
    lines += ["", tabulated(headers, shown, "left", *["right"] * 3), ""]
    if (known := known_probabilities(reference, hypothesis)) is not None:
        found = calibration(*known)
        ranking = [("average precision", found.average_precision), ("AUC", found.area_under_curve)]
        texts = [f"{name} {'-' if value is None else f'{value:.3f}'}" for name, value in ranking]
        lines.append(f"P(mispronounced): {', '.join(texts)}, Brier score {found.brier_score:.3f}")
    if (named := perceived_accuracy(reference, hypothesis)) is not None:
        lines.append(
            f"perceived unit: right in {100 * named.fraction:.1f} % of {named.num_named:,} that "
            "are mispronounced, flagged and named"
        )
    if corrections.has_times:
        placed = (hypothesis.ends > hypothesis.starts) & (reference.ends > reference.starts)
        for name, off in (
            ("starts", (hypothesis.starts - reference.starts)[placed]),
            ("ends", (hypothesis.ends - reference.ends)[placed]),
        ):
            if len(off):
                close = np.mean(np.abs(off) <= TOLERANCE)
                lines.append(
                    f"{name}: {100 * close:.1f} % within {1000 * TOLERANCE:.0f} ms of the "
                    f"correction, median {1000 * np.median(off):+.0f} ms"
                )
        lines.append(f"average IoU {100 * scores.average_iou:.1f} %")
    return "\n".join(lines)


def _shown(differences: Sequence[Sequence[object]], out: Path | None) -> str:
    """How many differences there are of each kind, and the first of them, or where they are."""
    counts = Counter(row[COLUMNS.index("difference")] for row in differences)
    text = ", ".join(f"{counts[kind]:,} {kind}" for kind in (MISSED, FALSE, OTHER, BOUNDARY))
    text = f"differences: {text}"
    if out is not None:
        return f"{text}; {out}"
    if not differences:
        return text
    width = COLUMNS.index("corrected_start")
    rows = [row[:width] for row in differences[:MAX_SHOWN]]
    more = len(differences) - len(rows)
    table = tabulate(rows, COLUMNS[:width])
    return f"{text}\n\n{table}" + (f"\nand {more:,} more: name a file for them" if more else "")
