"""The Free Spoken Digit Dataset (CC BY-SA 4.0): 6 speakers, 10 digits, 50 recordings of each.

Mono, 8 kHz, near-silent edges trimmed. https://github.com/Jakobovski/free-spoken-digit-dataset
"""

from __future__ import annotations

import tarfile
from pathlib import Path

from lhotse.utils import resumable_download

from mlvae.corpora.digits.clips import (
    Pair,
    digit_manifests,
    download_once,
    recordings_below,
    usable_clips,
)
from mlvae.stage import StageReport

FSDD_URL = (
    "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/tags/v1.0.10.tar.gz"
)
NUM_RECORDINGS = 50
SAMPLING_RATE = 8000


def download_fsdd(target_dir: Path) -> Path:
    """Download and unpack ``free-spoken-digit-dataset``; its recordings. See `download_once`."""
    name = "free-spoken-digit-dataset"
    return download_once(target_dir, name, FSDD_URL, _unpacked) / "recordings"


def _unpacked(scratch: Path) -> Path:
    archive, recordings = scratch / "archive.tar.gz", scratch / "unpacked" / "recordings"
    recordings.mkdir(parents=True)
    resumable_download(FSDD_URL, archive)
    with tarfile.open(archive) as tar:
        for member in tar:
            path = Path(member.name)
            is_recording = path.parent.name == "recordings" and path.suffix == ".wav"
            if member.isfile() and is_recording:
                (recordings / path.name).write_bytes(tar.extractfile(member).read())
    return recordings.parent


def prepare_fsdd(corpus_dir: Path, report: StageReport) -> Pair:
    """Manifests of the corpus; a clip that cannot be used is skipped and reported.

    The folder has ``<digit>_<speaker>_<index>.wav``, in subfolders or not, or is the one above its
    ``recordings``.

    Raises:
        ValueError: if the folder is missing or holds no wav file.
    """
    corpus_dir = Path(corpus_dir)
    if not corpus_dir.is_dir():
        raise ValueError(f"no such folder: {corpus_dir}")
    inner = corpus_dir / "recordings"
    paths = recordings_below(inner if inner.is_dir() else corpus_dir, report)
    if not paths:
        raise ValueError(f"no wav file in {corpus_dir}")
    return digit_manifests(usable_clips(paths, "fsdd", report))
