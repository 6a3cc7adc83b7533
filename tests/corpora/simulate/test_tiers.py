from __future__ import annotations

import pytest

from mlvae.corpora.simulate.errors import Segment
from mlvae.corpora.simulate.tiers import DELETION_SECONDS, annotation_tiers, label


def correct(word, phone):
    return Segment(word, phone, phone, phone)


def deleted(word, phone):
    return Segment(word, phone, None, None)


def labels(tier):
    return [text for _, _, text in tier]


def assert_filled(tiers, duration):
    for tier in tiers.values():
        assert tier[0][0] == 0.0
        assert tier[-1][1] == duration
        assert all(a[1] == b[0] for a, b in zip(tier, tier[1:]))
        assert all(end > start for start, end, _ in tier)


def test_labels_are_the_annotators():
    assert label(correct(0, "AH0")) == "AH0"
    assert label(Segment(0, "IH1", "IY1", "IY1")) == "IH1,IY,s"
    assert label(Segment(0, "AA1", "AH0", "AH0")) == "AA1,AX,s"
    assert label(Segment(0, "R", "err", "err:x")) == "R,err,s"
    assert label(deleted(0, "D")) == "D,sil,d"
    assert label(Segment(0, None, "AH0", "AH0")) == "sil,AX,a"


def test_tiers_of_a_sentence_with_everything():
    segments = [
        correct(0, "DH"),
        Segment(0, "AH0", "AA0", "AA0"),
        correct(1, "K"),
        correct(1, "AE1"),
        deleted(1, "T"),  # before the pause
        deleted(2, "S"),  # after it
        correct(2, "AE1"),
        correct(2, "D"),
        Segment(2, None, "AH0", "AH0"),
    ]
    times = [(0.1, 0.2), (0.2, 0.3), (0.3, 0.4), (0.4, 0.6), (0.8, 1.0), (1.0, 1.1), (1.1, 1.2)]
    annotation, canonical = annotation_tiers(["the", "cat", "sad"], segments, times, 1.3)
    assert_filled(annotation, 1.3)
    assert_filled(canonical, 1.3)
    assert annotation["phones"] == [
        (0.0, 0.1, "sil"),
        (0.1, 0.2, "DH"),
        (0.2, 0.3, "AH0,AA,s"),
        (0.3, 0.4, "K"),
        (0.4, 0.585, "AE1"),
        (0.585, 0.615, "T,sil,d"),
        (0.615, 0.785, "sp"),
        (0.785, 0.815, "S,sil,d"),
        (0.815, 1.0, "AE1"),
        (1.0, 1.1, "D"),
        (1.1, 1.2, "sil,AX,a"),
        (1.2, 1.3, "sil"),
    ]
    assert labels(annotation["words"]) == ["", "the", "cat", "", "sad", ""]
    assert annotation["words"][4] == (0.785, 1.2, "sad")
    expected = "sil DH AH0 K AE1 T sp S AE1 D sil"
    assert " ".join(labels(canonical["phones"])) == expected
    assert canonical["phones"][9] == (1.0, 1.2, "D")


def test_deletions_share_what_short_neighbours_can_give():
    segments = [correct(0, "T"), deleted(0, "S"), deleted(0, "T"), correct(0, "S")]
    phones = annotation_tiers(["x"], segments, [(0.1, 0.13), (0.13, 0.4)], 0.5)[0]["phones"]
    assert [round(end - start, 6) for start, end, _ in phones] == [0.1, 0.02, 0.02, 0.02, 0.24, 0.1]


def test_a_word_of_which_nothing_is_left_keeps_its_place():
    segments = [correct(0, "T"), deleted(1, "AH0"), correct(2, "S")]
    tiers = annotation_tiers(["t", "a", "s"], segments, [(0.1, 0.3), (0.3, 0.5)], 0.6)[0]
    assert labels(tiers["words"]) == ["", "t", "a", "s", ""]
    start, end, _ = tiers["words"][2]
    assert end - start == pytest.approx(DELETION_SECONDS)
