"""Answers as files for other programs: TextGrid, CTM, JSON, CSV, cuts of lhotse.

Answers come one by one and none is held.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from lhotse import MonoCut
from lhotse.supervision import AlignmentItem, SupervisionSegment, SupervisionSet

from mlvae.answers import Answer, Unit, Word
from mlvae.data.manifests import content_of
from mlvae.made import Record, path_of_id
from mlvae.report.textgrid import write_textgrid
from mlvae.stage import atomic_path
from mlvae.tiers import with_tiers

TEXTGRIDS = "textgrids"
#: By format the files that it makes, besides TextGrids.
FILES = {
    "textgrid": (),
    "ctm": ("units.ctm", "words.ctm"),
    "json": ("utterances.jsonl",),
    "csv": ("units.csv", "words.csv", "utterances.csv"),
    "cuts": ("cuts.jsonl.gz",),
}
FORMATS = tuple(FILES)

_UNIT_COLUMNS = (
    *("utterance", "speaker", "word_index", "word", "index", "unit", "start", "end"),
    *("p_mispronounced", "p_deleted", "perceived", "flagged"),
)
_WORD_COLUMNS = (
    *("utterance", "speaker", "index", "word", "start", "end", "p_mispronounced"),
    *("units", "units_flagged"),
)
_UTTERANCE_COLUMNS = (
    *("utterance", "speaker", "recording", "duration", "words", "units", "units_flagged"),
    *("fraction_flagged", "mean_p", "score_per_frame", "loop_gain"),
)


def write_answer_textgrid(answer: Answer, folder: Path, record: Record | None = None) -> None:
    """Write ``<id>.TextGrid`` to a folder, for Praat.

    Its tiers are ``words``, ``units``, ``perceived``, ``p_mispronounced`` (as numbers) and
    ``flagged``, where a flagged unit has what was perceived in its place: ``dh > d``, ``t > -``
    where it was left out. What is without length is in point tiers, ``units_points``.

    Raises:
        ValueError: the id cannot be the name of a file, or units overlap.
        OSError: the file cannot be written; names it.
    """
    path = path_of_id(folder, answer.id, ".TextGrid")
    units = answer.units
    tiers = {
        "words": [_item(word, word.symbol) for word in answer.words],
        "units": [_item(unit, unit.symbol) for unit in units],
        "perceived": [_item(unit, unit.perceived) for unit in units],
        "p_mispronounced": [
            _item(u, f"{u.p_mispronounced:.2f}") for u in units if u.p_mispronounced is not None
        ],
        "flagged": [_item(u, f"{u.symbol} > {u.perceived}") for u in units if u.flagged],
    }
    if not answer.words:
        del tiers["words"]
    write_textgrid(with_tiers(answer.cut, tiers), path, list(tiers), record)


def _item(what: Unit | Word, symbol: str, score: float | None = None) -> AlignmentItem:
    return AlignmentItem(symbol, what.start, max(round(what.end - what.start, 6), 0.0), score)


def write_exports(
    folder: Path, formats: Sequence[str], answers: Callable[[], Iterable[Answer]]
) -> None:
    """Write the files of formats but TextGrids; each appears when it is whole.

    ``answers`` gives all of them anew, one by one. OSError names a file that cannot be written.
    """
    names = [name for one in formats for name in FILES[one]]
    with contextlib.ExitStack() as stack:
        files = {n: _opened(folder / n, stack) for n in names if not n.endswith(".ctm")}
        for name, (columns, _) in _TABLES.items():
            if name in files:
                _write_rows(files[name], [columns])
        for answer in answers() if files else ():
            for name, file in files.items():
                if name in _LINES:
                    file.write(json.dumps(_LINES[name](answer), ensure_ascii=False) + "\n")
                else:
                    _write_rows(file, _TABLES[name][1](answer))
    for name in (name for name in names if name.endswith(".ctm")):
        with atomic_path(folder / name) as temporary:
            segments = SupervisionSet(_segments(answers(), words=name.startswith("words")))
            segments.write_alignment_to_ctm(temporary, "ctm")


def _opened(path: Path, stack: contextlib.ExitStack) -> IO[str]:
    raw: Any = stack.enter_context(stack.enter_context(atomic_path(path)).open("wb"))
    if path.suffix == ".gz":  # without the time of day, so that a rerun gives the same bytes
        raw = stack.enter_context(gzip.GzipFile("", "wb", 6, raw, mtime=0))
    # Bytes of a file name that are no UTF-8 become escapes.
    text = io.TextIOWrapper(raw, "utf-8", errors="backslashreplace", newline="")
    return stack.enter_context(text)


def _write_rows(file: IO[str], rows: Iterable[Sequence[Any]]) -> None:
    csv.writer(file, lineterminator="\n").writerows(rows)


def _segments(answers: Iterable[Answer], words: bool) -> Iterator[SupervisionSegment]:
    """Supervisions with a tier ``ctm`` whose scores are P(as it should be), one by one."""
    for answer in answers:
        items = [
            _item(what, what.symbol, None if (p := what.p_mispronounced) is None else 1 - p)
            for what in (answer.words if words else answer.units)
        ]
        place = (answer.id, answer.id, 0.0, answer.duration)
        yield SupervisionSegment(*place, alignment={"ctm": items})


def as_json(answer: Answer) -> dict[str, Any]:
    """An answer as JSON values, see docs/formats.md."""
    return {
        "id": answer.id,
        "text": answer.text,
        "speaker": answer.speaker,
        "recording": source_of(answer.cut),
        "duration": answer.duration,
        "fraction_flagged": answer.fraction_flagged,
        "mean_p": answer.mean_p,
        "score_per_frame": answer.score_per_frame,
        "loop_gain": answer.loop_gain,
        "words": [asdict(word) for word in answer.words],
        "units": [asdict(unit) for unit in answer.units],
    }


def source_of(cut: MonoCut) -> str | None:
    """The file or archive of a cut's audio, or the command that gives it; None without any."""
    sources = cut.recording.sources if cut.recording is not None else []
    return next((s.source for s in sources if s.type in ("file", "command", "shar")), None)


