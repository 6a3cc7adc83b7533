#!/usr/bin/env python3
"""Stage 3: forced alignment, from a flat start or a model folder; adds tier `fa` to all cuts."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lhotse import CutSet
from options import ModelOptions, parse_model_options

from mlvae.config import load_config
from mlvae.data.dataset import UnitDataset, load_cuts, usable_cuts
from mlvae.data.manifests import SPLITS, about_corpus, parts_apart, write_json, write_manifest
from mlvae.data.units import UnitTable, canonical_units
from mlvae.device import denormals_flushed, select_device
from mlvae.made import remove_made
from mlvae.model_folder import Beginning
from mlvae.program import start_program
from mlvae.stage import StageReport, in_one_line, log, stage_folder
from mlvae.systems.align import Aligner

CHECKPOINT = "checkpoint.safetensors"


@denormals_flushed()
def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; returns its exit status."""
    options = parse_model_options("align.py", __doc__, argv, with_systems=False)
    return in_one_line("align.py", lambda: in_folder(options))


def in_folder(options: ModelOptions) -> int:
    """The stage, while nobody else writes to its folders.

    Raises:
        ValueError, OSError: they cannot be used, or not be written to.
    """
    folder = options.exp_dir / "fa"
    outputs = [folder / name for name in (CHECKPOINT, "model.safetensors", "training.json")]
    outputs += [folder / f"cuts_{split}.jsonl.gz" for split in SPLITS]
    with stage_folder("3 align", options.exp_dir, outputs, reads=[options.data_dir]):
        return align(options)


def align(options: ModelOptions) -> int:
    """Align the cuts of all splits; returns the exit status of the stage."""
    folder = options.exp_dir / "fa"
    report = StageReport(stage="3 align", folder=options.exp_dir)
    try:
        # Of a test part that is everything, each cut counts in the part that it is also of.
        apart = parts_apart(about_corpus(options.data_dir))
        reports = {split: report if split in apart else report.again() for split in SPLITS}
        config = load_config(options.config)
        device = select_device(options.device)
        table = UnitTable.load(options.data_dir / "units" / "tokens.txt")
        init = None
        if options.init is not None:
            beginning = Beginning.of(options.init)
            beginning.check_table(table)
            init = beginning.aligner
        manifests = {s: options.data_dir / "fbank" / f"cuts_{s}.jsonl.gz" for s in SPLITS}
        cuts = {s: usable_cuts(load_cuts(manifests[s]), table, reports[s]) for s in SPLITS}
        for split, usable in cuts.items():
            if not len(usable):
                raise ValueError(f"no usable cut in split {split}: look at stages 1 and 2")
        dataset = UnitDataset(table, cache_mb=options.cache_mb)
        states = config.align.model.states_per_unit
        long_enough = cuts["train"].filter(
            lambda cut: cut.num_frames >= states * len(cut.supervisions[0].custom["units"])
        )
        train = long_enough.to_eager()
        if not len(train):
            raise ValueError(f"no training cut has {states} frames per unit: nothing to align")
        num_features = dataset.features(train[0]).shape[1]
        aligner = Aligner(num_features, len(table), config.silence, config.align, device)
        checkpoint = folder / CHECKPOINT
        training = aligner.train(train, dataset, options.seed, checkpoint, init)
        answers = {s: aligner.align(cuts[s], dataset, aligner.passes) for s in SPLITS}
    except (ValueError, OSError) as error:
        if report.skipped:
            report.finish()
        print(f"align.py: {error}", file=sys.stderr)
        return 1
    aligner.save(folder / "model.safetensors")
    write_json(folder / "training.json", {**training, "seed": options.seed})
    log(f"{training['num_params']} parameters, trained in {training['training_seconds']} s")
    for split, (aligned, short) in answers.items():
        if split == "test":  # which has the answers that somebody looks at
            aligned = CutSet.from_cuts(aligner.with_fit(cut, dataset) for cut in aligned)
        write_manifest(folder / f"cuts_{split}.jsonl.gz", aligned)
        reports[split].done(len(aligned))
        for name in short:
            cut = cuts[split][name]
            reason = f"too short: fewer than {states} frames per unit"
            if cut.num_frames >= states * len(canonical_units(cut)):
                reason = f"its {len(canonical_units(cut))} units find no place in its speech"
            reports[split].skip(name, reason)
    remove_made(checkpoint)  # it was for a run that is killed before this
    status = report.finish()
    for split, (aligned, _) in answers.items():
        if not len(aligned):
            log(f"stage 3 align: no cut of split {split} is left")
            status = 1
    return status


if __name__ == "__main__":
    start_program()
    sys.exit(main())
