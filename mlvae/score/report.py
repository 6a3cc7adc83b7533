"""`mlvae report`: answers as pages that people open, see and hear, see `mlvae.report.pages`.

Answers are what `mlvae localize` wrote, the folder of a system, or that of an experiment with
several systems, whose scores and reference are shown, too. They are read one by one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mlvae.answers import TIERS, Answer, answer_of_line, read_skipped
from mlvae.data.manifests import manifest_lines, place_of, read_json, shown_id
from mlvae.made import InTheWayError, Record, replaced_folder
from mlvae.report.pages import (
    AUDIO,
    CALIBRATION,
    FOLDERS,
    INDEX,
    ORDER,
    SHARED,
    About,
    ReferenceUnits,
    Shown,
    write_pages,
)
from mlvae.report.plots import TRAINING
from mlvae.score.experiment import CUTS
from mlvae.score.graded import GradedReference, is_graded, read_graded
from mlvae.score.overview import has_reference
from mlvae.score.reference import Reference, read_reference
from mlvae.stage import SKIPPED, Progress, StageReport, log, stage_folder
from mlvae.systems.judge import JUDGE

STAGE = "report"
ANSWERS = "cuts.jsonl.gz"
RESULTS, RELIABILITY = "results.json", "reliability.png"
#: Metrics of ``results.json`` that are shown, and their headings.
METRICS = {
    "pooled_f1": "pooled F1",
    "hard_f1": "hard F1",
    "average_iou": "average IoU",
    "average_precision": "AP",
    "area_under_curve": "AUC",
    "brier_skill": "Brier skill",
    "expected_calibration_error": "calibration error",
}
#: The same of a graded reference, for units that are scored below 0.5.
GRADED_METRICS = {
    "average_precision": "AP",
    "auc": "AUC",
    "best_f1": "best F1",
    "hard_f1": "hard F1",
    "hard_flagged": "flagged",
    "brier_skill": "Brier skill",
    "expected_calibration_error": "calibration error",
}
GRADED_THRESHOLD = "0.5"


def report(
    answers: Path,
    out: Path,
    audio: str = "copy",
    data_dir: Path | None = None,
    labels: Mapping[str, str] | None = None,
) -> int:
    """Write a report of answers.

    Args:
        answers: a folder that `mlvae localize` wrote, of a system, or of an experiment; or a
            manifest of cuts with answers.
        out: folder to write. What a report made there before is replaced, nothing else.
        audio: of `mlvae.report.pages.AUDIO`.
        data_dir: ``DATA_DIR/CORPUS``, for the title and the reference; None: where the features of
            the cuts lie, if they have any.
        labels: by name of a system how it is called, others are not shown; None: all are, by name.

    Returns:
        The exit status: 0, or 1 where no utterance could be shown.

    Raises:
        ValueError: there are no answers, they are damaged, or ``out`` holds what was not made here.
        OSError: something cannot be read or written.
    """
    if audio not in AUDIO:
        raise ValueError(f"--audio must be one of {', '.join(AUDIO)}, not {audio!r}")
    answers, out = Path(answers), Path(out)
    sources = find_sources(answers, labels)
    if not sources:
        raise ValueError(
            f"{answers} has no answers: neither {ANSWERS} (which `mlvae localize` writes with "
            f"--format cuts) nor {CUTS} of stage 5, in it or in a folder of a system"
        )
    ids = {name: _ids(path) for name, path in sources.items()}
    data_dir = data_dir or _data_dir(next(iter(sources.values())))
    reference = _References(data_dir)
    about = _about(answers, data_dir, list(sources))
    with stage_folder(STAGE, out) as record:
        done = StageReport(STAGE, out)
        _check_is_report(record)
        with replaced_folder(out, record, INDEX) as fresh:
            total = len(dict.fromkeys(name for own in ids.values() for name in own))
            with Progress(STAGE, "utterance", total) as progress:
                found = _joined(sources, ids, done, progress)
                shown = (Shown(one, reference.of(next(iter(one.values())))) for one in found)
                done.done(write_pages(fresh, out, about, shown, audio))
            if not done.num_done:
                raise ValueError(f"{answers}: no utterance can be shown, as {_first(done)}")
        status = done.finish()
    log(f"{STAGE}: open {out / INDEX} in a browser")
    return status


def _check_is_report(record: Record) -> None:
    """InTheWayError where something else than a report was made in a folder; names the first."""
    mine = (INDEX, CALIBRATION, ORDER, SKIPPED, *SHARED)
    for name in record.names():
        path = record.folder / name
        if name not in mine and path.parent.name not in FOLDERS and path.exists():
            raise InTheWayError(
                f"{path}: in the way, of another stage or command: write the report to a folder of "
                "its own"
            )


def _first(done: StageReport) -> str:
    if not done.skipped:
        return "there is none"
    return f"{done.skipped[0]['id']}: {done.skipped[0]['reason']}"


# ---- Where answers lie


def find_sources(answers: Path, labels: Mapping[str, str] | None = None) -> dict[str, Path]:
    """By name of a system, as it is shown, the manifest of its answers; arguments as of `report`.

    A judged system comes first, then those with a model of their own.
    """
    for path in (answers, answers / ANSWERS, answers / CUTS):
        if path.is_file():
            return {path.resolve().parent.name: path}
    paths = [
        path
        for path in sorted(answers.glob(f"*/{CUTS}"))
        if (labels is None or path.parent.name in labels) and _is_answered(path)
    ]

    def rank(path: Path) -> tuple[bool, bool]:
        return not (path.parent / JUDGE).exists(), not (path.parent / TRAINING).exists()

    names = labels or {path.parent.name: path.parent.name for path in paths}
    return {names[path.parent.name]: path for path in sorted(paths, key=rank)}


def _is_answered(path: Path) -> bool:
    """Whether the first cut has the tiers of localisation; that of forced alignment has not."""
    with contextlib.suppress(AttributeError, LookupError, TypeError):  # it is no cut
        for _, content in manifest_lines(path):
            return set(TIERS) <= set(content["supervisions"][0]["alignment"])
    return False


def _ids(path: Path) -> list[str]:
    return [line["id"] for _, line in manifest_lines(path) if isinstance(line.get("id"), str)]


def _data_dir(path: Path) -> Path | None:
    """Where the features of the first cut lie."""
    with contextlib.suppress(LookupError, TypeError):  # it has none
        for _, content in manifest_lines(path):
            folder = Path(content["features"]["storage_path"]).parents[1]
            return folder if (folder / "corpus.json").is_file() else None
    return None


# ---- Utterances


class _Unusable(NamedTuple):
    """Why a line has no answer."""

    place: str
    reason: str


def _joined(
    sources: Mapping[str, Path],
    ids: Mapping[str, Sequence[str]],
    done: StageReport,
    progress: Progress,
) -> Iterator[dict[str, Answer]]:
    """The answers of all systems by utterance; those that come in another order are held."""
    readers = {name: _answers(path, done) for name, path in sources.items()}
    waiting: dict[str, dict[str, Answer | _Unusable]] = {name: {} for name in sources}
    own = {name: set(some) for name, some in ids.items()}
    for utterance in dict.fromkeys(name for some in ids.values() for name in some):
        found: dict[str, Answer] = {}
        wrong: dict[str, _Unusable] = {}
        for name in (name for name in readers if utterance in own[name]):
            while utterance not in waiting[name]:
                read, answer = next(readers[name])
                waiting[name][read] = answer
            answer = waiting[name].pop(utterance)
            if isinstance(answer, _Unusable):
                wrong[name] = answer
            elif found and _symbols(answer) != _symbols(next(iter(found.values()))):
                wrong[name] = _Unusable("", "it has other units than another system")
            else:
                found[name] = answer
        progress.update()
        if not found:
            first = next(iter(wrong.values()))
            done.skip(utterance, first.reason, place=first.place)
            continue
        for name, one in wrong.items():
            log(f"{STAGE}: {utterance} is shown without {name}: {one.reason}")
        yield found
    for reader in readers.values():  # lines that are nobody's
        for _ in reader:
            pass


def _symbols(answer: Answer) -> list[str]:
    return [unit.symbol for unit in answer.units]


def _answers(path: Path, done: StageReport) -> Iterator[tuple[str, Answer | _Unusable]]:
    """The answers of a manifest by id; lines without an id of their own are skipped."""
    seen: set[str] = set()
    for number, content in manifest_lines(path):
        place = place_of(path, number)
        name = content.get("id")
        is_text = isinstance(name, str)
        if not is_text or name in seen:
            reason = "another line has this id, too" if is_text else "its id is no text"
            done.skip(shown_id(content), reason, place=place)
            continue
        seen.add(name)
        try:
            yield name, answer_of_line(content, place)
        except ValueError as error:  # the others go on
            yield name, _Unusable(place, str(error))


class _References:
    """The reference of a corpus, where there is one."""

    def __init__(self, data_dir: Path | None) -> None:
        self.plain: Reference | None = None
        self.graded: list[GradedReference] = []
        if data_dir is None or not has_reference(data_dir):
            return
        path = data_dir / "reference.jsonl.gz"
        if not path.is_file():
            return
        if is_graded(path):
            self.graded = [one for one in read_graded(path) if one is not None]
        else:
            self.plain = read_reference(path)

    def of(self, answer: Answer) -> ReferenceUnits | None:
        """What it says of an utterance; None: nothing, or of other units (words, not tokens)."""
        units = _symbols(answer)
        for graded in self.graded:
            place = graded.units.units_of.get(answer.id)
            if place is not None and graded.units.canonical[place] == units:
                scores = [None if np.isnan(s) else float(s) for s in graded.scores[place]]
                return ReferenceUnits(units, scores=scores)
        place = self.plain and self.plain.units_of.get(answer.id)
        if self.plain is None or place is None or self.plain.canonical[place] != units:
            return None
        annotation = self.plain.annotation
        row = self.plain.utterances.index(answer.id) if annotation else 0
        return ReferenceUnits(
            self.plain.perceived[place],
            self.plain.starts[place].tolist(),
            self.plain.ends[place].tolist(),
            inserted=annotation.insertions[row] if annotation else (),
        )


# ---- What a report says of the whole


def _about(answers: Path, data_dir: Path | None, systems: Sequence[str]) -> About:
    corpus = {} if data_dir is None else read_json(data_dir / "corpus.json")
    notes = ["A machine spoke these recordings."] if corpus.get("synthetic") else []
    path = answers / RESULTS
    results = read_json(path) if path.is_file() else {}
    reliability = answers / RELIABILITY
    return About(
        title=str(corpus.get("title") or answers.resolve().name),
        systems=systems,
        scores=_scores(results),
        calibration=reliability if results and reliability.is_file() else None,
        skipped=list(read_skipped(answers)),
        notes=notes,
    )


def _scores(results: Mapping[str, Any]) -> list[list[list[str]]]:
    """Rows of a table, see `mlvae.report.pages.About`; none without results."""
    systems = results.get("systems", {})
    if not systems:
        return []
    graded = any("below" in about for about in systems.values())
    metrics = GRADED_METRICS if graded else METRICS
    rows = [[["system"], *([heading] for heading in metrics.values())]]
    for name, about in systems.items():
        found = about.get("below", {}).get(GRADED_THRESHOLD, about)
        cells = [_cell(found.get(key), found.get(f"{key}_interval")) for key in metrics]
        rows.append([[name], *cells])
    return rows


def _cell(value: float | None, interval: Sequence[float] | None) -> list[str]:
    if value is None:
        return ["–"]
    shown = [f"{value:.3f}"]
    return shown if interval is None else [*shown, f"[{interval[0]:.3f}, {interval[1]:.3f}]"]
