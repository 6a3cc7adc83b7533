"""Ids that are paths wrote outside of the experiment, others were no names of files, and units
such as ``*`` and ``-`` were taken for unknown and left out. All passed stage 1.
"""

from __future__ import annotations

import pytest

from mlvae.data.checks import LONGEST_ID
from mlvae.data.dataset import load_cuts
from tests.data.small import change_line, small_cuts, stage_1, write_corpus


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "corpus", small_cuts(tmp_path / "wav"))


def refused(corpus, change) -> str:
    """Why the first cut is not used; the others are."""
    path = change_line(corpus, change)
    counts, skipped = stage_1(corpus)
    assert counts == {"train": 1, "valid": 2, "test": 2}
    (record,) = skipped.values()
    assert record["source"] == f"{path}, line 1"
    return record["reason"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        (None, "its id is no text"),
        (7, "its id is no text"),
        ("../../outside", "a path"),
        ("/absolute", "a path"),
        ("a/b", "a path"),
        (".tmp-1-a", "begins with a dot"),
        ("a\x00b", "control character"),
        ("a\nb", "control character"),
        ("a\u2028b", "control character"),
        ("a\udcff", "not valid Unicode"),
        ("a" * 300, "300 bytes"),
        ("ä" * 128, "256 bytes"),
    ],
)
def test_ids_that_cannot_name_files_are_refused(corpus, name, reason):
    assert reason in refused(corpus, lambda cut: cut.update(id=name))


def test_long_names_with_blanks_and_umlauts_are_good_ids(corpus):
    for line, name in ((1, "ä b'" * 49), (2, "x" * LONGEST_ID)):
        change_line(corpus, lambda cut, name=name: cut.update(id=name), line=line)
    counts, skipped = stage_1(corpus)
    assert counts["train"] == 2 and not skipped


def test_later_stages_refuse_such_ids(corpus):
    path = change_line(corpus, lambda cut: cut.update(id="../../outside"))
    with pytest.raises(ValueError, match="line 1: ../../outside: its id is a path"):
        load_cuts(path)


def test_speakers_of_all_types_are_compared(corpus):
    for line, speaker in ((1, 7), (2, ["ann"])):
        change_line(
            corpus, lambda cut, s=speaker: cut["supervisions"][0].update(speaker=s), line=line
        )
    assert stage_1(corpus)[0]["train"] == 2


@pytest.mark.parametrize(
    ("unit", "reason"),
    [
        (" a", "' a' is no unit: empty, or with a blank"),
        ("a ", "with a blank"),
        ("a b", "with a blank"),
        ("a\x00", "control character"),
        ("", "'' is no unit: empty"),
        (None, "None is no unit: text is expected"),
        (True, "True is no unit"),
        (3, "3 is no unit"),
        (1.5, "1.5 is no unit"),
        (["a"], "['a'] is no unit"),
        ("*", "it stands for an unknown unit"),
        ("-", "it stands for a unit that was left out"),
        ("<eps>", "it stands for the empty symbol"),
    ],
)
def test_units_that_are_no_symbols_are_refused(corpus, unit, reason):
    def change(cut):
        cut["supervisions"][0]["custom"]["units"] = ["a", unit]

    said = refused(corpus, change)
    assert "units, number 2" in said and reason in said


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"units": "ab"}, "units must be a list, not str"),
        ({"units": []}, "no canonical units"),
        ({"units": None}, "no canonical units"),
        ({"words": "ab"}, "words must be a list, not str"),
        ({"words": ["A", None]}, "words, number 2: None is no word"),
        ({"words": ["A", " "]}, "words, number 2: ' ' is no word"),
        ({"words": ["AB"], "word_of_unit": "00"}, "word_of_unit must be a list of whole numbers"),
        ({"words": ["AB"], "word_of_unit": [0, False]}, "must be a list of whole numbers"),
        ({"words": ["AB"], "word_of_unit": [0, 1]}, "does not go through 1 words"),
        ({"words": ["A", "B"], "pronunciations": [[["a"]]]}, "one for each of 2 words"),
        ({"words": ["A", "B"], "pronunciations": [[["a"]], [[]]]}, "number 2: not a list of lists"),
        ({"words": ["A", "B"], "pronunciations": [[["a"]], [["*"]]]}, "unknown unit"),
    ],
)
def test_fields_of_other_types_are_refused(corpus, fields, reason):
    assert reason in refused(corpus, lambda cut: cut["supervisions"][0]["custom"].update(fields))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda cut: cut.update(start=None), "its start is no number"),
        (lambda cut: cut.update(duration=float("nan")), "its duration is nan"),
        (lambda cut: cut.update(duration=0), "its duration is 0"),
        (lambda cut: cut.update(start=-1), "its start is -1"),
        (lambda cut: cut.update(supervisions=[]), "0 supervisions"),
        (lambda cut: cut["supervisions"][0].update(id=None), "its supervision has no id"),
        (lambda cut: cut["supervisions"][0].update(start=None), "its supervision's start is no"),
        (lambda cut: cut["recording"].update(num_samples="many"), "num_samples is 'many'"),
        (lambda cut: cut["recording"]["sources"][0].update(source=5), "file is 5"),
        (lambda cut: cut["recording"]["sources"][0].update(source="a\0"), "file is 'a"),
        (lambda cut: cut["recording"]["sources"][0].update(source=""), "file is ''"),
        (lambda cut: cut["recording"].update(sources=[]), "no channel 0"),
        (lambda cut: cut["recording"].update(duration="long"), "not readable as audio"),
        (lambda cut: cut.pop("recording"), "no audio"),
        (lambda cut: cut["supervisions"][0].update(custom=[1]), "not a cut of lhotse"),
        (lambda cut: cut.update(colour="red"), "not a cut of lhotse"),
        (lambda cut: cut.update(channel=7), "no channel 7"),
    ],
)
def test_cuts_that_cannot_be_are_refused(corpus, change, reason):
    change_line(corpus, change)
    counts, skipped = stage_1(corpus)
    assert counts == {"train": 1, "valid": 2, "test": 2}
    assert reason in skipped["train0"]["reason"]
