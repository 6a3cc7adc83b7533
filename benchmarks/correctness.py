#!/usr/bin/env python3
"""What q(pi) says in right and in wrong units, and what its reward would have it say.

    python benchmarks/correctness.py --data-dir data/fsdd --exp-dir exp/audiomnist/fsdd/small \
        --config recipes/audiomnist/conf/small.yaml --systems ml-vae ml-vae-rl

REINFORCE rewards a choice of pi_t with -L_h. Of that loss a choice changes the KL divergence from
q(h_t | x_t) to the component that it selects, and with a small weight the pseudo-label's term. The
gain of pi_t = 1 is the KL for pi_t = 0 less that for pi_t = 1. Where it is above 0 the reward
raises q(pi_t = 1); it tells wrong units from right ones as far as it is higher in wrong ones. Which
units are wrong, and their frames, are those of the reference, which only this and scoring read.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs without being installed

import numpy as np
import torch
from jsonargparse import ArgumentParser
from jsonargparse.typing import NonNegativeInt, PositiveInt
from lhotse import CutSet
from scipy.stats import mannwhitneyu
from tabulate import tabulate

from mlvae.config import load_config
from mlvae.data.dataset import UnitDataset, load_cuts, make_sampler
from mlvae.data.manifests import write_json
from mlvae.data.units import UnitTable
from mlvae.device import seed_everything
from mlvae.nn import MlVae
from mlvae.program import start_program
from mlvae.score.reference import Reference, read_reference
from mlvae.systems import Setup
from mlvae.systems.ml_vae import load_ml_vae

MAX_FRAMES = 8000  # of a batch, with padding


@dataclass(frozen=True)
class Correctness:
    """Of one system, over the units of a test set that have frames."""

    rate_right: float  # mean q(pi_t = 1) in the frames of units that were said right
    rate_wrong: float  # the same in those of wrong ones
    # chance that a wrong unit has the higher mean q(pi_t = 1) of a wrong and a right one (area
    # under the ROC curve); 0.5 says nothing
    area_rate: float
    gain_right: float  # mean gain of pi_t = 1, nats per frame, in units that were said right
    gain_wrong: float  # the same in wrong ones
    area_gain: float  # as ``area_rate``, of the mean gain


def frames_of_units(
    reference: Reference, frame_shift: float
) -> dict[str, list[tuple[int, int, bool]]]:
    """By utterance the first frame and the end frame of each unit, and whether it is wrong."""
    starts, ends = (
        np.rint(times / frame_shift).astype(int) for times in (reference.starts, reference.ends)
    )
    rows = list(zip(starts.tolist(), ends.tolist(), reference.positive.tolist()))
    bounds = reference.first.tolist()
    return {
        name: rows[begin:end] for name, begin, end in zip(reference.utterances, bounds, bounds[1:])
    }


@torch.no_grad()
def measure(
    model: MlVae,
    cuts: CutSet,
    dataset: UnitDataset,
    units: dict[str, list[tuple[int, int, bool]]],
    num_draws: int,
    seed: int,
) -> Correctness:
    """Average q(pi) and the gain over the frames of each unit, and compare.

    Args:
        model: with its speech generator.
        cuts: with features.
        dataset: gives the features.
        units: by cut id, of :func:`frames_of_units`.
        num_draws: draws of the variant.
        seed: of the draws.

    Raises:
        ValueError: there are no right or no wrong units, or no speech generator.
    """
    if model.generator is None:
        raise ValueError("a system without a speech generator has no q(pi) of frames")
    seed_everything(seed)
    model.eval()
    rates, gains, wrong = [], [], []
    for some in make_sampler(cuts, MAX_FRAMES, shuffle=False):
        batch = dataset[some]
        features, num_frames = model.scale(batch["features"]), batch["num_frames"]
        unit_probs = model.unit_probs(model.estimator(features, num_frames))
        alpha, beta = model.boundary(features, num_frames)
        logit = model.generator.correctness_logits(features, unit_probs, alpha / (alpha + beta))
        unit = unit_probs.argmax(dim=2)
        right = torch.zeros(num_draws, *unit.shape)
        kl_right, kl_wrong = (
            model.generator.component_kl(features, num_frames, unit, choice).mean(0)
            for choice in (right, 1 - right)
        )
        for row, cut_id in enumerate(batch["cut_ids"]):
            for start, end, is_wrong in units[cut_id]:
                if end > start:
                    rates.append(float(torch.sigmoid(logit[row, start:end]).mean()))
                    gains.append(float((kl_right - kl_wrong)[row, start:end].mean()))
                    wrong.append(is_wrong)
    flags = np.array(wrong, dtype=bool)
    if flags.all() or not flags.any():
        raise ValueError("there are no right units, or no wrong ones, to compare")
    metrics = []
    for values in (np.array(rates), np.array(gains)):
        statistic = mannwhitneyu(values[flags], values[~flags]).statistic
        area = statistic / (flags.sum() * (~flags).sum())
        metrics += [float(values[~flags].mean()), float(values[flags].mean()), float(area)]
    return Correctness(*metrics)


def make_parser() -> ArgumentParser:
    """The options."""
    parser = ArgumentParser(prog="correctness.py", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of the corpus")
    parser.add_argument("--exp-dir", type=Path, required=True, help="experiment folder")
    parser.add_argument("--config", type=Path, required=True, help="that it was trained with")
    parser.add_argument(
        "--systems",
        type=str,
        nargs="+",
        default=["ml-vae", "ml-vae-rl"],
        help="folders of trained systems",
    )
    parser.add_argument("--num-draws", type=PositiveInt, default=5, help="of a frame's variant")
    parser.add_argument("--seed", type=NonNegativeInt, default=0, help="of the draws")
    parser.add_argument("--json", type=Path, help="file to write all metrics to")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit status."""
    options = make_parser().parse_args(argv)
    device = torch.device("cpu")
    try:
        config = load_config(options.config, options.systems)
        dataset = UnitDataset(
            UnitTable.load(options.data_dir / "units" / "tokens.txt"), deltas=config.deltas
        )
        cuts = load_cuts(options.exp_dir / "fa" / "cuts_test.jsonl.gz")
        units = frames_of_units(
            read_reference(options.data_dir / "reference.jsonl.gz"), cuts[0].frame_shift
        )
        found = {}
        for name in options.systems:
            folder = options.exp_dir / name
            system = load_ml_vae(Setup(name, config, dataset, device, 0, folder), cuts)
            found[name] = measure(
                system.model, cuts, dataset, units, options.num_draws, options.seed
            )
    except (OSError, ValueError) as error:
        print(f"correctness.py: {error}", file=sys.stderr)
        return 1
    headers = ["", "q(pi = 1) right", "wrong", "area", "gain of pi = 1 right", "wrong", "area"]
    rows = [[name, *asdict(metrics).values()] for name, metrics in found.items()]
    print(tabulate(rows, headers=headers, tablefmt="simple", floatfmt=".3f"))
    if options.json is not None:
        write_json(options.json, {name: asdict(one) for name, one in found.items()})
    return 0


if __name__ == "__main__":
    start_program()
    sys.exit(main())
