from __future__ import annotations

import numpy as np
import pytest
from lhotse.supervision import AlignmentItem

from mlvae.report.textgrid import write_textgrid
from mlvae.score.metrics import interval_iou
from mlvae.systems.two_pass import pair_units, with_comparison
from mlvae.tiers import DELETED, has_tier, tier
from tests.train.tiny import make_cut


@pytest.mark.parametrize(
    ("canonical", "recognised", "expected"),
    [
        ("abc", "abc", [(0, 0), (1, 1), (2, 2)]),
        ("abc", "adc", [(0, 0), (1, 1), (2, 2)]),
        ("abc", "ac", [(0, 0), (None, 1), (1, 1)]),
        ("abc", "ab", [(0, 0), (1, 1), (None, 2)]),
        ("abc", "bc", [(None, 0), (0, 0), (1, 1)]),
        ("abc", "abdc", [(0, 0), (1, 1), (3, 3)]),
        ("ab", "dab", [(1, 1), (2, 2)]),
        ("ab", "", [(None, 0), (None, 0)]),
    ],
)
def test_units_are_paired_on_an_edit_path(canonical, recognised, expected):
    assert pair_units(list(canonical), list(recognised)) == expected


def test_symbols_are_compared_whole():
    """Not letter by letter: "sh" is no neighbour of "s"."""
    assert pair_units(["sh", "s"], ["s"]) == [(None, 0), (0, 0)]


def answer(canonical: str, recognised: str, edges: list[float]):
    cut = make_cut("x", np.zeros((60, 2)), list(canonical))
    items = [
        AlignmentItem(symbol, start, round(end - start, 6), 0.5)
        for symbol, start, end in zip(recognised, edges[:-1], edges[1:])
    ]
    found = with_comparison(cut, items)
    assert not has_tier(cut, "mlvae")
    units, perceived = tier(found, "mlvae"), tier(found, "mlvae_perceived")
    assert [item.symbol for item in units] == list(canonical)
    assert [(item.start, item.duration) for item in units] == [
        (item.start, item.duration) for item in perceived
    ]
    assert all(item.score is None for item in [*units, *perceived])
    return found, [(i.symbol, round(i.start, 6), round(i.end, 6)) for i in perceived]


def test_what_was_recognised_instead_has_its_span():
    _, perceived = answer("abc", "adc", [0.0, 0.2, 0.4, 0.6])
    assert perceived == [("a", 0.0, 0.2), ("d", 0.2, 0.4), ("c", 0.4, 0.6)]


def test_what_was_not_recognised_has_no_length_and_lies_where_it_would_have_been(tmp_path):
    found, perceived = answer("abcd", "ac", [0.0, 0.25, 0.6])
    nothing = DELETED
    assert perceived == [
        ("a", 0.0, 0.25),
        (nothing, 0.25, 0.25),
        ("c", 0.25, 0.6),
        (nothing, 0.6, 0.6),
    ]
    items = tier(found, "mlvae")
    found_times = np.array([(item.start, item.end) for item in items]).T
    true_times = np.array([(0.0, 0.25), (0.25, 0.6), (0.25, 0.6), (0.5, 0.6)]).T
    assert interval_iou(*found_times, *true_times).tolist() == [1, 0, 1, 0]
    write_textgrid(found, tmp_path / "x.TextGrid", ["mlvae", "mlvae_perceived"])


def test_what_was_inserted_leaves_a_gap(tmp_path):
    found, perceived = answer("ab", "acb", [0.0, 0.2, 0.35, 0.6])
    assert perceived == [("a", 0.0, 0.2), ("b", 0.35, 0.6)]
    write_textgrid(found, tmp_path / "x.TextGrid", ["mlvae", "mlvae_perceived"])


def test_where_nothing_was_recognised_every_unit_is_flagged():
    _, perceived = answer("ab", "", [0.0])
    assert perceived == [(DELETED, 0.0, 0.0)] * 2
