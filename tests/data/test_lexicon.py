from __future__ import annotations

import pytest

from mlvae.data.lexicon import Lexicon, read_lexicon, read_words
from mlvae.data.text import UnknownWords, words_of_text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Gad, I'm RE-ENTERING 'em.", ["gad", "i'm", "re", "entering", "'em"]),
        ("Philip\u2019s \u2014 \u201cword\u201d; 29th_x", ["philip's", "word", "29th", "x"]),
        ("the boys' café", ["the", "boys'", "café"]),
        (" . ' - ", []),
    ],
)
def test_words_of_text(text, words):
    assert words_of_text(text) == words


def test_the_dictionary_is_folded_and_keeps_all_pronunciations():
    lexicon = Lexicon.load()
    assert lexicon.find("the") == (("dh", "ah"), ("dh", "iy"))
    assert lexicon.find("dog") == (("d", "aa", "g"),)  # AO1; others fold to the same
    assert lexicon.find("'dog'") == lexicon.find("dog")
    assert lexicon.find("xylofrob") == ()
    assert lexicon.find("treasure")
    assert lexicon.find("treasure")[0] == ("t", "r", "eh", "sh", "er")


def test_possessives_follow_their_word():
    lexicon = Lexicon(
        {"dog": [["D", "AO1", "G"]], "cat": [["K", "AE1", "T"]], "pearce": [["P", "IH1", "R", "S"]]}
    )
    found = {word: lexicon.find(f"{word}'s") for word in ("dog", "cat", "pearce", "nobody")}
    assert found == {
        "dog": (("d", "aa", "g", "z"),),
        "cat": (("k", "ae", "t", "s"),),
        "pearce": (("p", "ih", "r", "s", "ih", "z"),),
        "nobody": (),
    }


def test_words_of_a_file_replace_those_of_the_dictionary(tmp_path):
    path = tmp_path / "lexicon.txt"
    path.write_text(
        "# names\n\nGregson  G R EH1 G Z AH0 N\ngregson(2) G R EH G S AH N\n;;; a\nthe D AH\n"
    )
    lexicon = Lexicon.load(path)
    assert [" ".join(phones) for phones in lexicon.find("gregson")] == [
        "g r eh g z ah n",
        "g r eh g s ah n",
    ]
    assert lexicon.find("the") == (("d", "ah"),)
    assert lexicon.find("dog") == (("d", "aa", "g"),)


@pytest.mark.parametrize(
    ("line", "reason"),
    [("word QQ", "'QQ' is no phone"), ("word", "no pronunciation"), ("word sil D", "phones alone")],
)
def test_a_bad_line_is_named(tmp_path, line, reason):
    path = tmp_path / "lexicon.txt"
    path.write_text(f"dog D AO G\n{line}\n")
    with pytest.raises(ValueError, match=f"lexicon.txt, line 2: 'word'.*{reason}"):
        read_lexicon(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="lexicon .*nothing.txt cannot be read"):
        Lexicon.load(tmp_path / "nothing.txt")


def test_pronunciations_of_units_that_are_no_arpabet():
    lexicon = Lexicon(
        {"eins": [["ʔ", "aɪ", "n", "s"]], "zwei": [["t", "s"]]}, {"ʔ", "aɪ", "n", "s"}
    )
    assert lexicon.read("Eins!") == [("eins", (("ʔ", "aɪ", "n", "s"),))]
    with pytest.raises(ValueError, match="'zwei' has no pronunciation of units alone: t s"):
        lexicon.read("zwei")
    with pytest.raises(UnknownWords, match="not in the lexicon: eins's"):
        lexicon.read("eins's")
    assert lexicon.entries() == {"eins": (("ʔ", "aɪ", "n", "s"),)}


def test_a_lexicon_with_a_wrong_line(tmp_path):
    (tmp_path / "words").write_text("a b\n\nc\n")
    with pytest.raises(ValueError, match="words, line 3: 'c' has no units"):
        read_words(tmp_path / "words")
