from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlvae.train.estep import EStepResult
from mlvae.train.selection import REFERENCE_RATE, corrupt_units, corrupted_f1
from tests.train.tiny import unit_spans

NAMES = st.text("ab12-", min_size=1, max_size=5)


@st.composite
def drawn_units(draw):
    num_units = draw(st.integers(1, 6))
    sequence = st.lists(st.integers(0, num_units - 1), min_size=1, max_size=8)
    return num_units, draw(st.dictionaries(NAMES, sequence, max_size=8))


@settings(max_examples=100, deadline=None)
@given(drawn_units(), st.floats(0, 1), st.integers(0, 3))
def test_replaced_units_and_only_those_are_others(drawn, rate, seed):
    num_units, units = drawn
    before = {name: list(sequence) for name, sequence in units.items()}
    corrupted, replaced = corrupt_units(units, num_units, rate, seed)
    assert units == before
    assert list(corrupted) == list(replaced) == list(units)
    for name, sequence in units.items():
        assert len(corrupted[name]) == len(replaced[name]) == len(sequence)
        for old, new, mark in zip(sequence, corrupted[name], replaced[name]):
            assert 0 <= new < num_units
            assert (old != new) is mark
    assert (corrupted, replaced) == corrupt_units(units, num_units, rate, seed)
    for name in units:  # a cut's draw does not depend on what other cuts there are
        assert corrupt_units({name: units[name]}, num_units, rate, seed)[0][name] == corrupted[name]


def test_rate_and_seed_are_followed_and_all_other_units_are_drawn():
    units = {f"u{number}": [3] * 10 for number in range(300)}
    corrupted, replaced = corrupt_units(units, 5, 0.2, seed=0)
    marks = [mark for row in replaced.values() for mark in row]
    assert 0.17 < sum(marks) / len(marks) < 0.23
    others = [u for row in corrupted.values() for u in row if u != 3]
    assert all(0.2 < others.count(unit) / len(others) < 0.3 for unit in (0, 1, 2, 4))
    assert corrupt_units(units, 5, 0.2, seed=1)[0] != corrupted
    assert not any(map(any, corrupt_units(units, 5, 0.0, seed=0)[1].values()))
    assert all(map(all, corrupt_units(units, 5, 1.0, seed=0)[1].values()))


def result_of(flags) -> EStepResult:
    """Best paths that call some units mispronounced; cuts without flags are not in it."""
    spans = {
        name: unit_spans([0] * len(row), list(range(len(row) + 1)), set(np.flatnonzero(row)))
        for name, row in flags.items()
    }
    return EStepResult(spans, 0.0, 0.0)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        NAMES,
        st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=6),
        max_size=6,
    ),
    st.data(),
)
def test_f1_without_labels_that_were_wrong_before_is_f1_at_the_rate(flags_and_marks, data):
    """Against counting, with weights that give the errors the rate of wrong labels."""
    flags, replaced = {}, {}
    flagged, total = [0, 0], [0, 0]
    for name, pairs in flags_and_marks.items():
        replaced[name] = [mark for _, mark in pairs]
        is_lost = data.draw(st.booleans())  # too short: no spans, all its marks are missed
        if not is_lost:
            flags[name] = [flag for flag, _ in pairs]
        for flag, mark in pairs:
            total[mark] += 1
            flagged[mark] += flag and not is_lost
    score = corrupted_f1(result_of(flags), replaced)
    assert 0 <= score <= 1
    if not all(total):
        assert score == 0
        return
    rate = REFERENCE_RATE
    false_alarms, recall = flagged[0] / total[0], flagged[1] / total[1]
    # What is found among the units left alone may all be labels that were wrong before.
    right = max(false_alarms - rate * recall, 0)
    wanted = 2 * rate * recall / (rate * recall + right + rate)
    assert score == pytest.approx(wanted)


def judged(quality: tuple[float, float], rate: float, seed: int, count: int = 4000):
    """Flags over corrupted labels of a judge, and its true F1 before they were corrupted.

    ``quality``: how often it flags right and wrong labels.
    """
    rng = np.random.default_rng(seed)
    was_wrong = rng.random(count) < rate
    marks = rng.random(count) < 0.2
    draw = rng.random(count)
    flags = draw < np.where(was_wrong | marks, quality[1], quality[0])
    true_flags = draw < np.where(was_wrong, quality[1], quality[0])
    hits = (true_flags & was_wrong).sum()
    score = corrupted_f1(result_of({"x": flags}), {"x": marks.tolist()}, rate)
    return score, 2 * hits / (true_flags.sum() + was_wrong.sum()), (flags, marks)


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.4])
def test_f1_is_that_of_true_errors_though_some_labels_were_wrong_before(rate):
    for quality in ((0.02, 0.95), (0.1, 0.9), (0.0, 1.0), (0.3, 0.5)):
        pairs = [judged(quality, rate, seed)[:2] for seed in range(12)]
        found, expected = np.mean(pairs, axis=0)
        assert found == pytest.approx(expected, abs=0.02)


def test_finds_of_labels_that_were_wrong_before_do_not_count_against_the_one_who_finds_them():
    """Taken for false alarms, they turn the order of these two round."""

    def naive(flags, marks):
        return 2 * (flags & marks).sum() / (flags.sum() + marks.sum())

    thorough, shy = (judged(quality, 0.4, 0, 400_000) for quality in ((0.1, 1.0), (0.0, 0.84)))
    assert thorough[1] > shy[1]
    assert naive(*thorough[2]) < naive(*shy[2])
    assert thorough[0] > shy[0]


def test_f1_does_not_count_silence():
    spans = unit_spans([1, 2], [2, 4, 6], wrong={1})
    silence = spans[0]._replace(kind="silence", start=0, end=2, unit=-1, position=-1)
    result = EStepResult({"x": [silence, *spans]}, 0.0, 0.0)
    assert corrupted_f1(result, {"x": [False, True]}) == 1.0
    assert corrupted_f1(result, {"x": [True, False]}) == 0.0
