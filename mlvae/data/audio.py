"""Reading and writing audio files with every problem named before it can do harm."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile

AUDIO_SUFFIXES = frozenset(
    f".{name}"
    for name in (
        *("wav", "flac", "ogg", "oga", "opus", "mp3", "aif", "aiff", "aifc", "au", "snd", "sph"),
        *("w64", "rf64", "caf", "m4a", "aac", "wma"),
    )
)
"""Ends of names, in small letters, of what is meant as a recording, readable here or not."""


def is_recording(path: Path) -> bool:
    """Whether a file is named as a recording, in small or capital letters."""
    return path.suffix.lower() in AUDIO_SUFFIXES


def files_below(folder: Path, on_error: Callable[[OSError], None]) -> list[Path]:
    """All files of a folder and its subfolders, linked ones included, in the order of their paths.

    Args:
        folder: where to look.
        on_error: is told of each folder that cannot be read, by the error's ``filename``.
    """
    found: list[Path] = []
    waiting, seen = [Path(folder)], set()
    while waiting:
        home = waiting.pop()
        try:
            real = home.resolve()
            if real in seen:  # a link back: it would never end
                continue
            seen.add(real)
            for path in home.iterdir():
                (waiting if path.is_dir() else found).append(path)
        except OSError as error:
            on_error(error)
    return sorted(found)


class AudioError(ValueError):
    """An audio file that cannot be used; the message is the reason, without the file's name."""


def _declared_and_present_bytes(path: Path) -> tuple[int, int] | None:
    """Sizes of a RIFF file's data chunk: what the header says, and what the file holds.

    libsndfile silently shortens a cut-off file to what is there, so it has to be asked for here.
    Returns None for other formats and for the sizes that streaming writers leave (0xFFFFFFFF).
    """
    total = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(12)
        if head[:4] != b"RIFF" or head[8:12] != b"WAVE":
            return None
        while len(chunk := file.read(8)) == 8:
            name, size = struct.unpack("<4sI", chunk)
            if name == b"data":
                return None if size == 0xFFFFFFFF else (size, total - file.tell())
            file.seek(size + size % 2, 1)  # chunks are padded to an even length
    return None


def audio_info(path: Path) -> tuple[int, int]:
    """Number of samples and sampling rate in Hz of a mono audio file, from its header.

    Raises:
        AudioError: if the file is missing, empty, unreadable, not mono, without samples, or
            shorter than its own header says.
    """
    path = Path(path)
    try:
        if not path.is_file():
            raise AudioError("no such file")
        if path.stat().st_size == 0:
            raise AudioError("empty file")
        sizes = _declared_and_present_bytes(path)
    except OSError as error:
        raise AudioError(f"cannot be read: {error.strerror or error}") from None
    if sizes is not None and sizes[1] < sizes[0]:
        raise AudioError(
            f"audio is shorter than its header says: {sizes[1]} of {sizes[0]} bytes are there"
        )
    try:
        info = soundfile.info(str(path))
    except soundfile.SoundFileError as error:
        raise AudioError(f"not readable as audio: {_one_line(error)}") from None
    if info.channels != 1:
        raise AudioError(f"{info.channels} channels where one is expected")
    if info.frames == 0:
        raise AudioError("no samples")
    return info.frames, info.samplerate


def read_audio(path: Path) -> tuple[np.ndarray, int]:
    """Read a whole mono file.

    Returns:
        Samples (num_samples,) float32 in [-1, 1], and the sampling rate in Hz.

    Raises:
        AudioError: as `audio_info`, and if fewer samples can be decoded than were announced, or
            if one of them is not a finite number.
    """
    num_samples, sampling_rate = audio_info(path)
    try:
        samples, _ = soundfile.read(str(path), dtype="float32")
    except soundfile.SoundFileError as error:
        raise AudioError(f"not readable as audio: {_one_line(error)}") from None
    if len(samples) != num_samples:
        raise AudioError(f"{len(samples)} samples can be read, the header says {num_samples}")
    if not np.isfinite(samples).all():
        raise AudioError("samples that are not finite numbers")
    return samples, sampling_rate


def write_wav(path: Path, samples: np.ndarray, sampling_rate: int) -> None:
    """Write samples (num_samples,) float in [-1, 1] as a 16-bit mono wav; louder ones are clipped.

    Samples that came from a 16-bit file are written back bit by bit the same.
    """
    scaled = np.rint(samples.astype(np.float64) * 32768.0)
    pcm = np.clip(scaled, -32768, 32767).astype(np.int16)
    soundfile.write(str(path), pcm, sampling_rate, subtype="PCM_16", format="WAV")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
