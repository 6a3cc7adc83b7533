"""The Free Spoken Digit Dataset (CC BY-SA 4.0): 6 speakers, 10 digits, 50 recordings of each.

Mono, 8 kHz, near-silent edges trimmed. https://github.com/Jakobovski/free-spoken-digit-dataset
"""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

from lhotse.utils import resumable_download

from mlvae.corpora.digits.clips import Pair, digit_manifests, recordings_below, usable_clips
from mlvae.stage import StageReport, stage_folder

FSDD_URL = (
    "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/tags/v1.0.10.tar.gz"
)
NUM_RECORDINGS = 50
SAMPLING_RATE = 8000


def download_fsdd(target_dir: Path) -> Path:
    """Download and unpack the corpus; what is already there is used.

    Args:
        target_dir: where the folder ``free-spoken-digit-dataset`` goes.

    Returns:
        The folder with the recordings, for `prepare_fsdd`.

    Raises:
        ValueError: if somebody else downloads it, or something else is in the way.
        OSError: if the download fails, or what came cannot be unpacked.
    """
    target_dir = Path(target_dir)
    corpus_dir = target_dir / "free-spoken-digit-dataset"
    if corpus_dir.is_dir():
        return corpus_dir / "recordings"
    folder = stage_folder("0 prepare", target_dir, [corpus_dir])
    with folder as record, record.scratch(target_dir) as scratch:
        archive, unpacked = scratch / "archive.tar.gz", scratch / "unpacked"
        recordings = unpacked / "recordings"
        recordings.mkdir(parents=True)
        try:
            # From the start: GitHub sends archives whole, one continued would be broken.
            resumable_download(FSDD_URL, archive)
            with tarfile.open(archive) as tar:
                for member in tar:
                    path = Path(member.name)
                    is_recording = path.parent.name == "recordings" and path.suffix == ".wav"
                    if member.isfile() and is_recording:
                        (recordings / path.name).write_bytes(tar.extractfile(member).read())
        except (OSError, EOFError, tarfile.TarError) as error:
            raise OSError(f"download of {FSDD_URL} failed: {error}") from error
        os.replace(unpacked, corpus_dir)
    return corpus_dir / "recordings"


def prepare_fsdd(corpus_dir: Path, report: StageReport) -> Pair:
    """Manifests of the corpus; a clip that cannot be used is skipped and reported.

    Args:
        corpus_dir: the folder with ``<digit>_<speaker>_<index>.wav``, in subfolders or not, or the
            one above its ``recordings``.
        report: where clips are counted.

    Returns:
        ``recordings`` (lhotse RecordingSet) and ``supervisions`` (SupervisionSet) with equal ids.

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
