"""How good P(mispronounced) is: ranking, calibration error, Brier score, reliability curve.

Bins hold equally many units (equal mass): with bins of equal width nearly all units would be in the
first and the last one, and the bins between would be noise. Units of the same probability stay
together, in the bin where the middle of them belongs; where many have one, bins are uneven, and
fewer.

Even a perfectly calibrated system has a calibration error above 0, because the fraction of a bin of
n units varies by about sqrt(p (1 - p) / n).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from mlvae.score.ranking import area_under_curve, average_precision

MAX_BINS = 15
MIN_UNITS_PER_BIN = 20
#: Fields of `Calibration` that say how good probabilities are.
CALIBRATION_METRICS = (
    *("average_precision", "area_under_curve", "brier_score", "brier_skill"),
    "expected_calibration_error",
)


@dataclass(frozen=True)
class ReliabilityCurve:
    """B bins of units, in the order of their probability."""

    probability: np.ndarray  # (B,) float64, mean P(mispronounced) of the bin's units
    fraction: np.ndarray  # (B,) float64, fraction of them that was mispronounced
    # (B,) float64, lower end of the fraction's interval (Wilson's, as if units were independent of
    # each other)
    low: np.ndarray
    high: np.ndarray  # (B,) float64, upper end
    num_units: np.ndarray  # (B,) int64, number of units, at least 1


@dataclass(frozen=True)
class Calibration:
    """Metrics of one system's probabilities."""

    # how well they rank units, see :mod:`mlvae.score.ranking`; None where no unit is mispronounced
    average_precision: float | None
    # the same by the ROC curve; None where all units or none are mispronounced
    area_under_curve: float | None
    # mean squared distance of probability and reference (1 or 0), lower is better
    brier_score: float
    # 1 - Brier score / Brier score of the base rate: 1 is perfect, 0 as good as the base rate for
    # every unit, below 0 worse. None where all units or none are mispronounced.
    brier_skill: float | None
    # mean over units of the distance between the mean probability and the fraction of mispronounced
    # units of their bin, 0..1
    expected_calibration_error: float
    base_rate: float  # fraction of the units that was mispronounced
    num_units: int


def calibration(
    probability: np.ndarray, positive: np.ndarray, num_bins: int | None = None
) -> Calibration:
    """All metrics of ``probability`` (N,) float64 in 0..1; ``positive`` (N,) bool is the truth.

    ``num_bins`` is as of `equal_mass_bins`.

    Raises:
        ValueError: the shapes differ, there is no unit, a probability is outside 0..1, or
            ``num_bins`` is below 1.
    """
    curve = reliability_curve(probability, positive, num_bins)
    distance = np.abs(curve.probability - curve.fraction)
    brier = float(np.mean((probability - positive) ** 2))
    base_rate = np.mean(positive)
    constant = base_rate in (0.0, 1.0)
    return Calibration(
        average_precision=average_precision(probability, positive) if base_rate else None,
        area_under_curve=None if constant else area_under_curve(probability, positive),
        brier_score=brier,
        brier_skill=None if constant else 1 - brier / float(base_rate * (1 - base_rate)),
        expected_calibration_error=float(np.average(distance, weights=curve.num_units)),
        base_rate=float(base_rate),
        num_units=len(positive),
    )


def reliability_curve(
    probability: np.ndarray, positive: np.ndarray, num_bins: int | None = None
) -> ReliabilityCurve:
    """Compute the points of the curve with 95 % intervals; arguments as for ``calibration``."""
    if probability.shape != positive.shape or probability.ndim != 1:
        raise ValueError(
            f"expected two arrays of one shape (N,), got {probability.shape}, {positive.shape}"
        )
    if len(probability) == 0:
        raise ValueError("there is no unit")
    if not ((probability >= 0) & (probability <= 1)).all():
        raise ValueError("a probability lies outside 0..1")
    bins = equal_mass_bins(probability, num_bins)
    num_units = np.bincount(bins)
    num_positive = np.bincount(bins, weights=positive).astype(np.int64)
    ends = [
        binomtest(int(hits), int(units)).proportion_ci(0.95, method="wilson")
        for hits, units in zip(num_positive, num_units)
    ]
    return ReliabilityCurve(
        probability=np.bincount(bins, weights=probability) / num_units,
        fraction=num_positive / num_units,
        low=np.array([interval.low for interval in ends]),
        high=np.array([interval.high for interval in ends]),
        num_units=num_units,
    )


def equal_mass_bins(probability: np.ndarray, num_bins: int | None = None) -> np.ndarray:
    """Bins of equally many units, equal probabilities in the same bin.

    Of probabilities (N,) float64 (N,) int64, the bin of each unit; bins are numbered by rising
    probability, none is empty. Without a number there are 15, or fewer so that each has 20 units or
    more. Where many units have the same probability, fewer bins come out.

    Raises:
        ValueError: ``num_bins`` is below 1.
    """
    if num_bins is None:
        num_bins = min(MAX_BINS, max(1, len(probability) // MIN_UNITS_PER_BIN))
    if num_bins < 1:
        raise ValueError(f"need at least 1 bin, got {num_bins}")
    _, group, sizes = np.unique(probability, return_inverse=True, return_counts=True)
    # Whole numbers, so that no rounding decides: twice the rank of the middle of each group.
    twice_middle = 2 * np.cumsum(sizes) - sizes
    bins = twice_middle * num_bins // (2 * len(probability))
    return np.unique(bins[group.reshape(-1)], return_inverse=True)[1].reshape(-1)
