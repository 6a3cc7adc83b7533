#!/usr/bin/env python3
"""Stage 3: forced alignment, from a flat start or a model folder; adds tier `fa` to all cuts."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from lhotse import CutSet
from lhotse.cut import Cut
from options import ModelOptions, in_folder, parse_model_options

from mlvae.config import load_config
from mlvae.data.dataset import StoredCuts, UnitDataset, read_cuts
from mlvae.data.manifests import SPLITS, about_corpus, manifest_lines, parts_apart, write_json
from mlvae.data.units import UnitTable, canonical_units
from mlvae.device import denormals_flushed, select_device
from mlvae.made import file_digest, remove_made
from mlvae.model_folder import Beginning
from mlvae.portions import Answered, answer_in_portions, portioned, remove_parts
from mlvae.program import start_program
from mlvae.shard import RUN, Shard, check_done, join_manifests
from mlvae.stage import StageReport, log, stage_folder
from mlvae.systems.align import AlignConfig, Aligner, drawn
from mlvae.train.distributed import in_shards
from mlvae.train.loop import (
    Passes,
    keep_passes,
    load_model,
    read_metadata,
    save_model,
    weights_digest,
)

CHECKPOINT = "checkpoint.safetensors"
#: The aligner when it is trained, until all cuts are aligned.
TRAINED = "trained.safetensors"
#: How far the alignment of a part of the corpus is.
ALIGN_CHECKPOINT = "{}-checkpoint.safetensors"


@denormals_flushed()
def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; returns its exit status."""
    options = parse_model_options("align.py", __doc__, argv, with_systems=False)
    folder = options.exp_dir / "fa"

    def work(shard: Shard | None) -> int:
        if shard is not None and shard.number == 1:
            train(options)
        own = replace(options, shard=shard)
        return in_folder("3 align", own, folder, align, outputs(folder))

    return in_shards("align.py", work, options.shard, options.device, lambda: train(options))


def outputs(folder: Path) -> list[Path]:
    """Files that the stage writes to its folder."""
    names = [CHECKPOINT, TRAINED, "model.safetensors", "training.json"]
    for split in SPLITS:
        names += [f"cuts_{split}.jsonl.gz", ALIGN_CHECKPOINT.format(split)]
    return [folder / name for name in names]


class Inputs(NamedTuple):
    """What the stage reads."""

    config: AlignConfig  # of the alignment
    table: UnitTable  # ids of the canonical units
    manifests: dict[str, Path]  # of the parts of the corpus
    cuts: dict[str, StoredCuts]  # those of them that can be used
    dataset: UnitDataset  # gives features and units
    train: list[Cut]  # the cuts that the aligner is trained on
    init: Path | None  # weights that its training begins from; None: there are none
    aligner: Aligner  # of the sizes of the configuration, not trained
    identity: str  # of its training

    @classmethod
    def read(cls, options: ModelOptions, reports: Mapping[str, StageReport]) -> Inputs:
        """Read what the options name.

        Args:
            options: of the stage.
            reports: by part of the corpus, of what cannot be used.

        Raises:
            ValueError: something is damaged, or there is nothing to align.
        """
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
        train = [cut for cut in cuts["train"] if cut.id in chosen]
        num_features = dataset.features(train[0]).shape[1]
        aligner = Aligner(num_features, len(table), config.silence, config.align, device)
        identity = aligner.identity(train, dataset, options.seed, init)
        return cls(config.align, table, manifests, cuts, dataset, train, init, aligner, identity)

    def trained(self, folder: Path) -> dict | None:
        """What ``training.json`` says of the aligner, which takes its weights; None: not trained.

        Raises:
            ValueError: the file is damaged; names it.
        """
        path = folder / TRAINED
        if not path.is_file() or read_metadata(path).get("identity") != self.identity:
            return None
        return load_model(path, self.aligner.model)["training"]

    def train_aligner(self, folder: Path, seed: int) -> dict:
        """Train the aligner unless it is trained; returns what ``training.json`` says."""
        training = self.trained(folder)
        if training is None:
            checkpoint, cuts = folder / CHECKPOINT, CutSet.from_cuts(self.train)
            training = self.aligner.train(cuts, self.dataset, seed, checkpoint, self.init)
            said = {"identity": self.identity, "training": training}
            save_model(folder / TRAINED, self.aligner.model, said)
            remove_made(checkpoint)
        return training


def train(options: ModelOptions) -> int:
    """Train the aligner, which shards need, unless it is trained; returns 0.

    Raises:
        ValueError, OSError: the folders cannot be used, or not be written to.
    """
    folder = options.exp_dir / "fa"
    inputs = Inputs.read(options, unseen(options))
    if inputs.trained(folder) is None:
        with stage_folder("3 align", options.exp_dir, outputs(folder), [options.data_dir]):
            inputs.train_aligner(folder, options.seed)
    return 0


