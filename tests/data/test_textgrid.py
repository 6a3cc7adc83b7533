from __future__ import annotations

import pytest

from mlvae.data.textgrid import (
    Interval,
    TextGridError,
    read_textgrid,
    tidy_intervals,
)
from tests.corpora.l2arctic.tree import DOG_WORDS, textgrid, tiers

CONTENT = {**tiers(DOG_WORDS), "IPA": [(0.0, 1.1, 'a "good" dog')]}


def check(path, content=CONTENT):
    found = read_textgrid(path).tiers
    assert list(found) == [name.lower() for name in content]
    for name, intervals in content.items():
        read = [(i.start, i.end, i.label) for i in found[name.lower()].intervals]
        assert [label for _, _, label in read] == [label.strip() for _, _, label in intervals]
        for (start, end, _), (true_start, true_end, _) in zip(read, intervals):
            assert (start, end) == pytest.approx((true_start, true_end), abs=1e-4)


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-8", b""),
        ("utf-8", b"\xef\xbb\xbf"),
        ("utf-16-le", b"\xff\xfe"),
        ("utf-16-be", b"\xfe\xff"),
        ("utf-16-le", b""),
        ("utf-16-be", b""),
    ],
)
def test_every_encoding_and_form_is_the_same(tmp_path, encoding, mark, newline, short):
    text = textgrid(CONTENT, short).replace("\n", newline)
    path = tmp_path / "x.TextGrid"
    path.write_bytes(mark + text.encode(encoding))
    check(path)


def test_signs_that_are_not_ascii(tmp_path):
    content = {"phones": [(0.0, 1.0, "é")]}
    for encoding in ("utf-8", "latin-1", "utf-16"):
        (tmp_path / "x.TextGrid").write_bytes(textgrid(content).encode(encoding))
        check(tmp_path / "x.TextGrid", content)


def test_numbers_in_exponential_form_and_a_header_without_blank_line(tmp_path):
    text = textgrid(CONTENT).replace("xmin = 0.0000", "xmin = 1.5e-05").replace('"\n\n', '"\n')
    (tmp_path / "x.TextGrid").write_text(text)
    check(tmp_path / "x.TextGrid")


@pytest.mark.parametrize("short", [False, True])
def test_a_file_that_is_cut_off_anywhere_is_no_shorter_tier(tmp_path, short):
    text = textgrid(tiers(DOG_WORDS), short)
    whole = len(text.rstrip())
    for length in range(1, whole, 7):
        (tmp_path / "x.TextGrid").write_text(text[:length])
        try:
            found = read_textgrid(tmp_path / "x.TextGrid").tiers
        except TextGridError:
            continue
        # None at all is refused by the reader.
        assert "phones" not in found or len(found["phones"].intervals) == 11


def test_an_interval_that_ends_before_it_starts_is_refused(tmp_path):
    (tmp_path / "x.TextGrid").write_text(textgrid({"phones": [(0.5, 0.2, "D"), (0.5, 1.0, "AH")]}))
    with pytest.raises(TextGridError, match="an interval from 0.5 s ends at 0.2 s"):
        read_textgrid(tmp_path / "x.TextGrid")


def test_of_overlapping_intervals_the_later_start_counts():
    tidy, repairs = tidy_intervals(
        [Interval(0.0, 0.22, "D"), Interval(0.2, 0.4, "AH"), Interval(0.4, 0.5, "K")], 0.5
    )
    assert [(i.start, i.end) for i in tidy] == [(0.0, 0.2), (0.2, 0.4), (0.4, 0.5)]
    assert [(r.time, r.kind, r.what) for r in repairs] == [
        (0.2, "overlap", "'D' reached 0.020 s into 'AH'")
    ]


def test_what_is_past_the_end_is_cut_and_a_phone_there_is_refused():
    tidy, repairs = tidy_intervals([Interval(0.0, 0.6, "D"), Interval(0.6, 0.8, "sil")], 0.5)
    assert [(i.start, i.end, i.label) for i in tidy] == [(0.0, 0.5, "D")]
    assert [repair.kind for repair in repairs] == ["past the end", "past the end"]
    with pytest.raises(TextGridError, match="'K' at 0.600 s is after the end"):
        tidy_intervals([Interval(0.0, 0.6, "D"), Interval(0.6, 0.8, "K")], 0.5)
