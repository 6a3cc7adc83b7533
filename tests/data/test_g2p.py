"""Words that are in no lexicon, read by espeak-ng."""

from __future__ import annotations

import pytest

from mlvae.data.g2p import ENGLISH, G2p, g2p_fields, g2p_of, write_made
from mlvae.data.lexicon import PHONES, Lexicon
from mlvae.data.text import UnknownWords
from mlvae.stage import stage_folder

pytest.importorskip("espeakng_loader", reason="espeakng-loader is not installed")


@pytest.mark.parametrize(
    ("language", "table", "units", "word", "expected"),
    [
        ("en-us", ENGLISH, PHONES, "strengthener", "s t r eh ng th ah n er"),
        ("en-us", ENGLISH, PHONES, "garden's", "g aa r d ah n z"),
        ("de", {}, None, "mädchen", "m ɛː d ç ə n"),
        ("de", {"ɛː": ("E",), "ç": ("C", "X")}, None, "mädchen", "m E d C X ə n"),
        ("de", {}, None, "email", "iː m eɪ l"),  # read as English, without a sign of that
    ],
)
def test_a_word_is_read(language, table, units, word, expected):
    assert G2p(language, table, units)(word) == tuple(expected.split())


def test_the_table_knows_what_english_words_are_made_of():
    assert {unit for units in ENGLISH.values() for unit in units} == set(PHONES)


def test_languages_do_not_mix():
    german, english = G2p("de", {}), G2p("en-us", ENGLISH, PHONES)
    alone = german("wagen"), english("wagen")
    both = [G2p("de", {})("wagen"), G2p("en-us", ENGLISH, PHONES)("wagen")]
    assert alone == tuple(both) and both[0] != both[1]


@pytest.mark.parametrize(
    ("said", "arpabet", "reason"),
    [
        ({"language": "xx"}, False, "no language xx"),
        ({"language": "de"}, True, "English"),
        ({"language": "../en"}, False, "no language of espeak-ng"),
        ({"language": 3}, True, "no language of espeak-ng"),
        ({"language": "de", "table": {"a": "b"}}, False, "no list of units"),
        ({"language": "de", "table": {"a": [1]}}, False, "no list of units"),
        ({"language": "en-us", "table": {"a": ["b"]}}, True, "a table already"),
    ],
)
def test_what_cannot_be_used_is_refused(said, arpabet, reason):
    with pytest.raises(ValueError, match=reason):
        g2p_of(said, arpabet, None)


def test_a_lexicon_asks_for_words_of_letters_only():
    lexicon = Lexicon({"one": [["W", "AH1", "N"]]}, g2p=G2p("en-us", ENGLISH, PHONES))
    assert lexicon.fields("One wug") == {
        "units": ["w", "ah", "n", "w", "ah", "g"],
        "words": ["one", "wug"],
        "word_of_unit": [0, 0, 0, 1, 1, 1],
        "pronunciations": [[["w", "ah", "n"]], [["w", "ah", "g"]]],
        "g2p": ["wug"],
    }
    assert "g2p" not in lexicon.fields("one one")
    with pytest.raises(UnknownWords, match="letter by letter") as found:
        lexicon.read("wug привет 42 one % don 't")
    assert found.value.words == ["%", "'t", "42", "привет"]
    own = Lexicon({"ja": [["j", "a"]]}, ["j", "a"], G2p("de", {}, ["j", "a"]))
    with pytest.raises(UnknownWords, match=r"no unit for n, aɪ of espeak-ng \(de\): nein"):
        own.read("ja nein")


def test_what_was_made_is_listed_and_a_corrected_list_stays(tmp_path, capsys):
    made = {"wug": ("w", "ah", "g"), "ba": ("b", "aa")}
    with stage_folder("0 prepare", tmp_path, []) as record:
        write_made(made, tmp_path, record, "0 prepare")
    path = tmp_path / "g2p_words.txt"
    assert path.read_text() == "ba\tb aa\nwug\tw ah g\n"
    assert f"words made by g2p: 2 (ba, wug), listed in {path}" in capsys.readouterr().out
    path.write_text("wug\tw uh g\n")
    for again in (made, {}):  # whether or not there are words now
        with stage_folder("0 prepare", tmp_path, []) as record:
            write_made(again, tmp_path, record, "0 prepare")
        assert path.read_text() == "wug\tw uh g\n"


def test_a_symbol_of_two_lines_is_refused(tmp_path):
    path = tmp_path / "table"
    path.write_text("a x\nb y\na z\n")
    with pytest.raises(ValueError, match="table: a has units on several lines"):
        g2p_fields("de", path)