def _round(value: float | None) -> float | str:
    return "" if value is None else round(value, 6)


def _unit_rows(answer: Answer) -> Iterator[Sequence[Any]]:
    for index, unit in enumerate(answer.units):
        word = "" if unit.word is None else answer.words[unit.word].symbol
        yield (
            *(answer.id, answer.speaker or "", "" if unit.word is None else unit.word, word),
            *(index, unit.symbol, _round(unit.start), _round(unit.end)),
            *(_round(unit.p_mispronounced), _round(unit.p_deleted), unit.perceived),
            int(unit.flagged),
        )


def _word_rows(answer: Answer) -> Iterator[Sequence[Any]]:
    for index, word in enumerate(answer.words):
        yield (
            *(answer.id, answer.speaker or "", index, word.symbol),
            *(_round(word.start), _round(word.end), _round(word.p_mispronounced)),
            *(word.num_units, word.num_flagged),
        )


def _utterance_rows(answer: Answer) -> Iterator[Sequence[Any]]:
    yield (
        *(answer.id, answer.speaker or "", source_of(answer.cut) or "", _round(answer.duration)),
        *(len(answer.words), len(answer.units), answer.num_flagged),
        *(_round(answer.fraction_flagged), _round(answer.mean_p)),
        *(answer.score_per_frame, answer.loop_gain),
    )


#: By file what a line of JSON holds of an answer.
_LINES: dict[str, Callable[[Answer], dict[str, Any]]] = {
    "cuts.jsonl.gz": lambda answer: content_of(answer.cut),
    "utterances.jsonl": as_json,
}
#: By file its columns, and the rows of an answer.
_TABLES: dict[str, tuple[Sequence[str], Callable[[Answer], Iterator[Sequence[Any]]]]] = {
    "units.csv": (_UNIT_COLUMNS, _unit_rows),
    "words.csv": (_WORD_COLUMNS, _word_rows),
    "utterances.csv": (_UTTERANCE_COLUMNS, _utterance_rows),
}
