from __future__ import annotations

import sys

import numpy as np
import pytest

from mlvae.corpora.digits.clips import DIGIT_WORDS
from mlvae.corpora.digits.espeak import VOICES, prepare_espeak, synthesize_clips
from mlvae.corpora.digits.voice import TRIM_THRESHOLD, SpokenClip, finish_clip
from mlvae.stage import StageReport

SOME = {name: VOICES[name] for name in ("us-f1", "scotland-m4")}


def content(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    pytest.importorskip("espeakng_loader", reason="the extra synthesis is not installed")
    folder = tmp_path_factory.mktemp("espeak") / "clips"
    synthesize_clips(folder, seed=3, voices=SOME, num_recordings=5)
    return folder


def test_the_same_seed_gives_the_same_clips_and_another_seed_others(clips, tmp_path):
    synthesize_clips(tmp_path / "same", seed=3, voices=SOME, num_recordings=5, num_jobs=1)
    assert content(tmp_path / "same") == content(clips)
    synthesize_clips(tmp_path / "other", seed=4, voices=SOME, num_recordings=5)
    own, other = content(clips), content(tmp_path / "other")
    assert set(own) == set(other)
    assert not any(own[name] == other[name] for name in own)


def test_clips_are_digits_of_a_spoken_length(clips, tmp_path):
    report = StageReport("test", tmp_path)
    pair = prepare_espeak(clips, report)
    assert (report.num_done, report.skipped) == (2 * 10 * 5, [])
    assert {s.speaker for s in pair["supervisions"]} == set(SOME)
    assert {s.text for s in pair["supervisions"]} == set(DIGIT_WORDS.values())
    seconds = [recording.duration for recording in pair["recordings"]]
    assert 0.15 < min(seconds) < max(seconds) < 1.2
    assert len(set(seconds)) > 80  # rates vary
    assert {recording.sampling_rate for recording in pair["recordings"]} == {22050}


def test_what_is_there_is_used_again_and_other_options_replace_it(clips, tmp_path):
    folder = tmp_path / "clips"
    synthesize_clips(folder, voices={"us-f1": "en-us+f1"}, num_recordings=1)
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("*.wav")}
    synthesize_clips(folder, voices={"us-f1": "en-us+f1"}, num_recordings=1)
    assert times == {path: path.stat().st_mtime_ns for path in folder.rglob("*.wav")}
    synthesize_clips(folder, voices={"gb-m2": "en+m2"}, num_recordings=1)
    assert {path.parent.name for path in folder.rglob("*.wav")} == {"gb-m2"}


def test_a_folder_of_somebody_elses_is_left_alone(tmp_path):
    (tmp_path / "precious.wav").write_bytes(b"mine")
    with pytest.raises(ValueError, match="left untouched"):
        synthesize_clips(tmp_path, voices=SOME, num_recordings=1)
    assert (tmp_path / "precious.wav").read_bytes() == b"mine"


def test_an_unknown_voice_is_named_and_leaves_no_clips(clips, tmp_path):
    with pytest.raises(RuntimeError, match="no voice tlh-kronos"):
        synthesize_clips(tmp_path / "clips", voices={"k": "tlh-kronos"}, num_recordings=1)
    assert not (tmp_path / "clips").exists()


def test_without_the_extra_the_error_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    with pytest.raises(ValueError, match="extra `synthesis`"):
        synthesize_clips(tmp_path / "clips", voices=SOME, num_recordings=1)


def test_edges_are_trimmed_and_noise_has_the_asked_level():
    silence = np.full(1000, 1e-4)
    voice = np.sin(np.arange(20000) / 10)
    clip = SpokenClip("a.wav", "one", 150, 50, 50, peak=0.5, snr=20.0, noise_seed=1)
    made = finish_clip(np.concatenate([silence, voice, silence]), clip)
    assert abs(len(made) - 20000) < 5
    quiet = SpokenClip("a.wav", "one", 150, 50, 50, peak=0.5, snr=200.0, noise_seed=1)
    clean = finish_clip(np.concatenate([silence, voice, silence]), quiet)
    assert abs(clean[0]) >= TRIM_THRESHOLD
    assert abs(clean[-1]) >= TRIM_THRESHOLD
    assert np.abs(clean).max() == pytest.approx(0.5, abs=1e-6)
    noise = made - clean
    snr = 10 * np.log10(np.mean(clean**2) / np.mean(noise**2))
    assert snr == pytest.approx(20.0, abs=0.2)
    with pytest.raises(RuntimeError, match="silence"):
        finish_clip(np.zeros(100), clip)
