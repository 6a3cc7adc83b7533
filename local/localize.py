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
from mlvae.em.checkpoint import keep_passes
from mlvae.plausibility import FlaggedUnits, count_flagged, training_warnings
from mlvae.report.textgrid import write_textgrid
from mlvae.stage import StageReport, log
from mlvae.systems import SYSTEMS, Localizer, check_systems, models_digest

TIERS = ["fa", "mlvae", "mlvae_heard"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; returns its exit status."""
    options = parse_model_options("localize.py", __doc__, argv)
    report = StageReport(stage="5 localize", folder=options.exp_dir)
    try:
        config = load_config(options.config)
        check_systems(options.systems)
        device = select_device(options.device)
        table = UnitTable.load(options.data_dir / "units" / "tokens.txt")
        cuts = load_cuts(options.exp_dir / "fa" / "cuts_test.jsonl.gz")
        cuts = usable_cuts(cuts, table, report)
        if not len(cuts):
            raise ValueError("no aligned test cuts: look at stage 3")
        dataset = UnitDataset(table, deltas=config.deltas)
        localizers: dict[str, tuple[Localizer, str]] = {}
        for name in options.systems:
            kind, folder = SYSTEMS[name], options.exp_dir / name
            if kind is not None:
                if not (folder / "training.json").is_file():
                    raise ValueError(f"{name} is not trained to its end: run stage 4 (train)")
                loaded = kind.load(name, config, cuts, dataset, folder, device)
                digest = models_digest(folder)
                localizers.update((answer, (way, digest)) for answer, way in loaded.items())
        short: dict[str, list[str]] = {}
        flagged: dict[str, FlaggedUnits] = {}
        chosen: dict[str, list[str]] = {}  # warnings of stage 4
        text = options.config.read_text(encoding="utf-8")
        for name, (localizer, digest) in localizers.items():
            folder = options.exp_dir / name
            if name in options.systems:
                chosen[name] = training_warnings(folder)
            settings = {"system": name, "models": digest, "config": text}
            keeper = keep_passes(folder / "localize-checkpoint.safetensors", settings, 0, [cuts])
            localized, too_short = localizer(cuts, passes=keeper.state.passes)
            for cut_id in too_short:
                short.setdefault(cut_id, []).append(name)
            write_manifest(folder / "cuts_test.jsonl.gz", localized)
            wanted = {folder / "textgrids" / f"{cut.id}.TextGrid": cut for cut in localized}
            for earlier in set((folder / "textgrids").glob("*.TextGrid")) - wanted.keys():
                earlier.unlink()  # of a cut that has no answer any more
            for path, cut in wanted.items():
                write_textgrid(cut, path, TIERS)
            flagged[name] = count_flagged(localized)
            keeper.remove()
    except (ValueError, OSError) as error:
        if report.skipped:
            report.finish()
        print(f"localize.py: {error}", file=sys.stderr)
        return 1
    for name, counts in flagged.items():
        log(f"stage {report.stage}: {name}: {counts.line()}")
        for warning in [*counts.warnings(), *chosen.get(name, [])]:
            log(f"stage {report.stage}: {name}: warning: {warning}")
    report.done(len(cuts) - len(short))
    for cut_id, names in short.items():
        report.skip(cut_id, f"too short for its units in {', '.join(names)}")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
