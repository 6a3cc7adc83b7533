from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from lhotse import CutSet, MonoCut, SupervisionSegment

from mlvae.data.audio import file_recording, write_wav
from mlvae.data.dataset import load_cuts
from mlvae.data.features import extract, fbank_extractor
from mlvae.data.manifests import SPLITS, write_json, write_manifest
from tests.data.conftest import load_script, sine
from tests.left_overs import of_a_harder_kill

fbank = load_script("local/fbank.py")


def test_every_cut_has_as_many_frames_as_steps_of_ten_milliseconds(featured_corpus):
    for split in SPLITS:
        before = load_cuts(featured_corpus / "manifests" / f"cuts_{split}.jsonl.gz")
        after = load_cuts(featured_corpus / "fbank" / f"cuts_{split}.jsonl.gz")
        assert [cut.id for cut in after] == [cut.id for cut in before]
        for cut in after:
            assert cut.num_frames == int(cut.duration * 100 + 0.5)
            features = cut.load_features()
            assert features.shape == (cut.num_frames, cut.num_features) == (cut.num_frames, 40)
            assert features.dtype == np.float32
            assert np.isfinite(features).all()
            assert cut.supervisions == before[cut.id].supervisions


def test_stored_features_are_those_of_the_cut_alone(featured_corpus):
    cut = load_cuts(featured_corpus / "fbank" / "cuts_valid.jsonl.gz")[3]
    alone, _ = extract(cut, fbank_extractor(8000))
    assert np.abs(cut.load_features() - alone).max() <= 2**-5  # lilcom's rounding


def test_a_higher_tone_is_in_a_higher_bin(tmp_path):
    bins = []
    for pitch in (300.0, 1000.0, 2500.0):
        write_wav(tmp_path / "a.wav", sine(1.0, pitch=pitch), 8000)
        recording = file_recording("a", tmp_path / "a.wav", 8000, 8000)
        cut = MonoCut("a", 0.0, 1.0, 0, recording=recording)
        bins.append(extract(cut, fbank_extractor(8000))[0].mean(axis=0).argmax())
    assert bins == sorted(set(bins))


def test_bad_cuts_are_skipped_with_reason_and_counts_add_up(corpus, capsys):
    cuts = load_cuts(corpus / "manifests" / "cuts_train.jsonl.gz")
    paths = [cut.recording.sources[0].source for cut in cuts]
    reasons = {
        cuts[0].id: "no such file",
        cuts[1].id: "shorter than its header says",
        cuts[2].id: "shorter than its manifest says",
        cuts[3].id: "longer than its manifest says",
        cuts[4].id: "sampling rate of the file is 16000",
        cuts[5].id: "not readable as audio",
    }
    Path(paths[0]).unlink()
    whole = Path(paths[1]).read_bytes()
    Path(paths[1]).write_bytes(whole[:-2])
    write_wav(paths[2], sine(cuts[2].duration)[:-1], 8000)  # one sample is missing
    write_wav(paths[3], sine(cuts[3].duration + 0.01), 8000)
    write_wav(paths[4], sine(cuts[4].duration, 16000), 16000)
    Path(paths[5]).write_bytes(b"rubbish" * 1000)

    assert fbank(["--data-dir", str(corpus)]) == 0
    assert "60 in = 54 done + 6 skipped" in capsys.readouterr().out
    lines = [json.loads(line) for line in (corpus / "skipped.jsonl").read_text().splitlines()]
    assert {line["id"] for line in lines} == set(reasons)
    for line in lines:
        assert reasons[line["id"]] in line["reason"], line
        assert line["source"] in paths
    left = load_cuts(corpus / "fbank" / "cuts_train.jsonl.gz")
    assert [cut.id for cut in left] == [cut.id for cut in cuts if cut.id not in reasons]


def test_too_short_and_foreign_cuts_are_skipped(corpus):
    path = corpus / "manifests" / "cuts_valid.jsonl.gz"
    cuts = list(load_cuts(path))
    for name, seconds, rate in (("short", 0.004, 8000), ("foreign", 1.0, 16000)):
        write_wav(corpus / f"{name}.wav", sine(seconds, rate), rate)
        recording = file_recording(name, corpus / f"{name}.wav", round(seconds * rate), rate)
        text = SupervisionSegment(name, name, 0.0, recording.duration, custom={"units": ["1"]})
        cuts.append(MonoCut(name, 0.0, recording.duration, 0, [text], recording=recording))
    write_manifest(path, cuts)
    assert fbank(["--data-dir", str(corpus)]) == 0
    lines = [json.loads(line) for line in (corpus / "skipped.jsonl").read_text().splitlines()]
    reasons = {line["id"]: line["reason"] for line in lines}
    assert "too few for one frame" in reasons["short"]
    assert "16000 Hz" in reasons["foreign"]


def test_when_everything_fails_the_status_says_so(corpus, capsys):
    for path in corpus.glob("wav/*/*.wav"):
        path.write_bytes(b"")
    assert fbank(["--data-dir", str(corpus)]) == 1
    assert "60 in = 0 done + 60 skipped" in capsys.readouterr().out


def test_a_split_that_is_lost_is_not_passed_over(corpus, capsys):
    for cut in load_cuts(corpus / "manifests" / "cuts_test.jsonl.gz"):
        Path(cut.recording.sources[0].source).write_bytes(b"")
    assert fbank(["--data-dir", str(corpus)]) == 1
    assert "no cut of split test is left" in capsys.readouterr().out


@pytest.mark.parametrize("kept", ["nothing", "corpus.json"])
def test_a_folder_that_is_not_prepared_is_refused_in_one_line(tmp_path, capsys, kept):
    if kept == "corpus.json":
        write_json(tmp_path / "corpus.json", {"sampling_rate": 8000})
    assert fbank(["--data-dir", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "stage" in error
    assert not (tmp_path / "fbank").exists()


def test_a_run_that_is_killed_leaves_the_earlier_features(corpus, monkeypatch):
    assert fbank(["--data-dir", str(corpus)]) == 0
    before = {path.name: path.read_bytes() for path in (corpus / "fbank").iterdir()}

    def dies(cut, extractor, allow_commands):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("mlvae.data.features.extract", dies)
        with pytest.raises(KeyboardInterrupt):
            fbank(["--data-dir", str(corpus)])
    assert {path.name: path.read_bytes() for path in (corpus / "fbank").iterdir()} == before
    cuts = CutSet.from_file(corpus / "fbank" / "cuts_train.jsonl.gz")
    assert all(len(cut.load_features()) == cut.num_frames for cut in cuts)

    of_a_harder_kill(corpus / "fbank")
    assert fbank(["--data-dir", str(corpus)]) == 0
    assert {path.name: path.read_bytes() for path in (corpus / "fbank").iterdir()} == before
