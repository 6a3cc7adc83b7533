from __future__ import annotations

import struct

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from mlvae.data.audio import AudioError, audio_info, read_audio, write_wav
from tests.data.conftest import sine


def test_what_is_written_is_read_back_bit_by_bit(tmp_path):
    rng = np.random.default_rng(0)
    pcm = rng.integers(-32768, 32768, 5000).astype(np.int16)
    soundfile.write(tmp_path / "a.wav", pcm, 8000, subtype="PCM_16")
    samples, sampling_rate = read_audio(tmp_path / "a.wav")
    write_wav(tmp_path / "b.wav", samples, sampling_rate)
    assert (tmp_path / "a.wav").read_bytes() == (tmp_path / "b.wav").read_bytes()
    assert audio_info(tmp_path / "b.wav") == (5000, 8000)


def test_too_loud_samples_are_clipped_not_wrapped(tmp_path):
    write_wav(tmp_path / "a.wav", np.array([2.0, -2.0, 0.5]), 8000)
    np.testing.assert_allclose(read_audio(tmp_path / "a.wav")[0], [1.0, -1.0, 0.5], atol=1e-4)


@pytest.mark.parametrize("num_bytes", [1, 100, 4000])
def test_a_file_shorter_than_its_header_says_is_noticed(tmp_path, num_bytes):
    path = tmp_path / "a.wav"
    write_wav(path, sine(0.5), 8000)
    path.write_bytes(path.read_bytes()[:-num_bytes])
    with pytest.raises(AudioError, match="shorter than its header says"):
        audio_info(path)


def test_a_streamed_file_without_a_length_is_accepted(tmp_path):
    path = tmp_path / "a.wav"
    write_wav(path, sine(0.5), 8000)
    content = bytearray(path.read_bytes())
    place = content.index(b"data") + 4
    content[place : place + 4] = struct.pack("<I", 0xFFFFFFFF)
    path.write_bytes(content)
    assert len(read_audio(path)[0]) == 4000


def test_bad_files_are_named_by_their_fault(tmp_path):
    path = tmp_path / "a.wav"
    with pytest.raises(AudioError, match="no such file"):
        read_audio(path)
    path.write_bytes(b"")
    with pytest.raises(AudioError, match="empty file"):
        read_audio(path)
    soundfile.write(path, np.zeros((100, 2)), 8000)
    with pytest.raises(AudioError, match="2 channels"):
        read_audio(path)
    soundfile.write(path, np.zeros(0), 8000)
    with pytest.raises(AudioError, match="no samples"):
        read_audio(path)
    soundfile.write(path, np.array([0.1, np.nan]), 8000, subtype="FLOAT")
    with pytest.raises(AudioError, match="not finite"):
        read_audio(path)


@given(content=st.binary(max_size=200), prefix=st.sampled_from([b"", b"RIFF\x00\x00\x00\x00WAVE"]))
def test_any_rubbish_is_an_audio_error(tmp_path_factory, content, prefix):
    path = tmp_path_factory.mktemp("rubbish") / "a.wav"
    path.write_bytes(prefix + content)
    with pytest.raises(AudioError):
        read_audio(path)
