"""One voice of espeak-ng speaks a list of words to wav files, in a process of its own.

Run as ``python -m mlvae.data.espeak_voice`` with the work as JSON on standard input. Why a
process: espeak-ng does not repeat itself within one. Its wave generator carries state (breath
noise, flutter of the pitch) from one call to the next, and seeds its noise from the clock; even
with the seed set again before a word, the same word differs in length by tens of samples. But a
fresh process that sets the seed once and then speaks the same list gives the same samples, bit by
bit (tested with every voice of the recipe, espeak-ng 1.52).

This module imports neither torch nor lhotse, so that starting it is cheap.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import mlvae
from mlvae.data.audio import write_pcm
from mlvae.made import writing

TRIM_THRESHOLD = 150 / 32768
"""Edges below this amplitude are cut off, after scaling to the clip's level."""

_SYNCHRONOUS = 2  # espeak_AUDIO_OUTPUT: samples go to the callback, within the call
_RATE, _PITCH, _RANGE = 1, 3, 4  # espeak_PARAMETER
_UTF8 = 1


@dataclass(frozen=True)
class SpokenClip:
    """One word to be spoken.

    Attributes:
        path: file to write, relative to the folder of the work.
        text: the word.
        rate: words a minute.
        pitch: base pitch of the voice, 0 to 99.
        pitch_range: 0 (monotone) to 99.
        peak: amplitude of the loudest sample before noise, up to 1.
        snr: signal-to-noise ratio of the added white noise in dB.
        noise_seed: of that noise.
    """

    path: str
    text: str
    rate: int
    pitch: int
    pitch_range: int
    peak: float
    snr: float
    noise_seed: int


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


def process_environment() -> dict[str, str]:
    """Environment in which ``python -m mlvae...`` runs this package, installed or not, in UTF-8."""
    root = str(Path(mlvae.__file__).resolve().parents[1])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUTF8": "1"}


class Voice:
    """The espeak-ng library of espeakng-loader, set to one voice.

    Args:
        name: as espeak-ng has it, such as ``en-us+f1``: language and variant.
        seed: of espeak-ng's own noise.

    Raises:
        RuntimeError: if the library cannot be started or has no such voice.
    """

    def __init__(self, name: str, seed: int):
        import espeakng_loader

        self.library = ctypes.CDLL(espeakng_loader.get_library_path())
        data = espeakng_loader.get_data_path().encode()
        self.sampling_rate = self.library.espeak_Initialize(_SYNCHRONOUS, 0, data, 0)
        if self.sampling_rate <= 0:
            raise RuntimeError("espeak-ng does not start")
        self._pieces: list[np.ndarray] = []
        callback = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
        )
        self._callback = callback(self._collect)  # kept: the library holds only its address
        self.library.espeak_SetSynthCallback(self._callback)
        self.library.espeak_ng_SetRandSeed(ctypes.c_long(seed))
        if self.library.espeak_SetVoiceByName(name.encode()) != 0:
            raise RuntimeError(f"espeak-ng has no voice {name}")

    def _collect(self, samples, count: int, events) -> int:
        if samples and count > 0:
            self._pieces.append(np.ctypeslib.as_array(samples, shape=(count,)).copy())
        return 0

    def say(self, text: str, rate: int, pitch: int, pitch_range: int) -> np.ndarray:
        """Speak a text: samples (num_samples,) float64 in [-1, 1] at ``sampling_rate``."""
        for parameter, value in ((_RATE, rate), (_PITCH, pitch), (_RANGE, pitch_range)):
            self.library.espeak_SetParameter(parameter, value, 0)
        self._pieces.clear()
        data = text.encode()
        size = ctypes.c_size_t(len(data) + 1)
        status = self.library.espeak_Synth(data, size, 0, 1, 0, _UTF8, None, None)
        self.library.espeak_Synchronize()
        if status != 0 or not self._pieces:
            raise RuntimeError(f"espeak-ng does not speak {text!r} (status {status})")
        return np.concatenate(self._pieces) / 32768.0


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
