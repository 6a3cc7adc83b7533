#!/usr/bin/env python3
"""What adaptation to speakers is good for, and how much speech of one it wants.

    python benchmarks/adaptation.py --data-dir data/CORPUS --exp-dir exp/RECIPE/CORPUS/CONFIG \
        --config recipes/RECIPE/conf/CONFIG.yaml

The experiment has been trained (stages 0 to 4). In each row the recordings of a speaker are taken
in groups, as if those of each group were of another speaker: alone, by tens, and all together; the
first row is of a system that is not adapted. A judge is fitted to the held-out part in the same
way, and the test part is localised; nothing else is trained again. References are read for the
scores alone. The last columns are the text's mean log posterior by frame in the test part, and
seconds of adaptation and of the whole localisation for a second of speech.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs without being installed

import numpy as np
import torch
from lhotse import CutSet
from lhotse.utils import fastcopy
from tabulate import tabulate

from benchmarks.experiment import METRICS, experiment_parser, metrics, read_experiment
from mlvae.program import start_program
from mlvae.systems.judge import SearchedModel, Trusted, fit_judge
from mlvae.tiers import tier
from mlvae.train.targets import variant_spans

#: Recordings in a group of a speaker's; 0: the system is not adapted; None: all of them.
GROUPS = {"no adaptation": 0, "each recording": 1, "10 recordings": 10, "speaker": None}


def grouped(cuts: CutSet, size: int | None) -> CutSet:
    """Cuts whose speakers are groups of so many recordings; None: who they are."""
    if not size:
        return cuts
    counts: dict[str, int] = {}
    found = []
    for cut in cuts:
        said = cut.supervisions[0]
        name = said.speaker or cut.id
        count = counts[name] = counts.get(name, -1) + 1
        other = fastcopy(said, speaker=f"{name}, group {count // size}")
        found.append(fastcopy(cut, supervisions=[other]))
    return CutSet.from_cuts(found)


def text_log_posterior(system: SearchedModel, cuts: CutSet) -> float:
    """Mean over the frames of units of the estimator's log posterior of the text, as aligned."""
    total = frames = 0.0
    table = system.dataset.table
    for cut, log_probs in system.unit_model().of_cuts(cuts):
        for span in variant_spans(cut, table):
            total += log_probs[span.start : span.end, span.unit].sum().item()
            frames += span.end - span.start
    return total / frames


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; returns the exit status."""
    args = experiment_parser("adaptation.py", __doc__).parse_args(argv)
    torch.set_num_threads(1)
    trained = read_experiment(args)
    seconds = sum(cut.duration for cut in trained.test)
    training = json.loads((trained.setup.folder / "training.json").read_bytes())
    config = trained.setup.settings.judge
    trusted = None
    if training["trusted"]:
        trusted = Trusted(trained.train, trained.system.boundary_aligner)
    rows: list[list] = []
    for name, size in GROUPS.items():
        system = replace(trained.system, adapted=size != 0)
        valid, test = (grouped(cuts, size) for cuts in (trained.valid, trained.test))
        judge = fit_judge(system, valid, trained.aligner, config, args.seed, trusted)
        start = time.perf_counter()
        ready = system.adapted_to(test)
        adaptation = time.perf_counter() - start
        start = time.perf_counter()
        found, _ = replace(system, judge=judge).localize(test)
        whole = time.perf_counter() - start
        answers = {cut.id: [unit.score for unit in tier(cut, "mlvae")] for cut in found}
        known = trained.known(answers)
        values = np.concatenate([answers[cut.id] for cut in known])
        if not rows:
            trained.describe(known)
        measured = metrics(*trained.scored(known, values))
        costs = [adaptation / seconds, whole / seconds]
        rows.append([name, *measured, text_log_posterior(ready, test), *costs])
    headers = ["adapted to", *METRICS, "text", "adaptation s/s", "localisation s/s"]
    print(tabulate(rows, headers, floatfmt=("", *[".3f"] * 7, ".4f", ".4f")))
    return 0


if __name__ == "__main__":
    start_program()
    sys.exit(main())
