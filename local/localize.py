#!/usr/bin/env python3
"""Stage 5: find mispronounced units in the test cuts; adds tiers, writes TextGrid files."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lhotse import CutSet
from options import ModelOptions, parse_model_options

from mlvae.config import load_config
from mlvae.data.dataset import StoredCuts, UnitDataset
from mlvae.data.units import UnitTable
from mlvae.device import denormals_flushed, select_device
from mlvae.made import Record
from mlvae.plausibility import FlaggedUnits, count_flagged, training_warnings
from mlvae.portions import answer_in_portions
from mlvae.program import start_program
from mlvae.report.textgrid import textgrid_paths, write_textgrids
from mlvae.stage import StageReport, in_one_line, log, stage_folder
from mlvae.systems import Localizer, Setup, load_localizers, models_digest
from mlvae.train.loop import keep_passes

CHECKPOINT = "localize-checkpoint.safetensors"
TIERS = ["fa", "mlvae", "mlvae_perceived"]


@denormals_flushed()
def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; returns its exit status."""
    options = parse_model_options("localize.py", __doc__, argv)
    return in_one_line("localize.py", lambda: in_folder(options))


def in_folder(options: ModelOptions) -> int:
    """The stage, while nobody else writes to its folders.

    Raises:
        ValueError, OSError: they cannot be used, or not be written to.
    """
    with stage_folder("5 localize", options.exp_dir, reads=[options.data_dir]):
        return localize(options)


def localize(options: ModelOptions) -> int:
    """Localise with the systems in turn; returns the exit status of the stage."""
    report = StageReport(stage="5 localize", folder=options.exp_dir)
    try:
        config = load_config(options.config, options.systems)
        device = select_device(options.device)
        table = UnitTable.load(options.data_dir / "units" / "tokens.txt")
        cuts = StoredCuts(options.exp_dir / "fa" / "cuts_test.jsonl.gz", table, report)
        if not len(cuts):
            raise ValueError("no aligned test cuts: look at stage 3")
        first = CutSet.from_cuts([next(iter(cuts))])
        dataset = UnitDataset(table, deltas=config.deltas, cache_mb=options.cache_mb)
        localizers: dict[str, tuple[Localizer, str]] = {}
        # Forced alignment is always there, and others may answer with its model.
        always = ["fa"] if "fa" in config.systems else []
        for name in dict.fromkeys([*always, *options.systems]):
            folder = options.exp_dir / name
            if not (folder / "training.json").is_file():
                stage = "stage 3 (align)" if name in always else "stage 4 (train)"
                raise ValueError(f"{name} is not trained to its end: run {stage}")
            setup = Setup(name, config, dataset, device, options.seed, folder)
            digest = models_digest(folder)
            for answer, way in load_localizers(setup, first).items():
                localizers[answer] = way, digest
        for name in localizers:  # before the work
            record, folder = Record.begin(options.exp_dir), options.exp_dir / name
            record.check([folder / "cuts_test.jsonl.gz", folder / CHECKPOINT])
            record.check(textgrid_paths(cuts.ids, folder / "textgrids").values())
        short: dict[str, list[str]] = {}
        unwritten: dict[str, str] = {}
        flagged: dict[str, FlaggedUnits] = {}
        chosen: dict[str, list[str]] = {}  # warnings of stage 4
        text = options.config.read_text(encoding="utf-8")
        for name, (localizer, digest) in localizers.items():
            folder = options.exp_dir / name
            if name in options.systems:
                chosen[name] = training_warnings(folder)
            settings = {"system": name, "models": digest, "config": text}
            keeper = keep_passes(folder / CHECKPOINT, settings, 0, [cuts])
            path = folder / "cuts_test.jsonl.gz"
            answered = answer_in_portions(path, cuts, keeper, localizer)
            answered.write()
            for cut_id in answered.without:
                short.setdefault(cut_id, []).append(name)
            localized = CutSet.from_jsonl_lazy(path)
            unwritten.update(write_textgrids(localized, folder / "textgrids", TIERS))
            flagged[name] = count_flagged(localized)
    except (ValueError, OSError) as error:
        if report.skipped:
            report.finish()
        print(f"localize.py: {error}", file=sys.stderr)
        return 1
    for name, counts in flagged.items():
        log(f"stage {report.stage}: {name}: {counts.line()}")
        # Goodness of pronunciation, with another system's model, ranks: its flags are no answer.
        own = [] if config.systems[name].model_of else counts.warnings()
        for warning in [*own, *chosen.get(name, [])]:
            log(f"stage {report.stage}: {name}: warning: {warning}")
    report.done(len(cuts) - len(short.keys() | unwritten.keys()))
    for cut_id, names in short.items():
        report.skip(cut_id, f"too short for its units in {', '.join(names)}")
    for cut_id in unwritten.keys() - short.keys():
        report.skip(cut_id, f"no TextGrid: {unwritten[cut_id]}")
    return report.finish()


if __name__ == "__main__":
    start_program()
    sys.exit(main())
