from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from mlvae.report.sound import LARGEST_PICTURE, MOST_COLUMNS, PEAKS, ROWS, peaks, spectrogram

RATE = 8000


def sound(seconds: float, pitch: float) -> np.ndarray:
    """A tone in the first half, silence in the second."""
    times = np.arange(round(seconds * RATE)) / RATE
    tone = 0.5 * np.sin(2 * np.pi * pitch * times)
    return np.where(times < seconds / 2, tone, 0.0).astype(np.float32)


@pytest.mark.parametrize("pitch", [1000.0, 3000.0])
def test_a_tone_is_a_dark_line_at_its_pitch(pitch):
    picture = np.asarray(Image.open(io.BytesIO(spectrogram(sound(2.0, pitch), RATE))).convert("L"))
    assert picture.shape == (ROWS, 300)
    assert int(picture[:, 75].argmin()) == pytest.approx(ROWS * (1 - pitch / (RATE / 2)), abs=2)
    assert picture[:, 75].min() < 60 and picture[:, 225].min() > 200  # silence is white


@pytest.mark.parametrize("count", [1, 7, RATE, 60 * RATE])
def test_pictures_are_small_whatever_is_recorded(count):
    noise = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    content = spectrogram(noise, RATE)
    assert len(content) <= LARGEST_PICTURE
    width, height = Image.open(io.BytesIO(content)).size
    assert height == ROWS and 1 < width <= MOST_COLUMNS
    ends = np.frombuffer(peaks(noise), np.int8).reshape(-1, 2)
    assert len(ends) == min(count, PEAKS)
    assert (ends[:, 0] <= ends[:, 1]).all() and np.abs(ends.astype(int)).max() == 127


def test_peaks_are_where_it_is_loud():
    ends = np.frombuffer(peaks(sound(2.0, 500.0)), np.int8).reshape(-1, 2)
    assert (ends[:490, 0] < -100).all() and (ends[:490, 1] > 100).all()
    assert (ends[510:] == 0).all()
