#!/usr/bin/env python3
"""Stage 2: unit table and unit counts from the canonical units of the training cuts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentParser

from mlvae.data.dataset import load_cuts, usable_cuts
from mlvae.data.manifests import SPLITS
from mlvae.data.units import count_units, save_units
from mlvae.stage import StageReport, log


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; returns its exit status."""
    parser = ArgumentParser(prog="units.py", description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="corpus folder")
    args = parser.parse_args(argv)
    report = StageReport(stage="2 units", folder=args.data_dir)
    try:
        cuts = {s: load_cuts(args.data_dir / "fbank" / f"cuts_{s}.jsonl.gz") for s in SPLITS}
        counts = count_units(cuts["train"])
        table = save_units(args.data_dir / "units", counts)
    except ValueError as error:
        print(f"units.py: {error}", file=sys.stderr)
        return 1
    for split in SPLITS:  # names the cuts whose units training text never has
        report.done(len(usable_cuts(cuts[split], table, report)))
    log(f"stage 2 units: {len(table)} units, {sum(counts.values())} in the training text")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
