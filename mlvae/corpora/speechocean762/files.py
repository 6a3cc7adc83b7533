"""speechocean762 on disk: which utterances there are, what should be said, and the scores.

Two layouts are read:

* the corpus as published: ``{train,test}/{wav.scp,text,utt2spk}``, ``WAVE/SPEAKER*/*.WAV`` and
  ``resource/scores.json`` (earlier versions: ``scores.json``), which may be missing: then nothing
  is known but the text;
* a folder with ``labels.jsonl``, a line an utterance (``id``, ``speaker``, and of each of its
  ``words`` ``text``, ``phones`` and ``scores``), and ``flac/ID.flac``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlvae.data.lexicon import PHONES, fold_phone
from mlvae.stage import StageReport

HALVES = ("train", "test")
LABELS = "labels.jsonl"
SCORES = ("resource/scores.json", "scores.json")
MOST = 2.0
"""Score of a phone that is right; 1 is said with an accent, 0 wrong or missing."""

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class ScoredWord:
    """A word with its phones and scores."""

    text: str
    phones: tuple[str, ...]  # folded
    # of each phone the mean over the experts, 0 to 2; None where it was not scored
    scores: tuple[float | None, ...]
    score: float | None = None  # of the word, 0 to 10; None where there is none


@dataclass(frozen=True)
class Utterance:
    """An utterance as the corpus describes it."""

    id: str
    speaker: str
    recording: Path  # the audio file, which need not be there
    text: str  # what should be said
    half: str = ""  # ``train`` or ``test``; empty where the corpus has no halves
    words: tuple[ScoredWord, ...] = ()  # empty where nothing was scored
    score: float | None = None  # of the utterance, 0 to 10; None where there is none


@dataclass(frozen=True)
class Corpus:
    """What a folder holds."""

    utterances: list[Utterance]  # those whose description can be read, in the order of their ids
    halves: tuple[str, ...]  # those that are there, of `HALVES`
    is_scored: bool  # whether there are phones and their scores


def read_corpus(corpus_dir: Path, report: StageReport) -> Corpus:
    """Read the descriptions of all utterances; no audio is opened.

    What cannot be read is skipped with file and line.

    Raises:
        ValueError: the folder is of neither layout, or a file of the corpus cannot be read.
    """
    root = Path(corpus_dir)
    if not root.is_dir():
        raise ValueError(f"no such folder: {root}")
    halves = tuple(half for half in HALVES if (root / half / "wav.scp").is_file())
    if (root / LABELS).is_file():
        utterances, halves, is_scored = _read_labels(root, report), (), True
    elif halves:
        path = next((root / name for name in SCORES if (root / name).exists()), None)
        is_scored = path is not None
        scores = _read_scores(path) if is_scored else {}
        utterances = [u for half in halves for u in _read_half(root, half, path, scores, report)]
    else:
        raise ValueError(
            f"{root} is not speechocean762: it holds neither {LABELS} nor train/wav.scp nor "
            "test/wav.scp"
        )
    found: dict[str, Utterance] = {}
    for utterance in utterances:
        if utterance.id in found:
            report.skip(utterance.id, "a second utterance of this id", place=str(root))
        else:
            found[utterance.id] = utterance
    return Corpus([found[name] for name in sorted(found)], halves, is_scored)


# ---- The corpus as published ------------------------------------------------------------------


def _read_scores(path: Path) -> dict[str, Any]:
    """The content of ``scores.json``, by id of an utterance; ValueError names it."""
    try:
        records = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    if not isinstance(records, dict):
        raise ValueError(f"{path} holds no object with the ids of utterances as keys")
    return records


def _scores_of(name: str, records: dict[str, Any]) -> tuple[tuple[ScoredWord, ...], float | None]:
    """The words of an utterance and its own score; ValueError where it has none as documented."""
    if name not in records:
        raise ValueError("no scores of it")
    record = _object(records[name])
    words = tuple(
        _word(word, _field(word, "phones-accuracy", list), _score(word.get("accuracy"), 10))
        for word in map(_object, _field(record, "words", list))
    )
    return words, _score(record.get("accuracy"), 10)


def _read_half(
    root: Path, half: str, path: Path | None, scores: dict[str, Any], report: StageReport
) -> Iterator[Utterance]:
    """The utterances of a half, with scores where there is a file of them."""
    recordings = _read_table(root / half / "wav.scp", report)
    texts = _read_table(root / half / "text", report)
    speakers = _read_table(root / half / "utt2spk", report)
    for name in sorted(recordings.keys() | texts.keys() | speakers.keys()):
        lacking = [
            file
            for file, table in (("wav.scp", recordings), ("text", texts), ("utt2spk", speakers))
            if not table.get(name)
        ]
        place = root / half
        try:
            if lacking:
                raise ValueError(f"{' and '.join(lacking)} of {half} have nothing of it")
            words, score = (), None
            recording = root / recordings[name]
            own = (_checked_id(name), speakers[name], recording, texts[name], half)
            if path is not None:
                place = path
                words, score = _scores_of(name, scores)
            yield Utterance(*own, words, score)
        except ValueError as error:
            report.skip(name, str(error), place=str(place))


def _read_table(path: Path, report: StageReport) -> dict[str, str]:
    """Lines ``id value`` as Kaldi has them; the first of an id counts."""
    table: dict[str, str] = {}
    for number, line in _lines(path, report):
        name, value = (*line.split(maxsplit=1), "")[:2]
        if name in table:
            report.skip(name, "a second line of this id", place=f"{path}, line {number}")
        else:
            table[name] = value.strip()
    return table


# ---- The folder with labels.jsonl -------------------------------------------------------------


def _read_labels(root: Path, report: StageReport) -> Iterator[Utterance]:
    path = root / LABELS
    for number, line in _lines(path, report):
        name = f"{LABELS}, line {number}"
        try:
            record = _object(json.loads(line))
            name = _checked_id(_field(record, "id", str))
            words = tuple(
                _word(word, _field(word, "scores", list), None)
                for word in map(_object, _field(record, "words", list))
            )
            speaker = _field(record, "speaker", str)
            recording = root / "flac" / f"{name}.flac"
            text = " ".join(word.text for word in words)
            yield Utterance(name, speaker, recording, text, words=words)
        except ValueError as error:
            report.skip(name, str(error), place=f"{path}, line {number}")


# ---- What both have ---------------------------------------------------------------------------


def _lines(path: Path, report: StageReport) -> Iterator[tuple[int, str]]:
    """The lines of a file that are not blank, with their numbers; what is no UTF-8 is skipped.

    Raises:
        ValueError: the file cannot be read; names it.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").splitlines(), start=1):
        try:
            decoded = line.decode("utf-8")
        except UnicodeDecodeError:
            place = f"{path}, line {number}"
            report.skip(f"{path.name}, line {number}", "not in UTF-8", place=place)
            continue
        if decoded.strip():
            yield number, decoded


