import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlvae.score.calibration import calibration, equal_mass_bins, reliability_curve

NO, YES = False, True


def loop_bins(probabilities, num_bins):
    """Each unit's bin, by the rank of the middle of the units that share its probability."""
    bins = []
    for one in probabilities:
        below = sum(other < one for other in probabilities)
        same = sum(other == one for other in probabilities)
        bins.append((2 * below + same) * num_bins // (2 * len(probabilities)))
    return bins


def loop_error(probabilities, positives, num_bins):
    bins = loop_bins(probabilities, num_bins)
    total = 0.0
    for each in set(bins):
        units = [i for i, one in enumerate(bins) if one == each]
        said = sum(probabilities[i] for i in units) / len(units)
        true = sum(positives[i] for i in units) / len(units)
        total += len(units) / len(bins) * abs(said - true)
    return total


def loop_skill(probabilities, positives):
    base = sum(positives) / len(positives)
    if base in (0, 1):
        return None
    own = sum((p - y) ** 2 for p, y in zip(probabilities, positives))
    return 1 - own / sum((base - y) ** 2 for y in positives)


# Few different values make ties, which equal-mass bins must keep together.
probability = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.25, 1.0]))
units = st.lists(st.tuples(probability, st.booleans()), min_size=1, max_size=60)


@given(units, st.integers(1, 20))
@settings(max_examples=80, deadline=None)
def test_against_plain_loops(pairs, num_bins):
    probabilities, positives = zip(*pairs)
    arrays = np.array(probabilities), np.array(positives)
    brier = sum((p - y) ** 2 for p, y in pairs) / len(pairs)
    found = calibration(*arrays, num_bins)
    assert found.brier_score == pytest.approx(brier)
    skill = loop_skill(probabilities, positives)
    assert found.brier_skill == (skill if skill is None else pytest.approx(skill))
    assert (found.average_precision is None) is (not any(positives))
    assert (found.area_under_curve is None) is (len(set(positives)) == 1)
    error = loop_error(probabilities, positives, num_bins)
    assert found.expected_calibration_error == pytest.approx(error)

    curve = reliability_curve(*arrays, num_bins)
    assert curve.num_units.sum() == len(pairs) and curve.num_units.min() >= 1
    assert len(curve.num_units) <= num_bins
    assert (np.diff(curve.probability) > -1e-12).all()
    assert (curve.num_units * curve.fraction).sum() == pytest.approx(sum(positives))
    assert ((curve.low <= curve.fraction + 1e-12) & (curve.fraction <= curve.high + 1e-12)).all()
    assert ((curve.low >= 0) & (curve.high <= 1)).all()


def test_bins_hold_equally_many_units():
    rng = np.random.default_rng(0)
    values = rng.permutation(np.arange(1500)) / 1500
    sizes = np.bincount(equal_mass_bins(values))
    assert sizes.tolist() == [100] * 15
    bins = equal_mass_bins(values)
    assert all(values[bins == b].max() < values[bins == b + 1].min() for b in range(14))
    assert set(np.bincount(equal_mass_bins(values[:1499]))) <= {99, 100, 101}


def test_fewer_bins_where_units_are_few():
    assert [equal_mass_bins(np.linspace(0, 1, n)).max() + 1 for n in (1, 19, 45, 299, 300)] == [
        1,
        1,
        2,
        14,
        15,
    ]


def test_units_of_one_probability_share_a_bin():
    values = np.array([0.0] * 70 + [0.2, 0.3, 0.4] * 5 + [1.0] * 15)
    bins = equal_mass_bins(values, 10)
    groups = {value: set(bins[values == value]) for value in np.unique(values)}
    assert all(len(found) == 1 for found in groups.values())
    assert bins.max() == len(np.unique(bins)) - 1
    assert np.bincount(equal_mass_bins(np.zeros(100))).tolist() == [100]


def test_calibrated_probabilities_have_a_small_error():
    rng = np.random.default_rng(0)
    said = rng.beta(0.4, 1.2, 30_000)
    true = rng.random(30_000) < said
    found = calibration(said, true)
    assert found.expected_calibration_error < 0.01
    assert found.brier_score == pytest.approx(np.mean(said * (1 - said)), abs=0.005)
    assert 0.3 < found.brier_skill < 1
    assert found.base_rate == pytest.approx(0.25, abs=0.01)
    assert found.num_units == 30_000
    curve = reliability_curve(said, true)
    inside = (curve.low < curve.probability) & (curve.probability < curve.high)
    assert inside.sum() >= 13

    # Too sure of itself: the odds are squared and more.
    odds = (said / (1 - said)) ** 3
    sure = odds / (1 + odds)
    worse = calibration(sure, true)
    assert worse.expected_calibration_error > 0.08
    assert worse.brier_skill < found.brier_skill


def test_known_cases():
    true = np.array([YES, NO, NO, NO] * 50)
    base = calibration(np.full(200, 0.25), true)
    assert base.brier_skill == pytest.approx(0.0)
    assert base.brier_score == pytest.approx(0.25 * 0.75)
    assert base.expected_calibration_error == pytest.approx(0.0)

    perfect = calibration(true.astype(float), true)
    assert (perfect.brier_skill, perfect.brier_score) == (1.0, 0.0)
    assert perfect.expected_calibration_error == 0.0

    inverted = calibration(1.0 - true, true)
    assert inverted.brier_score == 1.0
    assert inverted.brier_skill == pytest.approx(1 - 1 / (0.25 * 0.75))
    assert inverted.expected_calibration_error == 1.0

    assert calibration(np.full(200, 0.75), true).expected_calibration_error == pytest.approx(0.5)


@pytest.mark.parametrize("true", [NO, YES])
def test_no_skill_where_all_units_are_alike(true):
    found = calibration(np.full(40, 0.5), np.full(40, true))
    assert found.brier_skill is None
    assert found.brier_score == 0.25


def test_wilson_interval():
    curve = reliability_curve(np.full(20, 0.5), np.array([YES] * 5 + [NO] * 15))
    z, n, share = 1.959964, 20, 0.25
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    assert curve.low.tolist() == [pytest.approx(middle - half)]
    assert curve.high.tolist() == [pytest.approx(middle + half)]


def test_refused_input():
    half, yes = np.full(3, 0.5), np.full(3, YES)
    with pytest.raises(ValueError, match="one shape"):
        calibration(half, yes[:2])
    with pytest.raises(ValueError, match="there is no unit"):
        calibration(half[:0], yes[:0])
    for wrong in (1.5, -0.1, np.nan):
        with pytest.raises(ValueError, match="outside 0..1"):
            calibration(np.array([0.5, 0.5, wrong]), yes)
    with pytest.raises(ValueError, match="at least 1 bin"):
        reliability_curve(half, yes, num_bins=0)
