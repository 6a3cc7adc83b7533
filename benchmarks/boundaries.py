#!/usr/bin/env python3
"""Whose boundaries are best, and what it is good for to move them by how late they are found.

    python benchmarks/boundaries.py --data-dir data/CORPUS --exp-dir exp/RECIPE/CORPUS/CONFIG \
        --config recipes/RECIPE/conf/CONFIG.yaml

The experiment has been trained (stages 0 to 4), and its reference has times. Each row takes the
boundaries of the same answers from elsewhere; nothing is trained again. *start* is found minus
true, of units that both the answer and the reference give a length: median, and the fraction that
is at most 20 ms off.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs without being installed

import numpy as np
from lhotse.cut import Cut
from tabulate import tabulate

from benchmarks.experiment import experiment_parser, read_experiment
from mlvae.program import start_program
from mlvae.score.metrics import interval_iou
from mlvae.score.reference import Reference
from mlvae.systems.localize import TrainedMlVae
from mlvae.tiers import tier
from mlvae.train.splices import Finder

HEADERS = ["boundaries of", "in time", "average IoU", "start, ms", "within 20 ms"]


@dataclass(frozen=True)
class Variant:
    """Where boundaries come from."""

    name: str  # its name in the table
    finder: Finder  # of most boundaries
    aligner: bool  # whether what was perceived is aligned once more
    only_left_out: bool  # whether only boundaries beside what was left out are the aligner's
    in_time: bool  # whether they are moved by how late they are found

    def of(self, system: TrainedMlVae) -> TrainedMlVae | None:
        """The system with such boundaries; None where it was not measured how late they are."""
        if self.in_time and self.finder not in system.late:
            return None
        return replace(
            system,
            boundary_aligner=system.boundary_aligner if self.aligner else None,
            only_left_out=self.only_left_out,
            late=system.late if self.in_time else {},
        )


VARIANTS = [
    Variant(name, finder, aligner, only_left_out, in_time)
    for name, finder, aligner, only_left_out in (
        ("the path", "path", False, False),
        ("the aligner", "aligner", True, False),
        ("both", "path", True, True),
    )
    for in_time in (False, True)
]


def measured(cuts: Iterable[Cut], reference: Reference) -> list[float]:
    """Average IoU, median error of starts in ms, and the percentage within 20 ms.

    Args:
        cuts: with the tier ``mlvae``; those that the reference does not know do not count.
        reference: with times.
    """
    places: list[np.ndarray] = []
    starts: list[float] = []
    ends: list[float] = []
    every = np.arange(len(reference.canonical))
    for cut in cuts:
        if cut.id in reference.units_of:
            places.append(every[reference.units_of[cut.id]])
            items = tier(cut, "mlvae")
            starts += [item.start for item in items]
            ends += [item.end for item in items]
    index = np.concatenate(places)
    found = np.array(starts), np.array(ends)
    true = reference.starts[index], reference.ends[index]
    iou = interval_iou(*found, *true)[reference.annotated[index]].mean()
    late = 1000 * (found[0] - true[0])[(true[1] > true[0]) & (found[1] > found[0])]
    return [100 * iou, float(np.median(late)), 100 * (np.abs(late) <= 20).mean()]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; returns the exit status."""
    args = experiment_parser("boundaries.py", __doc__).parse_args(argv)
    trained = read_experiment(args)
    rows = []
    for variant in VARIANTS:
        system = variant.of(trained.system)
        if system is not None:
            found, _ = system.localize(trained.test)
            row = measured(found, trained.reference)
            rows.append([variant.name, "yes" if variant.in_time else "no", *row])
    print(tabulate(rows, HEADERS, floatfmt=("", "", ".1f", "+.1f", ".1f")))
    return 0


if __name__ == "__main__":
    start_program()
    sys.exit(main())
