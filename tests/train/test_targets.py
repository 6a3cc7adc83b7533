from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlvae.fsa import UnitSpan
from mlvae.tiers import tier, with_tiers
from mlvae.train.packed import PackedSpans
from mlvae.train.targets import (
    IGNORE,
    changed_frames,
    frame_targets,
    items_of_spans,
    spans_of_tier,
)
from tests.train.tiny import TABLE, make_cut, unit_spans


def silence(start: int, end: int) -> UnitSpan:
    return UnitSpan(-1, -1, start, end, "silence", False, -1, 0.0, -1, -1)


def test_spans_become_frames():
    spans = [unit_spans([2, 2, 0], [0, 1, 3, 5], wrong={1}), unit_spans([1], [0, 4])]
    found = frame_targets(spans, torch.tensor([5, 4]), 4)
    assert found.column.tolist() == [[2, 2, 2, 0, 0], [1, 1, 1, 1, IGNORE]]
    assert found.boundary.tolist() == [[1, 1, 0, 1, 0], [1, 0, 0, 0, 0]]
    assert found.mispronounced.tolist() == [[0, 1, 1, 0, 0], [0, 0, 0, 0, 0]]
    assert (found.column.dtype, found.boundary.dtype) == (torch.int64, torch.float32)


@pytest.mark.parametrize("told", [True, False])
def test_frames_outside_units_are_silence_up_to_the_end_of_the_cut(told):
    """An alignment tier has no silence in it, a best path has."""
    units = [
        UnitSpan(0, 3, 1, 2, "unit", False, 3, 0.0, 0, 0),
        UnitSpan(1, 0, 3, 4, "unit", True, -1, 0.0, 1, 1),
    ]
    spans = units
    if told:
        spans = [silence(0, 1), units[0], silence(2, 3), units[1], silence(4, 6)]
    found = frame_targets([spans], torch.tensor([6]), 4, silence=True)
    assert found.column.tolist() == [[4, 3, 4, 0, 4, 4]]
    assert found.boundary.tolist() == [[0, 1, 0, 1, 0, 0]]
    assert found.mispronounced.tolist() == [[0, 0, 0, 1, 0, 0]]
    padded = frame_targets([spans, []], torch.tensor([6, 7]), 4, silence=True)
    assert padded.column[0, 6] == IGNORE
    assert frame_targets([units], torch.tensor([6]), 4).column.tolist() == [
        [IGNORE, 3, IGNORE, 0, IGNORE, IGNORE]
    ]


def test_a_unit_without_length_leaves_no_mark():
    spans = unit_spans([0, 1, 2], [0, 2, 2, 4])
    found = frame_targets([spans], torch.tensor([4]), 3)
    assert found.column.tolist() == [[0, 0, 2, 2]]
    assert found.boundary.tolist() == [[1, 0, 1, 0]]


@st.composite
def cuts_with_spans(draw):
    """A cut of any number of samples at 8 kHz, and spans of units with optional silence."""
    num_frames = draw(st.integers(1, 700))
    # lhotse counts a frame for each full step of 10 ms and for a rest of at least half a step.
    low, high = 80 * num_frames - 40, 80 * num_frames + 39
    duration = draw(st.integers(max(low, 1), high)) / 8000
    count = draw(st.integers(1, min(num_frames, 6)))
    inner = draw(
        st.lists(st.integers(1, max(1, num_frames - 1)), max_size=count - 1, unique=True)
        if num_frames > 1
        else st.just([])
    )
    edges = [0, *sorted(inner), num_frames]
    units = draw(st.lists(st.integers(0, 3), min_size=len(edges) - 1, max_size=len(edges) - 1))
    cut = make_cut("drawn", np.zeros((num_frames, 2)), TABLE.units(units), duration)
    assert cut.num_frames == num_frames
    return cut, unit_spans(units, edges)


@settings(max_examples=200, deadline=None)
@given(cuts_with_spans())
def test_a_tier_gives_the_spans_back_and_tiles_the_cut(drawn):
    cut, spans = drawn
    units = [span.unit for span in spans]
    items = items_of_spans(cut, spans, TABLE.units(units), [0.0] * len(units))
    cut = with_tiers(cut, {"fa": items})
    assert spans_of_tier(cut, "fa", units) == spans
    items = tier(cut, "fa")
    assert items[0].start == 0
    assert items[-1].end == pytest.approx(cut.duration, abs=2e-6)
    for item, following in zip(items[:-1], items[1:]):
        assert item.end == pytest.approx(following.start, abs=2e-6)


def test_silence_is_in_no_tier_and_scores_are_kept():
    cut = make_cut("x", np.zeros((10, 2)), ["a", "b"])
    spans = [silence(0, 2), *unit_spans([0, 1], [2, 5, 8]), silence(8, 10)]
    items = items_of_spans(cut, spans, ["a", "b"], [-1.5, -2.5])
    assert [(item.symbol, item.start, item.end, item.score) for item in items] == [
        ("a", 0.02, 0.05, -1.5),
        ("b", 0.05, 0.08, -2.5),
    ]
    read = spans_of_tier(with_tiers(cut, {"fa": items}), "fa", [0, 1])
    assert [(span.start, span.end, span.score) for span in read] == [(2, 5, -1.5), (5, 8, -2.5)]


