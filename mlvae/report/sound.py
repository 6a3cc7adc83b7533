"""What a page shows of a recording, small enough to be in it: a spectrogram and a waveform."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

#: Seconds of the window, short enough to show where a sound begins.
WINDOW = 0.012
FFT = 512
#: Of the picture: rows, columns a second, and the least and the most columns.
ROWS, COLUMNS_PER_SECOND, FEWEST_COLUMNS, MOST_COLUMNS = 80, 150, 200, 1500
#: What is this much below the loudest is white.
DECIBELS = 55.0
#: Bytes that the picture may have; it gets coarser until it does.
LARGEST_PICTURE = 13_000
PEAKS = 1000


def spectrogram(samples: np.ndarray, sampling_rate: int) -> bytes:
    """A spectrogram from 0 Hz (below) to half the sampling rate, dark where it is loud.

    Of samples (num_samples,) float32, at least one, it is a picture of `ROWS` rows in grey, WebP,
    at most `LARGEST_PICTURE` bytes. Its columns cover the recording evenly, however long that is.
    """
    columns = round(len(samples) / sampling_rate * COLUMNS_PER_SECOND)
    columns = min(max(columns, FEWEST_COLUMNS), MOST_COLUMNS)
    window = max(round(WINDOW * sampling_rate), 2)
    louder = np.append(samples[:1], samples[1:] - 0.97 * samples[:-1])  # of high frequencies
    padded = np.pad(louder, (window // 2, window))
    centres = ((np.arange(columns) + 0.5) * len(samples) / columns).astype(np.int64)
    frames = np.lib.stride_tricks.sliding_window_view(padded, window)[centres] * np.hanning(window)
    size = max(FFT, 2 ** int(np.ceil(np.log2(window))))
    power = np.abs(np.fft.rfft(frames, size)) ** 2
    edges = np.linspace(0, power.shape[1] - 1, ROWS + 1).astype(np.int64)
    bands = np.add.reduceat(power, edges[:-1], axis=1) / np.diff(edges)
    decibels = 10 * np.log10(bands + 1e-12)
    white = (np.percentile(decibels, 99.7) - decibels) / DECIBELS
    grey = (255 * np.clip(white, 0.0, 1.0)).astype(np.uint8).T[::-1]
    picture = Image.fromarray(grey)
    while True:
        content = io.BytesIO()
        picture.save(content, "WEBP", quality=35)
        if content.tell() <= LARGEST_PICTURE:
            return content.getvalue()
        picture = picture.resize((picture.width * 3 // 4, ROWS), Image.Resampling.BOX)


def peaks(samples: np.ndarray) -> bytes:
    """The least and the greatest sample of each of at most `PEAKS` stretches of equal length.

    Of samples (num_samples,) float32, at least one, two signed bytes per stretch, of which 127 is
    the largest sample of all.
    """
    count = min(PEAKS, len(samples))
    first = np.arange(count) * len(samples) // count
    ends = np.minimum.reduceat(samples, first), np.maximum.reduceat(samples, first)
    both = np.stack(ends, axis=1) / max(float(np.abs(samples).max()), 1e-9)
    return np.rint(127 * both).astype(np.int8).tobytes()
