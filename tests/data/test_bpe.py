from __future__ import annotations

import json

import pytest
from lhotse import CutSet, MonoCut, SupervisionSegment

from mlvae.data.bpe import cuts_with_tokens, train_bpe, with_tokens
from mlvae.data.dataset import load_cuts
from mlvae.data.manifests import write_json, write_manifest
from mlvae.made import Record
from mlvae.stage import StageReport
from mlvae.tiers import units_of_words
from tests.data.conftest import load_script

units_stage = load_script("local/units.py")
SENTENCES = [["the", "cat", "sat"], ["a", "cat", "eats"], ["the", "tea", "set"]]


def cut_of(words, name="utt"):
    supervision = SupervisionSegment(name, name, 0.0, 1.0, custom={"words": words})
    return MonoCut(name, 0.0, 1.0, 0, supervisions=[supervision])


def test_the_same_text_gives_the_same_tokens():
    models = [train_bpe(SENTENCES, 16).serialized_model_proto() for _ in range(2)]
    assert models[0] == models[1]
    assert models[0] != train_bpe(SENTENCES, 14).serialized_model_proto()


def test_tokens_spell_the_words_and_know_theirs():
    cut = with_tokens(cut_of(["the", "cats"]), train_bpe(SENTENCES, 16))
    units = cut.supervisions[0].custom["units"]
    assert "".join(units) == "▁the▁cats"
    words = units_of_words(cut)
    first = words.index(1)
    assert "".join(units[:first]) == "▁the"
    assert words == [0] * first + [1] * (len(units) - first)


def test_a_letter_that_training_lacks_skips_the_cut_by_name(tmp_path):
    report = StageReport("2 units", tmp_path)
    cuts = CutSet.from_cuts([cut_of(["cat"], "one"), cut_of(["zoo"], "two")])
    made, left = cuts_with_tokens(cuts, train_bpe(SENTENCES, 16), report)
    assert [cut.id for cut in made] == ["one"]
    assert [cut.id for cut in left] == ["two"]
    assert report.skipped[0]["reason"] == "two: the training text lacks a letter of 'zoo'"


@pytest.mark.parametrize(("size", "reason"), [(5, "smaller than"), (5000, "too high")])
def test_a_vocab_size_that_cannot_be_is_refused_in_one_line(size, reason):
    with pytest.raises(ValueError, match=f"cannot learn {size} tokens: .*{reason}") as caught:
        train_bpe(SENTENCES, size)
    assert "\n" not in str(caught.value)


def test_the_stage_can_be_run_again_with_another_number(tmp_path):
    Record.begin(tmp_path)  # stage 1 was here
    write_json(tmp_path / "corpus.json", {"unit": "bpe"})
    for split, words in (("train", ["the", "cat"]), ("valid", ["a"]), ("test", ["zoo"])):
        cuts = [cut_of(words, split)] if split != "train" else map(cut_of, SENTENCES, "abc")
        write_manifest(tmp_path / "fbank" / f"cuts_{split}.jsonl.gz", cuts)
    sizes = []
    for size in ("14", "16", "14"):
        units_stage(["--data-dir", str(tmp_path), "--vocab-size", size])
        sizes.append((tmp_path / "units" / "bpe.model").read_bytes())
        lines = (tmp_path / "skipped.jsonl").read_text().splitlines()
        assert "lacks a letter of 'zoo'" in json.loads(lines[0])["reason"]
        assert [cut.id for cut in load_cuts(tmp_path / "fbank" / "cuts_test.jsonl.gz")] == ["test"]
    assert sizes[0] == sizes[2] != sizes[1]


def test_a_cut_without_words_is_named():
    with pytest.raises(ValueError, match="utt: no words to make tokens of"):
        with_tokens(cut_of([]), train_bpe(SENTENCES, 16))
