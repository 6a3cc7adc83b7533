"""How texts become units, and words a lexicon; whole model folders are in tests/recipes."""

from __future__ import annotations

import numpy as np
import pytest
from lhotse import MonoCut, SupervisionSegment

from mlvae.data.audio import memory_recording
from mlvae.data.bpe import save_bpe, train_bpe
from mlvae.data.units import UnitTable
from mlvae.model import Texts
from mlvae.model_folder import LEXICON, words_of_cuts


def cut_of(text: str | None, **custom) -> MonoCut:
    recording = memory_recording("a", np.ones(8000, np.float32), 8000)
    supervision = SupervisionSegment("a", "a", 0.0, 1.0, text=text, custom=custom)
    return MonoCut("a", 0.0, 1.0, 0, supervisions=[supervision], recording=recording)


def custom_of(texts: Texts, text: str | None) -> dict:
    return texts.with_units(cut_of(text)).supervisions[0].custom


TABLE = UnitTable(("ah", "k", "l", "t", "uw"))


@pytest.mark.parametrize("several", [False, True])
def test_by_a_lexicon(tmp_path, several):
    said = {"units": "lexicon", "arpabet": False, "all_pronunciations": several}
    expected = {
        "units": ["t", "uw", "t", "uw"],
        "words": ["to", "two"],
        "word_of_unit": [0, 0, 1, 1],
    }
    if several:
        expected["pronunciations"] = [[["t", "uw"], ["t", "ah"]], [["t", "uw"]]]
    (tmp_path / LEXICON).write_text("two\tt uw\nto\tt uw\nto\tt ah\ncool\tk uw l\n")
    assert custom_of(Texts(tmp_path, said, TABLE, None, False), "To, two!") == expected


def test_words_of_another_file_replace_those_of_the_folder(tmp_path):
    (tmp_path / LEXICON).write_text("two\tt uw\n")
    (tmp_path / "mine").write_text("TWO(1) T UW1 L\nkel K AH0 L\n")
    said = {"units": "lexicon", "arpabet": True}
    texts = Texts(tmp_path, said, TABLE, tmp_path / "mine", False)
    assert custom_of(texts, "two kel")["units"] == ["t", "uw", "l", "k", "ah", "l"]
    with pytest.raises(ValueError, match="a lexicon is of no use"):
        Texts(tmp_path, {"units": "units"}, TABLE, tmp_path / "mine", False)


def test_by_bpe_and_as_they_are(tmp_path):
    processor = train_bpe([["cool", "tool", "look"]] * 5, 12)
    save_bpe(processor, tmp_path / "bpe.model")
    found = custom_of(Texts(tmp_path, {"units": "bpe"}, TABLE, None, False), "Look, cool")
    assert "".join(found["units"]) == "▁look▁cool"
    assert found["words"] == ["look", "cool"]
    texts = Texts(tmp_path, {"units": "units"}, TABLE, None, False)
    assert custom_of(texts, " t uw\n") == {"units": ["t", "uw"]}
    for text in ("", " \n", None):
        with pytest.raises(ValueError, match="no text"):
            custom_of(texts, text)


def test_the_words_of_cuts_are_a_lexicon():
    one = cut_of(None, units=["t", "uw", "t"], words=["TO", "t"], word_of_unit=[0, 0, 1])
    two = cut_of(
        None,
        units=["t", "ah"],
        words=["to"],
        word_of_unit=[0, 0],
        pronunciations=[[["t", "ah"], ["t", "uw", "l"]]],
    )
    none = cut_of(None, units=["t"])
    blank = cut_of(None, units=["t"], words=["t t"])
    assert words_of_cuts([one, two, two, none, blank]) == {
        "to": (("t", "ah"), ("t", "uw"), ("t", "uw", "l")),
        "t": (("t",),),
    }
