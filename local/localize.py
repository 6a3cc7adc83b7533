#!/usr/bin/env python3
"""Stage 5: find mispronounced units in the test cuts; adds tiers, writes TextGrid files."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from options import parse_model_options

from mlvae.config import load_config
from mlvae.data.dataset import UnitDataset, load_cuts, usable_cuts
from mlvae.data.manifests import write_manifest
from mlvae.data.units import UnitTable
from mlvae.device import select_device
from mlvae.em.checkpoint import load_model
from mlvae.localize import localize
from mlvae.nn import MlVae
from mlvae.report.textgrid import write_textgrid
from mlvae.stage import StageReport

TIERS = ["fa", "mlvae", "mlvae_heard"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; returns its exit status."""
    options = parse_model_options("localize.py", __doc__, argv)
    report = StageReport(stage="5 localize", folder=options.exp_dir)
    try:
        config = load_config(options.config)
        device = select_device(options.device)
        table = UnitTable.load(options.data_dir / "units" / "tokens.txt")
        cuts = load_cuts(options.exp_dir / "fa" / "cuts_test.jsonl.gz")
        cuts = usable_cuts(cuts, table, report)
        if not len(cuts):
            raise ValueError("no aligned test cuts: look at stage 3")
        dataset = UnitDataset(table, deltas=config.deltas)
        num_features = dataset.features(cuts[0]).shape[1]
        model = MlVae(num_features, len(table), config.silence, config.model)
        load_model(options.exp_dir / "ml-vae" / "model.safetensors", model)
        localized, short = localize(model.to(device), cuts, dataset, config.train.decoding, device)
    except (ValueError, OSError) as error:
        if report.skipped:
            report.finish()
        print(f"localize.py: {error}", file=sys.stderr)
        return 1
    write_manifest(options.exp_dir / "cuts_test.jsonl.gz", localized)
    for cut in localized:
        write_textgrid(cut, options.exp_dir / "textgrids" / f"{cut.id}.TextGrid", TIERS)
        report.done()
    for name in short:
        report.skip(name, "too short: fewer frames than units")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
