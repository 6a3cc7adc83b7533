#!/usr/bin/env python3
"""Stage 5: find mispronounced units in the test cuts; adds tiers, writes TextGrid files."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lhotse import CutSet
from options import ModelOptions, in_folder, parse_model_options

from mlvae.config import load_config
from mlvae.data.dataset import StoredCuts, UnitDataset, read_cuts
from mlvae.data.manifests import write_json
from mlvae.data.units import UnitTable
from mlvae.device import denormals_flushed, select_device
from mlvae.made import Record, file_digest, remove_made
from mlvae.plausibility import FlaggedUnits, count_flagged, training_warnings
from mlvae.portions import answer_in_portions, portioned, remove_parts, speaker_of
from mlvae.program import start_program
from mlvae.report.textgrid import textgrid_paths, write_textgrids
from mlvae.shard import RUN, Shard, check_done, dealt, join_manifests
from mlvae.stage import StageReport, log
from mlvae.systems import Localizer, Setup, load_localizers, models_digest
from mlvae.train.distributed import in_shards
from mlvae.train.loop import keep_passes

CHECKPOINT = "localize-checkpoint.safetensors"
TIERS = ["fa", "mlvae", "mlvae_perceived"]


@denormals_flushed()
def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; returns its exit status."""
    options = parse_model_options("localize.py", __doc__, argv)

    def work(shard: Shard | None) -> int:
        return in_folder("5 localize", replace(options, shard=shard), options.exp_dir, localize)

    return in_shards("localize.py", work, options.shard, options.device)


def localize(options: ModelOptions, shards: Mapping[Shard, Path]) -> int:
    """Localise with the systems in turn, or join what shards have done.

    Args:
        options: of the stage.
        shards: those to join, with their folders.

    Returns:
        The exit status of the stage.
    """
    home = options.exp_dir if options.shard is None else options.shard.folder(options.exp_dir)
    report = StageReport(stage="5 localize", folder=home)
    with report.kept():
        config = load_config(options.config, options.systems)
        device = select_device(options.device)
        table = UnitTable.load(options.data_dir / "units" / "tokens.txt")
        manifest = options.exp_dir / "fa" / "cuts_test.jsonl.gz"
        any_shard = options.shard or next(iter(shards), None)
        own = {} if any_shard is None else shards_of(manifest, any_shard.count)
        mine = None
        if options.shard is not None:
            mine = {cut_id for cut_id, shard in own.items() if shard == options.shard}
            if not mine:
                log(f"stage {report.stage}: there is nothing for shard {options.shard}")
                return 0
        cuts = StoredCuts(manifest, table, report, mine)
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
        text = options.config.read_text(encoding="utf-8")
        runs = {
            name: {"system": name, "models": digest, "config": text}
            for name, (_, digest) in localizers.items()
        }
        if shards:
            due = {own[cut_id] for cut_id in cuts.ids}
            cuts_digest = file_digest(manifest)
            due_runs = {f"{name}/{RUN}": {**run, "cuts": cuts_digest} for name, run in runs.items()}
            check_done(shards, due, due_runs, options.exp_dir)
        for name in localizers:  # before the work
            record, folder = Record.begin(home), home / name
            record.check([folder / "cuts_test.jsonl.gz", folder / CHECKPOINT])
            record.check(textgrid_paths(cuts.ids, folder / "textgrids").values())
        short: dict[str, list[str]] = {}
        unwritten: dict[str, str] = {}
        flagged: dict[str, FlaggedUnits] = {}
        chosen: dict[str, list[str]] = {}  # warnings of stage 4
        for name, (localizer, _) in localizers.items():
            folder = home / name
            if name in options.systems:
                chosen[name] = training_warnings(options.exp_dir / name)
            path = folder / "cuts_test.jsonl.gz"
            if shards:
                answers = {shard: home / name / path.name for shard, home in shards.items()}
                too_short = join_manifests(
                    path, {cut_id: answers[own[cut_id]] for cut_id in cuts.ids}
                )
            else:
                keeper = keep_passes(folder / CHECKPOINT, runs[name], 0, [cuts])
                every = read_cuts(manifest)
                answered = answer_in_portions(path, every, keeper, localizer, cuts.ids)
                if options.shard is not None:
                    remove_made(folder / RUN)
                answered.write()
                too_short = answered.without
            for cut_id in too_short:
                short.setdefault(cut_id, []).append(name)
            localized = CutSet.from_jsonl_lazy(path)
            if options.shard is None:
                unwritten.update(write_textgrids(localized, folder / "textgrids", TIERS))
            else:
                write_json(folder / RUN, {**runs[name], "cuts": file_digest(manifest)})
            flagged[name] = count_flagged(localized)
            remove_made(folder / CHECKPOINT)
            remove_parts(path)
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


def shards_of(manifest: Path, count: int) -> dict[str, Shard]:
    """The shard of each cut, by its id: what is judged together has one.

    That is a speaker's cuts of the same portion.
    """
    groups: dict[str, tuple] = {}
    seconds: dict[str, float] = {}
    for number, some in enumerate(portioned(read_cuts(manifest))):
        for cut in some:
            groups[cut.id] = number, speaker_of(cut) or (cut.id,)
            seconds[cut.id] = cut.duration
    numbers = dealt(((groups[cut_id], seconds[cut_id]) for cut_id in groups), count)
    return {cut_id: Shard(count, numbers[group]) for cut_id, group in groups.items()}


if __name__ == "__main__":
    start_program()
    sys.exit(main())
