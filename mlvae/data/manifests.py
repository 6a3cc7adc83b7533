"""Lhotse manifests, read with mistrust and written so that equal content gives equal bytes.

A manifest can come from anywhere, and lhotse opens what it names: not only files, but addresses and
the output of shell commands, in the sources of recordings, in the storage of features and arrays,
and inside of transforms, tracks and custom fields. Every manifest is therefore read by
:func:`manifest_lines` and checked by :func:`check_sources` before lhotse sees it.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lhotse import MonoCut, Recording, SupervisionSegment
from lhotse.cut import Cut
from lhotse.utils import fastcopy

from mlvae.made import atomic_path, remove_made

SPLITS = ("train", "valid", "test")


def parts_apart(about: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts of a corpus that have no cut in common: without test where that is everything."""
    return SPLITS[:2] if about.get("test") == "all" else SPLITS


def about_corpus(data_dir: Path) -> dict[str, Any]:
    """The content of ``corpus.json`` of a corpus folder; nothing where there is no such file."""
    path = data_dir / "corpus.json"
    return read_json(path) if path.is_file() else {}


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; ValueError names the file where it holds something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # the latter of ``[[[[...``
        raise ValueError(f"{path} is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no JSON object")
    return content


#: Sources of audio that are read without an option: files, and samples within the manifest itself.
SOURCE_TYPES = ("file", "memory")
#: Storages of features and arrays that lie in files, or within the manifest itself; no pickles.
STORAGE_TYPES = (
    *("lilcom_chunky", "lilcom_files", "lilcom_hdf5", "chunked_lilcom_hdf5", "numpy_files"),
    *("numpy_hdf5", "memory_lilcom", "memory_npy", "memory_writer"),
)
_CUT_TYPES = ("MonoCut", "MultiCut", "MixedCut", "PaddingCut", "Cut")


def place_of(path: Path, line: int) -> str:
    """How a line of a manifest is named."""
    return f"{path}, line {line}"


def manifest_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbers (from 1) and contents of the lines of a ``.jsonl`` or ``.jsonl.gz`` file in UTF-8.

    Empty lines are passed over.

    Raises:
        ValueError: the file cannot be read, or a line is no JSON object; names file and line.
    """
    path, number = Path(path), 0
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        if path.suffix == ".gz" and not packed and path.stat().st_size:
            raise ValueError(f"{path} is damaged: it is no gzip file")
        with gzip.open(path, "rb") if packed else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, _json_object(line, place_of(path, number))
    except (OSError, EOFError, zlib.error) as error:
        after = f" after line {number}" if number else ""
        raise ValueError(f"{path} is damaged or cannot be read{after}: {error}") from error


def _json_object(line: bytes, place: str) -> dict[str, Any]:
    try:
        content = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place}: not JSON in UTF-8: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{place}: a JSON object is expected, not {type(content).__name__}")
    return content


def shown_id(content: dict[str, Any]) -> str:
    """The id that a line gives, as messages show it whatever it is."""
    name = content.get("id")
    return name if isinstance(name, str) and name.isprintable() and name else repr(name)


def check_is_cut(content: dict[str, Any], place: str) -> None:
    """ValueError, which begins with the place, where a line is not one of a manifest of cuts."""
    if content.get("type") not in _CUT_TYPES:
        raise ValueError(f"{place}: not a cut of lhotse, which says what type it has")


def check_sources(content: Any, allow_commands: bool = False) -> None:
    """Whether all that a line of a manifest, or a part of it, names is in files or in itself.

    Raises:
        ValueError: a source is a command (which is not allowed), an address or unknown.
    """
    parts = [content]
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts += part
        elif isinstance(part, dict):
            parts += part.values()
            if {"type", "channels", "source"} <= part.keys():
                _check_source(part, allow_commands)
            if "storage_type" in part:
                _check_storage(part)


def _check_source(source: dict[str, Any], allow_commands: bool) -> None:
    kind = source["type"]
    if kind == "command" and not allow_commands:
        raise ValueError(
            f"its audio is the output of a shell command ({source['source']!r}), which is not run: "
            "write it to a file, or use --allow-commands true"
        )
    # Nobody reads or runs what answers name, which may lie in an archive of lhotse Shar.
    if kind not in (*SOURCE_TYPES, "command", *["shar"] * allow_commands):
        raise ValueError(
            f"its audio is of a source of type {kind!r} ({source['source']!r}): only files are "
            "read, so write it to one"
        )


def _check_storage(storage: dict[str, Any]) -> None:
    kind, path = storage["storage_type"], str(storage.get("storage_path") or "")
    # lhotse opens what begins so with a shell.
    if kind not in STORAGE_TYPES or path.startswith("pipe:") or "://" in path:
        raise ValueError(
            f"its features or arrays are in a storage of type {kind!r} ({path!r}): only files are "
            "read, so copy them to one"
        )


def load_supervisions(path: Path) -> list[SupervisionSegment]:
    """Read a manifest of supervisions.

    Raises:
        ValueError: the file is damaged, or a line is no supervision; names file and line.
    """
    supervisions = []
    for number, content in manifest_lines(path):
        try:
            check_sources(content)
            supervisions.append(SupervisionSegment.from_dict(content))
        except Exception as error:  # what lhotse raises for a wrong line is of many kinds
            raise ValueError(f"{place_of(path, number)}: not a supervision: {error}") from error
    return supervisions


def write_manifest(path: Path, items: Iterable[Cut | SupervisionSegment]) -> None:
    """Write items as ``.jsonl.gz``, atomically; lhotse's ``load_manifest`` and others read it.

    lhotse's own writers put the time of day into the gzip header, so that a rerun would differ.
    """
    write_lines(path, (line_of(content_of(item)) for item in items))


def line_of(content: dict[str, Any]) -> bytes:
    """A line of a manifest."""
    line = json.dumps(content, ensure_ascii=False) + "\n"
    # Bytes of a file name that are no UTF-8 become escapes, which JSON has as well.
    return line.encode("utf-8", errors="backslashreplace")


def write_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Write lines as they come, compressed, without a time or a name; atomically."""
    with (
        atomic_path(Path(path)) as temporary,
        temporary.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
    ):
        packed.writelines(lines)


