"""Stage 0 for recordings of one's own gives three parts that stages 1 and 2 read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import CutSet, MonoCut, SupervisionSegment

from mlvae.corpora.own import choose_valid
from mlvae.data.dataset import load_cuts
from mlvae.data.features import compute_fbank
from mlvae.data.manifests import SPLITS, recording_cut, write_manifest
from mlvae.data.recordings import recording_of
from mlvae.data.units import canonical_units
from mlvae.stage import StageReport
from mlvae.tiers import units_of_words
from tests.data.conftest import load_script, sine

TEST_CUTS = "fbank/cuts_test.jsonl.gz"


def prepare(corpus: Path, data: Path, *options: str) -> int:
    said = ["--corpus", "own", "--corpus-dir", corpus, "--data-dir", data, "--seed", "0"]
    return load_script("recipes/own/prepare.py")([*map(str, said), *options])


def write(folder: Path, name: str, text: str | None, rate: int = 22050, channels: int = 1) -> None:
    """A tone of its own, a second long."""
    folder.mkdir(parents=True, exist_ok=True)
    tone = sine(1.0, rate, 200.0 + sum(f"{folder.name}{name}".encode()) % 3000)
    soundfile.write(folder / f"{name}.wav", np.stack([tone] * channels, axis=1), rate)
    if text is not None:
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")


def parts(data: Path) -> dict[str, list[str]]:
    manifests = {split: data / "manifests" / f"cuts_{split}.jsonl.gz" for split in SPLITS}
    return {split: [cut.id for cut in load_cuts(path)] for split, path in manifests.items()}


def test_recordings_with_texts_become_three_parts(tmp_path, capsys):
    mine, data = tmp_path / "mine", tmp_path / "data"
    for name in ("a", "b", "c", "d"):
        write(mine, name, "One, two.")
    write(mine, "odd", "one blorptz")
    write(mine, "alone", None)
    write(mine, "mute", " ... ")
    (mine / "broken.wav").write_bytes(b"RIFF")
    (mine / "broken.txt").write_text("one")
    write(mine, "stereo", "one", channels=2)
    assert prepare(mine, data) == 0

    captured = capsys.readouterr()
    assert "9 in = 5 done + 4 skipped" in captured.out
    assert "warning: 4 sentences and 0.1 minutes to learn from" in captured.out
    for place, reason in {
        "odd (odd.txt)": "not in the lexicon: blorptz",
        "alone (alone.wav)": "no text beside it",
        "mute (mute.txt)": "its text has no words",
        "broken (broken.wav)": "not readable as audio",
    }.items():
        name, file = place.rstrip(")").split(" (")
        (line,) = [line for line in captured.err.splitlines() if f"skipped {name} (" in line]
        assert f"{mine / file}): " in line and reason in line
    about = json.loads((data / "corpus.json").read_text())
    assert (about["title"], about["split"], about["num_utterances"]) == ("mine", "by recording", 5)

    found = parts(data)
    assert found["test"] == sorted([*found["train"], *found["valid"]]) == [*"abcd", "stereo"]
    assert len(found["valid"]) == 1
    counts = compute_fbank(data, StageReport(stage="1 fbank", folder=data))
    assert counts == {"train": 4, "valid": 1, "test": 5}
    cut = next(iter(load_cuts(data / TEST_CUTS)))
    assert cut.sampling_rate == 16000 and cut.duration == pytest.approx(1.0)
    assert canonical_units(cut) == ["w", "ah", "n", "t", "uw"]
    assert units_of_words(cut) == [0, 0, 0, 1, 1]


def test_training_and_validation_still_share_no_audio(tmp_path):
    mine, data = tmp_path / "mine", tmp_path / "data"
    write(mine, "a", "one")
    for end in ("wav", "txt"):
        shutil.copy(mine / f"a.{end}", mine / f"b.{end}")
    assert prepare(mine, data) == 0
    with pytest.raises(ValueError, match="cuts with the same audio in several of train, valid"):
        compute_fbank(data, StageReport(stage="1 fbank", folder=data))


def test_folders_are_speakers_of_which_a_tenth_is_held_out(tmp_path):
    mine, data = tmp_path / "mine", tmp_path / "data"
    for speaker in ("ann", "bob", "cid"):
        for name in ("x", "y"):
            write(mine / speaker, name, "one")
    assert prepare(mine, data) == 0
    about = json.loads((data / "corpus.json").read_text())
    assert about["split"] == "by speaker"
    assert {s: about["counts"][s]["speakers"] for s in SPLITS} == {
        "train": 2,
        "valid": 1,
        "test": 3,
    }
    first = parts(data)
    assert len({name.split("-")[0] for name in first["valid"]}) == 1
    mine.rename(tmp_path / "elsewhere")
    assert prepare(tmp_path / "elsewhere", data) == 0
    assert parts(data) == first


def cuts_of(**speakers: str | None) -> list[MonoCut]:
    """By id the speaker."""
    return [
        MonoCut(name, 0.0, 1.0, 0, supervisions=[SupervisionSegment(name, name, 0, 1, speaker=who)])
        for name, who in speakers.items()
    ]


def held_out(cuts: list[MonoCut], **sources: str) -> tuple[str, set[str]]:
    return choose_valid(cuts, {cut.id: sources.get(cut.id, cut.id) for cut in cuts})


def test_a_tenth_is_held_out_whatever_the_order():
    cuts = cuts_of(**{f"c{number}": f"s{number % 30}" for number in range(120)})
    by, valid = held_out(cuts)
    assert by == "speaker" and len(valid) == 12
    assert len({cut.supervisions[0].speaker for cut in cuts if cut.id in valid}) == 3
    assert held_out(cuts[::-1]) == (by, valid)
    by, valid = held_out(cuts_of(**{f"c{number}": None for number in range(120)}))
    assert by == "recording" and len(valid) == 12


@pytest.mark.parametrize(
    "speakers",
    [
        {"a": "ann", "b": "bob", "c": "bob"},  # two speakers
        {"a": "ann", "b": "bob", "c": None, "d": "cid"},  # one who is not named
    ],
)
def test_without_enough_speakers_recordings_are_held_out(speakers):
    assert held_out(cuts_of(**speakers))[0] == "recording"


def test_parts_of_a_recording_stay_together():
    cuts = cuts_of(a="ann", b="bob", c="cid", d="dan")
    assert held_out(cuts)[0] == "speaker"
    by, valid = held_out(cuts, a="talk", b="talk")
    assert by == "recording" and valid in ({"a", "b"}, {"c"}, {"d"})


def test_who_has_most_of_everything_is_not_held_out():
    for name in "abcdefgh":  # one of them would be the first
        speakers = {f"{name}{place}": name for place in range(9)}
        assert not held_out(cuts_of(**speakers, x="x", y="y"))[1] & set(speakers)


@pytest.mark.parametrize("names", [(), ("a",)])
def test_two_recordings_are_needed(names, tmp_path, capsys):
    write(tmp_path / "mine", "odd", "blorptz")
    for name in names:
        write(tmp_path / "mine", name, "one")
    assert prepare(tmp_path / "mine", tmp_path / "data") == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"prepare.py: recordings that can be used: {len(names)}; at least 2")
    assert not (tmp_path / "data" / "corpus.json").exists()


def test_a_table_and_texts_of_another_language_by_tokens(tmp_path):
    data = tmp_path / "data"
    for name in ("a", "b", "c"):
        write(tmp_path / "wavs", name, None)
    rows = ["path,text,speaker", "wavs/a.wav,Żółta łódź,ola", 'wavs/b.wav,"Łódź, żółta!",ola']
    (tmp_path / "mine.csv").write_text("\n".join([*rows, "wavs/c.wav,3 łodzie,ola"]))
    assert prepare(tmp_path / "mine.csv", data, "--unit", "bpe") == 0
    assert parts(data)["test"] == ["wavs-a", "wavs-b"]
    assert json.loads((data / "corpus.json").read_text())["unit"] == "bpe"
    (line,) = (data / "skipped.jsonl").read_text().splitlines()
    assert "not written in letters: 3" in json.loads(line)["reason"]
    assert compute_fbank(data, StageReport("1 fbank", data)) == {"train": 1, "valid": 1, "test": 2}
    script = load_script("local/units.py")
    assert script(["--data-dir", str(data), "--vocab-size", "12"]) == 0
    spelt = ["".join(canonical_units(cut)) for cut in load_cuts(data / TEST_CUTS)]
    assert spelt == ["▁żółta▁łódź", "▁łódź▁żółta"]


def test_units_are_those_of_a_lexicon_of_ones_own(tmp_path, capsys):
    mine, data, words = tmp_path / "mine", tmp_path / "data", tmp_path / "words.txt"
    for name, text in (("a", "Żółta"), ("b", "łódź, żółta"), ("c", "one")):
        write(mine, name, text)
    words.write_text("żółta ʐ u w t a\nŁódź w u tɕ\nłódź w u t ɕ\n", encoding="utf-8")
    assert prepare(mine, data, "--unit", "lexicon") == 1
    assert "--unit lexicon goes with --lexicon FILE" in capsys.readouterr().err
    assert prepare(mine, data, "--unit", "lexicon", "--lexicon", str(words)) == 0
    assert "not in the lexicon: one" in capsys.readouterr().err
    first, second = load_cuts(data / "manifests" / "cuts_test.jsonl.gz")
    assert canonical_units(first) == ["ʐ", "u", "w", "t", "a"]
    pronunciations = second.supervisions[0].custom["pronunciations"]
    assert pronunciations[0] == [["w", "u", "tɕ"], ["w", "u", "t", "ɕ"]]
    words.write_text("żółta\n", encoding="utf-8")
    assert prepare(mine, data, "--unit", "lexicon", "--lexicon", str(words)) == 1
    assert "words.txt, line 1: 'żółta' has no units" in capsys.readouterr().err


def test_a_recording_of_two_parts_counts_once(tmp_path, capsys):
    mine, data = tmp_path / "mine", tmp_path / "data"
    for name, text in (("a", "one"), ("b", "one two"), ("c", "two"), ("d", "one"), ("e", "one")):
        write(mine, name, text)
    assert prepare(mine, data) == 0
    gone, *_ = parts(data)["train"]
    (mine / f"{gone}.wav").unlink()
    capsys.readouterr()
    for script in ("fbank", "units"):
        assert load_script(f"local/{script}.py")(["--data-dir", str(data)]) == 0
    captured = capsys.readouterr()
    assert "stage 1 fbank: 5 in = 4 done + 1 skipped" in captured.out
    assert "stage 2 units: 4 in = 4 done + 0 skipped" in captured.out
    assert captured.err.count(f"1 fbank: skipped {gone} ") == 1
    assert len((data / "skipped.jsonl").read_text().splitlines()) == 1
    # What is wrong with the second copy alone counts, too.
    manifest = data / "fbank" / "cuts_test.jsonl.gz"
    cuts = [cut.drop_features() if cut.id == "e" else cut for cut in load_cuts(manifest)]
    manifest.unlink()
    write_manifest(manifest, cuts)
    assert load_script("local/units.py")(["--data-dir", str(data)]) == 0
    assert "stage 2 units: 4 in = 3 done + 1 skipped" in capsys.readouterr().out


def test_words_in_no_lexicon_are_read_by_rules(tmp_path, capsys):
    pytest.importorskip("espeakng_loader", reason="espeakng-loader is not installed")
    mine, data, words = tmp_path / "mine", tmp_path / "data", tmp_path / "words.txt"
    for name, text in (("a", "one blorptz"), ("b", "one Mädchen"), ("c", "two"), ("d", "42")):
        write(mine, name, text)
    assert prepare(mine, data, "--g2p", "en-us") == 0
    captured = capsys.readouterr()
    assert f"words made by g2p: 2 (blorptz, mädchen), listed in {data}" in captured.out
    assert "skipped d" in captured.err and "not in the lexicon: 42" in captured.err
    first, second, third = load_cuts(data / "manifests" / "cuts_test.jsonl.gz")
    assert canonical_units(first) == ["w", "ah", "n", "b", "l", "aa", "r", "p", "t", "s"]
    assert first.supervisions[0].custom["g2p"] == ["blorptz"]
    assert "g2p" not in third.supervisions[0].custom
    # The list is a lexicon; with it nothing is read by rules, and the list goes.
    words.write_bytes((data / "g2p_words.txt").read_bytes())
    assert prepare(mine, data, "--g2p", "en-us", "--lexicon", str(words)) == 0
    assert not (data / "g2p_words.txt").exists()
    assert load_cuts(data / "manifests" / "cuts_test.jsonl.gz")["b"].supervisions[0].custom == {
        name: value for name, value in second.supervisions[0].custom.items() if name != "g2p"
    }
    assert prepare(mine, data, "--unit", "lexicon", "--g2p", "de") == 0
    cut = load_cuts(data / "manifests" / "cuts_test.jsonl.gz")["b"]
    assert canonical_units(cut)[-6:] == ["m", "ɛː", "d", "ç", "ə", "n"]
    words.write_text("ɛː E\n", encoding="utf-8")
    also = ("--g2p", "de", "--g2p-table", str(words))
    assert prepare(mine, data, "--unit", "lexicon", *also) == 0
    cut = load_cuts(data / "manifests" / "cuts_test.jsonl.gz")["b"]
    assert canonical_units(cut)[-6:] == ["m", "E", "d", "ç", "ə", "n"]
    about = json.loads((data / "corpus.json").read_text())
    assert about["g2p"] == {"language": "de", "table": {"ɛː": ["E"]}}
    assert prepare(mine, data, "--g2p", "de") == 1
    assert "g2p: de: the phones are English ones" in capsys.readouterr().err


def test_parts_of_recordings_and_output_of_commands(tmp_path, capsys):
    kaldi, data = tmp_path / "kaldi", tmp_path / "data"
    kaldi.mkdir()
    soundfile.write(kaldi / "long.wav", np.concatenate([sine(1), sine(1, pitch=500)]), 8000)
    write(kaldi, "other", None)
    (kaldi / "wav.scp").write_text(f"long cat {kaldi / 'long.wav'} |\nother other.wav\n")
    (kaldi / "segments").write_text("a long 0 1\nb long 1 2\nc other 0.25 0.75\n")
    (kaldi / "text").write_text("a one\nb two\nc three\n")
    assert prepare(kaldi, data) == 1
    assert "output of a shell command" in capsys.readouterr().err
    assert prepare(kaldi, data, "--allow-commands", "true") == 0
    found = parts(data)
    assert {tuple(found[split]) for split in ("train", "valid")} == {("a", "b"), ("c",)}
    assert sorted(path.name for path in (data / "wav").iterdir()) == ["a.wav", "b.wav"]
    assert soundfile.read(data / "wav" / "b.wav")[0] == pytest.approx(sine(1, pitch=500), abs=1e-4)
    counts = compute_fbank(data, StageReport("1 fbank", data))
    assert sum(counts.values()) == 6 and counts["test"] == 3
    frames = {c.id: c.num_frames for c in load_cuts(data / TEST_CUTS)}
    assert frames == {"a": 100, "b": 100, "c": 50}


def test_recordings_of_one_archive_of_shar_are_recordings_of_their_own(tmp_path):
    shar, data = tmp_path / "shar", tmp_path / "data"
    shar.mkdir()
    cuts = []
    for name in "abc":
        write(tmp_path / "mine", name, None, 8000)
        recording = recording_of(tmp_path / "mine" / f"{name}.wav", name)
        cuts.append(recording_cut(recording, {}, text="one"))
    CutSet.from_cuts(cuts).to_shar(shar, fields={"recording": "flac"}, num_jobs=1)
    assert len(list(shar.glob("*.tar"))) == 1
    assert prepare(shar, data) == 0
    found = parts(data)
    assert sorted(found["train"] + found["valid"]) == [*"abc"] and len(found["valid"]) == 1
    for name in "abc":
        wav = soundfile.read(data / "wav" / f"{name}.wav")[0]
        original = soundfile.read(tmp_path / "mine" / f"{name}.wav")[0]
        assert wav == pytest.approx(original, abs=1e-4)
    assert compute_fbank(data, StageReport("1 fbank", data))["test"] == 3


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("mine.csv", "file,text\na.wav,one\n", "mine.csv: no column path in its first line"),
        ("mine.txt", "one", "mine.txt is no folder, table (.csv, .tsv) or manifest of cuts"),
        ("mine.jsonl", "{", "mine.jsonl, line 1: not JSON"),
        ("mine.jsonl", "", "mine.jsonl: a manifest of cuts without a recording"),
    ],
)
def test_what_is_no_corpus_is_named_in_one_line(tmp_path, capsys, name, content, reason):
    (tmp_path / name).write_text(content)
    assert prepare(tmp_path / name, tmp_path / "data") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("prepare.py: ") and reason in line
    assert not (tmp_path / "data" / "corpus.json").exists()
