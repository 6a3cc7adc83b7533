"""AudioMNIST: 60 speakers, 10 digits, 50 recordings of each, mono, 48 kHz.

https://github.com/soerenab/AudioMNIST (MIT). lhotse downloads it and makes its manifests.
"""

from __future__ import annotations

import json
import os
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

from lhotse import RecordingSet
from lhotse.recipes.audio_mnist import AUDIO_MNIST_URL, download_audio_mnist, prepare_audio_mnist

from mlvae.corpora.digits.clips import Pair, parse_clip_id, recordings_below, usable_clips
from mlvae.stage import StageReport, stage_folder

NUM_RECORDINGS = 50
SAMPLING_RATE = 16000
"""Of the mismatch corpus; the clips are resampled from 48 kHz."""

NUM_SPEAKERS = 60
OFFICIAL_VALID = frozenset(
    f"{number:02d}" for number in (12, 47, 59, 15, 27, 41, 4, 11, 21, 31, 44, 50)
)
OFFICIAL_TEST = frozenset(
    f"{number:02d}" for number in (26, 52, 60, 18, 32, 42, 5, 13, 22, 33, 45, 51)
)


def download_audiomnist(target_dir: Path) -> Path:
    """Download and unpack the corpus (1 GB) by lhotse's recipe.

    Returns:
        The corpus folder, for `prepare_audiomnist`.

    Raises:
        ValueError: if somebody else downloads it, or something else is in the way.
        OSError: if the download fails.
    """
    target_dir = Path(target_dir)
    corpus_dir = target_dir / "AudioMNIST"
    if corpus_dir.is_dir():
        return corpus_dir
    folder = stage_folder("0 prepare", target_dir, [corpus_dir])
    with folder as record, record.scratch(target_dir) as scratch:
        try:
            # From the start: GitHub sends archives whole, one continued would be broken.
            unpacked = download_audio_mnist(scratch)
        except (OSError, EOFError, tarfile.TarError) as error:
            raise OSError(f"download of {AUDIO_MNIST_URL} failed: {error}") from error
        os.replace(unpacked, corpus_dir)
    return corpus_dir


def official_split(speaker: str, index: int) -> str:
    """Fold 0 of the corpus's authors: 36 speakers train, 12 valid, 12 others test."""
    if speaker in OFFICIAL_TEST:
        return "test"
    return "valid" if speaker in OFFICIAL_VALID else "train"


def prepare_audiomnist(corpus_dir: Path, report: StageReport) -> Pair:
    """Manifests of the corpus; a clip that cannot be used is skipped and reported.

    lhotse's own prepare ends at the first stray or broken file, so it is shown a folder of links
    to the files that have been checked.

    Args:
        corpus_dir: the folder above ``data/<speaker>/<digit>_<speaker>_<index>.wav`` and
            ``data/audioMNIST_meta.txt``.
        report: where clips are counted.

    Returns:
        ``recordings`` (lhotse RecordingSet) and ``supervisions`` (SupervisionSet) with equal ids;
        the supervisions hold what is known about the speaker.

    Raises:
        ValueError: if the folder is missing, has no clip that can be used, or its
            ``audioMNIST_meta.txt`` does not describe the 60 speakers.
    """
    corpus_dir = Path(corpus_dir)
    data = corpus_dir / "data"
    if not data.is_dir():
        raise ValueError(f"no folder {data}: is {corpus_dir} the folder of AudioMNIST?")
    meta = data / "audioMNIST_meta.txt"
    _check_meta(meta)
    paths = recordings_below(data, report)
    if not paths:
        raise ValueError(f"no wav file in the folders of {data}")
    usable = usable_clips(_in_own_folder(paths, report), "AudioMNIST", report)
    if not usable:
        raise ValueError(f"no clip in {data} can be used")
    with tempfile.TemporaryDirectory() as folder:
        links = Path(folder) / "data"
        links.mkdir()
        (links / meta.name).symlink_to(meta.resolve())
        for clip_id, (path, _, _) in usable.items():
            speaker_dir = links / parse_clip_id(clip_id)[1]
            speaker_dir.mkdir(exist_ok=True)
            os.symlink(path, speaker_dir / f"{clip_id}.wav")
        pair = prepare_audio_mnist(folder, output_dir=None)
    recordings = []
    for recording in pair["recordings"]:
        source = replace(recording.sources[0], source=str(usable[recording.id][0]))
        recordings.append(replace(recording, sources=[source]))
    return {**pair, "recordings": RecordingSet.from_recordings(recordings)}


def _check_meta(meta: Path) -> None:
    try:
        speakers = json.loads(meta.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{meta}: not readable: {error}") from None
    if not isinstance(speakers, dict):
        raise ValueError(f"{meta}: not a table of speakers")
    missing = {f"{i:02d}" for i in range(1, NUM_SPEAKERS + 1)} - set(speakers)
    if missing:
        raise ValueError(f"{meta}: speakers {' '.join(sorted(missing))} are missing")


def _in_own_folder(paths: list[Path], report: StageReport) -> list[Path]:
    """Files that lie in the folder of the speaker whom their name says; reports the others."""
    speakers = {f"{i:02d}" for i in range(1, NUM_SPEAKERS + 1)}
    kept = []
    for path in paths:
        fields = path.stem.split("_")
        if len(fields) == 3 and fields[1] not in speakers:
            report.skip(path.stem, f"no speaker of the corpus: {fields[1]}", place=str(path))
        elif len(fields) == 3 and fields[1] != path.parent.name:
            report.skip(path.stem, f"lies in the folder of {path.parent.name}", place=str(path))
        else:
            kept.append(path)
    return kept