def unseen(options: ModelOptions) -> dict[str, StageReport]:
    """Reports that nobody sees, of cuts that shards report."""
    return dict.fromkeys(SPLITS, StageReport(stage="3 align", folder=options.exp_dir))


def align(options: ModelOptions, shards: Mapping[Shard, Path]) -> int:
    """Align the cuts of all parts of the corpus, or join what shards have aligned.

    Args:
        options: of the stage.
        shards: those to join, with their folders.

    Returns:
        The exit status of the stage.
    """
    shard, folder = options.shard, options.exp_dir / "fa"
    home = folder if shard is None else shard.folder(folder)
    report = StageReport(stage="3 align", folder=options.exp_dir if shard is None else home)
    with report.kept():
        # Of a test part that is everything, each cut counts in the part that it is also of.
        apart = parts_apart(about_corpus(options.data_dir))
        reports = {split: report if split in apart else report.again() for split in SPLITS}
        inputs = Inputs.read(options, reports if shard is None else unseen(options))
        cuts, aligner, dataset = inputs.cuts, inputs.aligner, inputs.dataset
        one = shard or next(iter(shards), None)
        own = {} if one is None else shards_of(inputs.manifests, one.count)
        if shard is None:
            training = inputs.train_aligner(folder, options.seed)
        else:
            training = inputs.trained(folder)
            if training is None:
                raise ValueError(
                    f"the aligner is not trained yet, which --shard 1/{shard.count} does: run the "
                    "other shards after it"
                )
            mine = {s: {name for name in own[s] if own[s][name] == shard} for s in SPLITS}
            if not any(mine.values()):
                log(f"stage {report.stage}: there is nothing for shard {shard}")
                return 0
            cuts = {
                s: StoredCuts(inputs.manifests[s], inputs.table, reports[s], mine[s])
                for s in SPLITS
            }
        inputs.train.clear()  # of no use from here on, and large
        settings = {"model": weights_digest(aligner.model), "align": asdict(inputs.config)}
        run = {**settings, "cuts": {s: file_digest(path) for s, path in inputs.manifests.items()}}
        if shards:
            due = {own[split][name] for split in SPLITS for name in cuts[split].ids}
            check_done(shards, due, {RUN: run}, folder)
            for path in {  # a damaged one is found before any manifest is replaced
                shards[own[split][name]] / f"cuts_{split}.jsonl.gz"
                for split in SPLITS
                for name in cuts[split].ids
            }:
                for _ in manifest_lines(path):
                    pass
        without: dict[str, list[str]] = {}
        answers: dict[str, Answered] = {}
        for split, some in cuts.items():
            path = home / f"cuts_{split}.jsonl.gz"
            if shards:
                found = {name: shards[own[split][name]] / path.name for name in some.ids}
                without[split] = join_manifests(path, found)
                continue
            kept = home / ALIGN_CHECKPOINT.format(split)
            keeper = keep_passes(kept, settings, options.seed, [some])
            way = partial(aligned_cuts, aligner, dataset, split == "test")
            every = read_cuts(inputs.manifests[split])
            answers[split] = answer_in_portions(path, every, keeper, way, some.ids)
            without[split] = answers[split].without
    if shard is None:
        aligner.save(folder / "model.safetensors")
        write_json(folder / "training.json", {**training, "seed": options.seed})
        log(f"{training['num_params']} parameters, trained in {training['training_seconds']} s")
    else:
        remove_made(home / RUN)
    for answered in answers.values():
        answered.write()
    if shard is not None:
        write_json(home / RUN, run)
    states = inputs.config.model.states_per_unit
    for split, some in cuts.items():
        names = set(without[split])
        reports[split].done(len(some) - len(names))
        for cut in (cut for cut in some if cut.id in names) if names else ():
            reason = f"too short: fewer than {states} frames per unit"
            if cut.num_frames >= states * len(canonical_units(cut)):
                reason = f"its {len(canonical_units(cut))} units find no place in its speech"
            reports[split].skip(cut.id, reason)
        # They were for a run that is killed before this.
        remove_made(home / ALIGN_CHECKPOINT.format(split))
        remove_parts(home / f"cuts_{split}.jsonl.gz")
    if shard is None:
        remove_made(folder / TRAINED)
    status = report.finish()
    for split, names in without.items() if shard is None else ():
        if len(names) == len(cuts[split]):
            log(f"stage 3 align: no cut of split {split} is left")
            status = 1
    return status


def shards_of(manifests: Mapping[str, Path], count: int) -> dict[str, dict[str, Shard]]:
    """The shard of each cut, by part of the corpus and id.

    A shard takes whole portions, so that its cuts are searched in the batches of one process.
    """
    found: dict[str, dict[str, Shard]] = {}
    number = 0
    for split, path in manifests.items():
        found[split] = {}
        for some in portioned(read_cuts(path)):
            shard = Shard(count, number % count + 1)
            found[split].update((cut.id, shard) for cut in some)
            number += 1
    return found


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
