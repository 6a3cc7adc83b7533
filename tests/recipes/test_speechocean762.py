"""Stage 0 of the recipe speechocean762 on trees of both layouts, tidy and not."""

from __future__ import annotations

import json

import pytest
from lhotse import SupervisionSet

from mlvae.data.dataset import load_cuts
from mlvae.data.manifests import SPLITS
from tests.corpora.speechocean762.tree import speakers, write_labels, write_published
from tests.data.conftest import load_script

prepare = load_script("recipes/speechocean762/prepare.py")


def run(root, data, *options):
    return prepare(["--corpus-dir", str(root), "--data-dir", str(data), *options])


def cuts_of(data):
    return {
        split: list(load_cuts(data / "manifests" / f"cuts_{split}.jsonl.gz")) for split in SPLITS
    }


def speakers_of(data):
    return {
        split: sorted({cut.supervisions[0].speaker for cut in cuts})
        for split, cuts in cuts_of(data).items()
    }


def reference_of(data):
    return {item.id: item for item in SupervisionSet.from_file(data / "reference.jsonl.gz")}


def skipped_of(data):
    lines = (data / "skipped.jsonl").read_text(encoding="utf-8").splitlines()
    return {record["id"]: record for record in map(json.loads, lines)}


@pytest.fixture
def labels(tmp_path):
    return write_labels(tmp_path / "so762")


@pytest.fixture
def published(tmp_path):
    ids = speakers(14)
    return write_published(tmp_path / "speechocean762", {"train": ids[3:], "test": ids[:3]})


def test_a_folder_of_labels_becomes_cuts_and_reference(labels, tmp_path, capsys):
    data = tmp_path / "data"
    assert run(labels, data) == 0
    out = capsys.readouterr().out
    assert "24 in = 24 done + 0 skipped" in out
    assert "protocol corpus: 144 units, 0 without a score; 0 scores" in out
    held_out = speakers_of(data)
    ids = speakers(12)
    assert held_out == {"train": ids[1:10], "valid": ids[:1], "test": ids[10:]}
    (cut,) = [cut for cut in cuts_of(data)["test"] if cut.id == "00110"]
    spoken = cut.supervisions[0]
    assert (spoken.text, spoken.speaker) == ("TEA SEE TWO", "0011")
    assert spoken.custom == {
        "units": ["t", "iy", "s", "iy", "t", "uw"],
        "words": ["tea", "see", "two"],
        "word_of_unit": [0, 0, 1, 1, 2, 2],
    }
    about = reference_of(data)["00110"].custom
    assert about["scores"] == [2.0, 1.8, 2.0, 0.4, 1.2, 2.0]
    assert (about["split"], about["units"]) == ("test", spoken.custom["units"])
    assert about["words"][0] == {"word": "tea", "score": None} and about["score"] is None
    corpus = json.loads((data / "corpus.json").read_text())
    assert (corpus["protocol"], corpus["split"], corpus["num_utterances"]) == (
        *("corpus", "speakers"),
        24,
    )


def test_the_published_corpus_has_its_halves_and_scores_of_words(published, tmp_path):
    data = tmp_path / "data"
    assert run(published, data) == 0
    ids = speakers(14)
    assert speakers_of(data) == {
        "train": [*ids[4:13]],
        "valid": [ids[3], ids[13]],
        "test": ids[:3],
    }
    about = reference_of(data)["00010"].custom
    assert [word["score"] for word in about["words"]] == [9.0] * 3
    assert (about["score"], about["split"]) == (8.0, "test")
    assert run(published, data, "--split", "speakers") == 0
    assert speakers_of(data)["test"] == ids[12:]


def test_an_earlier_version_has_phones_in_strings_and_scores_elsewhere(published, tmp_path):
    assert run(published, tmp_path / "lists") == 0
    path = published / "resource" / "scores.json"
    scores = json.loads(path.read_text())
    for word in (word for record in scores.values() for word in record["words"]):
        word["phones"] = " ".join(word["phones"])
    path.unlink()
    (published / "scores.json").write_text(json.dumps(scores))
    assert run(published, tmp_path / "strings") == 0
    assert reference_of(tmp_path / "strings") == reference_of(tmp_path / "lists")


