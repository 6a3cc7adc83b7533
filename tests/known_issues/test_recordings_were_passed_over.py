"""Recordings of one's own that were named ``.WAV`` or ``.flac``, or lay in subfolders, and texts
without a recording were neither used nor counted; the same of the digit corpora. Two formats of one
name were not told apart.
"""

from __future__ import annotations

import json
import os
import unicodedata
from pathlib import Path

import soundfile

from mlvae.corpora.digits.audiomnist import prepare_audiomnist
from mlvae.corpora.digits.fsdd import prepare_fsdd
from mlvae.corpora.l2arctic.files import list_corpus
from mlvae.corpora.own import Options, prepare_own
from mlvae.data.dataset import load_cuts
from mlvae.data.recordings import find_recordings
from mlvae.stage import StageReport
from tests.corpora.digits.test_clips import write_audiomnist
from tests.corpora.l2arctic.tree import write_tidy, write_utterance
from tests.data.conftest import sine, write_digits


def add(folder: Path, name: str, text: str | None = "one") -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, sine(0.5), 8000, format="FLAC" if "flac" in name.lower() else "WAV")
    if text is not None:
        path.with_suffix(".txt").write_text(text)


def test_own_recordings_are_used_or_named(tmp_path, capsys):
    mine, data = tmp_path / "mine", tmp_path / "data"
    for name in ("a.WAV", "b.flac", "c.FLAC", "ann/1.wav", "bob/1.wav", "bob/deep/er.wav"):
        add(mine, name)
    add(mine, "d.wav")
    add(mine, "d.flac")
    add(mine, "e.wav", None)
    (mine / "f.txt").write_text("one")
    (mine / "notes.md").write_text("one")  # neither a recording nor a text
    (mine / "g.m4a").write_text("no sound")
    (mine / "g.TXT").write_text("one")
    add(mine, "ann-1.wav")
    assert prepare_own(mine, data, Options()) == 0
    captured = capsys.readouterr()
    assert "12 in = 7 done + 5 skipped" in captured.out
    reasons = {
        "d.flac": "a second recording of this name, d.wav is used",
        "e.wav": "no text beside it",
        "f.txt": "a text without a recording",
        "g.m4a": "not readable as audio",
        "ann-1.wav": "another recording has the same name",
    }
    for name, reason in reasons.items():
        (line,) = [line for line in captured.err.splitlines() if f"({mine / name})" in line]
        assert reason in line
    cuts = list(load_cuts(data / "manifests" / "cuts_test.jsonl.gz"))
    assert sorted(cut.id for cut in cuts) == ["a", "ann-1", "b", "bob-1", "bob-deep-er", "c", "d"]
    for cut in cuts:
        assert cut.load_audio().shape == (1, 8000)
        assert cut.recording.id == cut.supervisions[0].recording_id == cut.id


def test_links_are_followed_once_and_accents_are_one_sign(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    add(elsewhere, "x.wav")
    folder = tmp_path / "mine"
    add(folder, unicodedata.normalize("NFD", "dä.wav"), None)
    (folder / unicodedata.normalize("NFC", "dä.txt")).write_text("one")
    (folder / "ann").symlink_to(elsewhere)
    (elsewhere / "loop").symlink_to(folder)
    found = find_recordings(folder)
    assert [utterance.id for utterance in found.items()] == ["ann-x", "dä"]
    assert found.skipped == []


def test_a_name_or_text_in_another_encoding_is_named(tmp_path, capfd):
    mine = tmp_path / "mine"
    for name in ("a", "b", "c"):
        add(mine, f"{name}.wav")
    add(mine, "d.wav", None)
    (mine / "d.wav").rename(mine / os.fsdecode(b"d\xe4.wav"))
    add(mine, "latin.wav", None)
    (mine / "latin.txt").write_bytes(b"d\xe4")
    assert prepare_own(mine, tmp_path / "data", Options()) == 0
    captured = capfd.readouterr()  # with capsys, standard error is as strict as it never is
    assert "5 in = 3 done + 2 skipped" in captured.out
    lines = (tmp_path / "data" / "skipped.jsonl").read_text().splitlines()
    reasons = [json.loads(line)["reason"] for line in lines]
    assert "its name is not in UTF-8" in reasons[0]
    assert reasons[1].endswith("not in the lexicon: dä")  # what is no UTF-8 is read as Latin-1


def test_a_folder_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    add(tmp_path / "open", "x.wav")
    closed = tmp_path / "closed"
    add(closed, "x.wav")
    iterdir = Path.iterdir

    def guarded(path):  # no mode keeps root out
        if path == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", guarded)
    found = find_recordings(tmp_path)
    assert [utterance.id for utterance in found.items()] == ["open-x"]
    assert [place for _, _, place in found.skipped] == [str(closed)]


def test_digits_in_subfolders_and_as_flac(tmp_path):
    folder = write_digits(tmp_path / "recordings", speakers=["ann"], indexes=range(1))
    samples, rate = soundfile.read(folder / "0_ann_0.wav")
    soundfile.write(folder / "0_ann_0.FLAC", samples, rate, format="FLAC")
    (folder / "0_ann_0.wav").unlink()
    (folder / "more").mkdir()
    (folder / "1_ann_0.wav").rename(folder / "more" / "1_ann_0.wav")
    report = StageReport("0 prepare", tmp_path)
    pair = prepare_fsdd(folder, report)
    assert report.num_done == len(pair["recordings"]) == 10
    assert pair["recordings"]["0_ann_0"].load_audio().shape == (1, len(samples))

    folder = write_audiomnist(tmp_path / "AudioMNIST", ["01"], indexes=[0])
    clips = folder / "data" / "01"
    samples, rate = soundfile.read(clips / "0_01_0.wav")
    soundfile.write(clips / "0_01_0.flac", samples, rate)
    (clips / "0_01_0.wav").unlink()
    (clips / "1_01_0.wav").rename(folder / "data" / "1_01_0.wav")
    report = StageReport("0 prepare", tmp_path)
    pair = prepare_audiomnist(folder, report)
    assert pair["recordings"]["0_01_0"].load_audio().shape == (1, len(samples))
    assert report.num_done == 9
    assert [(r["id"], r["reason"]) for r in report.skipped] == [
        ("1_01_0", "lies in the folder of data")
    ]


def test_l2arctic_names_transcripts_alone_and_counts_speakers_without_annotation(tmp_path):
    root = write_tidy(tmp_path / "root", ("ABA", "HJK"))
    write_utterance(root, "ABA", "arctic_b0001")
    (root / "ABA" / "wav" / "arctic_b0001.wav").unlink()
    (root / "ABA" / "annotation" / "arctic_b0001.TextGrid").unlink()
    (root / "HJK" / "annotation").rename(root / "HJK" / "annotations")
    report = StageReport("0 prepare", tmp_path)
    listing = list_corpus(root, report)
    assert [(r["id"], r["reason"]) for r in report.skipped] == [
        ("ABA/transcript/arctic_b0001.txt", "a transcript without a recording")
    ]
    assert (len(listing.utterances), listing.num_unannotated) == (2, 2)
