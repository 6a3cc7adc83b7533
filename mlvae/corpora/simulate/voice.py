"""A process that speaks phone strings to wav files, with voices of espeak-ng.

Run as ``python -m mlvae.corpora.simulate.voice`` with the arguments of `speak` as JSON on standard
input; a line of JSON for each utterance comes back on standard output. espeak-ng carries state from
one call to the next (see `mlvae.corpora.digits.voice`), so each utterance is spoken by a fork of
the process, which starts the library anew: its samples depend on nothing but its own settings (and
on the builds of espeak-ng and numpy).

This module imports neither torch nor lhotse, so that the process starts fast.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlvae.corpora.espeak import UTF8, Voice, write_speech
from mlvae.corpora.simulate.phones import espeak_text
from mlvae.corpora.simulate.times import close_gaps, join_events
from mlvae.made import WriteError

SAMPLING_RATE = 16000

_PHONEMES = 0x100  # flag of espeak_Synth: [[...]] holds phoneme names
_PHONEME_EVENT, _END_EVENT = 7, 5


class _Id(ctypes.Union):
    _fields_ = [("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8)]


class _Event(ctypes.Structure):
    """espeak_EVENT of speak_lib.h."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _Id),
    ]


@dataclass(frozen=True)
class SpokenUtterance:
    """One utterance to be spoken."""

    path: str  # wav file to write, relative to the folder of the work
    voice: str  # as espeak-ng has it, such as ``en-us+f1``
    # phones of each word, see `mlvae.corpora.simulate.phones`; a word may be empty
    words: list[list[str]]
    pauses: list[int]  # for each word, how many of espeak-ng's long pauses follow it
    rate: int  # words per minute
    pitch: int  # base pitch of the voice, 0 to 99
    pitch_range: int  # 0 (monotone) to 99
    warp: float  # factor on all frequencies, formants included; times are divided by it
    tilt: float  # coefficient of the first-order filter ``x[n] - tilt * x[n - 1]``
    peak: float  # amplitude of the loudest sample before noise, up to 1
    snr: float  # signal-to-noise ratio of the added white noise in dB
    edges: tuple[float, float]  # seconds of silence before and after
    noise_seed: int  # of the noise


class PhoneVoice(Voice):
    """A voice of espeak-ng that speaks phones and reports when it does; see `Voice`."""

    def __init__(self, name: str, seed: int):
        import espeakng_loader

        super().__init__(name, seed)
        variant = name.partition("+")[2]  # espeak-ng leaves out one that it does not know
        known = Path(espeakng_loader.get_data_path()) / "voices" / "!v" / variant
        if variant and not known.is_file():
            raise RuntimeError(f"espeak-ng has no variant {variant} of its voices")
        self.library.espeak_ng_SetPhonemeEvents(1, 0)
        self._events: list[tuple[str, int]] = []

    def _collect(self, samples, count: int, events) -> int:
        event = ctypes.cast(events, ctypes.POINTER(_Event))
        index = 0
        while event[index].type != 0:
            if event[index].type in (_PHONEME_EVENT, _END_EVENT):
                end = event[index].type == _END_EVENT
                name = "_end" if end else event[index].id.string.decode("utf-8", "replace")
                self._events.append((name, event[index].sample))
            index += 1
        return super()._collect(samples, count, events)

    def say_phones(
        self, text: str, rate: int, pitch: int, pitch_range: int
    ) -> tuple[np.ndarray, list[tuple[str, int]]]:
        """Speak ``[[...]]``: `say`'s samples and errors, and the phoneme events.

        Of each event the name (with stress marks) and the sample index.
        """
        self._events.clear()
        samples = self.say(text, rate, pitch, pitch_range, UTF8 | _PHONEMES)
        return samples, list(self._events)


def resample(samples: np.ndarray, ratio: float) -> tuple[np.ndarray, float]:
    """Resample (num_samples,) by the Fourier transform of the whole.

    Plain numpy: importing scipy.signal would take longer than the rest of the process. The ratio of
    the new sampling rate to the old one is met to one in a thousand.

    Returns:
        New samples (about ``num_samples * ratio``,) and the exact ratio.
    """
    # Zeros at the end, so that it does not run into the beginning; sizes that transform fast.
    size = -(-(len(samples) + 256) // 4096) * 4096
    new_size = round(size * ratio / 64) * 64
    spectrum = np.fft.rfft(samples, size)
    spectrum = np.pad(spectrum, (0, max(0, new_size // 2 + 1 - len(spectrum))))
    made = np.fft.irfft(spectrum[: new_size // 2 + 1], new_size) * (new_size / size)
    return made[: round(len(samples) * new_size / size)], new_size / size


def speak_utterance(utterance: SpokenUtterance, seed: int, folder: Path) -> dict:
    """Speak, check, and write a 16-bit wav of `SAMPLING_RATE`.

    Returns:
        ``times``: (start, end) of each phone in seconds, and ``duration`` in seconds.

    Raises:
        PhoneMismatch: if espeak-ng spoke other phones.
        RuntimeError: if it fails, or has no such voice.
    """
    voice = PhoneVoice(utterance.voice, seed)
    text = espeak_text(utterance.words, utterance.pauses)
    raw, events = voice.say_phones(text, utterance.rate, utterance.pitch, utterance.pitch_range)
    phones = [phone for word in utterance.words for phone in word]
    times = close_gaps(raw, phones, join_events(utterance.words, events), voice.sampling_rate)

    first, last = times[0][0], times[-1][1]
    ratio = SAMPLING_RATE / (voice.sampling_rate * utterance.warp)
    speech, ratio = resample(raw[first:last] / 32768.0, ratio)
    speech[1:] -= utterance.tilt * speech[:-1]
    speech *= utterance.peak / np.abs(speech).max()
    level = np.sqrt(np.mean(speech**2)) * 10 ** (-utterance.snr / 20)
    left, right = (round(edge * SAMPLING_RATE) for edge in utterance.edges)
    speech = np.pad(speech, (left, right))
    speech += level * np.random.default_rng(utterance.noise_seed).standard_normal(len(speech))
    num_samples = write_speech(folder / utterance.path, speech, SAMPLING_RATE)

    def seconds(sample: int) -> float:
        return (left + (sample - first) * ratio) / SAMPLING_RATE

    return {
        "times": [(seconds(start), seconds(end)) for start, end in times],
        "duration": num_samples / SAMPLING_RATE,
    }


def _in_a_fork(utterance: SpokenUtterance, seed: int, folder: Path) -> dict:
    """`speak_utterance` in a child process.

    An error comes back as ``reason``; as ``unwritten`` where it is no fault of the utterance.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                answer = speak_utterance(utterance, seed, folder)
            except WriteError as error:
                answer = {"unwritten": str(error)}
            except (RuntimeError, ValueError, OSError, AttributeError) as error:
                answer = {"reason": str(error)}
            with os.fdopen(writing, "w", encoding="utf-8") as pipe:
                json.dump(answer, pipe)
        finally:
            os._exit(0)  # whatever happens, the child does not go on as its parent
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return json.loads(answer) if answer else {"reason": "the process that spoke it has died"}


def speak(seed: int, folder: str, utterances: Sequence[Mapping[str, Any]]) -> None:
    """Speak utterances, fields of `SpokenUtterance`: a wav and a line of JSON for each."""
    for utterance in (SpokenUtterance(**fields) for fields in utterances):
        answer = _in_a_fork(utterance, seed, Path(folder))
        print(json.dumps({"path": utterance.path, **answer}), flush=True)


if __name__ == "__main__":
    speak(**json.load(sys.stdin))