def test_units_of_the_text_have_the_scores_of_their_counterparts(labels, tmp_path, capsys):
    lines = (labels / "labels.jsonl").read_text().splitlines()
    record = json.loads(lines[0])
    record["words"] = [
        {"text": "THE", "phones": ["DH", "IY0"], "scores": [2, 1.0]},
        {"text": "SEVEN", "phones": ["S", "EH0", "V", "N"], "scores": [2.0, 1.0, None, 0.2]},
        {"text": "TEA", "phones": ["T", "IY0", "Z"], "scores": [1.6, float("nan"), 0.0]},
    ]
    lines[0] = json.dumps(record)
    (labels / "labels.jsonl").write_text("\n".join(lines))
    data = tmp_path / "data"
    assert run(labels, data, "--protocol", "text") == 0
    about = reference_of(data)[record["id"]].custom
    assert about["units"] == ["dh", "ah", "s", "eh", "v", "ah", "n", "t", "iy"]
    assert about["scores"] == [2.0, 1.0, 2.0, 1.0, None, None, 0.2, 1.6, None]
    (cut,) = [cut for cut in cuts_of(data)["valid"] if cut.id == record["id"]]
    known = cut.supervisions[0].custom["pronunciations"]
    assert ["dh", "iy"] in known[0]
    assert [word[0] for word in known] == [["dh", "ah"], ["s", "eh", "v", "ah", "n"], ["t", "iy"]]
    assert "3 without a score; 1 scores of phones that the units lack" in capsys.readouterr().out


def test_without_scores_the_text_alone_is_used(tmp_path, capsys):
    ids = speakers(4)
    root = write_published(tmp_path / "so", {"train": ids[:3], "test": ids[3:]}, scores=False)
    data = tmp_path / "data"
    assert run(root, data) == 0
    assert "no reference" in capsys.readouterr().out
    assert not (data / "reference.jsonl.gz").exists()
    (cut, _) = cuts_of(data)["test"]
    assert cut.supervisions[0].custom["pronunciations"][0][0] == ["s", "iy"]
    assert run(root, data, "--protocol", "corpus") == 1
    assert "protocol corpus needs the phones of resource/scores.json" in capsys.readouterr().err


def test_what_is_malformed_in_labels_is_named_and_the_rest_goes_on(tmp_path, capsys):
    labels = write_labels(tmp_path / "so762", num_speakers=14)
    path, data = labels / "labels.jsonl", tmp_path / "data"
    lines = path.read_text().splitlines()

    def changed(number, **fields):
        record = json.loads(lines[number])
        record["words"][0].update(fields)
        return json.dumps(record).encode()

    bad = [
        (b'{"id": "00010", "speaker"', "labels.jsonl, line 1", "Expecting"),
        (changed(1, scores=[2.0]), "00011", "has 2 phones and 1 scores"),
        (changed(2, scores=[2.0, 2.5]), "00020", "2.5 is no score from 0 to 2"),
        (changed(3, scores=[2.0, "x"]), "00021", "'x' is no score from 0 to 2"),
        (changed(4, phones=["T", "Q9"]), "00030", "'Q9' is no phone"),
        (changed(5, phones=7), "00031", "its 'phones' is 7"),
        (b'{"id": "n\xe9e"}', "labels.jsonl, line 7", "not in UTF-8"),
        (b"[1]", "labels.jsonl, line 8", "an object is expected, not [1]"),
        (b'{"id": "../up", "words": []}', "labels.jsonl, line 9", "'../up' is no id"),
    ]
    good = [line.encode() for line in lines[9:]]
    path.write_bytes(b"\n".join([*(line for line, *_ in bad), *good, good[0]]))
    (labels / "flac" / "00120.flac").unlink()
    (labels / "flac" / "00121.flac").write_bytes(b"no audio")
    assert run(labels, data) == 0
    skipped = skipped_of(data)
    for _, name, reason in bad:
        assert reason in skipped[name]["reason"]
        assert "labels.jsonl" in skipped[name]["source"]
    assert "no such file" in skipped["00120"]["reason"]
    assert "not readable as audio" in skipped["00121"]["reason"]
    assert "a second utterance of this id" in skipped[json.loads(good[0])["id"]]["reason"]
    assert len(skipped) == len(bad) + 3
    assert "29 in = 17 done + 12 skipped" in capsys.readouterr().out


def test_what_is_malformed_in_the_published_corpus_is_named(published, tmp_path, capsys):
    train, data = published / "train", tmp_path / "data"
    text = (train / "text").read_bytes().splitlines()
    text[2] = b"00050 \xff"
    text[3] = b"00051 SEE SEE SEE"
    (train / "text").write_bytes(b"\n".join([*text[:4], text[5], text[5], *text[6:]]))
    scores = json.loads((published / "resource" / "scores.json").read_text())
    del scores["00070"]
    scores["00071"]["words"][0]["phones-accuracy"] = [2.0, -1]
    (published / "resource" / "scores.json").write_text(json.dumps(scores))
    with (train / "wav.scp").open("a") as file:
        file.write("00999 touch ran |\n")
    assert run(published, data) == 0
    reasons = {
        "text, line 3": "not in UTF-8",
        "00050": "text of train have nothing of it",
        "00051": "its scores are of",
        "00060": "text of train have nothing of it",
        "00061": "a second line of this id",
        "00070": "no scores of it",
        "00071": "-1 is no score from 0 to 2",
        "00999": "text and utt2spk of train have nothing of it",
    }
    found = {name: record["reason"] for name, record in skipped_of(data).items()}
    assert found.keys() == reasons.keys()
    for name, reason in reasons.items():
        assert reason in found[name]
    (published / "resource" / "scores.json").write_text("{")
    assert run(published, data) == 1
    assert "scores.json cannot be read" in capsys.readouterr().err


