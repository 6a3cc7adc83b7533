"""A report: a folder of pages that a browser opens from disk, without server or network.

``index.html`` has a table of all utterances, the worst first, and what is flagged by unit and by
speaker; each utterance has a page where it is seen and heard. Utterances come one by one, a page is
written when its utterance comes, and only a line of each is held.

Jinja2 makes the pages, escaping whatever comes from outside, and the browser's own parts do the
rest: units are buttons (which have keyboard focus, the direction of their script, and a name for
readers of screens), zoom is a wide element in one that scrolls, tables are tables. Libraries of
plots draw units on a canvas, which has none of that, and are megabytes that every page reads anew.
Calibration is the plot of stage 6, by matplotlib.

Sound is copied as wav of 16 bits, which every browser plays from any sample on, as it does not
from FLAC without a table of seek points.
"""

from __future__ import annotations

import base64
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import numpy as np
from lhotse import MonoCut
from lhotse.augmentation import Resample
from lhotse.supervision import AlignmentItem

from mlvae.answers import Answer
from mlvae.data.audio import read_cut, write_wav
from mlvae.errors import one_line
from mlvae.report.sound import peaks, spectrogram
from mlvae.stage import log
from mlvae.tiers import DELETED

#: How pages come to their sound: copied to the report; played from where it lies, where that is a
#: wav file, and copied otherwise; or not at all.
AUDIO = ("copy", "link", "none")
INDEX, ORDER, CALIBRATION = "index.html", "order.js", "calibration.png"
PARTS = Path(__file__).parent / "page"
SHARED = ("report.css", "report.js")
#: Folders of a report, besides files.
FOLDERS = ("utterances", "audio")
#: Letters of a text in the index.
LETTERS = 80
#: What a speaker says instead is shown by so many pairs of units.
MOST_SAID = 3
#: Items that were skipped are named by so many.
SKIPPED_SHOWN = 200


@dataclass(frozen=True)
class ReferenceUnits:
    """What a reference says of the units of an utterance, L of them."""

    perceived: Sequence[str]  # L symbols; the canonical ones where there are scores instead
    starts: Sequence[float] | None = None  # L seconds; None where the reference has no times
    ends: Sequence[float] | None = None  # seconds
    # L means of experts' scores from 0 (wrong) to 2, None of units without; None where the
    # reference has no scores
    scores: Sequence[float | None] | None = None
    inserted: Sequence[AlignmentItem] = ()  # sounds that are no unit


@dataclass(frozen=True)
class Shown:
    """An utterance of a report."""

    # by name of a system what it found; all of the same units, at least one
    answers: Mapping[str, Answer]
    reference: ReferenceUnits | None = None  # none where there is none


@dataclass(frozen=True)
class About:
    """What a report is of."""

    title: str
    systems: Sequence[str]  # names, the first being the one that the index begins with
    # rows of a table of metrics, the first being its heading; a cell is a list of lines
    scores: Sequence[Sequence[Sequence[str]]] = ()
    calibration: Path | None = None  # a PNG file; None: there is none
    skipped: Sequence[tuple[str, str]] = ()  # ids and reasons
    notes: Sequence[str] = ()  # sentences


def write_pages(
    folder: Path, home: Path, about: About, utterances: Iterable[Shown], audio: str
) -> int:
    """Write a report to an empty folder; how many utterances it has.

    ``home`` is the folder that it becomes, from which linked recordings are seen; utterances come
    one by one; audio is one of `AUDIO`. OSError names what cannot be written.
    """
    pages = _Pages(folder, home, about, audio)
    for shown in utterances:
        pages.add(shown)
    pages.finish()
    return len(pages.rows)


