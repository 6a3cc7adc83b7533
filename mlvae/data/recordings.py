"""Recordings with texts, however they come: a folder, a table, a Kaldi data directory, lhotse cuts.

:func:`find_recordings` looks at a path and says what there is; nothing of the audio is read before
:meth:`Utterance.cut` is asked for. What cannot be used is skipped by name.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import shutil
import subprocess
import tarfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import soundfile
from lhotse import MonoCut, Recording, SupervisionSegment
from lhotse.audio import AudioSource
from lhotse.shar.utils import fill_shar_placeholder

from mlvae.data.audio import (
    AudioError,
    check_file,
    files_below,
    is_recording,
    output_of,
    read_by_soundfile,
)
from mlvae.data.checks import check_id
from mlvae.data.dataset import cut_of_line
from mlvae.data.manifests import manifest_lines, place_of, shown_id
from mlvae.data.text import decode_text, lines_of_table
from mlvae.errors import system_reason

#: Ends of names of texts beside recordings, in small letters; the first of them goes first.
TEXT_SUFFIXES = (".txt", ".lab")
#: Bytes of a file that stand for a second, where nothing better is known of its length.
BYTES_PER_SECOND = 32_000

#: Is told of what cannot be used: its name, the reason, and the file or line to look at.
Skip = Callable[[str, str, str], None]


@dataclass(frozen=True)
class Utterance:
    """A recording, or a part of one, and what should be said in it."""

    id: str  # unique in its corpus
    audio: str = ""  # file, or shell command that writes one; empty where ``line`` has a cut
    text: str = ""  # what should be said; or a file that says it, see ``text_file``
    place: str = ""  # file or line that messages name
    speaker: str | None = None  # None where nobody is named
    text_file: bool = False  # whether ``text`` is the name of a file
    is_command: bool = False  # whether ``audio`` is a command
    begin: float = 0.0  # seconds, of the part
    end: float | None = None  # seconds; None: the end of the recording
    seconds: float = 0.0  # about its length, by which work is divided
    line: str = ""  # a cut of lhotse as JSON, in the place of all the others
    archive: str = ""  # of lhotse Shar, the tar file that has the audio of ``line``
    member: tuple[int, int] = (0, 0)  # where in it: byte and number of bytes

    def cut(self, channel: int = 0, allow_commands: bool = False) -> MonoCut:
        """The utterance as a cut with a text.

        Of a recording of several channels one is taken, the first being 0.

        Raises:
            AudioError, ValueError, OSError: it cannot be used; says why.
        """
        if self.line:
            content = json.loads(self.line)
            if self.archive:
                for source in content["recording"]["sources"]:
                    source.update(type="memory", source="")
            cut = cut_of_line(content, self.place, allow_commands)
            if self.archive:
                fill_shar_placeholder(cut.recording, self._member(), self.archive)
            return cut
        text = self.text
        if self.text_file:
            text = decode_text(Path(text).read_bytes()).strip()
        recording = self._recording(allow_commands)
        if recording.num_channels == 1:
            channel = 0
        if channel not in recording.channel_ids:
            raise AudioError(f"no channel {channel}: it has {recording.num_channels}")
        end = recording.duration if self.end is None else min(self.end, recording.duration)
        if not 0 <= self.begin < end:
            raise ValueError(f"its part from {self.begin} to {self.end} s is not in the recording")
        seconds = end - self.begin
        said = SupervisionSegment(
            self.id, recording.id, 0.0, seconds, channel, text=text, speaker=self.speaker
        )
        return MonoCut(
            self.id, self.begin, seconds, channel, supervisions=[said], recording=recording
        )

    def _member(self) -> bytes:
        begin, size = self.member
        with open(self.archive, "rb") as file:
            file.seek(begin)
            content = file.read(size)
        if len(content) < size:
            raise AudioError(f"{self.archive} ends after {len(content)} of its {size} bytes")
        return content

    def _recording(self, allow_commands: bool) -> Recording:
        if not self.is_command:
            return recording_of(Path(self.audio), self.id)
        if not allow_commands:
            raise AudioError(
                f"its audio is the output of a shell command ({self.audio!r}), which is not run: "
                "write it to a file, or use --allow-commands"
            )
        return _of_bytes(output_of(self.audio), self.id)


def recording_of(path: Path, recording_id: str) -> Recording:
    """A recording of any format that soundfile reads, or ffmpeg where that is installed.

    What ffmpeg has decoded lies in memory.

    Raises:
        AudioError: it is missing, empty, cut short or not readable as audio.
    """
    check_file(path)
    has_ffmpeg = shutil.which("ffmpeg") is not None
    try:
        with read_by_soundfile("" if has_ffmpeg else " (and there is no ffmpeg to try)"):
            info = soundfile.info(str(path))
    except AudioError as error:
        if not has_ffmpeg:
            raise
        return _of_bytes(_decoded(path, str(error)), recording_id)
    source = AudioSource("file", list(range(info.channels)), str(path.absolute()))
    return _recording(source, info, recording_id)


def _of_bytes(content: bytes, recording_id: str) -> Recording:
    with read_by_soundfile():
        info = soundfile.info(io.BytesIO(content))
    source = AudioSource("memory", list(range(info.channels)), content)
    return _recording(source, info, recording_id)


def _recording(source: AudioSource, info: Any, recording_id: str) -> Recording:
    if info.frames == 0:
        raise AudioError("no samples")
    return Recording(
        recording_id, [source], info.samplerate, info.frames, info.frames / info.samplerate
    )


def _decoded(path: Path, reason: str) -> bytes:
    """A file as Sun AU, which may be of unknown length as pipes are, by ffmpeg.

    It is told that it may read this file and nothing else. What it complains of is damaged: it
    would give the rest without the parts that it cannot read.
    """
    command = ["ffmpeg", "-nostdin", "-v", "error", "-protocol_whitelist", "file,pipe"]
    command += ["-i", f"file:{path.absolute()}", "-vn", "-c:a", "pcm_s16be", "-f", "au", "pipe:1"]
    found = subprocess.run(command, capture_output=True, check=False)
    said = " ".join(found.stderr.decode("utf-8", "replace").split())[:200]
    if found.returncode or not found.stdout or said:
        raise AudioError(f"{reason}; ffmpeg: {said}")
    return found.stdout


@dataclass(frozen=True)
class Found:
    """Utterances that were found, which may be gone through several times."""

    kind: str  # what they were found in, in words
    items: Callable[[], Iterator[Utterance]]  # gives them anew, and skips what cannot be used
    # 64 hexadecimal digits that change where an utterance does, its audio file included
    digest: str
    count: int
    skipped: list[tuple[str, str, str]]  # what could not be used: name, reason, place


def find_recordings(path: Path) -> Found:
    """Look for recordings with texts.

    ====================================  ==========================================================
    ``path``                              what is taken
    ====================================  ==========================================================
    a folder with wav.scp and text        a Kaldi data directory: also utt2spk and segments
    another folder                        recordings at any depth with a text of the same name
                                          beside them (``.txt``, or ``.lab``); speakers are folders
    ``.csv``, ``.tsv``                    columns ``path`` and ``text``, and ``speaker`` and ``id``
                                          where they are there; paths from the table's folder
    ``.jsonl``, ``.jsonl.gz``             cuts of lhotse with texts
    a folder with cuts.*.jsonl.gz and     lhotse Shar: the same, with their audio in archives
    recording.*.tar
    ====================================  ==========================================================

    Raises:
        ValueError: there is no such thing, it cannot be read, or holds nothing at all.
    """
    path = Path(path)
    skipped: list[tuple[str, str, str]] = []

    def skip(name: str, reason: str, place: str) -> None:
        skipped.append((name, reason, place))

    if path.is_dir() and (path / "wav.scp").is_file() and (path / "text").is_file():
        kind, items = "Kaldi data directory", _again(_kaldi(path, skip))
    elif path.is_dir() and any(path.glob("recording*.tar")) and any(path.glob("cuts*.jsonl*")):
        kind, items = "lhotse Shar", _each_time(_shar, path, skip)
    elif path.is_dir():
        kind, items = "folder", _again(_folder(path, skip))
    elif path.is_file() and path.suffix.lower() in (".csv", ".tsv"):
        kind, items = "table", _again(_table(path, skip))
    elif path.is_file() and path.name.endswith((".jsonl", ".jsonl.gz")):
        kind, items = "manifest of cuts", _each_time(_manifest, path, skip)
    elif path.exists():
        raise ValueError(
            f"{path} is no folder, table (.csv, .tsv) or manifest of cuts (.jsonl, .jsonl.gz)"
        )
    else:
        raise ValueError(f"there is no {path}")
    found = _found(kind, items, skipped)
    if not found.count and not skipped:
        raise ValueError(f"{path}: a {kind} without a recording")
    return found


def single_recording(audio: Path, text: str) -> Found:
    """One recording and its text, as :func:`find_recordings` gives them."""
    seconds = _seconds(Path(audio))
    utterance = Utterance(Path(audio).stem, str(audio), text, str(audio), seconds=seconds)
    return _found("recording", _again([utterance]), [])


def _found(
    kind: str, items: Callable[[], Iterator[Utterance]], skipped: list[tuple[str, str, str]]
) -> Found:
    digest, count = hashlib.sha256(), 0
    for utterance in items():
        digest.update(json.dumps([asdict(utterance), _stamps(utterance)]).encode())
        count += 1
    return Found(kind, items, digest.hexdigest(), count, skipped)


def _again(utterances: Iterable[Utterance]) -> Callable[[], Iterator[Utterance]]:
    known = list(utterances)
    return lambda: iter(known)


def _each_time(
    read: Callable[[Path, Skip], Iterator[Utterance]], path: Path, skip: Skip
) -> Callable[[], Iterator[Utterance]]:
    """Read what need not fit into memory each time; what cannot be used is told the first time."""
    first = [skip]
    return lambda: read(path, first.pop() if first else lambda *_: None)


def _stamps(utterance: Utterance) -> list[Any]:
    """Sizes and times of the files of an utterance, which tell whether they were replaced."""
    files = [utterance.audio, utterance.text if utterance.text_file else ""]
    if utterance.line:
        recording = json.loads(utterance.line).get("recording")
        sources = recording.get("sources") if isinstance(recording, dict) else None
        sources = sources if isinstance(sources, list) else []
        files = [str(one.get("source")) for one in sources if isinstance(one, dict)]
    stamps: list[Any] = []
    for file in files:
        try:
            about = os.stat(file)
            stamps.append([about.st_size, about.st_mtime_ns])
        except (OSError, ValueError):
            stamps.append(None)
    return stamps


# ---- A folder


def _folder(folder: Path, skip: Skip) -> Iterator[Utterance]:
    """The pairs ``NAME.wav`` and ``NAME.txt`` of a folder and its subfolders, by their paths.

    Any audio format counts, and capital letters in the end of a name (``.WAV``, ``.FLAC``). An id
    is the path without that end, ``-`` between its parts. Recordings without a text, texts without
    a recording and second files of a name are skipped; what is neither is passed over.
    """

    def skip_folder(error: OSError) -> None:
        reason = f"folder cannot be read: {error.strerror}"
        skip(str(error.filename), reason, str(error.filename))

    order = (".wav", *TEXT_SUFFIXES)

    # Ends of names in small letters go before others, ``.wav`` before other formats.
    def rank(path: Path) -> tuple[int, bool]:
        suffix = path.suffix
        return order.index(suffix) if suffix in order else len(order), not suffix.islower()

    texts: dict[Path, Path] = {}
    recordings: dict[Path, Path] = {}
    for path in sorted(files_below(folder, skip_folder), key=rank):
        name = path.relative_to(folder)
        if path.suffix.lower() in TEXT_SUFFIXES:
            kind, found = "text", texts
        elif is_recording(path):
            kind, found = "recording", recordings
        else:
            continue
        first = found.setdefault(_stem(name), path)
        if first != path:
            reason = f"a second {kind} of this name, {first.name} is used"
            skip(name.as_posix(), reason, str(path))
    taken: set[str] = set()
    for stem, path in sorted(recordings.items()):
        identity = "-".join(stem.parts)
        if not _is_unicode(path):
            skip(identity, "its name is not in UTF-8: no manifest can hold it", str(path))
        elif stem not in texts:
            wanted = " or ".join(f"{path.stem}{suffix}" for suffix in TEXT_SUFFIXES)
            skip(identity, f"no text beside it (No such file: {wanted})", str(path))
        elif identity in taken:
            skip(identity, "another recording has the same name", str(path))
        else:
            taken.add(identity)
            home = path.parent.relative_to(folder).as_posix()
            yield Utterance(
                identity,
                str(path),
                str(texts[stem]),
                str(path),
                speaker=None if home == "." else home,
                text_file=True,
                seconds=_seconds(path),
            )
    for stem in sorted(texts.keys() - recordings.keys()):
        path = texts[stem]
        skip(path.relative_to(folder).as_posix(), "a text without a recording", str(path))


def _is_unicode(path: Path) -> bool:
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _stem(path: Path) -> Path:
    """A path without the end of its name; file systems differ in how they write an accent."""
    return Path(unicodedata.normalize("NFC", str(path.with_suffix(""))))


def _seconds(path: Path) -> float:
    try:
        return path.stat().st_size / BYTES_PER_SECOND
    except OSError:
        return 0.0


def _text_of(path: Path) -> str:
    try:
        return decode_text(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None


# ---- A table


def _table(path: Path, skip: Skip) -> Iterator[Utterance]:
    """The rows of a table; ids are its own, or paths without the end of the name."""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    text = _text_of(path)
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    reader = csv.reader(lines_of_table(text), delimiter=delimiter, quoting=quoting)
    taken: set[str] = set()
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        missing = [name for name in ("path", "text") if name not in header]
        if missing:
            raise ValueError(
                f"{path}: no column {' and no column '.join(missing)} in its first line"
            )
        for row in reader:
            place = place_of(path, reader.line_num)
            if not any(cell.strip() for cell in row):
                continue
            cells = dict(zip(header, (cell.strip() for cell in row)))
            file = cells.get("path", "")
            name = cells.get("id") or "-".join(Path(file).with_suffix("").parts).lstrip("/-.")
            if len(row) != len(header):
                skip(name or place, f"{len(row)} cells where {len(header)} are due", place)
            elif not file:
                skip(name or place, "no path", place)
            elif not _refused(name, taken, skip, place):
                audio, speaker = path.parent / file, cells.get("speaker") or None
                seconds = _seconds(audio)
                yield Utterance(name, str(audio), cells["text"], place, speaker, seconds=seconds)
    except csv.Error as error:
        # The line that was not read has not been counted.
        raise ValueError(f"{place_of(path, reader.line_num + 1)}: {error}") from None


def _refused(name: str, taken: set[str], skip: Skip, place: str) -> bool:
    """Whether an id is none, or was used; it is skipped then, and used from now on otherwise."""
    try:
        check_id(name)
        if name in taken:
            raise ValueError("another utterance has the same id")
    except ValueError as error:
        skip(name, str(error), place)
        return True
    taken.add(name)
    return False


# ---- Kaldi


def _kaldi(folder: Path, skip: Skip) -> Iterator[Utterance]:
    """The utterances of a Kaldi data directory, with the parts that ``segments`` names."""
    texts = _lines(folder / "text", skip, may_be_empty=True)
    audio = _lines(folder / "wav.scp", skip)
    speakers = _lines(folder / "utt2spk", skip) if (folder / "utt2spk").is_file() else {}
    parts: dict[str, tuple[str, float, float | None]]
    if (folder / "segments").is_file():
        parts = dict(_segments(folder / "segments", skip))
    else:
        parts = {name: (name, 0.0, None) for name in audio}
    taken: set[str] = set()
    for name in [*texts, *(name for name in parts if name not in texts)]:
        place = f"{folder}, utterance {name}"
        if name not in texts:
            skip(name, "no line in text", str(folder / "text"))
        elif name not in parts:
            skip(name, "no line in segments or wav.scp", str(folder / "text"))
        elif parts[name][0] not in audio:
            skip(name, f"no line of {parts[name][0]} in wav.scp", str(folder / "segments"))
        elif not _refused(name, taken, skip, place):
            recording, begin, end = parts[name]
            source = audio[recording]
            is_command = source.endswith("|")
            file = source[:-1].strip() if is_command else str(_kaldi_path(folder, source))
            length = 10.0 if is_command else _seconds(Path(file))
            yield Utterance(
                name,
                file,
                texts[name],
                place,
                speakers.get(name),
                is_command=is_command,
                begin=begin,
                end=end,
                seconds=length if end is None else end - begin,
            )


def _kaldi_path(folder: Path, name: str) -> Path:
    """A file of wav.scp: from here, else from the data directory or a folder above it."""
    for home in (Path(), folder, *folder.absolute().parents):
        if (home / name).is_file():
            return home / name
    return folder / name


def _lines(path: Path, skip: Skip, may_be_empty: bool = False) -> dict[str, str]:
    """By its first word the rest of each line."""
    found: dict[str, str] = {}
    for number, line in enumerate(_text_of(path).split("\n"), start=1):
        name, _, rest = line.strip().replace("\t", " ").partition(" ")
        if not name:
            continue
        if name in found:
            skip(name, "a second line of this id", place_of(path, number))
        elif not rest.strip() and not may_be_empty:
            skip(name, "a line with an id alone", place_of(path, number))
        else:
            found[name] = rest.strip()
    return found


def _segments(path: Path, skip: Skip) -> Iterator[tuple[str, tuple[str, float, float | None]]]:
    for name, rest in _lines(path, skip).items():
        try:
            recording, begin, end = rest.split()
            times = float(begin), float(end)
            if not all(map(math.isfinite, times)) or not 0 <= times[0] < times[1]:
                raise ValueError
        except ValueError:
            skip(name, f"{rest!r:.100} is not 'recording begin end' in seconds", str(path))
        else:
            yield name, (recording, *times)


# ---- lhotse


def _manifest(
    path: Path,
    skip: Skip,
    taken: set[str] | None = None,
    archive: Callable[[str], dict[str, Any]] | None = None,
) -> Iterator[Utterance]:
    """The cuts of a manifest; what is wrong with one is found when it is read.

    Args:
        path: of the manifest.
        skip: is told of lines that cannot be used.
        taken: ids that others have; None: there are no others.
        archive: of lhotse Shar: where the audio of an id is, as :func:`_archive` says; ValueError
            where it is nowhere.
    """
    taken = set() if taken is None else taken
    for number, content in manifest_lines(path):
        place, name = place_of(path, number), content.get("id")
        if not isinstance(name, str):
            skip(shown_id(content), "its id is no text", place)
        elif not _refused(name, taken, skip, place):
            content.pop("features", None)
            where: dict[str, Any] = {}
            if archive is not None:
                try:
                    where = archive(name)
                except ValueError as error:
                    skip(name, str(error), place)
                    continue
                content["recording"] = where.pop("recording")
            supervisions = content.get("supervisions")
            speaker = None
            for supervision in supervisions if isinstance(supervisions, list) else ():
                if isinstance(supervision, dict):
                    supervision.pop("alignment", None)
                    speaker = speaker or supervision.get("speaker")
            duration = content.get("duration")
            seconds = float(duration) if isinstance(duration, (int, float)) else 0.0
            line = json.dumps(content, ensure_ascii=False)
            yield Utterance(name, place=place, speaker=speaker, seconds=seconds, line=line, **where)


def _shar(folder: Path, skip: Skip) -> Iterator[Utterance]:
    """The cuts of a folder of lhotse Shar.

    lhotse reads all of an archive one after another; here it is only looked where each recording
    is, so that portions of the work can begin anywhere.
    """
    taken: set[str] = set()
    for path in sorted(folder.glob("cuts*.jsonl*")):
        number = path.name.removeprefix("cuts").partition(".jsonl")[0]
        yield from _manifest(path, skip, taken, _archive(folder / f"recording{number}.tar"))


def _archive(path: Path) -> Callable[[str], dict[str, Any]]:
    """By id the recording of a cut in an archive, its manifest as a dictionary, and where it is."""
    found: dict[str, dict[str, Any]] = {}
    damage = ""
    try:
        with tarfile.open(path, "r:") as file:
            while (audio := file.next()) is not None and (about := file.next()) is not None:
                if not about.name.endswith(".json"):
                    continue  # a cut without a recording
                recording = json.loads(file.extractfile(about).read())
                for source in recording["sources"]:
                    source["type"], source["source"] = "shar", str(path.absolute())
                found[about.name.removesuffix(".json")] = {
                    "recording": recording,
                    "archive": str(path),
                    "member": (audio.offset_data, audio.size),
                }
    except (tarfile.TarError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        damage = f": {system_reason(error)}"

    def of(name: str) -> dict[str, Any]:
        if name not in found:
            raise ValueError(f"no audio of it in {path}{damage}")
        return dict(found[name])

    return of