def test_a_tier_of_other_units_is_refused():
    cut = make_cut("x", np.zeros((10, 2)), ["a", "b"])
    items = items_of_spans(cut, unit_spans([0], [0, 10]), ["a"], [0.0])
    with pytest.raises(ValueError, match="x: tier fa has 1 items for 2 units"):
        spans_of_tier(with_tiers(cut, {"fa": items}), "fa", [0, 1])
    with pytest.raises(ValueError, match="x: no tier other"):
        spans_of_tier(cut, "other", [0, 1])


def test_a_frame_stands_for_what_was_perceived_and_where_that_is_unknown_for_what_was_to_be_said():
    spans = [
        UnitSpan(0, 2, 0, 2, "unit", True, 1, 0.0, 0, 0),
        UnitSpan(1, 0, 2, 3, "unit", True, -1, 0.0, 1, 1),
        UnitSpan(2, 3, 3, 3, "unit", True, -1, 0.0, 2, 2),  # left out
        UnitSpan(3, 3, 3, 5, "unit", False, 3, 0.0, 3, 3),
    ]
    found = frame_targets([spans], torch.tensor([5]), 4)
    assert found.column.tolist() == [[1, 1, 0, 3, 3]]
    assert found.boundary.tolist() == [[1, 0, 1, 1, 0]]
    assert found.mispronounced.tolist() == [[1, 1, 1, 0, 0]]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=5),
    st.integers(1, 4),
    st.booleans(),
)
def test_states_divide_a_unit_evenly_from_left_to_right(units, states, has_silence):
    edges = [2]
    for _, length in units:
        edges.append(edges[-1] + length)
    spans = unit_spans([unit for unit, _ in units], edges)
    num_frames = torch.tensor([edges[-1] + 1])
    found = frame_targets([spans], num_frames, 4, states, has_silence)
    column = found.column[0].tolist()
    outside = 4 * states if has_silence else IGNORE
    for t in (0, 1, edges[-1]):
        assert column[t] == outside
    for (wanted, length), start, end in zip(units, edges[:-1], edges[1:]):
        state = [value - wanted * states for value in column[start:end]]
        assert state == sorted(state)
        assert state[0] == 0 and state[-1] < states
        counts = [state.count(s) for s in range(states)]
        assert max(counts) - min(counts) <= 1
        if length >= states:
            assert state[-1] == states - 1


@st.composite
def best_paths(draw):
    """Spans as best paths over plain lists of units have them."""
    spans: list[UnitSpan] = []
    start = place = 0
    for kind in draw(
        st.lists(st.sampled_from(["unit", "silence", "insertion", "out"]), max_size=6)
    ):
        end = start if kind == "out" else start + draw(st.integers(1, 40))
        score = draw(st.floats(-50, 50))
        if kind in ("unit", "out"):
            unit = draw(st.integers(0, 9))
            perceived = -1 if kind == "out" else draw(st.integers(-1, 9))
            wrong = perceived != unit
            spans.append(
                UnitSpan(place, unit, start, end, "unit", wrong, perceived, score, place, place)
            )
            place += 1
        else:
            spans.append(UnitSpan(-1, -1, start, end, kind, False, -1, score, -1, -1))
        start = end
    return spans


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text("ab", max_size=3), best_paths(), max_size=4))
def test_packed_spans_come_back_as_they_were(spans):
    packed = PackedSpans(spans)
    for found in (packed, PackedSpans(packed), PackedSpans.from_tensors(packed.tensors())):
        assert list(found.items()) == list(spans.items())
        for name, own in spans.items():
            for span, other in zip(own, found[name]):
                assert list(map(type, span)) == list(map(type, other))
    assert dict(packed.some(list(spans)[1:])) == dict(list(spans.items())[1:])


def test_a_frame_changes_with_its_unit_or_with_what_is_said_of_it():
    before = {
        "a": unit_spans([2, 2, 0], [0, 2, 4, 6]),
        "b": unit_spans([1], [0, 4]),
        "unanswered": unit_spans([1], [0, 9]),
    }
    same = {"b": before["b"], "a": before["a"]}
    assert changed_frames(before, same) == 0
    # Equal neighbours are two units; the boundary between them moved by a frame.
    moved = same | {"a": unit_spans([2, 2, 0], [0, 3, 4, 6])}
    assert changed_frames(before, moved) == pytest.approx(1 / 10)
    flagged = same | {"b": unit_spans([1], [0, 4], wrong={0})}
    assert changed_frames(before, flagged) == pytest.approx(4 / 10)
    with_silence = same | {"b": [silence(0, 1), *unit_spans([1], [1, 4])]}
    assert changed_frames(before, with_silence) == pytest.approx(1 / 10)
    assert changed_frames(before, {}) == 0
