"""Posteriors of somebody's model on the frames of features."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mlvae.acoustic.posteriors import PosteriorDataset, on_frames
from mlvae.acoustic.symbols import map_symbols
from mlvae.nn import wav2vec
from tests.systems.sounds import RATE, TONES, tone_cut


@pytest.mark.parametrize("shift, length", [(0.005, 200), (0.01, 100), (0.02, 49), (0.04, 23)])
def test_times_stay_whatever_the_frame_shift(shift, length):
    """A sound from 0.3 s to 0.6 s, by a model whose frames lie in the middle of one second."""
    first = (1 - shift * length) / 2
    middle = first + shift * (torch.arange(length) + 0.5)
    sound = ((middle > 0.3) & (middle < 0.6)).double()
    found = on_frames(torch.stack([sound, 1 - sound], dim=1), shift, 100)
    assert found.shape == (100, 2)
    torch.testing.assert_close(found.sum(1), torch.ones(100, dtype=torch.float64))
    times = (torch.arange(100) + 0.5) / 100
    assert float((found[:, 0] * times).sum() / found[:, 0].sum()) == pytest.approx(0.45, abs=shift)
    assert float(found[:, 0].sum()) / 100 == pytest.approx(0.3, abs=shift)


def test_a_frame_has_the_mean_of_what_lies_in_it():
    given = torch.eye(4)
    assert torch.equal(on_frames(given, 0.01, 4), given.double())
    halves = on_frames(given, 0.005, 2)
    torch.testing.assert_close(halves, torch.tensor([[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]]).double())
    assert on_frames(given, 0.04, 18)[[0, 17]].argmax(1).tolist() == [0, 3]


class Loudness:
    """Says ``high`` where it is loud; of frames of 20 ms that do not overlap."""

    symbols, blank, sampling_rate, frame_shift = ("<blk>", "high", "low", "mid"), 0, 16000, 0.02
    num_params = 0

    def __call__(self, samples, num_samples):
        loud = samples.unfold(1, 320, 320).square().mean(2).sqrt().clamp(0, 0.9)
        rest = torch.zeros_like(loud)
        return torch.stack([1 - loud, loud, rest, rest], dim=2).log(), num_samples // 320


def test_what_is_no_unit_comes_last_and_long_recordings_in_sections(tmp_path, monkeypatch):
    cut = tone_cut(tmp_path, "tones", ["high", "low", "mid"], ["high", "low", "mid"], 0)
    symbols = map_symbols(Loudness.symbols, TONES.symbols, blank=0)
    dataset = PosteriorDataset(TONES, Loudness(), symbols)
    found = dataset.features(cut)
    assert found.shape == (cut.num_frames, 4)
    torch.testing.assert_close(found.exp().sum(1), torch.ones(cut.num_frames))
    samples = cut.load_audio()[0]
    energy = np.sqrt(np.mean(samples.reshape(-1, RATE // 50) ** 2, axis=1)).repeat(2)
    assert np.abs(found[:, 0].exp().numpy() - energy).max() < 0.02
    assert float(found[:, 1:3].max()) < math.log(1e-4)
    dataset.forget()
    for name, value in (("LONGEST", 0.4), ("SECTION", 0.2), ("MARGIN", 0.1)):
        monkeypatch.setattr(wav2vec, name, value)
    torch.testing.assert_close(dataset.features(cut), found, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "answer, match",
    [
        (lambda samples: (torch.zeros(1, 0, 4), torch.tensor([0])), "too short for the acoustic"),
        (lambda samples: (torch.full((1, 9, 4), torch.nan), torch.tensor([9])), "not finite"),
        (lambda samples: 1 / 0, "the acoustic model cannot read it: division by zero"),
    ],
)
def test_a_recording_that_cannot_be_read_is_named(tmp_path, answer, match):
    class Broken(Loudness):
        def __call__(self, samples, num_samples):
            return answer(samples)

    cut = tone_cut(tmp_path, "tones", ["high"], ["high"], 0)
    dataset = PosteriorDataset(TONES, Broken(), map_symbols(Loudness.symbols, TONES.symbols))
    with pytest.raises(ValueError, match=f"^tones: .*{match}"):
        dataset.features(cut)
