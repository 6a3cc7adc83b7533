"""Average precision and the area under the ROC curve, against thresholds and pairs one by one."""

import math

import numpy as np
import pytest

from mlvae.score.ranking import area_under_curve, average_precision


def by_thresholds(score, positive, weight):
    """Average precision by going through every threshold."""
    found = total = 0.0
    for threshold in sorted(set(score), reverse=True):
        flagged = score >= threshold
        right = (weight * flagged * positive).sum()
        if flagged @ weight:
            total += (right - found) * right / (flagged @ weight)
        found = right
    return total / found


def by_pairs(score, positive, weight):
    """Area under the ROC curve by going through every pair of a positive and another item."""
    won = pairs = 0.0
    for i in np.flatnonzero(positive):
        for j in np.flatnonzero(~positive):
            pairs += weight[i] * weight[j]
            won += weight[i] * weight[j] * ((score[i] > score[j]) + 0.5 * (score[i] == score[j]))
    return won / pairs


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("levels", [3, 1000])  # many equal scores, few
def test_against_brute_force(seed, levels):
    generator = np.random.default_rng(seed)
    positive = generator.random(40) < 0.3
    score = generator.integers(levels, size=40) / levels + 0.3 * (levels > 3) * positive
    counts = generator.integers(0, 4, size=40).astype(float)
    for weight in (None, counts):
        given = np.ones(40) if weight is None else weight
        expected = by_thresholds(score, positive, given), by_pairs(score, positive, given)
        assert average_precision(score, positive, weight) == pytest.approx(expected[0], abs=1e-12)
        assert area_under_curve(score, positive, weight) == pytest.approx(expected[1], abs=1e-12)
    # A weight is how often an item is there, as a bootstrap draws it.
    drawn = np.repeat(np.arange(40), counts.astype(int))
    for metric in (average_precision, area_under_curve):
        assert metric(score, positive, counts) == pytest.approx(
            metric(score[drawn], positive[drawn]), abs=1e-12
        )
        shuffled = generator.permutation(40)
        assert metric(score[shuffled], positive[shuffled]) == pytest.approx(
            metric(score, positive), abs=1e-12
        )


def test_perfect_worst_and_nothing_said():
    positive = np.array([True, False, False, True, False])
    assert average_precision(positive * 1.0, positive) == 1.0
    assert area_under_curve(positive * 1.0, positive) == 1.0
    assert area_under_curve(-1.0 * positive, positive) == 0.0
    assert average_precision(np.zeros(5), positive) == pytest.approx(0.4)
    assert area_under_curve(np.zeros(5), positive) == 0.5


def test_nothing_to_tell_apart():
    score = np.array([0.2, 0.5])
    for positive, weight in (([0, 0], None), ([1, 0], [0.0, 1.0])):
        assert math.isnan(average_precision(score, np.array(positive), weight))
        assert math.isnan(area_under_curve(score, np.array(positive), weight))
    assert average_precision(score, np.array([1, 1])) == 1.0
    assert math.isnan(area_under_curve(score, np.array([1, 1])))
    assert math.isnan(average_precision(np.zeros(0), np.zeros(0, bool)))
    assert math.isnan(area_under_curve(np.zeros(0), np.zeros(0, bool)))


def test_bad_input():
    with pytest.raises(ValueError, match=r"scores \(2,\), positives \(3,\) and weights \(2,\)"):
        average_precision(np.zeros(2), np.zeros(3, bool))
    with pytest.raises(ValueError, match="a score is NaN"):
        area_under_curve(np.array([0.1, np.nan]), np.array([True, False]))
