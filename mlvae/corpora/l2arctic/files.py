"""L2-ARCTIC v5.0 on disk: which utterances there are, and reading one of them.

The layout is ``<root>/<SPEAKER>/{wav,transcript,textgrid,annotation}/arctic_a0001.*``, with
``suitcase_corpus`` (spontaneous speech) beside the speakers.

lhotse's `prepare_l2_arctic` reads the same corpus. It is not called here: it takes the whole tree
or nothing (a stray text file, a missing or broken wav ends it with a bare StopIteration or the
audio library's error), passes over ``.WAV``, opens 26,867 recordings where 3,599 are annotated,
and leaves the TextGrids alone. Ids, text, gender and accent are as it gives them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mlvae.corpora.l2arctic.labels import PhoneLabel, read_label
from mlvae.data.audio import AudioError, audio_info
from mlvae.data.lexicon import SIL
from mlvae.data.text import words_of_text
from mlvae.data.textgrid import (
    MAX_DIFFERENCE,
    Interval,
    Repair,
    TextGrid,
    TextGridError,
    read_textgrid,
    shift_to_recording,
    tidy_intervals,
)
from mlvae.stage import StageReport

SUITCASE = "suitcase_corpus"
VALID = ("HJK", "PNV", "YDCK")
TEST = ("NJS", "TLV", "TNI", "TXHC", "YKWK", "ZHAA")
_TABLE = {
    "Arabic": "ABA:M SKA:F YBAA:M ZHAA:F",
    "Chinese": "BWC:M LXC:F NCC:F TXHC:M",
    "Hindi": "ASI:M RRBI:M SVBI:F TNI:F",
    "Korean": "HJK:F HKK:M YDCK:F YKWK:M",
    "Spanish": "EBVS:M ERMS:M MBMPS:F NJS:F",
    "Vietnamese": "HQTV:M PNV:F THV:F TLV:M",
}
SPEAKERS = {
    name: {"gender": gender, "accent": accent}
    for accent, row in _TABLE.items()
    for name, gender in (entry.split(":") for entry in row.split())
}
"""Gender and first language of the 24 speakers."""

_SUFFIXES = {
    "wav": ".wav",
    "transcript": ".txt",
    "textgrid": ".textgrid",
    "annotation": ".textgrid",
}
_STEM = re.compile(r"arctic_[ab]\d{4}")


class UtteranceError(ValueError):
    """An utterance that cannot be used; ``place`` is the file that is to blame."""

    def __init__(self, reason: str, place: Path) -> None:
        super().__init__(reason)
        self.place = place


@dataclass(frozen=True)
class UtteranceFiles:
    """The files of an annotated utterance; a missing one is None."""

    id: str
    speaker: str
    annotation: Path
    wav: Path | None
    transcript: Path | None


@dataclass(frozen=True)
class Segment:
    """An interval of the tier ``phones``."""

    canonical: str  # folded phone that should have been said; ``sil`` for silence and insertions
    perceived: str  # folded phone that was perceived; ``sil`` for silence and deletions
    tag: str  # the annotators' own error type, before folding
    start: float  # seconds
    end: float  # seconds
    word: int | None = None  # place of its word among those of the tier ``words``, or None


@dataclass(frozen=True)
class Utterance:
    """An annotated utterance."""

    files: UtteranceFiles
    num_samples: int  # of the recording
    sampling_rate: int  # of the recording, in Hz
    text: str  # of the transcript; empty if there is none
    segments: tuple[Segment, ...]  # of the tier ``phones``, in order
    # the words of the tier ``words``, with their times, silence left out; empty where there is no
    # such tier
    tier_words: tuple[Interval, ...]
    repairs: tuple[Repair, ...]  # what was read otherwise than it is written

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.num_samples / self.sampling_rate


@dataclass(frozen=True)
class Listing:
    """What there is: annotated utterances, and numbers of recordings that are left out."""

    utterances: list[UtteranceFiles]
    num_unannotated: int
    num_suitcase: int


def list_corpus(corpus_dir: Path, report: StageReport, suitcase: bool = False) -> Listing:
    """Find the annotated utterances; files that belong to none are reported as skipped.

    Only the four folders of a speaker, and what lies beside them, are looked at; what else the
    root holds (README, LICENSE, PROMPTS) is no business of ours. A folder of the root that cannot
    be read is skipped whole. ``suitcase``: whether spontaneous recordings are wanted as well.

    Raises:
        ValueError: if the folder is missing, or no folder in it has annotations.
    """
    root = Path(corpus_dir)
    if not root.is_dir():
        raise ValueError(f"no such folder: {root}")
    utterances: list[UtteranceFiles] = []
    num_unannotated = num_suitcase = 0
    for home in sorted(root.iterdir()):
        is_suitcase = home.name == SUITCASE
        try:
            if is_suitcase:
                num_suitcase = _num_wavs(home)
            if is_suitcase and not suitcase:
                continue
            if not (home / "annotation").is_dir():
                num_unannotated += _num_wavs(home)
                continue
            found = _files_of(home, is_suitcase, report)
        except OSError as error:
            report.skip(home.name, f"folder cannot be read: {error.strerror}", place=str(home))
            continue
        for stem, annotation in found["annotation"].items():
            speaker = stem.upper() if is_suitcase else home.name
            prefix = SUITCASE if is_suitcase else home.name.lower()
            wav, transcript = found["wav"].get(stem), found["transcript"].get(stem)
            files = UtteranceFiles(f"{prefix}-{stem}", speaker, annotation, wav, transcript)
            utterances.append(files)
        num_unannotated += len(set(found["wav"]) - set(found["annotation"]))
        for stem in sorted(set(found["transcript"]) - set(found["wav"]) - set(found["annotation"])):
            path = found["transcript"][stem]
            report.skip(_name(path, home), "a transcript without a recording", place=str(path))
    if not utterances:
        raise ValueError(
            f"{root} is not laid out as L2-ARCTIC: it holds no <SPEAKER>/annotation/*.TextGrid"
        )
    return Listing(utterances, num_unannotated, num_suitcase)


def _num_wavs(home: Path) -> int:
    wavs = home / "wav"
    return sum(path.suffix.lower() == ".wav" for path in wavs.iterdir()) if wavs.is_dir() else 0


def _files_of(home: Path, is_suitcase: bool, report: StageReport) -> dict[str, dict[str, Path]]:
    """By folder and stem; others of the same name, and what has another name, are skipped."""
    found: dict[str, dict[str, Path]] = {folder: {} for folder in _SUFFIXES}
    strays = [path for path in home.iterdir() if path.is_file()]
    for folder, suffix in _SUFFIXES.items():
        paths = sorted((home / folder).iterdir()) if (home / folder).is_dir() else []
        # ``.wav`` goes before ``.WAV``.
        for path in sorted(paths, key=lambda path: path.suffix != suffix):
            stem = path.stem.lower()
            known = stem.upper() in SPEAKERS if is_suitcase else _STEM.fullmatch(stem)
            if not known or path.suffix.lower() != suffix:
                strays.append(path)
            elif stem in found[folder]:
                reason = f"a second file of this name, {found[folder][stem].name} is used"
                report.skip(_name(path, home), reason, place=str(path))
            else:
                found[folder][stem] = path
    for path in sorted(strays):
        report.skip(_name(path, home), "no file of an utterance", place=str(path))
    return found


def _name(path: Path, home: Path) -> str:
    return path.relative_to(home.parent).as_posix()


def read_utterance(files: UtteranceFiles, need_transcript: bool = True) -> Utterance:
    """Read what belongs to an utterance; the audio itself is not decoded.

    Raises:
        UtteranceError: if it cannot be used, or lacks a transcript that is needed; names the file,
            and the time where there is one.
    """
    if files.wav is None:
        raise UtteranceError("no recording", files.annotation)
    try:
        num_samples, sampling_rate = audio_info(files.wav)
    except (AudioError, OSError) as error:
        raise UtteranceError(str(error), files.wav) from None
    text = _read_text(files, need_transcript)
    duration = num_samples / sampling_rate
    try:
        grid = read_textgrid(files.annotation)
        phones, repairs = _intervals(grid, "phones", duration)
        if phones and phones[-1].end < duration - MAX_DIFFERENCE:
            raise TextGridError(
                f"tier 'phones' ends at {phones[-1].end:.3f} s, the recording at {duration:.3f} s"
            )
        words, word_repairs = [], []
        if "words" in grid.tiers and not grid.tiers["words"].is_points:
            words, word_repairs = _intervals(grid, "words", duration, _is_word)
        segments = tuple(_segments(phones, words, repairs))
        if all(segment.canonical == SIL for segment in segments):
            raise TextGridError("tier 'phones' holds no phone")
    except (TextGridError, OSError) as error:
        raise UtteranceError(str(error), files.annotation) from None
    return Utterance(
        files=files,
        num_samples=num_samples,
        sampling_rate=sampling_rate,
        text=text,
        segments=segments,
        tier_words=tuple(words),
        repairs=tuple(dict.fromkeys((*grid.repairs, *repairs, *word_repairs))),
    )


def _is_word(interval: Interval) -> bool:
    is_silent = interval.label.strip().lower() in ("sil", "sp", "spn")
    return bool(words_of_text(interval.label)) and not is_silent


def _intervals(
    grid: TextGrid,
    name: str,
    duration: float,
    wanted: Callable[[Interval], bool] | None = None,
) -> tuple[list[Interval], list[Repair]]:
    """The intervals of a tier on the recording's axis, tidy; all or those that are wanted."""
    intervals, moved = shift_to_recording(grid, name, duration)
    chosen = [i for i in intervals if wanted is None or wanted(i)]
    tidy, repairs = tidy_intervals(chosen, duration)
    if wanted is not None:  # what is not chosen leaves gaps
        repairs = [repair for repair in repairs if repair.kind != "gap"]
    return tidy, [*moved, *repairs]


