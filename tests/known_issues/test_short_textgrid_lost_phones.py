"""A tier in short form was read up to the first row that the parser did not understand. If other
tiers came after it, the phones behind that row were lost in silence, and the units of the text
counted as correct. Times that are no numbers became times of the reference.
"""

from __future__ import annotations

import pytest

from mlvae.data.textgrid import Interval, TextGridError, read_textgrid, tidy_intervals
from tests.corpora.l2arctic.tree import DOG_WORDS, textgrid, tiers


def test_a_damaged_row_is_noticed_in_any_tier(tmp_path):
    content = tiers(DOG_WORDS)
    content["comments"] = [(0.0, 1.1, "")]
    text = textgrid(content, short=True)
    path = tmp_path / "some.TextGrid"
    for whole in (text, text.replace('"HH"', '"HH"\n')):  # a blank line after it does no harm
        path.write_text(whole)
        assert len(read_textgrid(path).tiers["phones"].intervals) == len(content["phones"])
    path.write_text(text.replace('"HH"', "HH"))
    with pytest.raises(TextGridError, match="tier 'phones', interval 4: a label is missing"):
        read_textgrid(path)


@pytest.mark.parametrize("number", ["nan", "inf", "1e999"])
def test_times_are_numbers(tmp_path, number):
    path = tmp_path / "some.TextGrid"
    path.write_text(textgrid(tiers(DOG_WORDS), short=True).replace("0.4000", number))
    with pytest.raises(TextGridError, match="nan|inf"):
        read_textgrid(path)


def test_what_ends_before_the_recording_begins_has_no_negative_time():
    tidy, _ = tidy_intervals([Interval(-0.3, -0.1, "K"), Interval(-0.1, 0.2, "AH0")], 1.0)
    assert tidy == [Interval(0.0, 0.0, "K"), Interval(0.0, 0.2, "AH0")]
