from __future__ import annotations

import json
import sys

import pytest
from lhotse import SupervisionSet

from mlvae.corpora.digits.clips import parse_clip_id
from mlvae.data.audio import read_audio
from mlvae.data.dataset import load_cuts
from mlvae.data.manifests import SPLITS
from tests.corpora.digits.test_clips import write_audiomnist
from tests.data.conftest import load_script, write_digits

prepare = load_script("recipes/audiomnist/prepare.py")


def run(data_dir, *options):
    return prepare(["--data-dir", str(data_dir), *map(str, options)])


def corpus_json(folder):
    return json.loads((folder / "corpus.json").read_text())


def test_fsdd_from_a_folder(digits, tmp_path, capsys):
    status = run(
        tmp_path / "fsdd", "--corpus", "fsdd", "--corpus-dir", digits, "--num-utterances", 20
    )
    assert status == 0
    assert "stage 0 prepare: 140 in = 140 done + 0 skipped" in capsys.readouterr().out
    about = corpus_json(tmp_path / "fsdd")
    assert about["title"] == "Mismatch-FSDD"
    assert (about["synthetic"], about["sampling_rate"]) == (False, 8000)
    assert [about["counts"][split]["utterances"] for split in SPLITS] == [12, 4, 4]
    for item in SupervisionSet.from_file(tmp_path / "fsdd" / "reference.jsonl.gz"):
        expected = {"test": (0, 9), "valid": (10, 19), "train": (20, 49)}[item.custom["split"]]
        for source in item.custom["units_from"]:
            assert expected[0] <= parse_clip_id(source)[2] <= expected[1]


def test_a_speaker_held_out(digits, tmp_path):
    options = ["--corpus", "fsdd", "--corpus-dir", digits, "--num-utterances", 20]
    assert run(tmp_path / "fsdd", *options, "--split", "speaker:bob") == 0
    for split in SPLITS:
        cuts = load_cuts(tmp_path / "fsdd" / "manifests" / f"cuts_{split}.jsonl.gz")
        speakers = {cut.supervisions[0].speaker for cut in cuts}
        assert speakers == ({"bob"} if split == "test" else {"ann"})


def test_audiomnist_from_a_folder(tmp_path):
    folder = write_audiomnist(tmp_path / "AudioMNIST", ["01", "02", "12", "26"], indexes=range(1))
    data_dir = tmp_path / "audiomnist"
    options = ["--corpus", "audiomnist", "--corpus-dir", folder, "--num-utterances", 10]
    assert run(data_dir, *options) == 0
    about = corpus_json(data_dir)
    assert (about["split"], about["sampling_rate"]) == ("official", 16000)
    speakers = {}
    for split in SPLITS:
        cuts = load_cuts(data_dir / "manifests" / f"cuts_{split}.jsonl.gz")
        speakers[split] = {cut.supervisions[0].speaker for cut in cuts}
        for cut in cuts:
            samples, rate = read_audio(cut.recording.sources[0].source)
            assert (rate, len(samples)) == (16000, cut.num_samples)
            assert cut.duration == pytest.approx(0.2 * len(cut.supervisions[0].custom["units"]))
    assert speakers == {"train": {"01", "02"}, "valid": {"12"}, "test": {"26"}}


def test_the_default_is_espeak(tmp_path, monkeypatch):
    pytest.importorskip("espeakng_loader", reason="the extra synthesis is not installed")
    monkeypatch.setattr("mlvae.corpora.digits.espeak.VOICES", {"us-f1": "en-us+f1"})
    monkeypatch.setattr("mlvae.corpora.digits.espeak.NUM_RECORDINGS", 5)
    assert run(tmp_path / "espeak", "--num-utterances", 10) == 0
    about = corpus_json(tmp_path / "espeak")
    assert (about["corpus"], about["synthetic"], about["sampling_rate"]) == ("espeak", True, 16000)
    assert (tmp_path / "espeak" / "clips" / "us-f1").is_dir()


def test_one_bad_clip_does_not_end_the_run(tmp_path, capsys):
    folder = write_digits(tmp_path / "recordings")
    (folder / "0_ann_0.wav").write_bytes(b"broken")
    options = ["--corpus", "fsdd", "--corpus-dir", folder, "--num-utterances", 20]
    assert run(tmp_path / "fsdd", *options) == 0
    assert "140 in = 139 done + 1 skipped" in capsys.readouterr().out
    assert "0_ann_0" in (tmp_path / "fsdd" / "skipped.jsonl").read_text()
    reference = SupervisionSet.from_file(tmp_path / "fsdd" / "reference.jsonl.gz")
    assert not any("0_ann_0" in item.custom["units_from"] for item in reference)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--corpus-dir", "gone"], "no such folder"),
        (["--corpus-dir", "empty"], "no wav file"),
        (["--split", "official"], "no split 'official'"),
        (["--split", "speaker:eve"], "no speaker 'eve'"),
        (["--num-utterances", "3"], "at least 5"),
    ],
)
def test_what_cannot_be_done_is_refused_with_one_line(digits, tmp_path, capsys, options, reason):
    (tmp_path / "empty").mkdir()
    if options[0] == "--corpus-dir":
        options = ["--corpus-dir", tmp_path / options[1]]
    else:
        options = ["--corpus-dir", digits, *options]
    assert run(tmp_path / "fsdd", "--corpus", "fsdd", *options) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if "prepare.py" in line]
    assert len(lines) == 1
    assert reason in lines[0]
    assert not (tmp_path / "fsdd" / "corpus.json").exists()


def test_a_corpus_without_a_good_clip_fails_and_says_why(tmp_path, capsys):
    (tmp_path / "recordings").mkdir()
    (tmp_path / "recordings" / "0_ann_0.wav").write_bytes(b"")
    assert run(tmp_path / "fsdd", "--corpus", "fsdd", "--corpus-dir", tmp_path / "recordings") == 1
    captured = capsys.readouterr()
    assert "1 in = 0 done + 1 skipped" in captured.out
    assert "no usable clip" in captured.err
    assert "empty file" in (tmp_path / "fsdd" / "skipped.jsonl").read_text()


def test_without_the_extra_the_line_names_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    assert run(tmp_path / "espeak") == 1
    assert "extra `synthesis`" in capsys.readouterr().err


def test_real_fsdd_from_start_to_features(real_fsdd, tmp_path):
    folder = tmp_path / "fsdd"
    options = ["--corpus", "fsdd", "--corpus-dir", real_fsdd, "--num-utterances", 100]
    assert run(folder, *options) == 0
    assert load_script("local/fbank.py")(["--data-dir", str(folder)]) == 0
    assert load_script("local/units.py")(["--data-dir", str(folder)]) == 0
    cuts = load_cuts(folder / "fbank" / "cuts_test.jsonl.gz")
    assert len(cuts) == 20
    reference = SupervisionSet.from_file(folder / "reference.jsonl.gz")
    wrong = [
        told.symbol != perceived.symbol
        for item in reference
        for told, perceived in zip(item.alignment["canonical"], item.alignment["perceived"])
    ]
    assert 0.1 < sum(wrong) / len(wrong) < 0.3