class _Pages:
    """A report that utterances are added to."""

    def __init__(self, folder: Path, home: Path, about: About, audio: str) -> None:
        self.folder, self.home, self.about, self.audio = folder, home, about, audio
        self.templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(PARTS),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.policies["json.dumps_kwargs"] = {
            "ensure_ascii": False,
            "separators": (",", ":"),
        }
        self.page = self.templates.get_template("utterance.html")
        self.rows: list[list[Any]] = []
        self.seconds = 0.0
        self.pairs: dict[tuple[str, str], int] = {}
        self.counts = {name: _Counts() for name in about.systems}
        self.silent: list[str] = []
        (folder / "utterances").mkdir()

    def add(self, shown: Shown) -> None:
        """Write the page of an utterance, and remember its line of the index."""
        number = len(self.rows) + 1
        first = next(iter(shown.answers.values()))
        self.seconds += first.duration
        pictures = self._pictures(first, number)
        content = {
            "number": number,
            "duration": _milliseconds(first.duration),
            "words": [word.symbol for word in first.words],
            "units": [unit.symbol for unit in first.units],
            "wordOf": [unit.word for unit in first.units] if first.words else None,
            "systems": [
                _found(name, shown.answers[name])
                for name in self.about.systems
                if name in shown.answers
            ],
            "reference": shown.reference and _reference(shown.reference),
            **pictures,
        }
        text = self.page.render(
            title=self.about.title,
            answer=first,
            fit=text_fit(first),
            data=content,
            with_p=first.mean_p is not None,
        )
        self._write(f"utterances/{number:05d}.html", text)
        self.rows.append(self._row(number, first, shown))

    def finish(self) -> None:
        """Write what all utterances share."""
        self.rows.sort(key=self._worst_first)
        data = {
            "systems": list(self.about.systems),
            "pairs": list(self.pairs),
            "rows": self.rows,
            "counts": [self.counts[name].content(self.pairs) for name in self.about.systems],
            "withReference": any(row[6] is not None for row in self.rows),
        }
        order = ",".join(str(row[0]) for row in self.rows)
        self._write(ORDER, f"window.ORDER = [{order}];\n")
        for name in SHARED:
            self._write(name, (PARTS / name).read_text(encoding="utf-8"))
        if self.about.calibration is not None:
            (self.folder / CALIBRATION).write_bytes(self.about.calibration.read_bytes())
        if self.silent:
            more = f" (and {len(self.silent) - 1} others)" if len(self.silent) > 1 else ""
            log(f"report: pages without sound: {self.silent[0]}{more}")
        text = self.templates.get_template(INDEX).render(
            about=self.about,
            letters=LETTERS,
            calibration=CALIBRATION if self.about.calibration is not None else None,
            num_utterances=len(self.rows),
            seconds=self.seconds,
            num_speakers=len({row[2] for row in self.rows if row[2]}),
            skipped=self.about.skipped[:SKIPPED_SHOWN],
            data=data,
        )
        self._write(INDEX, text)

    def _write(self, name: str, text: str) -> None:
        # Bytes of a file name that are no UTF-8 become escapes.
        content = text.encode("utf-8", errors="backslashreplace")
        (self.folder / name).write_bytes(content)

    def _pictures(self, answer: Answer, number: int) -> dict[str, Any]:
        """What a page has of the recording; the reason where it has nothing."""
        try:
            samples, _ = read_cut(answer.cut)
        except Exception as error:  # whatever is wrong with one recording, the others are heard
            reason = one_line(error)
            self.silent.append(f"{answer.id}: {reason}")
            return {"noSound": reason}
        rate = answer.cut.sampling_rate
        found: dict[str, Any] = {
            "spectrogram": _base64(spectrogram(samples, rate)),
            "peaks": _base64(peaks(samples)),
            "kilohertz": rate / 2000,
        }
        if self.audio == "none":
            return {**found, "noSound": "this report was made without it"}
        link = _link(answer.cut, self.home / "utterances") if self.audio == "link" else None
        if link is not None:
            return {**found, "audio": link, "offset": _milliseconds(answer.cut.start)}
        name = f"audio/{number:05d}.wav"
        (self.folder / "audio").mkdir(exist_ok=True)
        write_wav(self.folder / name, samples, rate)
        return {**found, "audio": f"../{name}", "offset": 0}

    def _row(self, number: int, first: Answer, shown: Shown) -> list[Any]:
        fit, found = text_fit(first), []
        for name in self.about.systems:
            answer = shown.answers.get(name)
            if answer is None:
                found.append(None)
                continue
            pairs = Counter((u.symbol, u.perceived) for u in answer.units if u.flagged)
            indices = [self.pairs.setdefault(pair, len(self.pairs)) for pair in pairs]
            self.counts[name].add(answer, pairs)
            mean = _thousandths(answer.mean_p)
            found.append([answer.num_flagged, len(answer.units), mean, indices])
        text = first.text if first.text is not None else " ".join(u.symbol for u in first.units)
        return [
            *(number, first.id, first.speaker or "", round(first.duration, 2)),
            *(None if fit is None else round(fit, 2), text[:LETTERS]),
            _num_wrong(first, shown.reference),
            found,
        ]

    @staticmethod
    def _worst_first(row: list[Any]) -> tuple[float, float, str]:
        found = next((one for one in row[7] if one is not None), None)
        flagged, count, mean, _ = found or (0, 1, None, [])
        return -flagged / count, -(mean or 0), row[1]