def _read_text(files: UtteranceFiles, needed: bool) -> str:
    if files.transcript is None:
        if needed:
            raise UtteranceError("no transcript", files.annotation)
        return ""
    try:
        text = " ".join(files.transcript.read_text(encoding="utf-8-sig").split())
    except (OSError, UnicodeDecodeError) as error:
        raise UtteranceError(f"transcript cannot be read: {error}", files.transcript) from None
    if needed and not words_of_text(text):
        raise UtteranceError("empty transcript", files.transcript)
    return text


def _segments(
    phones: list[Interval], words: list[Interval], repairs: list[Repair]
) -> Iterator[Segment]:
    """Segments of the intervals; labels that are not as documented are added to ``repairs``."""
    for interval in phones:
        try:
            label: PhoneLabel = read_label(interval.label)
        except ValueError as error:
            raise TextGridError(f"at {interval.start:.3f} s: {error}") from None
        if not label.tidy:
            error = label.error
            shown = f"{label.canonical},{label.perceived}" if error else label.canonical
            repairs.append(Repair(interval.start, "label", f"{interval.label!r} read as {shown}"))
        middle = (interval.start + interval.end) / 2
        word = next((i for i, w in enumerate(words) if w.start <= middle < w.end), None)
        yield Segment(
            label.canonical, label.perceived, label.tag, interval.start, interval.end, word
        )
