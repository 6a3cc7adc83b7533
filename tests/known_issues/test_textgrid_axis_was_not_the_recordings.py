"""A TextGrid whose axis began at 0.05 s (a part of a longer recording that has kept its times) made
every reference time late, unsaid; one of another length, or of another sentence, was taken as it
was. Overlaps of seconds were "repaired".
"""

from __future__ import annotations

import json
import re

import pytest

from mlvae.corpora.l2arctic.files import UtteranceError, list_corpus, read_utterance
from mlvae.data.dataset import load_cuts
from mlvae.data.textgrid import Interval, TextGridError, tidy_intervals
from mlvae.stage import StageReport
from tests.corpora.l2arctic.tree import DOG_WORDS, textgrid, tiers, write_tidy, write_utterance
from tests.data.conftest import load_script

prepare = load_script("recipes/l2arctic/prepare.py")
CAT = (
    ("if", ("IH1", "F")),
    ("nobody", ("N", "OW1", "B", "AA2", "D", "IY2")),
    ("likes", ("L", "AY1", "K", "S")),
    ("us", ("AH1", "S")),
)


def moved(seconds: float, short: bool = False) -> str:
    """The whole axis begins at another time than 0."""
    content = {
        name: [(start + seconds, end + seconds, label) for start, end, label in intervals]
        for name, intervals in tiers(DOG_WORDS).items()
    }
    return textgrid(content, short, seconds)


def read(tmp_path, grid: str, **options):
    write_utterance(tmp_path, "ABA", "arctic_a0001", grid=grid, **options)
    report = StageReport("0 prepare", tmp_path)
    (files,) = list_corpus(tmp_path, report).utterances
    return read_utterance(files)


def times(utterance):
    return [(round(s.start, 4), round(s.end, 4)) for s in utterance.segments]


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("seconds", [0.05, 12.5, 0.0])
def test_an_axis_that_begins_later_is_moved_and_said(tmp_path, seconds, short):
    utterance = read(tmp_path, moved(seconds, short))
    tidy = tiers(DOG_WORDS)["phones"]
    assert times(utterance) == [(round(start, 4), round(end, 4)) for start, end, _ in tidy]
    assert [word.start for word in utterance.tier_words] == pytest.approx([0.1, 0.3, 0.6, 0.7])
    said = [(repair.kind, repair.what) for repair in utterance.repairs]
    what = f"the axis begins at {seconds:.3f} s: times are moved to begin at 0 s"
    assert said == ([("axis", what)] if seconds else [])


def test_an_axis_below_zero_is_moved_as_well(tmp_path):
    utterance = read(tmp_path, moved(-0.05))
    assert times(utterance)[:3] == [(0.0, 0.1), (0.1, 0.2), (0.2, 0.3)]
    assert [repair.kind for repair in utterance.repairs] == ["axis"]


def test_an_axis_that_lacks_its_beginning_is_right_as_it_is(tmp_path):
    text = textgrid(tiers(DOG_WORDS), start=0.05)
    utterance = read(tmp_path, text.replace("xmin = 0.0000", "xmin = 0.0500"))
    assert times(utterance)[:2] == [(0.05, 0.1), (0.1, 0.2)]
    (repair,) = utterance.repairs
    assert repair.what == "the axis begins at 0.050 s and ends with the recording: times are kept"


def test_a_recording_of_another_length_is_refused(tmp_path):
    content = tiers(DOG_WORDS)
    for intervals in content.values():
        start, end, label = intervals[-1]
        intervals[-1] = (start, end + 0.6, label)
    with pytest.raises(UtteranceError, match=r"from 0.000 s to 1.700 s, the recording 1.100 s"):
        read(tmp_path, textgrid(content))


