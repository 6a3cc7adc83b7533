from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlvae.fsa import UnitSpan
from mlvae.train.confusion import estimate_confusions


def span(kind: str, unit: int, perceived: int, is_deletion: bool = False) -> UnitSpan:
    end = 3 if is_deletion else 5
    return UnitSpan(
        0, unit, 3, end, kind, kind == "unit" and perceived != unit, perceived, -1.0, 0, 0
    )


@st.composite
def drawn_spans(draw):
    """Units perceived right, as another one, as nobody knows what; left out; and silence."""
    num_units = draw(st.integers(2, 5))
    unit = st.integers(0, num_units - 1)
    spoken = st.builds(span, st.just("unit"), unit, st.one_of(unit, st.just(-1)))
    deleted = st.builds(span, st.just("unit"), unit, st.just(-1), st.just(True))
    other = st.builds(span, st.sampled_from(["silence", "insertion"]), st.just(-1), st.just(-1))
    utterance = st.lists(st.one_of(spoken, deleted, other), max_size=10)
    return num_units, draw(st.dictionaries(st.text("ab1", max_size=3), utterance, max_size=6))


@settings(max_examples=60, deadline=None)
@given(drawn_spans(), st.fractions(Fraction(1, 20), Fraction(19, 20)))
def test_against_a_plain_count(drawn, prior_rate):
    num_units, spans = drawn
    every = [s for utterance in spans.values() for s in utterance if s.kind == "unit"]
    units = [s for s in every if not s.is_deletion]  # the others have a rate of their own
    wrong = [s for s in units if s.mispronounced]
    correctness, confusion = estimate_confusions(spans, num_units, float(prior_rate))
    rate = (20 * prior_rate + len(wrong)) / (20 + len(units))
    expected = torch.tensor([float(1 - rate), float(rate)])
    torch.testing.assert_close(correctness.exp(), expected)
    assert correctness.dtype == confusion.dtype == torch.float32
    for unit in range(num_units):
        perceived = [s.perceived for s in wrong if s.unit == unit and s.perceived >= 0]
        for other in range(num_units):
            if other == unit:
                assert confusion[unit, other] == -math.inf
                continue
            share = (1 + perceived.count(other)) / (num_units - 1 + len(perceived))
            assert float(confusion[unit, other].exp()) == pytest.approx(share, rel=1e-5)


def test_nothing_perceived_gives_the_prior():
    correctness, confusion = estimate_confusions({}, 4)
    torch.testing.assert_close(correctness.exp(), torch.tensor([0.85, 0.15]))
    expected = (torch.ones(4, 4) - torch.eye(4)) / 3
    torch.testing.assert_close(confusion.exp(), expected)


def test_a_single_unit_has_no_competitor():
    correctness, confusion = estimate_confusions({"x": [span("unit", 0, 0)]}, 1)
    assert torch.isfinite(correctness).all()
    assert confusion.tolist() == [[-math.inf]]
