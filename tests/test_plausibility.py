from __future__ import annotations

import pytest
from lhotse.supervision import AlignmentItem

from mlvae.plausibility import count_flagged, edge_warnings, training_data_warnings
from mlvae.tiers import with_tiers
from tests.train.tiny import spoken_cuts


def cut_of(units: str, perceived: str):
    cut = next(iter(spoken_cuts(1)[0]))
    return with_tiers(
        cut,
        {
            name: [AlignmentItem(symbol, float(place), 1.0) for place, symbol in enumerate(symbols)]
            for name, symbols in (("mlvae", units), ("mlvae_perceived", perceived))
        },
    )


def test_flagged_and_deleted_units_are_counted():
    without_answer = next(iter(spoken_cuts(1)[0]))
    found = count_flagged([cut_of("abcd", "ab-*"), cut_of("aabb", "aabb"), without_answer])
    assert found.line() == "25.0 % of 8 units flagged, 12.5 % deleted"
    assert found.as_dict() == {
        "num_units": 8,
        "num_flagged": 2,
        "num_deleted": 1,
        "flagged": 0.25,
        "deleted": 0.125,
    }


@pytest.mark.parametrize(
    "perceived, warns",
    [("bbb" + "a" * 12, False), ("bbbbb" + "a" * 10, False), ("b" * 6 + "a" * 9, True)],
)
def test_more_than_a_third_is_warned_of(perceived, warns):
    """Not of a fifth, nor of a third itself."""
    warnings = count_flagged([cut_of("a" * 15, perceived)]).warnings()
    assert len(warnings) == warns
    assert not warns or ("more than a third" in warnings[0] and "40.0 %" in warnings[0])


def test_nothing_answered_is_nothing_flagged():
    assert count_flagged([]).line() == "0.0 % of 0 units flagged, 0.0 % deleted"
    assert count_flagged([]).warnings() == []


@pytest.mark.parametrize("chosen, said", [(0.1, "smallest"), (0.25, None), (0.6, "largest")])
def test_a_value_at_the_edge_of_its_grid_is_warned_of(chosen, said):
    warnings = edge_warnings("acoustic scale", chosen, [0.6, 0.1, 0.25], "calibration.scales")
    assert len(warnings) == (said is not None)
    if said:
        assert f"the acoustic scale, {chosen:g}, is the {said} that was tried" in warnings[0]
        assert "0.1, 0.25, 0.6" in warnings[0] and "calibration.scales" in warnings[0]


def test_of_a_single_value_nothing_is_chosen():
    assert edge_warnings("acoustic scale", 0.1, [0.1], "calibration.scales") == []


@pytest.mark.parametrize(
    "sentences, minutes, warns", [(449, 90, True), (450, 29.9, True), (450, 30, False)]
)
def test_too_little_to_learn_from_is_warned_of(sentences, minutes, warns):
    warnings = training_data_warnings(sentences, 60.0 * minutes)
    assert len(warnings) == warns
    assert not warns or f"{sentences} sentences and {minutes:.1f} minutes" in warnings[0]
