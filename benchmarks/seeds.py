#!/usr/bin/env python3
"""One system minus another over training runs with several seeds, with an interval.

    python benchmarks/seeds.py --data-dir data/fsdd --first ml-vae-rl --second ml-vae \
        --config recipes/audiomnist/conf/small.yaml \
        --exp-dirs exp/audiomnist/fsdd/small exp/seed-1/audiomnist/fsdd/small

Each folder is one run of both systems on the same corpus, as stage 5 leaves it.

Two systems have a difference d_s in each run s on the same test units, and the estimate is the mean
of d_s over S runs. Two variances are added: s^2 / S, with s^2 the sample variance of the d_s and
S - 1 degrees of freedom; and that of the *mean* difference over test recordings, by the methods of
mlvae/score/intervals.py, with C - 1 degrees of freedom for C clusters. The interval is the estimate
plus and minus Student's t times the root of the sum, with the degrees of freedom of Welch and
Satterthwaite. The interaction of runs and recordings is in both terms, so the interval is a little
too wide rather than too narrow. Over three runs s^2 is known poorly, and t is large where training
runs dominate (4.3 instead of 1.96). With one run there is no first term, and the interval says
nothing about training.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs without being installed

import numpy as np
from jsonargparse import ArgumentParser
from jsonargparse.typing import NonNegativeInt, PositiveInt
from scipy.stats import t as student_t
from tabulate import tabulate

from mlvae.config import System, load_config
from mlvae.data.manifests import write_json
from mlvae.program import start_program
from mlvae.score.experiment import cuts_path, read_cuts, stage_of
from mlvae.score.hypotheses import outcomes, tier_hypothesis
from mlvae.score.intervals import (
    LEVEL,
    Difference,
    Intervals,
    bootstrap_intervals,
    mean_standard_error,
)
from mlvae.score.metrics import MACRO_METRICS, Outcomes
from mlvae.score.reference import Reference, read_reference
from mlvae.score.tables import format_difference
from mlvae.systems import KINDS

METRICS = {
    "pooled F1": "pooled_f1",
    "macro F1": "macro_f1",
    "hard F1": "hard_f1",
    "average IoU": "average_iou",
}


@dataclass(frozen=True)
class SeedComparison:
    """One metric of a first system minus that of a second one over S runs."""

    mean: Difference  # Mean difference with its interval over runs and recordings
    each: tuple[Difference, ...]  # Of each run its difference, with its interval over recordings
    first: tuple[float, ...]  # Of each run the metric of the first system
    second: tuple[float, ...]  # Of each run the metric of the second system
    error_runs: float | None  # Standard error from the training runs; None for a single one
    # Standard error from the test recordings; None for a single cluster
    error_clusters: float | None
    degrees: float | None  # Degrees of freedom of the interval; None where there is none


def compare_over_seeds(
    runs: Sequence[tuple[Outcomes, Outcomes]],
    clusters: np.ndarray,
    metrics: Sequence[str],
    num_resamples: int = 1000,
    seed: int = 0,
) -> dict[str, SeedComparison]:
    """Compare two systems that were both trained several times.

    Args:
        runs: Of each run the outcomes of the first and of the second system, all on the same N
            units in the same order.
        clusters: (N,) int64 in 0..C-1, the cluster of each unit.
        metrics: Names of ``mlvae.score.metrics.Scores``.
        num_resamples: Number of resamples of the clusters.
        seed: Seed of the resampling.

    Returns:
        By metric the comparison.

    Raises:
        ValueError: There is no run, or the units of some differ.
    """
    systems = {
        name: outcomes
        for run, (first, second) in enumerate(runs)
        for name, outcomes in ((f"first {run}", first), (f"second {run}", second))
    }
    intervals = bootstrap_intervals(systems, clusters, num_resamples, seed)
    return {metric: _compare(intervals, len(runs), metric) for metric in metrics}


def mean_difference_error(intervals: Intervals, metric: str) -> float:
    """Standard error, from the clusters, of the mean difference of systems 0 - 1, 2 - 3, ..."""
    samples = intervals.samples(metric)
    mean_difference = (samples[::2] - samples[1::2]).mean(axis=0)
    if metric in MACRO_METRICS:
        return mean_standard_error(mean_difference, intervals.membership)
    return float(mean_difference.std(ddof=1))


def _compare(intervals: Intervals, num_runs: int, metric: str) -> SeedComparison:
    each = tuple(
        intervals.paired_difference(f"first {run}", f"second {run}", metric)
        for run in range(num_runs)
    )
    differences = np.array([difference.estimate for difference in each])
    terms = []  # of each variance and its degrees of freedom
    error_runs = error_clusters = None
    if num_runs > 1:
        error_runs = float(differences.std(ddof=1) / np.sqrt(num_runs))
        terms.append((error_runs**2, num_runs - 1))
    if intervals.num_clusters > 1:
        error_clusters = mean_difference_error(intervals, metric)
        terms.append((error_clusters**2, intervals.num_clusters - 1))
    estimate, variance = float(differences.mean()), sum(term for term, _ in terms)
    low = high = degrees = None
    if terms:
        # Where nothing varies there is nothing to weigh.
        weighed = sum(term**2 / count for term, count in terms)
        degrees = variance**2 / weighed if weighed else float(sum(count for _, count in terms))
        width = float(student_t.ppf((1 + LEVEL) / 2, degrees)) * np.sqrt(variance)
        low, high = estimate - float(width), estimate + float(width)

    def of_runs(side: str) -> tuple[float, ...]:
        return tuple(getattr(intervals.scores[f"{side} {run}"], metric) for run in range(num_runs))

    return SeedComparison(
        mean=Difference(estimate, low, high),
        each=each,
        first=of_runs("first"),
        second=of_runs("second"),
        error_runs=error_runs,
        error_clusters=error_clusters,
        degrees=degrees,
    )


def read_outcomes(reference: Reference, system: System, exp_dir: Path) -> Outcomes:
    """What a system of one run did with each unit.

    Raises:
        FileNotFoundError: It has no hypotheses there.
    """
    path, kind = cuts_path(system, exp_dir), KINDS[system.kind]
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing; {stage_of(system)} makes it")
    cuts = read_cuts([system], exp_dir)[system.label]
    return outcomes(
        reference, tier_hypothesis(system.label, reference, cuts, kind.spans, kind.perceived)
    )


def format_comparisons(
    comparisons: dict[str, SeedComparison], first: str, second: str, clusters: str
) -> str:
    """The table: one row a run, and the mean with its interval."""
    names = {name: comparisons[metric] for name, metric in METRICS.items()}
    num_runs = len(next(iter(names.values())).each)
    rows = [
        [
            f"run {run + 1}: {system}",
            *(f"{100 * getattr(one, side)[run]:.1f}" for one in names.values()),
        ]
        for run in range(num_runs)
        for side, system in (("first", first), ("second", second))
    ]
    rows += [
        [
            f"run {run + 1}: difference",
            *(format_difference(one.each[run]) for one in names.values()),
        ]
        for run in range(num_runs)
    ]
    rows.append(["mean difference", *(format_difference(one.mean) for one in names.values())])
    for label, part in (("runs", "error_runs"), (clusters, "error_clusters")):
        errors = [getattr(one, part) for one in names.values()]
        rows.append(
            [
                f"  standard error, {label}",
                *("-" if e is None else f"{100 * e:.2f}" for e in errors),
            ]
        )
    degrees = [one.degrees for one in names.values()]
    rows.append(["  degrees of freedom", *("-" if d is None else f"{d:.1f}" for d in degrees)])
    table = tabulate(
        rows,
        headers=[f"{first} minus {second}", *names],
        tablefmt="simple",
        colalign=("left", *["center"] * len(names)),
        disable_numparse=True,
        preserve_whitespace=True,
    )
    note = (
        f"in percent; in brackets the {100 * LEVEL:.0f} % interval, * where it excludes 0: of a "
        f"run over test {clusters},\nof the mean over training runs and test {clusters} "
        "(variances added, Student's t,\ndegrees of freedom after Welch and Satterthwaite)"
    )
    return f"{table}\n\n{note}"


def make_parser() -> ArgumentParser:
    """The options."""
    parser = ArgumentParser(prog="seeds.py", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data-dir", type=Path, required=True, help="corpus folder of all runs")
    parser.add_argument(
        "--exp-dirs", type=Path, nargs="+", required=True, help="experiment folder of each run"
    )
    parser.add_argument("--config", type=Path, required=True, help="that declares the systems")
    parser.add_argument("--first", type=str, default="ml-vae-rl", help="folder of a system")
    parser.add_argument("--second", type=str, default="ml-vae", help="of the one subtracted")
    parser.add_argument(
        "--cluster",
        type=str,
        choices=["recording", "speaker"],
        default="recording",
        help="what intervals are over, besides runs",
    )
    parser.add_argument("--num-resamples", type=PositiveInt, default=1000, help="of the clusters")
    parser.add_argument("--seed", type=NonNegativeInt, default=0, help="of the resampling")
    parser.add_argument("--json", type=Path, help="file to write all metrics to")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the comparison; returns the exit status."""
    options = make_parser().parse_args(argv)
    try:
        config = load_config(options.config)
        first, second = config.declared(options.first), config.declared(options.second)
        reference = read_reference(options.data_dir / "reference.jsonl.gz")
        runs = [
            (read_outcomes(reference, first, folder), read_outcomes(reference, second, folder))
            for folder in options.exp_dirs
        ]
    except (FileNotFoundError, ValueError) as error:
        print(f"seeds.py: {error}", file=sys.stderr)
        return 1
    comparisons = compare_over_seeds(
        runs,
        reference.clusters(options.cluster),
        list(METRICS.values()),
        options.num_resamples,
        options.seed,
    )
    print(format_comparisons(comparisons, first.label, second.label, f"{options.cluster}s"))
    if options.json is not None:
        content = {
            "first": first.label,
            "second": second.label,
            "num_runs": len(runs),
            "level": LEVEL,
            "over": options.cluster,
            "metrics": {metric: asdict(one) for metric, one in comparisons.items()},
        }
        write_json(options.json, content)
    return 0


if __name__ == "__main__":
    start_program()
    sys.exit(main())
