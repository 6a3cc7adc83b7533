"""One voice of espeak-ng speaks a list of words to wav files, in a process of its own.

Run as ``python -m mlvae.corpora.digits.voice`` with the arguments of `speak` as JSON on standard
input. Why a process: espeak-ng does not repeat itself within one. Its wave generator carries state
(breath noise, flutter of the pitch) from one call to the next, and seeds its noise from the clock;
even with the seed set again before a word, the same word differs in length by tens of samples. But
a fresh process that sets the seed once and then speaks the same list gives the same samples, bit by
bit (tested with every voice of the recipe, espeak-ng 1.52).

This module imports neither torch nor lhotse, so that the process starts fast.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlvae.corpora.espeak import Voice, write_speech

TRIM_THRESHOLD = 150 / 32768
"""Edges below this amplitude are cut off, after scaling to the clip's level."""


@dataclass(frozen=True)
class SpokenClip:
    """One word to be spoken."""

    path: str  # file to write, relative to the folder of the work
    text: str
    rate: int  # words per minute
    pitch: int  # base pitch of the voice, 0 to 99
    pitch_range: int  # 0 (monotone) to 99
    peak: float  # amplitude of the loudest sample before noise, up to 1
    snr: float  # signal-to-noise ratio of the added white noise in dB
    noise_seed: int  # of that noise


def finish_clip(samples: np.ndarray, clip: SpokenClip) -> np.ndarray:
    """Scale to the clip's level, cut near-silent edges, add white noise.

    Raises:
        RuntimeError: if the samples are silent.
    """
    loudest = np.abs(samples).max()
    if loudest == 0:
        raise RuntimeError(f"{clip.path}: espeak-ng gave silence")
    samples = samples * (clip.peak / loudest)
    loud = np.flatnonzero(np.abs(samples) >= TRIM_THRESHOLD)
    samples = samples[loud[0] : loud[-1] + 1]
    noise = np.random.default_rng(clip.noise_seed).standard_normal(len(samples))
    level = np.sqrt(np.mean(samples**2)) * 10 ** (-clip.snr / 20)
    return samples + level * noise


def speak(voice: str, seed: int, folder: str, clips: Sequence[Mapping[str, Any]]) -> None:
    """Speak clips, fields of `SpokenClip`, in their order: a 16-bit wav in the folder for each."""
    espeak = Voice(voice, seed)
    for clip in (SpokenClip(**fields) for fields in clips):
        samples = espeak.say(clip.text, clip.rate, clip.pitch, clip.pitch_range) / 32768.0
        write_speech(Path(folder) / clip.path, finish_clip(samples, clip), espeak.sampling_rate)


if __name__ == "__main__":
    try:
        speak(**json.load(sys.stdin))
    except (RuntimeError, OSError, AttributeError) as error:
        sys.exit(f"{error}")
