"""A synthetic digit corpus: espeak-ng's voices, with varied rate, pitch, level and noise.

It needs no download and no recordings, so the recipe runs anywhere; what is measured on it says
little about people's speech, and tables on it are headed "synthetic".
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mlvae.corpora.digits.clips import DIGIT_WORDS, Pair, digit_manifests, usable_clips
from mlvae.corpora.digits.voice import SpokenClip
from mlvae.corpora.espeak import run_speaker
from mlvae.made import Record
from mlvae.stage import StageReport, made_tree, progress

VOICES = {
    "us-m1": "en-us+m1",
    "us-m3": "en-us+m3",
    "us-m7": "en-us+m7",
    "us-f1": "en-us+f1",
    "us-f2": "en-us+f2",
    "us-f4": "en-us+f4",
    "gb-m2": "en+m2",
    "gb-f3": "en+f3",
    "rp-m5": "en-gb-x-rp+m5",
    "rp-f5": "en-gb-x-rp+f5",
    "scotland-m4": "en-gb-scotland+m4",
    "scotland-f2": "en-gb-scotland+f2",
    "nyc-m6": "en-us-nyc+m6",
    "caribbean-m8": "en-029+m8",
    "lancaster-f4": "en-gb-x-gbclan+f4",
    "midlands-f3": "en-gb-x-gbcwmd+f3",
}
"""Our speakers, and the espeak-ng voice (language and variant) of each."""

NUM_RECORDINGS = 20
SAMPLING_RATE = 16000
"""Of the mismatch corpus; the clips keep espeak-ng's own rate, 22050 Hz."""

MARKER = "synthesis.json"

_PROTOCOL = 1  # to be raised with every change that makes other clips of the same seed


def _clips_of(speaker: str, seed: int, num_recordings: int) -> list[SpokenClip]:
    rng = random.Random(f"{seed}/espeak/{speaker}")
    base_pitch = rng.randint(40, 60)
    clips = []
    for digit, word in DIGIT_WORDS.items():
        for index in range(num_recordings):
            clip_id = f"{digit}_{speaker}_{index}"
            digest = hashlib.sha256(f"{seed}/noise/{clip_id}".encode()).digest()
            clips.append(
                SpokenClip(
                    path=f"{speaker}/{clip_id}.wav",
                    text=word,
                    rate=rng.randint(110, 200),
                    pitch=base_pitch + rng.randint(-15, 15),
                    pitch_range=rng.randint(25, 75),
                    peak=round(rng.uniform(0.3, 0.8), 3),
                    snr=round(rng.uniform(15.0, 40.0), 2),
                    noise_seed=int.from_bytes(digest[:8], "big"),
                )
            )
    return clips


def synthesize_clips(
    clips_dir: Path,
    seed: int = 0,
    voices: dict[str, str] | None = None,
    num_recordings: int = NUM_RECORDINGS,
    num_jobs: int | None = None,
) -> None:
    """Write ``clips_dir/<speaker>/<digit>_<speaker>_<index>.wav``, unless they are there already.

    Every voice has a fresh process, so that the same seed gives the same files (see
    `mlvae.corpora.digits.voice`). The file `MARKER` comes last, and says what they were made with;
    what was made there with other options is replaced. ``voices`` are espeak-ng's by speaker name,
    ``num_jobs`` processes at a time (default: one for each core).

    Raises:
        ValueError: if the extra ``synthesis`` is not installed, somebody else uses the folder, or
            it holds something else.
        RuntimeError: if espeak-ng fails; OSError: if nothing can be written.
    """
    clips_dir = Path(clips_dir)
    voices = voices or VOICES
    made_with = {
        "protocol": _PROTOCOL,
        "seed": seed,
        "voices": voices,
        "num_recordings": num_recordings,
    }
    marker = clips_dir / MARKER
    if marker.is_file() and json.loads(marker.read_text(encoding="utf-8")) == made_with:
        return
    Record(clips_dir).check_tree(clips_dir)
    if importlib.util.find_spec("espeakng_loader") is None:
        raise ValueError(
            "the espeak corpus needs the extra `synthesis`: pip install espeakng-loader"
        )
    with made_tree(clips_dir, "0 prepare", MARKER) as fresh:
        works = [
            {
                "voice": voice,
                "seed": seed,
                "folder": str(fresh),
                "clips": [asdict(clip) for clip in _clips_of(speaker, seed, num_recordings)],
            }
            for speaker, voice in voices.items()
        ]
        with ThreadPoolExecutor(num_jobs or os.cpu_count() or 1) as pool:
            done = pool.map(_run, works)
            for _ in progress(done, "synthesise", "voice", len(works)):
                pass
        text = json.dumps(made_with, ensure_ascii=False, indent=2) + "\n"
        (fresh / MARKER).write_text(text, encoding="utf-8")


def _run(work: dict[str, Any]) -> None:
    finished = run_speaker("mlvae.corpora.digits.voice", work)
    if finished.returncode != 0:
        reason = (finished.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(
            f"voice {work['voice']} failed (exit status {finished.returncode}): {reason}"
        )


def prepare_espeak(clips_dir: Path, report: StageReport) -> Pair:
    """Manifests of what `synthesize_clips` made; clips that cannot be used are skipped."""
    return digit_manifests(usable_clips(Path(clips_dir).glob("*/*.wav"), "espeak", report))
