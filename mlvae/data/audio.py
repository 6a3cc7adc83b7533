"""Reading and writing audio files with every problem named before it can do harm.

Cuts are read here and not by lhotse, which pads or shortens audio by up to half a second in
silence, and reads some formats by putting the name of the file into a shell command.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import soundfile
from lhotse import MonoCut, Recording
from lhotse.audio import AudioSource
from lhotse.augmentation import AudioTransform, Resample, Speed, Tempo
from lhotse.utils import compute_num_samples, perturb_num_samples

from mlvae.errors import one_line
from mlvae.made import writing

LARGEST_SAMPLE = 2.0**31
"""Of integers of 32 bits, which some programs write as floats without scaling them."""

AUDIO_SUFFIXES = frozenset(
    f".{name}"
    for name in (
        *("wav", "flac", "ogg", "oga", "opus", "mp3", "aif", "aiff", "aifc", "au", "snd", "sph"),
        *("w64", "rf64", "caf", "m4a", "aac", "wma", "mp4", "mka", "webm", "amr", "3gp"),
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


@contextlib.contextmanager
def read_by_soundfile(more: str = "") -> Iterator[None]:
    """Turn what soundfile raises for what it cannot read into an `AudioError` that ends in more."""
    try:
        yield
    except (soundfile.SoundFileError, TypeError) as error:  # TypeError: of a file called ``.raw``
        reason = one_line(error)
        raise AudioError(f"not readable as audio: {reason}{more}") from None


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


def check_file(path: Path) -> None:
    """AudioError where a file is missing, empty, unreadable, or shorter than its header says."""
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


def audio_info(path: Path) -> tuple[int, int]:
    """Number of samples and sampling rate in Hz of a mono audio file, from its header.

    Raises:
        AudioError: if the file is missing, empty, unreadable, not mono, without samples, or
            shorter than its own header says.
    """
    check_file(Path(path))
    with read_by_soundfile():
        info = soundfile.info(str(path))
    if info.channels != 1:
        raise AudioError(f"{info.channels} channels where one is expected")
    if info.frames == 0:
        raise AudioError("no samples")
    return info.frames, info.samplerate


def read_audio(path: Path) -> tuple[np.ndarray, int]:
    """Samples (num_samples,) float32 in [-1, 1] of a whole mono file, and its rate in Hz.

    Raises:
        AudioError: as `audio_info`, and if fewer samples can be decoded than were announced, or
            if one of them is no finite number or absurdly large.
    """
    num_samples, sampling_rate = audio_info(path)
    with read_by_soundfile():
        samples, _ = soundfile.read(str(path), dtype="float32")
    if len(samples) != num_samples:
        raise AudioError(f"{len(samples)} samples can be read, the header says {num_samples}")
    check_samples(samples)
    return samples, sampling_rate


def check_samples(samples: np.ndarray) -> None:
    """AudioError where a sample is no finite number, or beyond :data:`LARGEST_SAMPLE`."""
    if not np.isfinite(samples).all():
        raise AudioError("samples that are not finite numbers")
    largest = float(np.abs(samples).max(initial=0.0))
    if largest > LARGEST_SAMPLE:
        raise AudioError(f"samples as large as {largest:.3g}, where 1 is full scale")


def check_not_silent(samples: np.ndarray) -> None:
    """AudioError where all of some samples are equal."""
    if samples.size and samples.min() == samples.max():
        raise AudioError(f"digital silence: all samples are {samples[0]:g}")


def file_recording(
    recording_id: str,
    path: Path,
    num_samples: int,
    sampling_rate: int,
    resample_to: int | None = None,
) -> Recording:
    """A mono lhotse recording of a known length; the file need not be there yet.

    It is resampled to a rate (Hz) that is given and another than the file's.
    """
    source, seconds = AudioSource("file", [0], str(path)), num_samples / sampling_rate
    recording = Recording(recording_id, [source], sampling_rate, num_samples, seconds)
    return recording if resample_to in (None, sampling_rate) else recording.resample(resample_to)


def memory_recording(name: str, samples: np.ndarray, sampling_rate: int) -> Recording:
    """A recording of samples (num_samples,) float32 that lie in memory."""
    source = AudioSource("memory", [0], wav_bytes(samples, sampling_rate))
    return Recording(name, [source], sampling_rate, len(samples), len(samples) / sampling_rate)


def read_cut(cut: MonoCut, allow_commands: bool = False) -> tuple[np.ndarray, str]:
    """Read the audio of a cut, with the transforms of its recording.

    Args:
        cut: of one channel, with a recording.
        allow_commands: whether a source may be a shell command, which is then run.

    Returns:
        Samples (num_samples,) float32, and a digest of what was read before the transforms: 32
        hexadecimal digits, equal for equal samples at the same rate in whichever encoding.

    Raises:
        AudioError: there is no audio, it cannot be read, it is not what the manifest says (number
            of samples, sampling rate, channels), it is silence or holds samples that are no finite
            numbers or absurdly large.
    """
    if not isinstance(cut, MonoCut):
        raise AudioError(f"a {type(cut).__name__}, where a MonoCut is expected")
    if cut.recording is None:
        raise AudioError("no audio")
    recording = cut.recording
    transforms = [
        AudioTransform.from_dict(transform) if isinstance(transform, dict) else transform
        for transform in recording.transforms or ()
    ]
    rates = [t.source_sampling_rate for t in transforms if isinstance(t, Resample)]
    rate = rates[0] if rates else recording.sampling_rate
    samples = _read_source(cut, transforms, rate, allow_commands)
    digest = hashlib.blake2b(f"{rate} ".encode(), digest_size=16)
    digest.update(np.ascontiguousarray(samples, dtype="<f4"))
    check_not_silent(samples)
    audio = samples[None, :]
    for transform in transforms:
        audio = transform(audio, recording.sampling_rate)
    missing = cut.num_samples - audio.shape[1]
    # Rounding may cost a sample, and one more at each transform.
    if missing > max(len(transforms), 1):
        raise AudioError(f"{audio.shape[1]} samples, the manifest says {cut.num_samples}")
    if missing > 0:
        audio = np.pad(audio, ((0, 0), (0, missing)), mode="reflect")
    return audio[0, : cut.num_samples], digest.hexdigest()


def _read_source(
    cut: MonoCut, transforms: list[AudioTransform], rate: int, allow_commands: bool
) -> np.ndarray:
    """Samples (n,) float32 of the cut's channel before the transforms, ``rate`` a second."""
    recording = cut.recording
    source = next((s for s in recording.sources if cut.channel in s.channels), None)
    if source is None:
        raise AudioError(f"the recording has no channel {cut.channel}")
    file = _open_source(source, allow_commands)
    # The whole recording is read from end to end; of others, what gives the cut.
    offset, duration = cut.start, None
    if not math.isclose(cut.duration, recording.duration, abs_tol=1e-3):
        duration = cut.duration
    for transform in reversed(transforms):
        offset, duration = transform.reverse_timestamps(offset, duration, recording.sampling_rate)
    with read_by_soundfile(), soundfile.SoundFile(file) as audio:
        _compare(audio, source, recording, transforms, rate)
        begin = min(compute_num_samples(offset, rate), audio.frames)
        if begin:  # some encodings cannot seek, not even to where they are
            audio.seek(begin)
        wanted = audio.frames - begin
        if duration is not None:
            wanted = min(wanted, compute_num_samples(duration, rate))
        samples = audio.read(wanted, dtype="float32", always_2d=True)
    if len(samples) != wanted:
        raise AudioError(f"{len(samples)} samples can be read, the header says {wanted}")
    channel = samples[:, source.channels.index(cut.channel)]
    check_samples(channel)
    return channel


