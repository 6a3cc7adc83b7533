"""One voice of espeak-ng speaks a list of words to wav files, in a process of its own.

Run as ``python -m mlvae.corpora.digits.voice`` with the work as JSON on standard input. Why a
process: espeak-ng does not repeat itself within one. Its wave generator carries state (breath
noise, flutter of the pitch) from one call to the next, and seeds its noise from the clock; even
with the seed set again before a word, the same word differs in length by tens of samples. But a
fresh process that sets the seed once and then speaks the same list gives the same samples, bit by
bit (tested with every voice of the recipe, espeak-ng 1.52).

This module imports neither torch nor lhotse, so that the process starts fast.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from mlvae.corpora.espeak import Voice, write_pcm
from mlvae.made import writing

TRIM_THRESHOLD = 150 / 32768
"""Edges below this amplitude are cut off, after scaling to the clip's level."""


@dataclass(frozen=True)
class SpokenClip:
    """One word to be spoken."""

    path: str  # file to write, relative to the folder of the work
    text: str  # the word
    rate: int  # words per minute
    pitch: int  # base pitch of the voice, 0 to 99
    pitch_range: int  # 0 (monotone) to 99
    peak: float  # amplitude of the loudest sample before noise, up to 1
    snr: float  # signal-to-noise ratio of the added white noise in dB
    noise_seed: int  # of that noise


@dataclass(frozen=True)
class VoiceWork:
    """What one process does: these clips, in this order, by this voice, into this folder."""

    voice: str
    seed: int
    folder: str
    clips: list[SpokenClip]

    def to_json(self) -> str:
        """For the standard input of the process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> VoiceWork:
        """Back from `to_json`."""
        content = json.loads(text)
        clips = [SpokenClip(**clip) for clip in content.pop("clips")]
        return cls(clips=clips, **content)


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


def speak(work: VoiceWork) -> None:
    """Do the work: one 16-bit wav for each clip."""
    voice = Voice(work.voice, work.seed)
    for clip in work.clips:
        samples = voice.say(clip.text, clip.rate, clip.pitch, clip.pitch_range)
        pcm = np.clip(np.rint(finish_clip(samples, clip) * 32768), -32768, 32767)
        path = Path(work.folder) / clip.path
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_pcm(path, pcm.astype(np.int16), voice.sampling_rate)


if __name__ == "__main__":
    try:
        speak(VoiceWork.from_json(sys.stdin.read()))
    except (RuntimeError, OSError, AttributeError) as error:
        sys.exit(f"{error}")