@dataclass
class _Counts:
    """What a system flags, by unit, by speaker and by pair of units."""

    units: dict[str, list[float]] = field(default_factory=dict)
    speakers: dict[str, list[float]] = field(default_factory=dict)
    said: Counter = field(default_factory=Counter)
    said_by: dict[str, Counter] = field(default_factory=dict)

    def add(self, answer: Answer, pairs: Mapping[tuple[str, str], int]) -> None:
        speaker = answer.speaker or ""
        of_speaker = self.speakers.setdefault(speaker, [0, 0, 0, 0.0, 0])
        of_speaker[4] += 1
        for unit in answer.units:
            deleted = unit.perceived == DELETED
            p = np.nan if unit.p_mispronounced is None else unit.p_mispronounced
            marks = (1, unit.flagged, deleted, p)
            for sums in (self.units.setdefault(unit.symbol, [0, 0, 0, 0.0]), of_speaker):
                for index, mark in enumerate(marks):
                    sums[index] += mark
        self.said.update(pairs)
        self.said_by.setdefault(speaker, Counter()).update(pairs)

    def content(self, pairs: Mapping[tuple[str, str], int]) -> dict[str, Any]:
        """For the index: by unit and speaker numbers, flagged, deleted, mean P, what is said."""
        return {
            "units": [
                [name, *sums[:3], _thousandths(sums[3] / sums[0])]
                for name, sums in self.units.items()
            ],
            "speakers": [
                [
                    *(name, sums[4], *sums[:3], _thousandths(sums[3] / sums[0])),
                    [[pairs[pair], n] for pair, n in self.said_by[name].most_common(MOST_SAID)],
                ]
                for name, sums in self.speakers.items()
            ],
            "said": [[pairs[pair], count] for pair, count in self.said.most_common()],
        }


def text_fit(answer: Answer) -> float | None:
    """How well a text fits its recording: log posterior minus log prior per frame; None: unknown.

    Where localisation has not said it, it is that of the items of the tier ``fa``.
    """
    if answer.score_per_frame is not None:
        return answer.score_per_frame
    items = (answer.cut.supervisions[0].alignment or {}).get("fa", [])
    known = [(item.score, item.duration) for item in items if item.score is not None]
    seconds = sum(duration for _, duration in known)
    return sum(score * duration for score, duration in known) / seconds if seconds else None


def _found(name: str, answer: Answer) -> dict[str, Any]:
    """An answer as a page has it: times in milliseconds, probabilities in thousandths."""
    units, words = answer.units, answer.words
    content = {
        "name": name,
        "start": [_milliseconds(unit.start) for unit in units],
        "end": [_milliseconds(unit.end) for unit in units],
        "p": [_thousandths(unit.p_mispronounced) for unit in units],
        "perceived": {i: unit.perceived for i, unit in enumerate(units) if unit.flagged},
        "words": [
            [_milliseconds(word.start), _milliseconds(word.end), _thousandths(word.p_mispronounced)]
            for word in words
        ],
    }
    if any(unit.p_deleted for unit in units):
        content["deleted"] = {
            i: _thousandths(unit.p_deleted)
            for i, unit in enumerate(units)
            if unit.p_deleted and unit.p_deleted >= 0.0005
        }
    return content


def _reference(reference: ReferenceUnits) -> dict[str, Any]:
    content: dict[str, Any] = {"perceived": list(reference.perceived)}
    if reference.starts is not None and reference.ends is not None:
        content["start"] = [_milliseconds(time) for time in reference.starts]
        content["end"] = [_milliseconds(time) for time in reference.ends]
    if reference.scores is not None:
        content["scores"] = [None if s is None else round(s, 1) for s in reference.scores]
    if reference.inserted:
        content["inserted"] = [
            [item.symbol, _milliseconds(item.start), _milliseconds(item.end)]
            for item in reference.inserted
        ]
    return content


def _num_wrong(answer: Answer, reference: ReferenceUnits | None) -> int | None:
    """How many units are mispronounced according to a reference, with scores: below 0.5.

    None where the reference says nothing, or no unit has a score.
    """
    if reference is None:
        return None
    if reference.scores is not None:
        known = [score for score in reference.scores if score is not None]
        return sum(score < 0.5 for score in known) if known else None
    return sum(unit.symbol != said for unit, said in zip(answer.units, reference.perceived))


def _link(cut: MonoCut, folder: Path) -> str | None:
    """How a page in a folder calls the wav file of a cut; None where it is something else."""
    (source, *others) = cut.recording.sources
    plain = all(
        isinstance(one, Resample) or (isinstance(one, dict) and one.get("name") == "Resample")
        for one in cut.recording.transforms or ()
    )
    alone = not others and source.channels == [cut.channel]
    if not plain or not alone or source.type != "file" or not source.source.endswith(".wav"):
        return None
    return quote(os.path.relpath(os.path.abspath(source.source), folder))


def _milliseconds(seconds: float) -> int:
    return round(1000 * float(seconds))


def _thousandths(p: float | None) -> int | None:
    return None if p is None or np.isnan(p) else round(1000 * p)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
