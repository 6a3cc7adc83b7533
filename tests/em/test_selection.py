from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mlvae.em.estep import EStepResult
from mlvae.em.selection import corrupt_units, corrupted_f1
from tests.em.tiny import unit_spans

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


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        NAMES,
        st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=6),
        max_size=6,
    ),
    st.data(),
)
def test_f1_against_counting(flags_and_marks, data):
    found, replaced = {}, {}
    hits = false_alarms = misses = 0
    for name, pairs in flags_and_marks.items():
        replaced[name] = [mark for _, mark in pairs]
        is_lost = data.draw(st.booleans())  # too short: no spans, all its marks are missed
        if not is_lost:
            wrong = {i for i, (flag, _) in enumerate(pairs) if flag}
            found[name] = unit_spans([0] * len(pairs), list(range(len(pairs) + 1)), wrong)
        for flag, mark in pairs:
            flag = flag and not is_lost
            hits += flag and mark
            false_alarms += flag and not mark
            misses += mark and not flag
    precision = hits / (hits + false_alarms) if hits else 0.0
    recall = hits / (hits + misses) if hits else 0.0
    expected = 2 * precision * recall / (precision + recall) if hits else 0.0
    score = corrupted_f1(EStepResult(found, 0.0, 0.0), replaced)
    assert abs(score - expected) < 1e-12


def test_f1_does_not_count_silence():
    spans = unit_spans([1, 2], [2, 4, 6], wrong={1})
    silence = spans[0]._replace(kind="silence", start=0, end=2, unit=-1, position=-1)
    result = EStepResult({"x": [silence, *spans]}, 0.0, 0.0)
    assert corrupted_f1(result, {"x": [False, True]}) == 1.0
    assert corrupted_f1(result, {"x": [True, False]}) == 0.0
