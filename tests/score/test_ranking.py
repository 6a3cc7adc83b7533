"""Average precision, the area under the ROC curve and best F1, against brute force."""

from __future__ import annotations

import doctest
import math

import numpy as np
import pytest

from mlvae.score import ranking
from mlvae.score.ranking import (
    RANKING_METRICS,
    area_under_curve,
    average_precision,
    ranking_metrics,
)


def brute_force(probability, positive):
    """The metrics by their definitions."""
    precision_of, steps, best = {}, 0.0, (-1.0, 0.0)
    recall_before = 0.0
    for threshold in sorted(set(probability), reverse=True):
        flags = probability >= threshold
        hits = (flags & positive).sum()
        precision_of[threshold] = hits / flags.sum()
        recall = hits / positive.sum()
        steps += (recall - recall_before) * precision_of[threshold]
        recall_before = recall
        f1 = 2 * hits / (flags.sum() + positive.sum())
        if f1 > best[0] + 1e-12:
            best = (f1, flags.mean())
    pairs = [
        1.0 if a > b else 0.5 if a == b else 0.0
        for a in probability[positive]
        for b in probability[~positive]
    ]
    return np.array([steps, np.mean(pairs), *best])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("values", [3, 11, 10_000])
def test_metrics_are_those_of_brute_force(seed, values):
    rng = np.random.default_rng(seed)
    probability = rng.integers(0, values, 60) / values
    positives = [rng.random(60) < rate for rate in (0.2, 0.5)]
    clusters = rng.integers(0, 5, 60)
    found = ranking_metrics(probability, positives, clusters, np.ones((1, 5)))
    for index, positive in enumerate(positives):
        expected = brute_force(probability, positive)
        np.testing.assert_allclose(found[:, index, 0], expected)
        single = [f(probability, positive) for f in (average_precision, area_under_curve)]
        np.testing.assert_allclose(single, expected[:2])


def test_a_weight_is_that_many_copies_of_the_cluster(monkeypatch):
    rng = np.random.default_rng(7)
    probability = rng.integers(0, 8, 40) / 8
    positive = rng.random(40) < 0.3
    clusters = np.arange(40) % 4
    weights = rng.integers(0, 4, (9, 4)).astype(float)
    weights[0] = [2, 0, 1, 0]
    monkeypatch.setattr(ranking, "BATCH_WEIGHTS", 100)  # several batches
    found = ranking_metrics(probability, [positive], clusters, weights)
    for row, weight in enumerate(weights):
        copies = np.repeat(np.arange(40), weight[clusters].astype(int))
        expected = brute_force(probability[copies], positive[copies])
        np.testing.assert_allclose(found[:, 0, row], expected)


def test_without_positive_units_nothing_is_defined():
    probability, clusters = np.array([0.1, 0.7]), np.array([0, 1])
    positive = np.array([True, False])
    found = ranking_metrics(probability, [positive], clusters, np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert np.isnan(found[:, 0, 0]).all()
    auc = RANKING_METRICS.index("auc")
    assert np.isnan(found[auc, 0, 1])
    assert not np.isnan(np.delete(found[:, 0, 1], auc)).any()


def test_perfect_worst_and_nothing_said():
    positive = np.array([True, False, False, True, False])
    assert average_precision(positive * 1.0, positive) == 1.0
    assert area_under_curve(positive * 1.0, positive) == 1.0
    assert area_under_curve(-1.0 * positive, positive) == 0.0
    assert average_precision(np.zeros(5), positive) == pytest.approx(0.4)
    assert area_under_curve(np.zeros(5), positive) == 0.5


def test_nothing_to_tell_apart():
    score = np.array([0.2, 0.5])
    assert average_precision(score, np.array([1, 1])) == 1.0
    for metric, positive in (
        (average_precision, [0, 0]),
        (average_precision, []),
        (area_under_curve, [0, 0]),
        (area_under_curve, [1, 1]),
        (area_under_curve, []),
    ):
        assert math.isnan(metric(score[: len(positive)], np.array(positive)))


def test_bad_input():
    with pytest.raises(ValueError, match=r"scores \(2,\) and positives \(3,\) must be of one"):
        average_precision(np.zeros(2), np.zeros(3, bool))
    with pytest.raises(ValueError, match="a score is NaN"):
        area_under_curve(np.array([0.1, np.nan]), np.array([True, False]))


def test_the_example_is_right():
    assert doctest.testmod(ranking).attempted > 0
    assert doctest.testmod(ranking).failed == 0
