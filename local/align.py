#!/usr/bin/env python3
"""Stage 3: forced alignment, from a flat start or a model folder; adds tier `fa` to all cuts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

from lhotse import CutSet
from options import ModelOptions, parse_model_options

from mlvae.config import load_config
from mlvae.data.dataset import StoredCuts, UnitDataset
from mlvae.data.manifests import SPLITS, about_corpus, parts_apart, write_json
from mlvae.data.units import UnitTable, canonical_units
from mlvae.device import denormals_flushed, select_device
from mlvae.made import remove_made
from mlvae.model_folder import Beginning
from mlvae.portions import Answered, answer_in_portions, remove_parts
from mlvae.program import start_program
from mlvae.stage import StageReport, in_one_line, log, stage_folder
from mlvae.systems.align import Aligner, drawn
from mlvae.train.loop import Passes, keep_passes, weights_digest

CHECKPOINT = "checkpoint.safetensors"
#: How far the alignment of a part of the corpus is.
ALIGN_CHECKPOINT = "{}-checkpoint.safetensors"


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
    outputs += [folder / ALIGN_CHECKPOINT.format(split) for split in SPLITS]
    with stage_folder("3 align", options.exp_dir, outputs, reads=[options.data_dir]):
        return align(options)


def align(options: ModelOptions) -> int:
    """Align the cuts of all splits; returns the exit status of the stage."""
    folder = options.exp_dir / "fa"
    report = StageReport(stage="3 align", folder=options.exp_dir)
    with report.kept():
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
        cuts = {s: StoredCuts(manifests[s], table, reports[s]) for s in SPLITS}
        for split, usable in cuts.items():
            if not len(usable):
                raise ValueError(f"no usable cut in split {split}: look at stages 1 and 2")
        dataset = UnitDataset(table, cache_mb=options.cache_mb)
        states = config.align.model.states_per_unit
        sizes = {
            cut.id: cut.num_frames
            for cut in cuts["train"]
            if cut.num_frames >= states * len(canonical_units(cut))
        }
        if not sizes:
            raise ValueError(f"no training cut has {states} frames per unit: nothing to align")
        chosen = drawn(sizes, options.seed)
        train = CutSet.from_cuts(cut for cut in cuts["train"] if cut.id in chosen)
        num_features = dataset.features(train[0]).shape[1]
        aligner = Aligner(num_features, len(table), config.silence, config.align, device)
        checkpoint = folder / CHECKPOINT
        training = aligner.train(train, dataset, options.seed, checkpoint, init)
        del train
        settings = {"model": weights_digest(aligner.model), "align": asdict(config.align)}
        answers: dict[str, Answered] = {}
        for split, own in cuts.items():
            kept = folder / ALIGN_CHECKPOINT.format(split)
            keeper = keep_passes(kept, settings, options.seed, [own])
            path, fits = folder / f"cuts_{split}.jsonl.gz", split == "test"
            way = partial(aligned_cuts, aligner, dataset, fits)
            answers[split] = answer_in_portions(path, own, keeper, way)
    aligner.save(folder / "model.safetensors")
    write_json(folder / "training.json", {**training, "seed": options.seed})
    log(f"{training['num_params']} parameters, trained in {training['training_seconds']} s")
    for split, answered in answers.items():
        answered.write()
        names = set(answered.without)
        reports[split].done(len(cuts[split]) - len(names))
        for cut in (cut for cut in cuts[split] if cut.id in names) if names else ():
            reason = f"too short: fewer than {states} frames per unit"
            if cut.num_frames >= states * len(canonical_units(cut)):
                reason = f"its {len(canonical_units(cut))} units find no place in its speech"
            reports[split].skip(cut.id, reason)
    for split, answered in answers.items():  # they were for a run that is killed before this
        remove_made(folder / ALIGN_CHECKPOINT.format(split))
        remove_parts(answered.path)
    remove_made(checkpoint)
    status = report.finish()
    for split, answered in answers.items():
        if len(answered.without) == len(cuts[split]):
            log(f"stage 3 align: no cut of split {split} is left")
            status = 1
    return status


def aligned_cuts(
    aligner: Aligner, dataset: UnitDataset, fits: bool, cuts: CutSet, passes: Passes
) -> tuple[CutSet, list[str]]:
    """As `Aligner.align`; with ``fits`` also how well texts fit, which somebody looks at."""
    aligned, short = aligner.align(cuts, dataset, passes)
    if fits:
        aligned = CutSet.from_cuts(aligner.with_fit(cut, dataset) for cut in aligned)
    return aligned, short


if __name__ == "__main__":
    start_program()
    sys.exit(main())
