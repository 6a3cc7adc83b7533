from __future__ import annotations

import json
import tarfile
from collections import Counter

import numpy as np
import pytest
from lhotse import RecordingSet, SupervisionSet, validate_recordings_and_supervisions

from mlvae.corpora.digits import fsdd
from mlvae.corpora.digits.audiomnist import (
    OFFICIAL_TEST,
    OFFICIAL_VALID,
    official_split,
    prepare_audiomnist,
)
from mlvae.corpora.digits.clips import parse_clip_id, source_clips, split_function
from mlvae.corpora.digits.fsdd import download_fsdd, prepare_fsdd
from mlvae.data.audio import write_wav
from mlvae.stage import StageReport
from tests.data.conftest import sine, write_digits


def test_clip_ids():
    assert parse_clip_id("3_george_7") == ("3", "george", 7)
    for bad in ("3_george", "x_george_7", "3__7", "3_george_x", "33_george_7", "3_a_b_7", ""):
        with pytest.raises(ValueError, match="digit"):
            parse_clip_id(bad)


def test_split_by_recording():
    split = split_function("recordings", {"ann"}, 50)
    assert [split("ann", i) for i in (0, 9, 10, 19, 20, 49)] == [
        "test", "test", "valid", "valid", "train", "train"
    ]  # fmt: skip


def test_split_that_holds_a_speaker_out():
    split = split_function("speaker:ann", {"ann", "bob"}, 50)
    assert {split("ann", i) for i in range(50)} == {"test"}
    assert [split("bob", i) for i in (0, 10, 19, 20)] == ["train", "valid", "valid", "train"]
    with pytest.raises(ValueError, match="no speaker 'eve'.*ann bob"):
        split_function("speaker:eve", {"ann", "bob"}, 50)
    for name in ("official", "speaker:", "speaker"):
        with pytest.raises(ValueError, match="no split"):
            split_function(name, {"ann", "bob"}, 50)


def test_fsdd_pair(digits):
    pair = prepare_fsdd(digits, StageReport("test", digits.parent))
    recordings, supervisions = pair["recordings"], pair["supervisions"]
    assert isinstance(recordings, RecordingSet)
    assert isinstance(supervisions, SupervisionSet)
    validate_recordings_and_supervisions(recordings, supervisions)
    assert len(recordings) == len(supervisions) == 2 * 10 * 7
    three = supervisions["3_ann_10"]
    assert (three.text, three.speaker) == ("three", "ann")
    assert recordings["3_ann_10"].load_audio().shape == (1, recordings["3_ann_10"].num_samples)
    above = prepare_fsdd(digits.parent, StageReport("test", digits.parent))
    assert list(above["recordings"]) == list(recordings)


def test_bad_clips_are_skipped_with_file_and_reason_and_the_rest_goes_on(tmp_path, capsys):
    folder = write_digits(tmp_path / "recordings", speakers=["ann"], indexes=range(3))
    reasons = {
        "0_ann_0": "empty file",
        "1_ann_0": "shorter than its header says",
        "2_ann_0": "not readable as audio",
        "3_ann_0": "too short",
        "4_ann_0": "nothing but zeros",
        "notes": "not <digit>_<speaker>_<index>",
    }
    (folder / "0_ann_0.wav").write_bytes(b"")
    whole = (folder / "1_ann_0.wav").read_bytes()
    (folder / "1_ann_0.wav").write_bytes(whole[:-200])
    (folder / "2_ann_0.wav").write_bytes(b"no audio at all" * 10)
    write_wav(folder / "3_ann_0.wav", sine(0.05), 8000)
    write_wav(folder / "4_ann_0.wav", np.zeros(4000), 8000)
    (folder / "notes.wav").write_bytes(whole)
    (folder / "8_ann_0.wav").unlink()
    (folder / "8_ann_0.wav").symlink_to(tmp_path / "gone.wav")
    reasons["8_ann_0"] = "no such file"

    report = StageReport("0 prepare", tmp_path)
    pair = prepare_fsdd(folder, report)
    assert len(pair["recordings"]) == report.num_done == 31 - 7
    assert report.finish() == 0
    assert "31 in = 24 done + 7 skipped" in capsys.readouterr().out
    lines = [json.loads(line) for line in (tmp_path / "skipped.jsonl").read_text().splitlines()]
    assert {line["id"] for line in lines} == set(reasons)
    for line in lines:
        assert reasons[line["id"]] in line["reason"]
        assert line["source"] == str(folder / f"{line['id']}.wav")


def test_fsdd_folder_that_is_missing_or_empty(tmp_path):
    report = StageReport("test", tmp_path)
    with pytest.raises(ValueError, match="no such folder"):
        prepare_fsdd(tmp_path / "gone", report)
    with pytest.raises(ValueError, match="no wav file"):
        prepare_fsdd(tmp_path, report)


