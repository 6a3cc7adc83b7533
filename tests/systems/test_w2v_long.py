"""w2v-CTC on recordings that are too long for attention over the whole."""

from __future__ import annotations

import pytest
import torch
from lhotse import Recording
from lhotse.utils import fastcopy

from mlvae.acoustic.posteriors import read_waveform
from mlvae.data.audio import write_wav
from mlvae.data.units import canonical_units
from mlvae.nn import wav2vec
from mlvae.systems.w2v_ctc import (
    SAMPLING_RATE,
    Wav2VecCtc,
    ctc_spans,
    greedy_spans,
    in_parts,
)
from tests.systems.sounds import tiny_shape
from tests.train.long import page
from tests.train.tiny import TABLE


@pytest.mark.parametrize("seconds", [2.6, 3.0, 7.31])
def test_sections_are_put_together_frame_by_frame(monkeypatch, seconds):
    """With a network that hears the samples of a frame and no more."""

    def loudness(self, waveform):
        return waveform.unfold(0, 400, 320).abs().mean(1, keepdim=True)

    monkeypatch.setattr(Wav2VecCtc, "forward", loudness)
    model = Wav2VecCtc(tiny_shape(), 3)
    waveform = torch.randn(round(seconds * SAMPLING_RATE))
    expected = model.log_probs(waveform)
    assert len(expected) == model.num_frames(len(waveform))
    monkeypatch.setattr(wav2vec, "LONGEST", 2.0)
    monkeypatch.setattr(wav2vec, "SECTION", 1.0)
    monkeypatch.setattr(wav2vec, "MARGIN", 0.3)
    torch.testing.assert_close(model.log_probs(waveform), expected)


def test_networks_hear_a_section_nearly_as_the_whole(monkeypatch):
    torch.manual_seed(0)
    model = Wav2VecCtc(tiny_shape("layer_norm"), 3).eval()
    waveform = torch.randn(3 * SAMPLING_RATE)
    expected = model.log_probs(waveform)
    monkeypatch.setattr(wav2vec, "LONGEST", 2.0)
    monkeypatch.setattr(wav2vec, "SECTION", 1.0)
    monkeypatch.setattr(wav2vec, "MARGIN", 0.5)
    found = model.log_probs(waveform)
    assert found.shape == expected.shape
    assert (found - expected).abs().mean() < 0.1 * expected.std()


def test_units_are_segmented_in_stretches_as_in_the_whole():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(600, 5, generator=generator)
    logits[:, 0] += 2.0
    for frame in range(3, 600, 7):
        logits[frame : frame + 2, 1 + int(torch.randint(4, (1,), generator=generator))] += 8.0
    log_probs = logits.log_softmax(1)
    units, spans = greedy_spans(log_probs, max_cells=2000)
    assert (units, spans) == greedy_spans(log_probs)
    assert spans == ctc_spans(log_probs, units)


def test_a_long_recording_is_many_examples_to_learn_from(monkeypatch, tmp_path):
    cut = page("long", 60, 0)[0]
    size = round(cut.duration * 8000)
    samples = torch.linspace(-0.5, 0.5, size).numpy()
    write_wav(tmp_path / "long.wav", samples, 8000)
    cut = fastcopy(cut, recording=Recording.from_file(tmp_path / "long.wav", recording_id="long"))
    assert in_parts(cut, TABLE) == [cut]
    monkeypatch.setattr(wav2vec, "LONGEST", 2.0)
    monkeypatch.setattr(wav2vec, "SECTION", 1.0)
    parts = in_parts(cut, TABLE)
    assert len(parts) > 3 and len({part.id for part in parts}) == len(parts)
    assert [u for part in parts for u in canonical_units(part)] == canonical_units(cut)
    assert all(part.duration <= 1.0 for part in parts)
    total = sum(len(read_waveform(part, SAMPLING_RATE)[0]) for part in parts)
    assert total == pytest.approx(2 * size, abs=4 * len(parts))