def _checked_id(name: str) -> str:
    if not _ID.fullmatch(name):
        raise ValueError(f"{name!r} is no id: letters, digits, '_', '-' and '.' make one")
    return name


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"an object is expected, not {_short(value)}")
    return value


def _field(record: dict[str, Any], name: str, kind: type) -> Any:
    value = record.get(name)
    if not isinstance(value, kind) or not value:
        raise ValueError(f"its {name!r} is {_short(value)}")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def _word(word: dict[str, Any], scores: list[Any], score: float | None) -> ScoredWord:
    text, symbols = _field(word, "text", str), word.get("phones")
    if isinstance(symbols, str):  # "W IY0", as earlier versions of the corpus have it
        symbols = symbols.split()
    symbols = _field({"phones": symbols}, "phones", list)
    if len(symbols) != len(scores):
        raise ValueError(f"word {text!r} has {len(symbols)} phones and {len(scores)} scores")
    phones = tuple(fold_phone(symbol) if isinstance(symbol, str) else "" for symbol in symbols)
    for symbol, phone in zip(symbols, phones):
        if phone not in PHONES:
            raise ValueError(f"word {text!r}: {symbol!r} is no phone")
    try:
        return ScoredWord(text, phones, tuple(_score(s, MOST) for s in scores), score)
    except ValueError as error:
        raise ValueError(f"word {text!r}: {error}") from None


def _score(value: Any, most: float) -> float | None:
    """A score from 0 to ``most``; None where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
        raise ValueError(f"{_short(value)} is no score from 0 to {most:g}")
    return float(value)
