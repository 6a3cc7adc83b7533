#!/usr/bin/env python3
"""Stage 4: train the systems in turn; each goes on from its last checkpoint."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

import torch
from options import ModelOptions, parse_model_options

from mlvae.config import load_config
from mlvae.data.dataset import UnitDataset, load_cuts, usable_cuts
from mlvae.data.manifests import write_json
from mlvae.data.units import UnitTable
from mlvae.em import distributed
from mlvae.report.learning import write_learning_curves
from mlvae.stage import StageReport, log
from mlvae.systems import SYSTEMS, check_systems


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage, together with other processes if ``torchrun`` started it.

    Returns:
        The exit status.
    """
    options = parse_model_options("train.py", __doc__, argv, with_checkpoint=True)
    try:
        with contextlib.ExitStack() as stack:
            device = stack.enter_context(distributed.process_group(options.device))
            stack.enter_context(distributed.quiet_unless_main())
            return train_systems(options, device)
    except (ValueError, OSError) as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 1


def train_systems(options: ModelOptions, device: torch.device) -> int:
    """Train the systems; the first process alone reports and writes.

    Raises:
        ValueError: there is nothing to train on, or a configuration or checkpoint does not fit.
    """
    report, main = StageReport(stage="4 train", folder=options.exp_dir), distributed.is_main()
    try:
        config = load_config(options.config)
        if options.w2v_checkpoint:
            config.w2v_ctc.checkpoint = options.w2v_checkpoint
        check_systems(options.systems)
        table = UnitTable.load(options.data_dir / "units" / "tokens.txt")
        train, valid = (
            usable_cuts(load_cuts(options.exp_dir / "fa" / f"cuts_{s}.jsonl.gz"), table, report)
            for s in ("train", "valid")
        )
        if not len(train) or not len(valid):
            raise ValueError("no aligned training or validation cuts: look at stage 3")
        dataset = UnitDataset(table, deltas=config.deltas)
        for name in options.systems:
            kind, folder = SYSTEMS[name], options.exp_dir / name
            if kind is None or not (main or kind.together):
                continue
            if main:
                # It stands for a training that has come to its end.
                (folder / "training.json").unlink(missing_ok=True)
            training = kind.train(name, config, train, valid, dataset, folder, device, options.seed)
            if not main:
                continue
            write_json(folder / "training.json", {**training, "seed": options.seed})
            if "unavailable" in training:
                continue  # has said why
            write_learning_curves(folder)
            chosen = ""
            if "iterations" in training:
                chosen = (
                    f"best of {training['iterations']} iterations is {training['best_iteration']}; "
                )
            for warning in training.get("warnings", []):
                log(f"stage 4 train: {name}: warning: {warning}")
            log(f"stage 4 train: {name}: {chosen}{training['training_seconds']:.1f} s")
    except (ValueError, OSError):
        if report.skipped and main:
            report.finish()
        raise
    report.done(len(train) + len(valid))
    return report.finish() if main else 0


if __name__ == "__main__":
    sys.exit(main())