def content_of(item: Cut | SupervisionSegment) -> dict[str, Any]:
    """``item.to_dict()``; of a cut with tiers in a tenth of the time, as items are not copied."""
    if not isinstance(item, MonoCut):
        return item.to_dict()
    bare = [fastcopy(supervision, alignment=None) for supervision in item.supervisions]
    content = fastcopy(item, supervisions=bare).to_dict()
    for own, supervision in zip(content["supervisions"], item.supervisions):
        if supervision.alignment is not None:
            tiers = supervision.alignment.items()
            own["alignment"] = {name: list(items) for name, items in tiers}
    return content


def write_json(path: Path, content: dict[str, Any] | list[Any]) -> None:
    """Write a dictionary or a list as indented JSON, atomically."""
    with atomic_path(Path(path)) as temporary:
        text = json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
        temporary.write_text(text, encoding="utf-8")


def recording_cut(recording: Recording, custom: dict[str, Any], **spoken: str) -> MonoCut:
    """The cut of a whole recording, with one supervision; both are named as the recording is.

    Args:
        recording: mono; one of another sampling rate than the features' is resampled already.
        custom: fields of the supervision such as ``units``, see docs/formats.md.
        **spoken: others of it: ``text``, ``language``, ``speaker``, ``gender``.

    Example:
        >>> from mlvae.data.audio import file_recording
        >>> recording = file_recording("a1", Path("a1.wav"), num_samples=8000, sampling_rate=16000)
        >>> cut = recording_cut(recording, {"units": ["k", "ae", "t"]}, speaker="ann")
        >>> cut.id, cut.duration, cut.supervisions[0].speaker
        ('a1', 0.5, 'ann')
    """
    supervision = SupervisionSegment(
        recording.id, recording.id, 0.0, recording.duration, custom=custom, **spoken
    )
    return MonoCut(
        recording.id, 0.0, recording.duration, 0, supervisions=[supervision], recording=recording
    )


def counts_of(cuts: Sequence[MonoCut], num_units: int) -> dict[str, float]:
    """What ``corpus.json`` counts of a split whose recordings have a cut each."""
    return {
        "utterances": len(cuts),
        "units": num_units,
        "recordings": len(cuts),
        "speakers": len({cut.supervisions[0].speaker for cut in cuts}),
        "seconds": round(sum(cut.duration for cut in cuts), 3),
    }


def corpus_files(data_dir: Path, with_reference: bool = True) -> list[Path]:
    """The files of a corpus after stage 0, in the order in which they are written."""
    files = [data_dir / "manifests" / f"cuts_{split}.jsonl.gz" for split in SPLITS]
    return [*files, *([data_dir / "reference.jsonl.gz"] * with_reference), data_dir / "corpus.json"]


def write_corpus(
    data_dir: Path,
    cuts: Mapping[str, Iterable[MonoCut]],
    about: dict[str, Any],
    reference: Iterable[SupervisionSegment] | None = None,
) -> None:
    """Write what stage 0 leaves for the others, see docs/formats.md; ``corpus.json`` comes last.

    What an earlier run wrote is removed first: one that is killed leaves no corpus that looks
    whole. Without a reference, none is touched.

    Raises:
        InTheWayError: something that was not made here is in the way.
        WriteError: something cannot be written.
    """
    files = corpus_files(data_dir, reference is not None)
    for path in reversed(files):
        remove_made(path)
    for path, split in zip(files, SPLITS):
        write_manifest(path, cuts[split])
    if reference is not None:
        write_manifest(files[-2], reference)
    write_json(files[-1], about)
