#!/usr/bin/env python3
"""Stage 4: train ML-VAE by alternating E-step and M-step; goes on from its last checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict

from options import parse_model_options

from mlvae.config import load_config
from mlvae.data.dataset import UnitDataset, load_cuts, usable_cuts
from mlvae.data.manifests import write_json
from mlvae.data.units import UnitTable
from mlvae.device import num_parameters, seed_everything, select_device
from mlvae.em import Trainer
from mlvae.nn import MlVae
from mlvae.stage import StageReport, log


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; returns its exit status."""
    options = parse_model_options("train.py", __doc__, argv)
    folder = options.exp_dir / "ml-vae"
    report = StageReport(stage="4 train", folder=options.exp_dir)
    try:
        config = load_config(options.config)
        device = select_device(options.device)
        table = UnitTable.load(options.data_dir / "units" / "tokens.txt")
        train, valid = (
            usable_cuts(load_cuts(options.exp_dir / "fa" / f"cuts_{s}.jsonl.gz"), table, report)
            for s in ("train", "valid")
        )
        if not len(train) or not len(valid):
            raise ValueError("no aligned training or validation cuts: look at stage 3")
        dataset = UnitDataset(table, deltas=config.deltas)
        num_features = dataset.features(train[0]).shape[1]
        seed_everything(options.seed)
        model = MlVae(num_features, len(table), config.silence, config.model)
        log(f"stage 4 train: {num_parameters(model)} parameters on {device}")
        setup = {
            "deltas": config.deltas,
            "silence": config.silence,
            "align": asdict(config.align),
            "model": asdict(config.model),
        }
        trainer = Trainer(
            model, train, valid, dataset, table, config.train, folder, device, options.seed, setup
        )
        training = trainer.fit()
    except (ValueError, OSError) as error:
        if report.skipped:
            report.finish()
        print(f"train.py: {error}", file=sys.stderr)
        return 1
    write_json(folder / "training.json", training)
    log(
        f"stage 4 train: best of {training['iterations']} iterations is "
        f"{training['best_iteration']}; {training['training_seconds']} s"
    )
    report.done(len(train) + len(valid))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
