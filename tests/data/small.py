"""Corpora of a few short cuts, as a stage 0 of one's own would leave them."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from lhotse import MonoCut, SupervisionSegment

from mlvae.data.audio import file_recording, write_wav
from mlvae.data.features import compute_fbank
from mlvae.data.manifests import SPLITS, write_json, write_manifest
from mlvae.stage import StageReport

RATE = 8000
SAMPLES = 2400


def noise(name: str, count: int = SAMPLES) -> np.ndarray:
    """Samples that depend on the name."""
    return 0.1 * np.random.default_rng(zlib.crc32(name.encode())).standard_normal(count)


def noise_cut(
    folder: Path,
    name: str,
    units: Sequence = ("a", "b"),
    speaker: str | None = None,
    rate: int = RATE,
    path: Path | None = None,
) -> MonoCut:
    """A cut of 0.3 s at 8 kHz; one recorded at another rate is resampled when it is read."""
    path = path or folder / f"{name}.wav"
    path.parent.mkdir(parents=True, exist_ok=True)
    count = SAMPLES * rate // RATE
    write_wav(path, noise(str(path.name), count), rate)
    recording = file_recording(name, path, count, rate)
    recording = recording if rate == RATE else recording.resample(RATE)
    text = SupervisionSegment(
        name, name, 0.0, recording.duration, speaker=speaker, custom={"units": list(units)}
    )
    return MonoCut(name, 0.0, recording.duration, 0, [text], recording=recording)


def small_cuts(folder: Path, count: int = 2, **options) -> dict[str, list[MonoCut]]:
    """A few cuts of each split."""
    return {
        split: [noise_cut(folder, f"{split}{n}", **options) for n in range(count)]
        for split in SPLITS
    }


def write_corpus(folder: Path, cuts: dict[str, list[MonoCut]]) -> Path:
    """Write manifests and ``corpus.json``."""
    for split, own in cuts.items():
        write_manifest(folder / "manifests" / f"cuts_{split}.jsonl.gz", own)
    write_json(folder / "corpus.json", {"sampling_rate": RATE})
    return folder


def change_line(folder: Path, change, split: str = "train", line: int = 1) -> Path:
    """Change what a line of a manifest says: ``change`` is called with it. Returns the file."""
    path = folder / "manifests" / f"cuts_{split}.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    content = json.loads(lines[line - 1])
    change(content)
    lines[line - 1] = json.dumps(content)
    path.write_bytes(gzip.compress("".join(f"{each}\n" for each in lines).encode()))
    return path


def stage_1(folder: Path, **options) -> tuple[dict[str, int], dict[str, dict]]:
    """Run stage 1; how many cuts each split has, and what was skipped, by id."""
    report = StageReport("1 fbank", folder)
    counts = compute_fbank(folder, report, **options)
    return counts, {record["id"]: record for record in report.skipped}
