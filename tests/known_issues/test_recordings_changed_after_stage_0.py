"""A recording that had changed since its manifest was written (half cut, longer, of another rate,
stereo) was accepted where it is resampled, with up to half a second of mirrored audio. Silence and
samples of 1e30 became features.
"""

from __future__ import annotations

import numpy as np
import pytest
import soundfile

from mlvae.data.audio import AudioError, read_audio, read_cut
from tests.data.small import RATE, SAMPLES, noise, noise_cut, small_cuts, stage_1, write_corpus


def rewrite(path, samples, rate, subtype="PCM_16"):
    soundfile.write(path, samples, rate, subtype=subtype)


def half(path, rate, samples):
    rewrite(path, samples[: len(samples) // 2], rate)


def a_little_shorter(path, rate, samples):
    rewrite(path, samples[: -rate // 100], rate)


def a_little_longer(path, rate, samples):
    rewrite(path, np.concatenate([samples, samples[: rate // 100]]), rate)


def other_rate(path, rate, samples):
    rewrite(path, samples, rate + 1000)


def stereo(path, rate, samples):
    rewrite(path, np.stack([samples, samples], axis=1), rate)


def silent(path, rate, samples):
    rewrite(path, np.zeros_like(samples), rate)


def constant(path, rate, samples):
    rewrite(path, np.full_like(samples, 0.25), rate)


def huge(path, rate, samples):
    samples[7] = 1e30
    rewrite(path, samples, rate, "FLOAT")


def without_number(path, rate, samples):
    samples[7] = np.nan
    rewrite(path, samples, rate, "FLOAT")


def cut_flac(path, rate, samples):
    soundfile.write(path, samples, rate, format="FLAC")
    path.write_bytes(path.read_bytes()[: -len(samples) // 2])


CHANGES = {
    half: "audio is shorter than its manifest says",
    a_little_shorter: "audio is shorter than its manifest says",
    a_little_longer: "audio is longer than its manifest says",
    other_rate: "sampling rate of the file is",
    stereo: "2 channels where one is expected",
    silent: "digital silence: all samples are 0",
    constant: "digital silence: all samples are 0.25",
    huge: r"samples as large as 1e\+30",
    without_number: "samples that are not finite numbers",
    cut_flac: "readable|can be read",
}


@pytest.mark.parametrize("rate", [RATE, 44100])
@pytest.mark.parametrize("change", list(CHANGES))
def test_what_is_read_is_compared_with_the_manifest(tmp_path, change, rate):
    cut = noise_cut(tmp_path, "a", rate=rate)
    change(tmp_path / "a.wav", rate, noise("a.wav", SAMPLES * rate // RATE))
    with pytest.raises(AudioError, match=CHANGES[change]):
        read_cut(cut)


def test_stage_1_skips_them_by_name(tmp_path):
    cuts = small_cuts(tmp_path / "wav", rate=11025)
    corpus = write_corpus(tmp_path / "corpus", cuts)
    half(tmp_path / "wav" / "train0.wav", 11025, noise("train0.wav", SAMPLES * 11025 // RATE))
    counts, skipped = stage_1(corpus)
    assert counts == {"train": 1, "valid": 2, "test": 2}
    assert skipped["train0"]["source"] == str(tmp_path / "wav" / "train0.wav")


@pytest.mark.parametrize("rate", [RATE, 11025, 16000, 44100, 48000])
def test_what_fits_is_as_lhotse_reads_it(tmp_path, rate):
    cut = noise_cut(tmp_path, "a", rate=rate)
    for part in (cut, cut.truncate(offset=0.05, duration=0.1)):
        samples, digest = read_cut(part)
        assert np.array_equal(samples, part.load_audio()[0])
        assert len(digest) == 32
    assert read_cut(cut)[1] != digest


def test_the_digest_is_of_the_samples_in_whichever_encoding(tmp_path):
    cut = noise_cut(tmp_path, "a")
    before = read_cut(cut)[1]
    samples, _ = soundfile.read(tmp_path / "a.wav", dtype="int16")
    soundfile.write(tmp_path / "a.wav", samples, RATE, format="FLAC")
    assert read_cut(cut)[1] == before
    soundfile.write(tmp_path / "a.wav", np.roll(samples, 1), RATE)
    assert read_cut(cut)[1] != before


def test_integers_that_were_stored_as_floats_are_sound(tmp_path):
    soundfile.write(tmp_path / "a.wav", 32768.0 * noise("a"), RATE, subtype="FLOAT")
    assert read_audio(tmp_path / "a.wav")[1] == RATE
