"""Source clips: single spoken digits, the raw material of the mismatch corpora.

All corpora of this recipe name their files ``<digit>_<speaker>_<index>.wav``. Each has a
``prepare_...`` function that gives lhotse's usual pair of recordings and supervisions; a split
function then says which clips may be used where.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Union

import numpy as np
from lhotse import Recording, RecordingSet, SupervisionSegment, SupervisionSet

from mlvae.data.audio import (
    AudioError,
    check_not_silent,
    file_recording,
    files_below,
    is_recording,
    read_audio,
)
from mlvae.stage import StageReport, progress, stage_folder

_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
DIGIT_WORDS = {str(digit): word for digit, word in enumerate(_WORDS)}
MIN_SECONDS = 0.1
"""Clips shorter than this hold no digit (the shortest of the real corpora lasts 0.14 s)."""

Pair = dict[str, Union[RecordingSet, SupervisionSet]]
SplitFunction = Callable[[str, int], str]
"""(speaker, index of the recording) to ``train``, ``valid`` or ``test``."""


@dataclass(frozen=True)
class SourceClip:
    """One recording of one digit by one speaker, in the split that may use it."""

    recording: Recording
    speaker: str
    digit: str
    split: str


def parse_clip_id(clip_id: str) -> tuple[str, str, int]:
    """Digit, speaker and index of ``3_george_7``; ValueError where it is named otherwise."""
    parts = clip_id.split("_")
    well_formed = len(parts) == 3 and parts[0] in DIGIT_WORDS and parts[1] and parts[2].isdecimal()
    if not well_formed:
        raise ValueError("the name is not <digit>_<speaker>_<index>")
    return parts[0], parts[1], int(parts[2])


def check_clip(path: Path) -> tuple[int, int]:
    """Number of samples and sampling rate in Hz of a clip.

    Raises:
        AudioError: if it cannot be read whole, is shorter than `MIN_SECONDS`, or is silence.
    """
    samples, sampling_rate = read_audio(path)
    if len(samples) < MIN_SECONDS * sampling_rate:
        raise AudioError(
            f"too short for a digit: {len(samples) / sampling_rate:.3f} s, "
            f"at least {MIN_SECONDS} s are needed"
        )
    if not np.any(samples):
        raise AudioError("nothing but zeros")
    check_not_silent(samples)
    return len(samples), sampling_rate


def download_once(target_dir: Path, name: str, url: str, unpack: Callable[[Path], Path]) -> Path:
    """The folder of a corpus in a folder, downloaded unless it is there already.

    ``unpack`` gives the folder that it has made of the address in an empty one.

    Raises:
        ValueError: if somebody else downloads it, or something else is in the way.
        OSError: if the download fails, or what came cannot be unpacked.
    """
    corpus_dir = Path(target_dir) / name
    if corpus_dir.is_dir():
        return corpus_dir
    folder = stage_folder("0 prepare", target_dir, [corpus_dir])
    with folder as record, record.scratch(target_dir) as scratch:
        try:
            # From the start: GitHub sends archives whole, one continued would be broken.
            unpacked = unpack(scratch)
        except (OSError, EOFError, tarfile.TarError) as error:
            raise OSError(f"download of {url} failed: {error}") from error
        os.replace(unpacked, corpus_dir)
    return corpus_dir


def recordings_below(folder: Path, report: StageReport) -> list[Path]:
    """What a folder and its subfolders hold under the name of a recording (``.wav``, ``.FLAC``).

    A subfolder that cannot be read is skipped by name.
    """

    def skip(error: OSError) -> None:
        place = Path(error.filename)
        report.skip(place.name, f"folder cannot be read: {error.strerror}", place=str(place))

    return [path for path in files_below(folder, skip) if is_recording(path)]


def usable_clips(
    paths: Iterable[Path], corpus: str, report: StageReport
) -> dict[str, tuple[Path, int, int]]:
    """Check every file, and report those that cannot be used.

    Returns:
        By clip id, in this order: absolute path, number of samples, sampling rate in Hz.
    """
    usable: dict[str, tuple[Path, int, int]] = {}
    # ``.wav`` goes before ``.WAV``.
    ordered = sorted(paths, key=lambda path: (path.stem, path.suffix != ".wav", str(path)))
    for path in progress(ordered, f"check {corpus} clips", "clip"):
        try:
            parse_clip_id(path.stem)
            if path.stem in usable:
                raise ValueError(f"a second file of this name, {usable[path.stem][0]} is used")
            usable[path.stem] = (path.resolve(), *check_clip(path))
        except (ValueError, OSError) as error:
            report.skip(path.stem, str(error), place=str(path))
        else:
            report.done()
    return usable


def digit_manifests(
    usable: dict[str, tuple[Path, int, int]], about: Mapping[str, dict] | None = None
) -> Pair:
    """The pair that recipes of lhotse give, for the clips that `usable_clips` gave.

    ``about`` is what is known of each speaker.
    """
    recordings, supervisions = [], []
    for clip_id, (path, num_samples, sampling_rate) in usable.items():
        digit, speaker, _ = parse_clip_id(clip_id)
        recording = file_recording(clip_id, path, num_samples, sampling_rate)
        said = {"text": DIGIT_WORDS[digit], "language": "English", "speaker": speaker}
        if about is not None:
            said["custom"] = about[speaker]
        recordings.append(recording)
        supervisions.append(SupervisionSegment(clip_id, clip_id, 0.0, recording.duration, **said))
    return {
        "recordings": RecordingSet.from_recordings(recordings),
        "supervisions": SupervisionSet.from_segments(supervisions),
    }


def check_split_name(name: str) -> None:
    """ValueError where `split_function` has no such split; the speaker need not exist."""
    kind, _, speaker = name.partition(":")
    if name != "recordings" and not (kind == "speaker" and speaker):
        raise ValueError(
            f"no split {name!r} for this corpus; there are: recordings, speaker:<name>"
        )


def split_function(name: str, speakers: Collection[str], num_recordings: int) -> SplitFunction:
    """The splits that every digit corpus has.

    * ``recordings``: of each speaker's ``num_recordings`` of each digit, the first fifth is test,
      the second fifth valid, the rest train (for 50: 0-9, 10-19, 20-49).
    * ``speaker:<name>``: everything of that speaker is test; of the others, the second fifth is
      valid and the rest train.

    Raises:
        ValueError: if there is no such split or no such speaker.
    """
    check_split_name(name)
    fifth = num_recordings // 5
    if name == "recordings":
        return lambda speaker, index: (
            "test" if index < fifth else "valid" if index < 2 * fifth else "train"
        )
    held_out = name.partition(":")[2]
    if held_out not in speakers:
        listed = " ".join(sorted(speakers))
        raise ValueError(f"no speaker {held_out!r} to hold out; there are: {listed}")
    return lambda speaker, index: (
        "test" if speaker == held_out else "valid" if fifth <= index < 2 * fifth else "train"
    )


def source_clips(recordings: RecordingSet, split_of: SplitFunction) -> list[SourceClip]:
    """The clips with their splits, in the order of their ids."""
    clips = []
    for recording in sorted(recordings, key=lambda recording: recording.id):
        digit, speaker, index = parse_clip_id(recording.id)
        clips.append(SourceClip(recording, speaker, digit, split_of(speaker, index)))
    return clips
