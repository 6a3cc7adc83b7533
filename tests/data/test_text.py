from __future__ import annotations

import re
from pathlib import Path

import pytest

import mlvae.corpora.simulate.plan
from mlvae.data.text import (
    UnknownWords,
    decode_text,
    list_unknown_words,
    normalized,
    spelt_words,
    tokens_of_text,
    words_of_text,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Gad, I'm RE-ENTERING 'em.", ["gad", "i'm", "re", "entering", "'em"]),
        ("Philip\u2019s \u2014 \u201cword\u201d; 29th_x", ["philip's", "word", "29th", "x"]),
        ("the boys' café", ["the", "boys'", "café"]),
        ("and/or (so) [to] {say}", ["and", "or", "so", "to", "say"]),
        ("\u4ed6\u8bf4\uff0c\u597d\u3002", ["\u4ed6\u8bf4", "\u597d"]),
        (" . ' - ", []),
    ],
)
def test_words_and_punctuation(text, words):
    assert words_of_text(text) == words
    assert {token.kind for token in tokens_of_text(text)} <= {"word", "punctuation"}


def test_nothing_but_blanks_and_what_is_not_seen_is_passed_over():
    text = "AT&T's 5\u00a0% don\u00adt x\u0301 \u0301 \u2192\ufeff [a]!"
    assert "".join(token.text for token in tokens_of_text(text)) == "at&t's5%dontx\u0301\u0301→[a]!"


def test_a_token_says_where_it_is_from():
    (token,) = [token for token in tokens_of_text("Say AT&T, please") if token.kind == "sign"]
    assert (token.text, token.written, token.place) == ("&", "AT&T,", 2)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\ufb01le \uff24\uff2f\uff27 \U0001d41d\U0001d428\U0001d420", "file dog dog"),
        ("nai\u0308ve", "naïve"),
        ("well\u2011known well\u2010known well\u2013known well\u2212known", "well-known " * 4),
        ("\u2122 \u2116 n\u00ba m\u00b2 \u00bd \u2103 x \u2212 y", None),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", None),  # the joiner carries meaning
        ("\u0e2a\u200b\u0e2b", "\u0e2a \u0e2b"),  # Thai has no blanks
        ("hel\u200blo a\u200cb f\ufe0fg", "hello ab fg"),
    ],
)
def test_one_spelling_of_what_looks_the_same(text, plain):
    assert normalized(text) == (text if plain is None else plain.strip())


@pytest.mark.parametrize("text", ["5", "29th", "m\u00b2", "\u0665", "\u2163", "3%", "a & b"])
def test_what_does_not_say_how_it_is_read_is_not_spelt(text):
    with pytest.raises(UnknownWords) as caught:
        spelt_words(f"She had {text} of them")
    assert set(caught.value.words) <= {*normalized(text), normalized(text)}
    assert spelt_words("Five, n'est-ce pas?") == ["five", "n'est", "ce", "pas"]


def test_signs_are_named_with_code_point_and_place():
    with pytest.raises(UnknownWords) as caught:
        spelt_words("Say AT&T. \u0007 5")
    assert str(caught.value) == (
        "not written in letters: 5; neither a word nor known punctuation: "
        "'&' (U+0026 AMPERSAND) in 'AT&T.', the text's word 2, "
        "'\\x07' (U+0007 no name in Unicode) in '\\x07', the text's word 3"
    )
    assert caught.value.words == ["\u0007", "&", "5"]


def test_unknown_words_are_listed_once(tmp_path):
    line = list_unknown_words(["b", "a", "b"], tmp_path, False, "texts", "recordings")
    path = tmp_path / "unknown_words.txt"
    assert line == (
        f"2 words are not in the lexicon: a, b (also in {path}); give their pronunciations with "
        "--lexicon FILE, or leave their recordings out with --unknown-words skip"
    )
    assert path.read_text() == "a\nb\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "latin-1"])
def test_files_are_read_in_any_encoding(encoding):
    assert decode_text("a é\r\nb\rc".encode(encoding)) == "a é\nb\nc"


def test_sentences_of_the_stand_in_are_read_as_ever():
    path = Path(mlvae.corpora.simulate.plan.__file__).with_name("sentences.txt")
    for text in path.read_text().splitlines():
        assert words_of_text(text) == re.findall(r"[a-z']+", text.lower())
