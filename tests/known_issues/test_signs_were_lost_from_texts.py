"""Texts lost signs in silence: don`t and its like became "don t", counted as done; a soft hyphen or
a byte order mark cut words in two; ``&``, ``%`` and the like were passed over, so that what was
said for them had no unit. ``2`` and ``%`` became BPE tokens that no letter tells.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import soundfile
from lhotse import CutSet, MonoCut, SupervisionSegment

from mlvae.data.bpe import cuts_with_tokens, sentences_of, train_bpe
from mlvae.data.dataset import load_cuts
from mlvae.data.lexicon import Lexicon
from mlvae.stage import StageReport
from tests.corpora.l2arctic.tree import write_tidy, write_utterance
from tests.data.conftest import load_script, sine

ROOT = Path(__file__).resolve().parents[2]
prepare_l2arctic = load_script("recipes/l2arctic/prepare.py")

DONT = [("d", "ow", "n", "t")]
SIGNS = [*"&+@%$#*=<|~^\\\u20ac\u00a7\u00b0\u2192\u2116\u2122\ufffd\x07\U0001f600", "\u0301"]


@pytest.fixture(scope="module")
def lexicon():
    return Lexicon.load()


@pytest.mark.parametrize(
    "apostrophe",
    [*"`\u00b4\u2032\uff07\u2018\u2019\u201b\u02bc\u02b9\u2035\uff40\u055a\ua78c", "''", '"'],
)
def test_all_that_looks_like_an_apostrophe_is_one(lexicon, apostrophe):
    ((word, (first, *_)),) = lexicon.read(f"Don{apostrophe}t")
    assert (word, [first]) == ("don't", DONT)


@pytest.mark.parametrize("text", ["don\u00b4t".replace("\u00b4", " \u0301"), "don 't", "it 's so"])
def test_what_is_left_of_an_apostrophe_is_no_word(lexicon, text):
    with pytest.raises(ValueError, match="'t|'s|U\\+0301"):
        lexicon.read(text)


@pytest.mark.parametrize(
    "text",
    [
        *("\ufeffdog", "do\u00adg", "do\u200bg", "d\u200cog", "do\u200dg", "d\u2060og"),
        *("\u200edog\u200f", "\u202adog\u202c", "\u2066dog\u2069", "do\u034fg"),
        *("\uff44\uff4f\uff47", "\U0001d5bd\U0001d5c8\U0001d5c0", "do\u200b\u00adg"),
    ],
)
def test_what_is_not_seen_or_looks_the_same_does_not_cut_a_word(lexicon, text):
    assert lexicon.read(text) == lexicon.read("dog")


@pytest.mark.parametrize("sign", SIGNS)
def test_signs_that_are_no_words_are_named(lexicon, sign):
    for text in (f"a {sign} dog", f"a{sign}dog" if sign != "\u0301" else "\u0301 dog"):
        with pytest.raises(ValueError, match=rf"U\+{ord(sign):04X} .*the text's word [12]"):
            lexicon.read(text)


def test_a_lexicon_may_have_signs_and_numbers(tmp_path):
    path = tmp_path / "lexicon.txt"
    path.write_text("% P ER S EH N T\n5 F AY V\n")
    assert [word for word, _ in Lexicon.load(path).read("5% dog")] == ["5", "%", "dog"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = write_tidy(tmp_path_factory.mktemp("signs") / "root")
    write_utterance(root, "ABA", "arctic_a0100", text="She had & a dog.")
    write_utterance(root, "ABA", "arctic_a0101", text="She had 1 dog.")
    write_utterance(root, "ABA", "arctic_a0102", text="She had a\u00adn\u200b dog.")
    return root


@pytest.mark.parametrize(("unit", "why"), [("phone", "not in the"), ("bpe", "not written in le")])
def test_l2arctic_names_them_with_phones_and_with_tokens(tree, tmp_path, capsys, unit, why):
    options = ["--corpus-dir", str(tree), "--data-dir", str(tmp_path), "--unit", unit]
    assert prepare_l2arctic([*options, "--unknown-words", "skip"]) == 0
    lines = (tmp_path / "skipped.jsonl").read_text().splitlines()
    skipped = {record["id"]: record for record in map(json.loads, lines)}
    assert set(skipped) == {"aba-arctic_a0100", "aba-arctic_a0101"}
    sign, number = skipped["aba-arctic_a0100"], skipped["aba-arctic_a0101"]
    assert "'&' (U+0026 AMPERSAND) in '&', the text's word 3" in sign["reason"]
    assert why in number["reason"]
    assert sign["source"].endswith("transcript/arctic_a0100.txt")
    cuts = {cut.id: cut for cut in load_cuts(tmp_path / "manifests" / "cuts_train.jsonl.gz")}
    words = cuts["aba-arctic_a0102"].supervisions[0].custom["words"]
    assert words == ["she", "had", "an", "dog"]

    assert prepare_l2arctic(options) == 1
    assert f"2 words are {why}" in capsys.readouterr().err.splitlines()[-1]
    assert (tmp_path / "unknown_words.txt").read_text() == "&\n1\n"


def test_tokens_are_of_words_alone_and_of_one_spelling(tmp_path):
    def cut(name, *words):
        supervision = SupervisionSegment(name, name, 0.0, 1.0, custom={"words": list(words)})
        return MonoCut(name, 0.0, 1.0, 0, supervisions=[supervision])

    cuts = [cut("one", "Don\u00b4t", "do"), cut("two", "do", "5"), cut("three", "do it", "do")]
    cuts += [cut("four", "\u2014"), cut("five", "R&B"), cut("six", "do", None)]
    sentences = sentences_of(cuts)
    assert sentences == [["don't", "do"]]
    report = StageReport("2 units", tmp_path)
    made, left = cuts_with_tokens(CutSet.from_cuts(cuts), train_bpe(sentences, 9), report)
    assert [one.id for one in made] == ["one"]
    assert "".join(next(iter(made)).supervisions[0].custom["units"]) == "\u2581don't\u2581do"
    reasons = {record["id"]: record["reason"] for record in report.skipped}
    assert "word 2, '5': not written in letters: 5" in reasons["two"]
    assert "word 1, 'do it', is not one word" in reasons["three"]
    assert "is punctuation" in reasons["four"]
    assert "U+0026" in reasons["five"]
    assert "word 2, None, is not one word" in reasons["six"]


def test_own_recordings_have_the_policy(tmp_path, capsys):
    mine, data = tmp_path / "mine", tmp_path / "data"
    mine.mkdir()
    for place in range(2):
        for name, text in (("good", "Don\u00b4t."), ("bad", "One & two")):
            soundfile.write(mine / f"{name}{place}.wav", sine(0.5), 8000)
            (mine / f"{name}{place}.txt").write_text(text, encoding="utf-8")

    def run(*options):
        argv = ["--corpus-dir", str(mine), "--data-dir", str(data), *options]
        return load_script("recipes/own/prepare.py")(argv), capsys.readouterr()

    status, said = run()
    assert status == 0
    assert "4 in = 2 done + 2 skipped" in said.out
    assert "bad0.txt): neither a word nor known punctuation: '&' (U+0026" in said.err
    for cut in load_cuts(data / "manifests" / "cuts_test.jsonl.gz"):
        assert cut.supervisions[0].custom["words"] == ["don't"]
    status, said = run("--unknown-words", "stop")
    assert status == 1
    assert "1 words are not in the lexicon: & (also in" in said.err.splitlines()[-1]
    lexicon = tmp_path / "lexicon.txt"
    lexicon.write_text("& AE N D\n")
    status, said = run("--unknown-words", "stop", "--lexicon", str(lexicon))
    assert status == 0
    assert "4 in = 4 done + 0 skipped" in said.out
