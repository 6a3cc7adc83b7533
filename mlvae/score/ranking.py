"""How well a score puts what is positive above what is not, whatever its threshold.

One score and one weighting: :func:`average_precision` and :func:`area_under_curve`. Many weightings
of clusters (resamples of speakers, say): :func:`ranking_metrics`, which sorts once and then takes
cumulative sums alone, so that a thousand resamples of 50,000 units take seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RANKING_METRICS = ("average_precision", "auc", "best_f1", "best_f1_flagged")
"""What `ranking_metrics` gives."""

# Weights of units that are worked on at once: bounds the memory to a few hundred megabytes.
BATCH_WEIGHTS = 4_000_000


def average_precision(score: np.ndarray, positive: np.ndarray) -> float:
    """Area under the curve of precision over recall, as steps: sum of precision x gain in recall.

    Items of equal score are one step, as no threshold parts them. Of a score that says nothing it
    is the fraction of positives; NaN where there is no positive.

    Args:
        score: float (N,), high where positive; no NaN.
        positive: bool (N,).

    Raises:
        ValueError: the arrays are not of one length, or a score is NaN.

    Example:
        >>> average_precision(np.array([3, 2, 1]), np.array([True, False, True]))
        0.8333333333333333
    """
    return _metric("average_precision", score, positive)


def area_under_curve(score: np.ndarray, positive: np.ndarray) -> float:
    """Area under the ROC curve: how often a positive item scores above one that is not.

    Equal scores count one half; NaN where all items or none are positive. Arguments and errors as
    of :func:`average_precision`.

    Example:
        >>> area_under_curve(np.array([3, 2, 1]), np.array([True, False, True]))
        0.5
    """
    return _metric("auc", score, positive)


def _metric(name: str, score: np.ndarray, positive: np.ndarray) -> float:
    score, positive = np.asarray(score, dtype=np.float64), np.asarray(positive, dtype=bool)
    if score.ndim != 1 or score.shape != positive.shape:
        raise ValueError(
            f"scores {score.shape} and positives {positive.shape} must be of one length"
        )
    if np.isnan(score).any():
        raise ValueError("a score is NaN")
    if not len(score):
        return float("nan")
    found = ranking_metrics(score, [positive], np.zeros(len(score), np.int64), np.ones((1, 1)))
    return float(found[RANKING_METRICS.index(name), 0, 0])


def ranking_metrics(
    probability: np.ndarray,
    positives: Sequence[np.ndarray],
    clusters: np.ndarray,
    weights: np.ndarray,
) -> np.ndarray:
    """Metrics of a ranking by falling probability; units of one probability share a threshold.

    * Average precision: the sum of ``(R_n - R_(n-1)) P_n`` over the distinct probabilities from the
      highest on, where P_n and R_n are precision and recall of the units at or above the n-th.
    * AUC: the fraction of pairs of a positive and a negative unit in which the positive one has the
      higher probability, pairs of equal ones counting one half.
    * Best F1 over all thresholds, and the fraction of units that is flagged there (the smallest of
      equally good ones).

    Args:
        probability: (N,) float64.
        positives: K arrays (N,) bool, what is to be found.
        clusters: (N,) int64 in 0..C-1, the cluster of each unit.
        weights: (R, C) float64, the weight of each cluster in R weightings.

    Returns:
        (4, K, R) float64, the metrics in the order of `RANKING_METRICS`; NaN where no positive unit
        has weight, AUC also where no negative one has.

    Example:
        >>> one = np.ones((1, 1))
        >>> wrong = np.array([True, False, True])
        >>> ranking_metrics(np.array([0.9, 0.5, 0.4]), [wrong], np.zeros(3, int), one)[:2].ravel()
        array([0.83333333, 0.5       ])
    """
    order = np.argsort(-probability, kind="stable")
    ordered = probability[order]
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))  # of each probability
    columns = clusters[order]
    found = np.empty((len(RANKING_METRICS), len(positives), len(weights)))
    size = max(1, BATCH_WEIGHTS // max(len(order), 1))
    for start in range(0, len(weights), size):
        batch = slice(start, start + size)
        of_units = weights[batch][:, columns]
        flagged = np.cumsum(of_units, axis=1)[:, last]
        for index, positive in enumerate(positives):
            hits = np.cumsum(of_units * positive[order], axis=1)[:, last]
            found[:, index, batch] = _metrics(hits, flagged)
    return found


def _metrics(hits: np.ndarray, flagged: np.ndarray) -> np.ndarray:
    """(4, B) from (B, M): weight of the positive, and of all units, at or above each threshold."""
    num_positive, total = hits[:, -1], flagged[:, -1]
    steps = np.diff(hits, axis=1, prepend=0.0)
    negatives = np.diff(flagged - hits, axis=1, prepend=0.0)
    below = (total - num_positive)[:, None] - (flagged - hits)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Where nothing has been flagged yet there is no precision, and no step either.
        precision = np.where(flagged > 0, hits / flagged, 0.0)
        average_precision = (steps * precision).sum(axis=1) / num_positive
        pairs = (steps * (below + negatives / 2)).sum(axis=1)
        auc = pairs / (num_positive * (total - num_positive))
        f1 = 2 * hits / (flagged + num_positive[:, None])
    best = np.nan_to_num(f1).argmax(axis=1)
    rows = np.arange(len(hits))
    fraction = flagged[rows, best] / total
    known = num_positive > 0
    return np.stack(
        [
            average_precision,
            auc,
            np.where(known, f1[rows, best], np.nan),
            np.where(known, fraction, np.nan),
        ]
    )
