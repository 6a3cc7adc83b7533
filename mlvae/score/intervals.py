"""Confidence intervals of metrics, by clusters of units.

Units of a test set are not independent: a recording that is used in several utterances keeps its
wrong label, and utterances of one speaker are alike. Units are therefore grouped in clusters, by
source recording or by speaker, and what varies is which clusters the test set holds.

* **Pooled and hard metrics, average IoU**: percentile bootstrap. Clusters are drawn with
  replacement, a unit's weight is the number of times that its cluster was drawn, and the metric is
  computed from the weighted sums.
* **Macro metrics**: estimate plus and minus a multiple of a cluster-robust standard error, because
  weighting units does not work here: an utterance whose only mismatch is not drawn would become an
  utterance without a mismatch and count 0, which puts the whole distribution far below the
  estimate (0.49 to 0.61 around 0.68 in one trial). A macro metric is a mean over utterances, and
  two utterances depend on each other when they share a cluster. With e_u the deviation of utterance
  u from the mean, the variance is the sum of e_u e_v over all pairs (u, v) that are the same
  utterance or share a cluster (once for each cluster shared), divided by U squared, and at least
  that of independent utterances. Where each utterance lies within one cluster this is the usual
  cluster-robust variance.

They say how metrics would vary over test recordings (or speakers) of this kind. They do not cover
another training run or another corpus, nor, by recording, other speakers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import norm

from mlvae.score.metrics import (
    MACRO_METRICS,
    NUM_SUMS,
    SUM_METRICS,
    Outcomes,
    Scores,
    metrics_of_sums,
    score,
    unit_sums,
    utterance_values,
)

# Resamples worked on at once: bounds the memory to a few tens of megabytes for 10 000 clusters.
BATCH = 100
LEVEL = 0.95


@dataclass(frozen=True)
class Difference:
    """One metric of a first system minus that of a second, on the same units and resamples."""

    estimate: float  # the difference on the whole set
    low: float | None  # lower end of its interval; None where there were too few clusters
    high: float | None  # upper end of its interval

    @property
    def excludes_zero(self) -> bool:
        """Whether there is an interval and 0 lies outside it."""
        return self.low is not None and not self.low <= 0 <= self.high


def interval_fields(name: str, found: Difference | None) -> dict[str, Any]:
    """A metric and its interval as results have them; None where it is not defined."""
    known = found is not None and found.low is not None
    return {
        name: None if found is None else found.estimate,
        f"{name}_interval": [found.low, found.high] if known else None,
    }


def difference_fields(name: str, found: Difference | None) -> dict[str, Any]:
    """The same of a difference of two systems, and whether its interval excludes zero."""
    excludes_zero = found is not None and found.excludes_zero
    return {**interval_fields(name, found), f"{name}_excludes_zero": excludes_zero}


@dataclass(frozen=True)
class Intervals:
    """Metrics of S systems on the same U utterances, and how they vary."""

    scores: dict[str, Scores]  # per system its metrics on the whole set
    num_clusters: int  # number of clusters, C
    # (S, 7, R) float64, the systems in the order of ``scores``, the metrics in that of
    # ``SUM_METRICS``, and R resamples, the same ones for all systems
    resamples: np.ndarray
    # (S, U, 3) float64, each utterance's metrics in the order of ``MACRO_METRICS``
    values: np.ndarray
    membership: csr_array  # (C, U) float64 sparse, 1 where an utterance has a unit of the cluster

    def interval(self, system: str, metric: str) -> tuple[float, float] | None:
        """The ends of the interval of one metric; None with fewer than two clusters."""
        low_high = self._ends(getattr(self.scores[system], metric), metric, system)
        return low_high and (max(low_high[0], 0.0), min(low_high[1], 1.0))

    def paired_difference(self, first: str, second: str, metric: str) -> Difference:
        """Compare two systems by one metric, on the same units and resamples."""
        estimate = getattr(self.scores[first], metric) - getattr(self.scores[second], metric)
        return Difference(estimate, *(self._ends(estimate, metric, first, second) or (None, None)))

    def _ends(
        self, estimate: float, metric: str, first: str, second: str | None = None
    ) -> tuple[float, float] | None:
        if self.num_clusters < 2:
            return None
        samples, names = self.samples(metric), list(self.scores)
        cases = samples[names.index(first)]
        if second is not None:
            cases = cases - samples[names.index(second)]
        outside = (1 - LEVEL) / 2
        if metric in MACRO_METRICS:
            width = float(norm.ppf(1 - outside)) * mean_standard_error(cases, self.membership)
            return estimate - width, estimate + width
        low, high = np.quantile(cases, [outside, 1 - outside])
        return float(low), float(high)

    def samples(self, metric: str) -> np.ndarray:
        """(S, U): a macro metric of each utterance; (S, R): another one of each resample."""
        if metric in MACRO_METRICS:
            return self.values[:, :, MACRO_METRICS.index(metric)]
        return self.resamples[:, SUM_METRICS.index(metric)]


def bootstrap_intervals(
    systems: Mapping[str, Outcomes],
    clusters: np.ndarray,
    num_resamples: int = 1000,
    seed: int = 0,
) -> Intervals:
    """Score systems and resample the clusters of their common units.

    Args:
        systems: by name the outcomes on the same N units in the same order.
        clusters: (N,) int64 in 0..C-1, the cluster of each unit.
        num_resamples: number of resamples, R.
        seed: of the resampling; the same seed gives the same intervals.

    Raises:
        ValueError: there is no system or no resample, or the systems or the clusters are of
            different units.
    """
    if not systems:
        raise ValueError("there is no system to score")
    if num_resamples < 1:
        raise ValueError(f"{num_resamples} resamples: need at least 1")
    outcomes = list(systems.values())
    utterance = outcomes[0].utterance
    for name, one in systems.items():
        if not np.array_equal(one.utterance, utterance):
            raise ValueError(f"{name} is scored on other units than {next(iter(systems))}")
    if utterance.shape != clusters.shape:
        raise ValueError(f"{len(utterance)} units, but {len(clusters)} with a cluster")

    num_clusters = int(clusters.max()) + 1
    sums = np.zeros((len(outcomes), num_clusters, NUM_SUMS))
    for index, one in enumerate(outcomes):
        np.add.at(sums[index], clusters, unit_sums(one))

    draw = np.random.default_rng(seed)
    batches = [np.zeros((0, len(outcomes), len(SUM_METRICS)))]
    for first in range(0, num_resamples if num_clusters > 1 else 0, BATCH):
        size = min(BATCH, num_resamples - first), num_clusters
        weights = _multiplicities(draw.integers(0, num_clusters, size))
        # One by one, so that a system has the same intervals, to the bit, beside any others: the
        # order in which a product adds depends on its shape.
        total = np.stack([weights @ own for own in sums], axis=1)  # (B, S, NUM_SUMS)
        batches.append(metrics_of_sums(total))
    resamples = np.moveaxis(np.concatenate(batches), 0, -1)  # (S, 7, R)
    return Intervals(
        scores={name: score(one) for name, one in systems.items()},
        num_clusters=num_clusters,
        resamples=resamples,
        values=np.stack([utterance_values(one) for one in outcomes]),
        membership=_membership(clusters, utterance),
    )


def mean_standard_error(values: np.ndarray, membership: csr_array) -> float:
    """Standard error of a mean over utterances of which some share clusters.

    It is at least that of U independent utterances.

    Args:
        values: (U,) float64, one value per utterance.
        membership: (C, U) sparse, 1 where the utterance has a unit of the cluster.
    """
    deviation = values - values.mean()
    squares = deviation**2
    # Squaring a cluster's sum gives every pair within it; an utterance's own square is in there
    # once for each of its clusters and is wanted once.
    clusters_each = np.asarray(membership.sum(axis=0)).reshape(-1)
    pairs = ((membership @ deviation) ** 2).sum() - ((clusters_each - 1) * squares).sum()
    return float(np.sqrt(max(pairs, squares.sum())) / len(values))


def _membership(clusters: np.ndarray, utterance: np.ndarray) -> csr_array:
    pairs = np.unique(np.stack([clusters, utterance]), axis=1)
    shape = (int(clusters.max()) + 1, int(utterance.max()) + 1)
    return csr_array((np.ones(pairs.shape[1]), (pairs[0], pairs[1])), shape=shape)


def _multiplicities(drawn: np.ndarray) -> np.ndarray:
    """How often each index was drawn: (B, C) int64 indices in 0..C-1 to (B, C) float64 counts."""
    num_rows, num_columns = drawn.shape
    flat = drawn + np.arange(num_rows)[:, None] * num_columns
    counts = np.bincount(flat.ravel(), minlength=num_rows * num_columns)
    return counts.reshape(num_rows, num_columns).astype(np.float64)
