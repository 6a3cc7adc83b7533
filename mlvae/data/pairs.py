"""Recordings of one's own: each lies beside the text that was supposed to be read, in a folder."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from mlvae.data.audio import files_below, is_recording
from mlvae.stage import StageReport


@dataclass(frozen=True)
class RecordingWithText:
    """A recording and its text.

    Attributes:
        id: the path below the folder without the end of the name, ``-`` between its parts.
        recording: the audio file.
        text: the text file.
    """

    id: str
    recording: Path
    text: Path


def find_pairs(
    folder: Path, report: StageReport, taken: Collection[str] = ()
) -> list[RecordingWithText]:
    """The pairs ``NAME.wav`` and ``NAME.txt`` of a folder and its subfolders.

    Any audio format counts, and capital letters in the end of a name (``.WAV``, ``.FLAC``). Every
    other file is skipped by name: recordings without a text, texts without a recording, second
    files of a name, and what is neither.

    Args:
        folder: where to look.
        report: where files are skipped. Those of a pair are left to the caller.
        taken: ids that other recordings have.

    Returns:
        The pairs in the order of their paths; their ids differ.
    """

    def skip_folder(error: OSError) -> None:
        reason = f"folder cannot be read: {error.strerror}"
        report.skip(str(error.filename), reason, place=str(error.filename))

    def skip(path: Path, name: str, reason: str) -> None:
        report.skip(name, reason, place=str(path))

    folder = Path(folder)
    files = files_below(folder, skip_folder)
    texts: dict[Path, Path] = {}
    recordings: dict[Path, Path] = {}
    # Ends of names in small letters go before others, ``.wav`` before other formats.
    for path in sorted(files, key=lambda path: (path.suffix != ".wav", not path.suffix.islower())):
        name = path.relative_to(folder).as_posix()
        if path.suffix.lower() == ".txt":
            kind, found = "text", texts
        elif is_recording(path):
            kind, found = "recording", recordings
        else:
            skip(path, name, "neither a recording nor a text (.txt)")
            continue
        first = found.setdefault(_stem(path.relative_to(folder)), path)
        if first != path:
            skip(path, name, f"a second {kind} of this name, {first.name} is used")
    ids = set(taken)
    pairs = []
    for stem, path in sorted(recordings.items()):
        identity = "-".join(stem.parts)
        if not _is_unicode(path):
            skip(path, identity, "its name is not in UTF-8: no manifest can hold it")
        elif stem not in texts:
            skip(path, identity, f"no text beside it (No such file: {path.stem}.txt)")
        elif identity in ids:
            skip(path, identity, "another recording has the same name")
        else:
            ids.add(identity)
            pairs.append(RecordingWithText(identity, path, texts[stem]))
    for stem in sorted(texts.keys() - recordings.keys()):
        path = texts[stem]
        skip(path, path.relative_to(folder).as_posix(), "a text without a recording")
    return pairs


def _is_unicode(path: Path) -> bool:
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _stem(path: Path) -> Path:
    """A path without the end of its name; file systems differ in how they write an accent."""
    return Path(unicodedata.normalize("NFC", str(path.with_suffix(""))))
