"""Reading and writing audio files with every problem named before it can do harm."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import soundfile

from mlvae.made import writing


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
    write_pcm(path, np.clip(scaled, -32768, 32767).astype(np.int16), sampling_rate)


def write_pcm(path: Path, samples: np.ndarray, sampling_rate: int) -> None:
    """Write samples (num_samples,) int16 as a mono wav file.

    Raises:
        WriteError: it cannot be written.
    """
    content = io.BytesIO()  # libsndfile does not say why it cannot write a file
    soundfile.write(content, samples, sampling_rate, subtype="PCM_16", format="WAV")
    with writing(path):
        Path(path).write_bytes(content.getvalue())


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