def test_words_that_the_lexicon_lacks_are_skipped_or_listed(labels, tmp_path, capsys):
    path, data = labels / "labels.jsonl", tmp_path / "data"
    lines = path.read_text().splitlines()
    lines[2:4] = [line.replace('"SHOE"', '"SHOOE"') for line in lines[2:4]]
    path.write_text("\n".join(lines))
    assert run(labels, data, "--protocol", "text") == 0
    skipped = skipped_of(data)
    assert skipped.keys() == {"00020"}
    assert all("not in the lexicon: shooe" in record["reason"] for record in skipped.values())
    assert run(labels, data, "--protocol", "text", "--unknown-words", "stop") == 1
    assert (data / "unknown_words.txt").read_text().split() == ["shooe"]
    (tmp_path / "own.txt").write_text("shooe sh uw\n")
    lexicon = ("--lexicon", str(tmp_path / "own.txt"))
    assert run(labels, data, "--protocol", "text", *lexicon) == 0
    assert not skipped_of(data)
    assert run(labels, data, "--protocol", "corpus", *lexicon) == 1
    assert "--lexicon goes with --protocol text" in capsys.readouterr().err


@pytest.mark.parametrize("protocol", ["corpus", "text"])
def test_strings_of_digits_are_tested_with_a_changed_word(tmp_path, capsys, protocol):
    root, data = write_labels(tmp_path / "so762", digits=True), tmp_path / "data"
    assert run(root, data, "--digit-strings", "--protocol", protocol) == 0
    out = capsys.readouterr().out
    assert "36 in = 36 done + 0 skipped" in out and "12 strings of digits with a changed" in out
    cuts, ids = cuts_of(data), speakers(12)
    names = {split: {cut.id for cut in own} for split, own in cuts.items()}
    read = {f"{speaker}{n}" for speaker in ids[10:] for n in (0, 1, 9)}
    assert names["test"] == read | {f"{speaker}9-changed" for speaker in ids}
    assert not any("9" in name[-1:] for name in names["train"] | names["valid"])
    reference = reference_of(data)
    places, digits = set(), {"one": ["sh", "iy"], "two": ["t", "uw"]}
    for cut in cuts["test"]:
        said, truth = cut.supervisions[0].custom, reference[cut.id].custom
        assert said["units"] == truth["units"]
        if not cut.id.endswith("-changed"):
            assert "changed_word" not in truth
            continue
        before = ["two", "one", "two"]
        place = truth["changed_word"]
        places.add(place)
        assert [a != b for a, b in zip(said["words"], before)] == [i == place for i in range(3)]
        assert cut.supervisions[0].text == " ".join(said["words"])
        assert truth["scores"] == [None] * len(truth["units"])
        if protocol == "corpus":
            assert said["units"] == [p for word in said["words"] for p in digits[word]]
    assert len(places) > 1
    first = {name: item.custom for name, item in reference.items()}
    assert run(root, data, "--digit-strings", "--protocol", protocol, "--seed", "1") == 0
    assert first != {name: item.custom for name, item in reference_of(data).items()}
    assert run(root, data, "--protocol", protocol) == 0
    assert {cut.id for cut in cuts_of(data)["test"]} == read


def test_a_few_utterances_are_drawn_from_all_speakers(labels, tmp_path):
    data = tmp_path / "data"
    assert run(labels, data, "--num-utterances", "12") == 0
    assert sum(map(len, speakers_of(data).values())) == 12
    first = reference_of(data).keys()
    assert run(labels, data, "--num-utterances", "12", "--seed", "1") == 0
    assert reference_of(data).keys() != first


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--split", "official"), "split official needs both halves"),
        (("--num-utterances", "1"), "no utterance for"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(labels, tmp_path, capsys, options, reason):
    assert run(labels, tmp_path / "data", *options) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("prepare.py: ") and reason in last
    assert not (tmp_path / "data" / "corpus.json").exists()


def test_another_folder_is_no_speechocean762(tmp_path, capsys):
    (tmp_path / "other").mkdir()
    assert run(tmp_path / "other", tmp_path / "data") == 1
    assert "is not speechocean762: it holds neither labels.jsonl nor" in capsys.readouterr().err
