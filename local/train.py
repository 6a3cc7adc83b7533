#!/usr/bin/env python3
"""Stage 4: train the systems in turn; each goes on from its last checkpoint."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

import torch
from options import ModelOptions, parse_model_options

from mlvae.config import CONFIG, load_config, write_config
from mlvae.data.dataset import UnitDataset, load_cuts, usable_cuts
from mlvae.data.manifests import write_json
from mlvae.data.units import UnitTable
from mlvae.device import denormals_flushed
from mlvae.made import remove_made
from mlvae.model_folder import Beginning
from mlvae.program import start_program
from mlvae.report.plots import LEARNING_CURVES, write_learning_curves
from mlvae.stage import StageReport, in_one_line, log, stage_folder
from mlvae.systems import KINDS, MADE_BY_SYSTEMS, Setup
from mlvae.train import distributed


@denormals_flushed()
def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage, together with other processes if ``torchrun`` or the options say so.

    Returns:
        The exit status.
    """
    options = parse_model_options("train.py", __doc__, argv, trains=True)
    return in_one_line("train.py", lambda: train_together(options))


def train_together(options: ModelOptions) -> int:
    """The stage in each process; the first one's keeps others from the folders.

    Raises:
        ValueError, OSError: the systems cannot be trained, or the folders not be used.
    """
    outputs = [
        options.exp_dir / name / file
        for name in options.systems
        for file in (*MADE_BY_SYSTEMS, CONFIG, "training.json", LEARNING_CURVES)
    ]
    with contextlib.ExitStack() as stack:
        group = distributed.process_group(options.device, options.num_processes)
        device = stack.enter_context(group)
        stack.enter_context(distributed.quiet_unless_main())
        if distributed.is_main():
            stack.enter_context(
                stage_folder("4 train", options.exp_dir, outputs, reads=[options.data_dir])
            )
        return train_systems(options, device)


def train_systems(options: ModelOptions, device: torch.device) -> int:
    """Train the systems; the first process alone reports and writes.

    Raises:
        ValueError: there is nothing to train on, or a configuration or checkpoint does not fit.
    """
    report, main = StageReport(stage="4 train", folder=options.exp_dir), distributed.is_main()
    with report.kept() if main else contextlib.nullcontext():
        config = load_config(options.config, options.systems)
        if options.w2v_checkpoint:
            for system in config.systems.values():
                if system.kind == "w2v_ctc":
                    system.settings.checkpoint = options.w2v_checkpoint
        table = UnitTable.load(options.data_dir / "units" / "tokens.txt")
        beginning = None if options.init is None else Beginning.of(options.init)
        if beginning is not None:
            beginning.check_table(table)
        train, valid = (
            usable_cuts(load_cuts(options.exp_dir / "fa" / f"cuts_{s}.jsonl.gz"), table, report)
            for s in ("train", "valid")
        )
        if not len(train) or not len(valid):
            raise ValueError("no aligned training or validation cuts: look at stage 3")
        dataset = UnitDataset(table, deltas=config.deltas, cache_mb=options.cache_mb)
        for name in options.systems:
            kind, folder = KINDS[config.system(name).kind], options.exp_dir / name
            if kind.train is None or not (main or kind.together):
                continue
            if main:
                # It stands for a training that has come to its end.
                remove_made(folder / "training.json")
            init = None if beginning is None else beginning.system(name)
            setup = Setup(name, config, dataset, device, options.seed, folder, init=init)
            training = kind.train(setup, train, valid)
            if not main:
                continue
            write_config(folder / CONFIG, config, name)
            write_json(folder / "training.json", {**training, "seed": options.seed})
            if "unavailable" in training:
                continue  # the reason was logged
            write_learning_curves(folder)
            chosen = ""
            if training.get("best_iteration") == 0:
                chosen = "no iteration is better than the model that it began from, which is kept; "
            elif "iterations" in training:
                chosen = (
                    f"best of {training['iterations']} iterations is {training['best_iteration']}; "
                )
            for warning in training.get("warnings", []):
                log(f"stage 4 train: {name}: warning: {warning}")
            log(f"stage 4 train: {name}: {chosen}{training['training_seconds']:.1f} s")
    report.done(len(train) + len(valid))
    return report.finish() if main else 0


if __name__ == "__main__":
    start_program()
    sys.exit(main())
