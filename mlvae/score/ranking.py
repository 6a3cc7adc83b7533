"""How well a score puts what is positive above what is not, whatever its threshold."""

from __future__ import annotations

import numpy as np


def average_precision(
    score: np.ndarray, positive: np.ndarray, weight: np.ndarray | None = None
) -> float:
    """Area under the curve of precision over recall, as steps: sum of precision x gain in recall.

    Items of equal score are one step, as no threshold parts them. Of a score that says nothing it
    is the fraction of positives.

    Args:
        score: float (N,), high where positive; no NaN.
        positive: bool (N,).
        weight: float (N,), how often each item counts, at least 0; None: once each.

    Returns:
        Between 0 and 1; NaN where no positive has a weight.

    Raises:
        ValueError: the arrays are not of one length, or a score is NaN.

    Example:
        >>> average_precision(np.array([3, 2, 1]), np.array([True, False, True]))
        0.8333333333333333
    """
    above, found = _cumulative(score, positive, weight)
    if not len(found) or found[-1] <= 0:
        return float("nan")
    precision = np.divide(found, above, out=np.zeros_like(found), where=above > 0)
    gain = np.diff(found, prepend=0.0)
    return float((precision * gain).sum() / found[-1])


def area_under_curve(
    score: np.ndarray, positive: np.ndarray, weight: np.ndarray | None = None
) -> float:
    """Area under the ROC curve: how often a positive item scores above one that is not.

    Equal scores count one half.

    Args:
        score: float (N,), high where positive; no NaN.
        positive: bool (N,).
        weight: float (N,), how often each item counts, at least 0; None: once each.

    Returns:
        Between 0 and 1; NaN where either kind of items has no weight.

    Raises:
        ValueError: the arrays are not of one length, or a score is NaN.

    Example:
        >>> area_under_curve(np.array([3, 2, 1]), np.array([True, False, True]))
        0.5
    """
    above, found = _cumulative(score, positive, weight)
    if not len(found):
        return float("nan")
    false = above - found
    if found[-1] <= 0 or false[-1] <= 0:
        return float("nan")
    gain = np.diff(false, prepend=0.0)
    middle = found - 0.5 * np.diff(found, prepend=0.0)
    return float((gain * middle).sum() / (found[-1] * false[-1]))


def _cumulative(
    score: np.ndarray, positive: np.ndarray, weight: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Weights of all items, and of the positive ones, that reach each score, from the highest on.

    Both are float64 (K,), for K different scores.
    """
    score, positive = np.asarray(score, dtype=np.float64), np.asarray(positive, dtype=bool)
    weight = np.ones(len(score)) if weight is None else np.asarray(weight, dtype=np.float64)
    if score.ndim != 1 or score.shape != positive.shape or score.shape != weight.shape:
        raise ValueError(
            f"scores {score.shape}, positives {positive.shape} and weights {weight.shape} must be "
            "of one length"
        )
    if np.isnan(score).any():
        raise ValueError("a score is NaN")
    order = np.argsort(-score, kind="stable")
    score, weight = score[order], weight[order]
    last = np.append(score[1:] != score[:-1], True)[: len(score)]  # of equal scores
    return np.cumsum(weight)[last], np.cumsum(weight * positive[order])[last]