def _open_source(source: AudioSource, allow_commands: bool) -> str | io.BytesIO:
    """What soundfile opens."""
    if source.type == "file":
        check_file(Path(source.source))
        return str(source.source)
    if source.type == "memory" and isinstance(source.source, bytes):
        return io.BytesIO(source.source)
    if source.type == "command" and allow_commands:
        return io.BytesIO(output_of(source.source))
    raise AudioError(f"a source of type {source.type!r}: only files are read")


def output_of(command: str) -> bytes:
    """What a shell command writes to standard output; AudioError where it fails."""
    found = subprocess.run(command, shell=True, stdout=subprocess.PIPE, check=False)
    if found.returncode:
        raise AudioError(f"its command ended with exit status {found.returncode}")
    return found.stdout


def _compare(
    audio: soundfile.SoundFile,
    source: AudioSource,
    recording: Recording,
    transforms: list[AudioTransform],
    rate: int,
) -> None:
    """Compare a file with what the manifest says of it."""
    if audio.channels != (wanted := len(source.channels)):
        due = f"the manifest says {wanted}" if wanted > 1 else "one is expected"
        raise AudioError(f"{audio.channels} channels where {due}")
    if audio.samplerate != rate:
        raise AudioError(
            f"sampling rate of the file is {audio.samplerate} Hz, the manifest says {rate}"
        )
    expected, found = recording.num_samples, audio.frames
    for transform in transforms:
        if isinstance(transform, Resample):
            seconds = found / transform.source_sampling_rate
            found = compute_num_samples(seconds, transform.target_sampling_rate)
        elif isinstance(transform, (Speed, Tempo)):
            found = perturb_num_samples(found, transform.factor)
    # What a chain of transforms was rounded to need not be known to the last sample.
    if abs(found - expected) > (1 if transforms else 0):
        kind = "shorter" if found < expected else "longer"
        raise AudioError(f"audio is {kind} than its manifest says: {found} samples, not {expected}")


def write_wav(path: Path, samples: np.ndarray, sampling_rate: int) -> None:
    """Write samples (num_samples,) float in [-1, 1] as a 16-bit mono wav; louder ones are clipped.

    Samples that came from a 16-bit file are written back bit by bit the same.

    Raises:
        WriteError: it cannot be written.
    """
    scaled = np.clip(np.rint(samples.astype(np.float64) * 32768.0), -32768, 32767)
    content = wav_bytes(scaled.astype(np.int16), sampling_rate, "PCM_16")
    with writing(path):  # libsndfile does not say why it cannot write a file
        Path(path).write_bytes(content)


def wav_bytes(samples: np.ndarray, sampling_rate: int, subtype: str = "FLOAT") -> bytes:
    """Samples (num_samples,) float32, or int16 of PCM_16, as a mono wav, bit by bit the same."""
    content = io.BytesIO()
    soundfile.write(content, samples, sampling_rate, subtype, format="WAV")
    return content.getvalue()
