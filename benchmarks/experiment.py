"""A trained experiment as the benchmarks of judges and of adaptation read it, and its metrics."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jsonargparse import ArgumentParser, Namespace
from lhotse import CutSet
from lhotse.cut import Cut

from mlvae.config import load_config
from mlvae.data.dataset import UnitDataset, load_cuts
from mlvae.data.units import UnitTable
from mlvae.score.graded import is_graded, read_graded
from mlvae.score.ranking import area_under_curve, average_precision
from mlvae.score.reference import Reference, read_reference
from mlvae.systems import Setup
from mlvae.systems.align import Aligner, load_aligner
from mlvae.systems.localize import TrainedMlVae
from mlvae.systems.ml_vae import load_ml_vae

#: Headers of :func:`metrics`.
METRICS = ["AP", "AUC", "PCC", "Brier skill", "% flagged", "hard F1"]


def metrics(
    wrong: np.ndarray, positive: np.ndarray, scores: np.ndarray | None
) -> list[float | None]:
    """Metrics of P(mispronounced), one for each of :data:`METRICS`.

    Args:
        wrong: float64 (n,), P(mispronounced).
        positive: bool (n,), which units are wrong.
        scores: float64 (n,), of experts; None: there are none, and no PCC.
    """
    base = positive.mean()
    return [
        average_precision(wrong, positive),
        area_under_curve(wrong, positive),
        None if scores is None else -float(np.corrcoef(wrong, scores)[0, 1]),
        1 - ((wrong - positive) ** 2).mean() / (base * (1 - base)),
        100 * (wrong > 0.5).mean(),
        2 * (positive & (wrong > 0.5)).sum() / ((wrong > 0.5).sum() + positive.sum()),
    ]


@dataclass(frozen=True)
class Experiment:
    """A trained experiment, and what its test part is scored against."""

    setup: Setup
    system: TrainedMlVae
    aligner: Aligner
    train: CutSet
    valid: CutSet
    test: CutSet
    reference: Reference
    scores: np.ndarray | None  # of a corpus with graded scores, by unit, NaN where there is none
    threshold: float  # a unit with a lower score is wrong

    def known(self, found: Collection[str]) -> list[Cut]:
        """Test cuts that the reference knows and that were found, in its order."""
        cuts = {cut.id: cut for cut in self.test}
        return [cuts[name] for name in self.reference.utterances if name in found]

    def scored(
        self, cuts: Sequence[Cut], values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Values of the units of cuts, whether these are wrong, and their scores.

        Units without a score are left out.
        """
        places = self._places(cuts)
        if self.scores is None:
            return values, self.reference.positive[places], None
        scores = self.scores[places]
        some = ~np.isnan(scores)
        return values[some], scores[some] < self.threshold, scores[some]

    def describe(self, cuts: Sequence[Cut]) -> None:
        """Print how many units there are, and how many of them are wrong."""
        positive = self.scored(cuts, np.zeros(len(self._places(cuts))))[1]
        print(
            f"{len(positive)} units of {len(cuts)} utterances, {100 * positive.mean():.1f} % wrong"
        )

    def _places(self, cuts: Sequence[Cut]) -> np.ndarray:
        """Which units of the reference those of cuts are."""
        every = np.arange(len(self.reference.canonical))
        return np.concatenate([every[self.reference.units_of[cut.id]] for cut in cuts])


def experiment_parser(name: str, description: str | None) -> ArgumentParser:
    """A parser of the options that say what is read."""
    parser = ArgumentParser(prog=name, description=description)
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of the corpus")
    parser.add_argument("--exp-dir", type=Path, required=True, help="folder of the experiment")
    parser.add_argument("--config", type=Path, required=True, help="that declares the systems")
    parser.add_argument("--system", type=str, default="ml-vae-sub", help="a judged system")
    parser.add_argument("--threshold", type=float, default=0.5, help="of wrong graded units")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
    return parser


def read_experiment(args: Namespace) -> Experiment:
    """Read what the options name."""
    table = UnitTable.load(args.data_dir / "units" / "tokens.txt")
    setup = Setup(
        args.system,
        load_config(args.config),
        UnitDataset(table),
        torch.device("cpu"),
        args.seed,
        args.exp_dir / args.system,
    )
    train, valid, test = (
        load_cuts(args.exp_dir / "fa" / f"cuts_{split}.jsonl.gz")
        for split in ("train", "valid", "test")
    )
    path = args.data_dir / "reference.jsonl.gz"
    scores = None
    if is_graded(path):
        graded, _ = read_graded(path)
        reference, scores = graded.units, graded.scores
    else:
        reference = read_reference(path)
    system, aligner = load_ml_vae(setup, test), load_aligner(setup, test)
    parts = train, valid, test
    return Experiment(setup, system, aligner, *parts, reference, scores, args.threshold)
