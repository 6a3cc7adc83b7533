"""espeak-ng as synthetic corpora use it: one voice of its library, in a process of its own.

This module imports neither torch nor lhotse, so that the processes that speak start fast.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

import mlvae
from mlvae.made import writing

RATE, PITCH, RANGE = 1, 3, 4
"""espeak_PARAMETER: words per minute, base pitch and range of the pitch."""

UTF8 = 1
"""Flag of espeak_Synth."""

_SYNCHRONOUS = 2  # espeak_AUDIO_OUTPUT: samples go to the callback, within the call


def run_speaker(module: str, arguments: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run ``python -m module`` of this package, installed or not, in UTF-8.

    The arguments go to its standard input as JSON. It has one thread, as a process forks more
    safely without more.
    """
    root = str(Path(mlvae.__file__).resolve().parents[1])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", module],
        input=json.dumps(arguments),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env={
            **os.environ,
            **threads,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONUTF8": "1",
        },
    )


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

    def say(
        self, text: str, rate: int, pitch: int, pitch_range: int, flags: int = UTF8
    ) -> np.ndarray:
        """Speak a text: samples (num_samples,) int16 at ``sampling_rate``.

        Raises:
            RuntimeError: if espeak-ng fails or gives nothing.
        """
        for parameter, value in ((RATE, rate), (PITCH, pitch), (RANGE, pitch_range)):
            self.library.espeak_SetParameter(parameter, value, 0)
        self._pieces.clear()
        data = text.encode()
        size = ctypes.c_size_t(len(data) + 1)
        status = self.library.espeak_Synth(data, size, 0, 1, 0, flags, None, None)
        self.library.espeak_Synchronize()
        if status != 0 or not self._pieces:
            raise RuntimeError(f"espeak-ng does not speak {text!r} (status {status})")
        return np.concatenate(self._pieces)


def write_speech(path: Path, samples: np.ndarray, sampling_rate: int) -> int:
    """Write samples (num_samples,) float in [-1, 1] as a 16-bit mono wav; how many there are.

    Raises:
        WriteError: it cannot be written.
    """
    pcm = np.clip(np.rint(samples * 32768), -32768, 32767).astype(np.int16)
    content = io.BytesIO()  # libsndfile does not say why it cannot write a file
    soundfile.write(content, pcm, sampling_rate, subtype="PCM_16", format="WAV")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.getvalue())
    return len(pcm)