def test_download_of_fsdd(tmp_path, digits, monkeypatch):
    """From an archive with the public one's layout, over a file address."""
    archive = tmp_path / "v1.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(digits, "free-spoken-digit-dataset-1/recordings")
        tar.add(__file__, "free-spoken-digit-dataset-1/utils/code.py")
    monkeypatch.setattr(fsdd, "FSDD_URL", archive.as_uri())
    folder = download_fsdd(tmp_path / "download")
    assert {p.name for p in folder.iterdir()} == {p.name for p in digits.iterdir()}

    monkeypatch.setattr(fsdd, "FSDD_URL", (tmp_path / "gone.tar.gz").as_uri())
    assert download_fsdd(tmp_path / "download") == folder  # not fetched again
    with pytest.raises(OSError, match="download of .*gone.tar.gz failed"):
        download_fsdd(tmp_path / "elsewhere")

    archive.write_bytes(archive.read_bytes()[:5000])  # a broken one is not taken for the corpus
    monkeypatch.setattr(fsdd, "FSDD_URL", archive.as_uri())
    with pytest.raises(OSError, match="failed"):
        download_fsdd(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="failed"):
        download_fsdd(tmp_path / "elsewhere")


def write_audiomnist(folder, speakers, indexes=range(2)):
    """A small tree of AudioMNIST's layout; the description names all 60 speakers."""
    data = folder / "data"
    data.mkdir(parents=True)
    meta = {f"{i:02d}": {"accent": "German", "age": "30", "gender": "male"} for i in range(1, 61)}
    (data / "audioMNIST_meta.txt").write_text(json.dumps(meta))
    for speaker in speakers:
        (data / speaker).mkdir()
        for digit in range(10):
            for index in indexes:
                path = data / speaker / f"{digit}_{speaker}_{index}.wav"
                write_wav(path, sine(0.2, 48000, 200 + 100 * digit), 48000)
    return folder


def test_audiomnist_survives_stray_and_broken_files(tmp_path):
    folder = write_audiomnist(tmp_path / "AudioMNIST", ["01", "12", "26"])
    data = folder / "data"
    good = (data / "01" / "0_01_0.wav").read_bytes()
    (data / "01" / "0_01_0.wav").write_bytes(b"broken")
    (data / "12" / "1_12_0.wav").write_bytes(good[:-100])
    (data / "01" / "2_26_5.wav").write_bytes(good)
    (data / "01" / "copy of 2.wav").write_bytes(good)
    (data / "99").mkdir()
    (data / "99" / "2_99_5.wav").write_bytes(good)
    report = StageReport("0 prepare", tmp_path)
    pair = prepare_audiomnist(folder, report)
    assert {line["id"] for line in report.skipped} == {
        "0_01_0", "1_12_0", "2_26_5", "copy of 2", "2_99_5"
    }  # fmt: skip
    assert len(pair["recordings"]) == len(pair["supervisions"]) == report.num_done == 58
    seven = pair["supervisions"]["7_26_1"]
    assert (seven.text, seven.speaker, seven.custom["accent"]) == ("seven", "26", "German")
    assert pair["recordings"]["7_26_1"].load_audio().shape == (1, 9600)
    assert pair["recordings"]["7_26_1"].sources[0].source == str(data / "26" / "7_26_1.wav")

    clips = source_clips(pair["recordings"], official_split)
    assert {(clip.speaker, clip.split) for clip in clips} == {
        ("01", "train"), ("12", "valid"), ("26", "test")
    }  # fmt: skip


def test_audiomnist_official_split_has_disjoint_speakers():
    counts = Counter(official_split(f"{i:02d}", 0) for i in range(1, 61))
    assert counts == {"train": 36, "valid": 12, "test": 12}
    assert not OFFICIAL_TEST & OFFICIAL_VALID
    assert official_split("04", 0) == "valid"
    assert official_split("05", 0) == "test"


def test_audiomnist_folder_that_is_not_one(tmp_path):
    report = StageReport("test", tmp_path)
    with pytest.raises(ValueError, match="no folder"):
        prepare_audiomnist(tmp_path, report)
    folder = write_audiomnist(tmp_path / "AudioMNIST", [])
    with pytest.raises(ValueError, match="no wav file"):
        prepare_audiomnist(folder, report)
    meta = folder / "data" / "audioMNIST_meta.txt"
    meta.write_text('{"01": {}}')
    with pytest.raises(ValueError, match="speakers 02 .* are missing"):
        prepare_audiomnist(folder, report)
    meta.unlink()
    with pytest.raises(ValueError, match="audioMNIST_meta.txt: not readable"):
        prepare_audiomnist(folder, report)


def test_real_fsdd(real_fsdd, tmp_path):
    report = StageReport("test", tmp_path)
    pair = prepare_fsdd(real_fsdd, report)
    assert (report.num_done, report.skipped) == (3000, [])
    speakers = {supervision.speaker for supervision in pair["supervisions"]}
    assert len(speakers) == 6
    clips = source_clips(pair["recordings"], split_function("recordings", speakers, 50))
    assert Counter(clip.split for clip in clips) == {"train": 1800, "valid": 600, "test": 600}
