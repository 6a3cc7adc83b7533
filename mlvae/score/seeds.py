"""Two systems compared over several training runs that differ in their seed only.

Each run s has a figure of the first and of the second system on the same test units; their
difference is d_s, and the estimate is the mean of d_s over the S runs. It varies for two reasons,
whose variances are added:

* **training runs**: s^2 / S with s^2 the sample variance of the d_s, with S - 1 degrees of freedom;
* **test recordings**: of the *mean* difference, over resamples of the recordings that all runs and
  both systems share (for macro figures the cluster-robust one), with C - 1 degrees of freedom for C
  clusters; see ``mlvae.score.bootstrap``.

The interval is the estimate plus and minus Student's t times the root of the sum, with the degrees
of freedom of Welch and Satterthwaite. What runs and recordings do together is in both terms, so
that the interval is a little too wide rather than too narrow. Over three runs, s^2 is known poorly
and t is large where training runs dominate (4.3 in place of 1.96): that is what three runs are
worth. With one run there is no first term, and the interval says nothing about training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student_t

from mlvae.score.bootstrap import (
    Difference,
    Intervals,
    bootstrap_intervals,
    mean_standard_error,
)
from mlvae.score.metrics import MACRO_FIGURES, SUM_FIGURES, Outcomes

LEVEL = 0.95


@dataclass(frozen=True)
class SeedComparison:
    """One figure of a first system minus that of a second one over S runs.

    Attributes:
        mean: Mean difference with its interval over runs and recordings.
        each: Of each run its difference, with its interval over recordings.
        first: Of each run the figure of the first system.
        second: Of each run the figure of the second system.
        error_runs: Standard error from the training runs; None for a single one.
        error_clusters: Standard error from the test recordings; None for a single cluster.
        degrees: Degrees of freedom of the interval; None where there is none.
    """

    mean: Difference
    each: tuple[Difference, ...]
    first: tuple[float, ...]
    second: tuple[float, ...]
    error_runs: float | None
    error_clusters: float | None
    degrees: float | None


def compare_over_seeds(
    runs: Sequence[tuple[Outcomes, Outcomes]],
    clusters: np.ndarray,
    figures: Sequence[str],
    num_resamples: int = 1000,
    seed: int = 0,
) -> dict[str, SeedComparison]:
    """Compare two systems that were both trained several times.

    Args:
        runs: Of each run the outcomes of the first and of the second system, all on the same N
            units in the same order.
        clusters: (N,) int64 in 0..C-1, the cluster of each unit.
        figures: Names of ``mlvae.score.metrics.Scores``.
        num_resamples: Number of resamples of the clusters.
        seed: Seed of the resampling.

    Returns:
        By figure the comparison.

    Raises:
        ValueError: There is no run, or the units of some differ.
    """
    systems = {
        name: outcomes
        for run, (first, second) in enumerate(runs)
        for name, outcomes in ((f"first {run}", first), (f"second {run}", second))
    }
    intervals = bootstrap_intervals(systems, clusters, num_resamples, seed, LEVEL)
    return {figure: _compare(intervals, len(runs), figure) for figure in figures}


def _compare(intervals: Intervals, num_runs: int, figure: str) -> SeedComparison:
    each = tuple(
        intervals.paired_difference(f"first {run}", f"second {run}", figure)
        for run in range(num_runs)
    )
    differences = np.array([difference.estimate for difference in each])
    terms = []  # of each variance and its degrees of freedom
    error_runs = error_clusters = None
    if num_runs > 1:
        error_runs = float(differences.std(ddof=1) / np.sqrt(num_runs))
        terms.append((error_runs**2, num_runs - 1))
    if intervals.num_clusters > 1:
        error_clusters = _cluster_error(intervals, figure)
        terms.append((error_clusters**2, intervals.num_clusters - 1))
    estimate, variance = float(differences.mean()), sum(term for term, _ in terms)
    low = high = degrees = None
    if terms:
        # Where nothing varies there is nothing to weigh.
        weighed = sum(term**2 / count for term, count in terms)
        degrees = variance**2 / weighed if weighed else float(sum(count for _, count in terms))
        width = float(student_t.ppf((1 + intervals.level) / 2, degrees)) * np.sqrt(variance)
        low, high = estimate - float(width), estimate + float(width)
    return SeedComparison(
        mean=Difference(estimate, low, high),
        each=each,
        first=_figures(intervals, "first", num_runs, figure),
        second=_figures(intervals, "second", num_runs, figure),
        error_runs=error_runs,
        error_clusters=error_clusters,
        degrees=degrees,
    )


def _figures(intervals: Intervals, side: str, num_runs: int, figure: str) -> tuple[float, ...]:
    return tuple(getattr(intervals.scores[f"{side} {run}"], figure) for run in range(num_runs))


def _cluster_error(intervals: Intervals, figure: str) -> float:
    """Standard error of the mean difference over the runs, from the clusters alone."""
    macro = figure in MACRO_FIGURES
    column = (MACRO_FIGURES if macro else SUM_FIGURES).index(figure)
    data = intervals.values[:, :, column] if macro else intervals.resamples[:, column]
    # The systems take turns: first 0, second 0, first 1, ...
    mean_difference = (data[::2] - data[1::2]).mean(axis=0)
    if macro:
        return mean_standard_error(mean_difference, intervals.membership)
    return float(mean_difference.std(ddof=1))
