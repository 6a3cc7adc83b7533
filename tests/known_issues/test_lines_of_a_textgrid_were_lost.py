"""The reader of TextGrids split files at certain words: without a line ``intervals [3]:`` two
labels became one, the minus of a time was dropped, and labels that hold such words broke the file.
Intervals that a tier announces and lacks were not missed.
"""

from __future__ import annotations

import re

import pytest

from mlvae.data.textgrid import Interval, TextGridError, read_textgrid
from tests.corpora.l2arctic.tree import DOG_WORDS, textgrid, tiers

CONTENT = tiers(DOG_WORDS)
LONG, SHORT = textgrid(CONTENT), textgrid(CONTENT, short=True)


def read(tmp_path, text: str):
    path = tmp_path / "some.TextGrid"
    path.write_text(text, encoding="utf-8")
    return read_textgrid(path)


def labels(grid, name="phones"):
    return [interval.label for interval in grid.tiers[name].intervals]


@pytest.mark.parametrize("number", [1, 3, 11])
def test_a_missing_line_before_an_interval_merges_nothing(tmp_path, number):
    before, after = LONG.rsplit(f"        intervals [{number}]:\n", 1)
    assert read(tmp_path, before + after) == read(tmp_path, LONG)


def test_a_missing_value_is_named(tmp_path):
    place = LONG.rindex('text = "HH"')
    for text, reason in (
        (LONG[:place] + LONG[place + 12 :], "tier 'phones', interval 4: a label is missing"),
        (LONG.replace('xmax = 0.4000 \ntext = "HH"', 'text = "HH"'), "interval 4: an end is mis"),
        (SHORT.replace('0.4000\n"HH"', '"HH"'), "interval 4: an end is missing"),
        (LONG.replace('name = "phones"', "name = phones"), "the name of tier 2 is missing"),
        (LONG.replace('"IntervalTier"', '"Interval"', 1), "tier 1 is of class 'Interval'"),
    ):
        assert text not in (LONG, SHORT)
        with pytest.raises(TextGridError, match=reason):
            read(tmp_path, text)


@pytest.mark.parametrize("text", [LONG, SHORT], ids=["long", "short"])
def test_the_minus_of_a_time_stays(tmp_path, text):
    grid = read(tmp_path, text.replace("0.0000", "-0.0500"))
    for tier in grid.tiers.values():
        assert tier.intervals[0].start == -0.05


@pytest.mark.parametrize(
    "number", ["0,3000", "3e-1", "3.0E-01", ".3", "+0.3", "0.30000000000000004"]
)
@pytest.mark.parametrize("short", [False, True])
def test_numbers_in_other_forms(tmp_path, number, short):
    text = (SHORT if short else LONG).replace("0.3000", number)
    grid = read(tmp_path, text)
    assert grid.tiers["phones"].intervals[3].start == pytest.approx(0.3)


def test_lines_without_blanks_and_with_comments(tmp_path):
    text = LONG.replace(" = ", "=").replace('"HH"', '"HH" ! said "twice" 3 times')
    assert read(tmp_path, text) == read(tmp_path, LONG)


@pytest.mark.parametrize(
    "label",
    [
        *("item [1]", "intervals [2]:", 'class = "IntervalTier"', 'say "hh"', "xmin = 0.3", "! no"),
        *("two\nlines", 'text = "x"\n        intervals [3]:', "<exists>", '"', '""'),
    ],
)
@pytest.mark.parametrize("short", [False, True])
def test_labels_may_hold_what_files_are_made_of(tmp_path, label, short):
    content = {"comments": [(0.0, 1.1, label)], **CONTENT}
    grid = read(tmp_path, textgrid(content, short))
    assert labels(grid, "comments") == [label]
    assert labels(grid) == [label for _, _, label in CONTENT["phones"]]


@pytest.mark.parametrize("short", [False, True])
def test_an_interval_that_is_announced_and_missing_is_noticed(tmp_path, short):
    for place in (0, 4, 10):
        content = {**CONTENT, "phones": [*CONTENT["phones"]]}
        del content["phones"][place]
        text = textgrid(content, short)
        announced = re.sub(r"(?m)^(intervals: size = )?10( ?)$", r"\g<1>11\2", text)
        assert announced != text
        with pytest.raises(TextGridError, match="'phones'.* 10 of 11 intervals are there"):
            read(tmp_path, announced)


def test_a_wrong_number_that_does_no_harm_is_said(tmp_path):
    grid = read(
        tmp_path, LONG.replace("size = 11", "size = 12").replace("\nsize = 2", "\nsize = 3")
    )
    assert labels(grid) == [label for _, _, label in CONTENT["phones"]]
    assert [repair.what for repair in grid.repairs] == [
        "tier 'phones': 11 of 12 intervals are there",
        "3 tiers are announced, 2 are there",
    ]


def test_points_and_tiers_of_one_name(tmp_path):
    points = '"TextTier"\n"Marks"\n0\n1.1\n2\n0.5\n"a ""b"""\n0.7\n""\n'
    again = '"IntervalTier"\n" PHONES "\n0\n1.1\n1\n0\n1.1\n"no"\n'
    text = SHORT.replace("<exists>\n2", "<exists>\n4") + points + again
    grid = read(tmp_path, text)
    assert labels(grid, "marks") == ['a "b"', ""]
    assert grid.tiers["marks"].is_points
    assert grid.tiers["marks"].intervals[0] == Interval(0.5, 0.5, 'a "b"')
    assert len(labels(grid)) == 11
    assert [r.what for r in grid.repairs] == ["there are two tiers 'phones'"]
    upper = SHORT.replace('"words"', '"Marks"')
    grid = read(tmp_path, upper.replace("<exists>\n2", "<exists>\n3") + points)
    assert not grid.tiers["marks"].is_points
    with pytest.raises(TextGridError, match="cut off: tier 'marks' has 1 of 2 points"):
        read(tmp_path, (SHORT + points)[: -len('0.7\n""\n')])
