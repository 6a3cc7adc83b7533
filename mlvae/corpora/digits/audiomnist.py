"""AudioMNIST: 60 speakers, 10 digits, 50 recordings of each, mono, 48 kHz.

https://github.com/soerenab/AudioMNIST (MIT). lhotse downloads it.
"""

from __future__ import annotations

import json
from pathlib import Path

from lhotse.recipes.audio_mnist import AUDIO_MNIST_URL, download_audio_mnist

from mlvae.corpora.digits.clips import (
    Pair,
    digit_manifests,
    download_once,
    recordings_below,
    usable_clips,
)
from mlvae.stage import StageReport

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
    """Download and unpack the corpus (1 GB) by lhotse's recipe; see `download_once`."""
    return download_once(target_dir, "AudioMNIST", AUDIO_MNIST_URL, download_audio_mnist)


def official_split(speaker: str, index: int) -> str:
    """Fold 0 of the corpus's authors: 36 speakers train, 12 valid, 12 others test."""
    if speaker in OFFICIAL_TEST:
        return "test"
    return "valid" if speaker in OFFICIAL_VALID else "train"


def prepare_audiomnist(corpus_dir: Path, report: StageReport) -> Pair:
    """Manifests of the corpus; a clip that cannot be used is skipped and reported.

    The folder is the one above ``data/<speaker>/<digit>_<speaker>_<index>.wav`` and
    ``data/audioMNIST_meta.txt``. (lhotse's own prepare ends at the first stray or broken file.)

    Raises:
        ValueError: if the folder is missing, has no clip that can be used, or its
            ``audioMNIST_meta.txt`` does not describe the 60 speakers.
    """
    corpus_dir = Path(corpus_dir)
    data = corpus_dir / "data"
    if not data.is_dir():
        raise ValueError(f"no folder {data}: is {corpus_dir} the folder of AudioMNIST?")
    about = _read_meta(data / "audioMNIST_meta.txt")
    paths = recordings_below(data, report)
    if not paths:
        raise ValueError(f"no wav file in the folders of {data}")
    usable = usable_clips(_in_own_folder(paths, report), "AudioMNIST", report)
    if not usable:
        raise ValueError(f"no clip in {data} can be used")
    return digit_manifests(usable, about)


def _read_meta(meta: Path) -> dict[str, dict]:
    """What is known of each of the 60 speakers."""
    try:
        speakers = json.loads(meta.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{meta}: not readable: {error}") from None
    if not isinstance(speakers, dict):
        raise ValueError(f"{meta}: not a table of speakers")
    missing = {f"{i:02d}" for i in range(1, NUM_SPEAKERS + 1)} - set(speakers)
    if missing:
        raise ValueError(f"{meta}: speakers {' '.join(sorted(missing))} are missing")
    return speakers


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