def test_an_annotation_of_the_first_half_alone_is_refused(tmp_path):
    with pytest.raises(UtteranceError, match=r"from 0.000 s to 1.100 s, the recording 2.000 s"):
        read(tmp_path, textgrid(tiers(DOG_WORDS)), words=(*DOG_WORDS, ("a", ["AH0"] * 9)))
    content = tiers(DOG_WORDS)
    content["phones"] = content["phones"][:5]
    reason = "tier 'phones' ends at 0.500 s, the recording at 1.100 s"
    with pytest.raises(UtteranceError, match=reason):
        read(tmp_path, textgrid(content))


@pytest.mark.parametrize("axis", [("0.05", "1.1000"), ("0", "2.0"), ("-0.1", "1.1")])
def test_a_tier_on_another_axis_than_the_file_is_refused(tmp_path, axis):
    text, place = textgrid(tiers(DOG_WORDS)), 'name = "phones" \nxmin = {} \nxmax = {} \n'
    assert place.format("0", "1.1000") in text
    text = text.replace(place.format("0", "1.1000"), place.format(*axis))
    with pytest.raises(UtteranceError, match="tier 'phones' lasts from .* the file from 0.000 s"):
        read(tmp_path, text)


def test_annotation_of_another_sentence_is_skipped_by_name(tmp_path):
    root = write_tidy(tmp_path / "root")
    write_utterance(root, "ABA", "arctic_a0100", CAT)  # and its text is that of the dog
    write_utterance(root, "ABA", "arctic_a0101", CAT, "If nobody likes us.")
    write_utterance(root, "ABA", "arctic_a0102", (("a", ("EY1",)),), "A.")
    for options in (["--unit", "phone"], ["--unit", "bpe"], ["--protocol", "annotation"]):
        data = tmp_path / options[1]
        assert prepare(["--corpus-dir", str(root), "--data-dir", str(data), *options]) == 0
        (line,) = (data / "skipped.jsonl").read_text().splitlines()
        record = json.loads(line)
        assert record["id"] == "aba-arctic_a0100"
        assert re.search("of other words than the text: [0-9]+ of [0-9]+", record["reason"])
        assert record["source"].endswith("annotation/arctic_a0100.TextGrid")
        cuts = load_cuts(data / "manifests" / "cuts_train.jsonl.gz")
        assert {cut.id[-4:] for cut in cuts} == {"0001", "0002", "0101", "0102"}


@pytest.mark.parametrize("overlap", [0.021, 0.05, 3.8])
def test_overlaps_beyond_two_frames_are_no_repair(overlap):
    intervals = [Interval(0.0, 1.0 + overlap, "D"), Interval(1.0, 5.0, "AH0")]
    reason = (
        rf"'D' \(0.000 s to {1 + overlap:.3f} s\) and 'AH0' \(1.000 s to 5.000 s\) "
        rf"overlap by {overlap:.3f} s"
    )
    with pytest.raises(TextGridError, match=reason):
        tidy_intervals(intervals, 5.0)


def test_an_interval_within_another_is_an_overlap():
    inner = [Interval(0.0, 1.0, "D"), Interval(0.4, 0.5, "AH0"), Interval(1.0, 1.1, "K")]
    with pytest.raises(TextGridError, match="overlap by 0.600 s"):
        tidy_intervals(inner, 2.0)
    with pytest.raises(TextGridError, match="overlap by 0.500 s"):  # one on the other
        tidy_intervals([Interval(0.0, 0.5, "D"), Interval(0.0, 0.5, "K")], 2.0)


def test_gaps_and_intervals_without_length_are_said():
    intervals = [
        *(Interval(0.0, 0.2, "D"), Interval(0.2, 0.2, "sil"), Interval(0.2, 0.2, "K")),
        *(Interval(0.3, 0.4, "AH0"), Interval(-0.1, 0.0, "")),
    ]
    tidy, repairs = tidy_intervals(intervals, 0.4)
    assert [i.label for i in tidy] == ["D", "K", "AH0"]
    assert [(r.kind, r.time) for r in repairs] == [
        *(("before the start", 0.0), ("no length", 0.0), ("no length", 0.2)),
        *(("no length", 0.2), ("gap", 0.2)),
    ]
