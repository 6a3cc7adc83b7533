#!/usr/bin/env python3
"""Time and memory of stages 3 to 5 over growing amounts of speech: 1, 3 and 10 hours of digits.

    ./run.sh --corpus fsdd --stop-stage 2
    python benchmarks/memory.py --data-dir data/fsdd

The cuts of a corpus that stage 2 has left are repeated under other ids until there are so many
hours of training cuts, and as many of test cuts; validation cuts are as they are. Features are not
copied: each repetition reads the same ones from the same file. Then each stage is run as run.sh
does, in a process of its own. Stage 3 trains one round and aligns everything; stage 4 trains
--iterations iterations; stage 5 localises the test cuts, with this system alone.

* Seconds are those that the process computes (of all threads together), as what else the machine
  does would be another share of each amount.
* Memory is the largest resident size of the process, with Python and its libraries.
* What has a limit grows up to it: the features that are kept (--cache-mb), the graphs of an E-step,
  the frames that an aligner is trained on, and the portions of stages 3 and 5. So memory of a few
  hours is not to be multiplied.

What stage 4 holds all the time of so many hours can be measured without training for as long:

    python benchmarks/memory.py --data-dir data/fsdd --exp-dir exp/audiomnist/fsdd/small --held 100

takes the training cuts of an experiment after stage 3, repeats them, and makes the trainer of stage
4, with spans as an E-step finds them. A search of a batch comes on top of it, whatever the amount.
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs without being installed

import torch
from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import NonNegativeInt, PositiveFloat, PositiveInt
from lhotse import MonoCut
from tabulate import tabulate

from mlvae.config import load_config, write_config
from mlvae.data.dataset import CACHE_MB, UnitDataset, load_cuts, usable_cuts
from mlvae.data.manifests import SPLITS, write_manifest
from mlvae.data.units import UnitTable
from mlvae.environment import machine_line
from mlvae.program import start_program
from mlvae.stage import StageReport, in_one_line, log
from mlvae.systems import Setup
from mlvae.systems.ml_vae import new_model
from mlvae.train import Trainer
from mlvae.train.packed import PackedSpans

ROOT = Path(__file__).resolve().parents[1]
SYSTEM = "ml-vae-sub"
STAGES = {3: "align", 4: "train", 5: "localize"}
#: As run.sh sets them: which package is used, and what is done with memory that was freed.
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TRIM_THRESHOLD_": "1073741824",
}


def repeated(cuts: Sequence[MonoCut], hours: float) -> Iterator[MonoCut]:
    """Cuts again and again, each time under other ids, until they are so many hours."""
    left, number = 3600 * hours, 0
    while left > 0:
        for cut in cuts:
            if left <= 0:
                return
            left -= cut.duration
            yield cut if number == 0 else cut.with_id(f"{cut.id}-{number}")
        number += 1


def make_corpus(data_dir: Path, hours: float, out: Path) -> None:
    """Write a corpus folder, as after stage 2, of repeated cuts."""
    (out / "units").mkdir(parents=True)
    (out / "fbank").mkdir()
    shutil.copy(data_dir / "corpus.json", out)
    shutil.copy(data_dir / "units" / "tokens.txt", out / "units")
    for split in SPLITS:
        cuts = list(load_cuts(data_dir / "fbank" / f"cuts_{split}.jsonl.gz"))
        some = cuts if split == "valid" else repeated(cuts, hours)
        write_manifest(out / "fbank" / f"cuts_{split}.jsonl.gz", some)


def cost_of(command: Sequence[str], log_file: Path) -> tuple[float, float]:
    """Run a program to its end; its seconds of computing, and MB of its largest resident size.

    Raises:
        ValueError: it failed; ends with its last line.
    """
    with log_file.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **ENVIRONMENT}
        )
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        last = log_file.read_text(encoding="utf-8").strip().rsplit("\n", 1)[-1]
        raise ValueError(f"{' '.join(command)} failed: {last}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6


def table(costs: dict[int, list[tuple[float, float]]], amounts: Sequence[float]) -> str:
    """A row an amount, which is in hours, with what each stage cost."""
    rows = [
        [f"{hours:g}", *(f"{value:,.0f}" for cost in of_stages for value in cost)]
        for hours, of_stages in zip(amounts, zip(*costs.values()))
    ]
    names = [f"{number} {STAGES[number]}" for number in costs]
    headers = ["hours", *(f"{name}, {unit}" for name in names for unit in ("s", "MB"))]
    return tabulate(rows, headers, tablefmt="github", disable_numparse=True, stralign="right")


def resident() -> float:
    """Memory of this process now, in MB."""
    gc.collect()
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmRSS:")[1].split()[0]) * 1024 / 1e6


def held(args: Namespace) -> list[tuple[str, float]]:
    """What stage 4 holds of ``args.held`` hours: names, and MB up to there."""
    cpu, config = torch.device("cpu"), load_config(args.config, [SYSTEM])
    rows = [("Python and libraries", resident())]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        base = list(load_cuts(args.exp_dir / "fa" / "cuts_train.jsonl.gz"))
        write_manifest(work / "train.jsonl.gz", repeated(base, args.held))
        del base
        table = UnitTable.load(args.data_dir / "units" / "tokens.txt")
        report = StageReport("held", work)
        train = usable_cuts(load_cuts(work / "train.jsonl.gz"), table, report)
        valid = load_cuts(args.exp_dir / "fa" / "cuts_valid.jsonl.gz")
        rows.append((f"{len(train):,} cuts", resident()))
        dataset = UnitDataset(table, config.deltas, args.cache_mb)
        setup = Setup(SYSTEM, config, dataset, cpu, args.seed, work)
        trainer = Trainer(
            new_model(setup, train),
            train,
            valid,
            dataset,
            setup.settings.train,
            work,
            cpu,
            args.seed,
        )
        rows.append(("features, graphs and the spans of the alignment", resident()))
        aligned = trainer.algorithm.aligned
        found = PackedSpans(), PackedSpans()
        for spans in found:
            for name in aligned:
                spans[name] = aligned[name]
        rows.append((f"the spans of {len(found)} E-steps", resident()))
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns its exit status."""
    parser = ArgumentParser(prog="memory.py", description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True, help="corpus folder after stage 2")
    parser.add_argument(
        "--config",
        type=Path,
        default=ROOT / "recipes" / "audiomnist" / "conf" / "small.yaml",
        help="YAML file of the recipe",
    )
    parser.add_argument("--exp-dir", type=Optional[Path], help="experiment, for --held")
    parser.add_argument("--held", type=Optional[PositiveFloat], help="hours, for stage 4 alone")
    parser.add_argument("--hours", type=list[PositiveFloat], default=[1.0, 3.0, 10.0])
    parser.add_argument("--iterations", type=PositiveInt, default=1, help="of stage 4")
    parser.add_argument("--cache-mb", type=NonNegativeInt, default=CACHE_MB, help="as of run.sh")
    parser.add_argument("--seed", type=NonNegativeInt, default=0, help="of the stages")
    args = parser.parse_args(argv)

    def run() -> int:
        if args.held:
            rows = [(name, f"{megabytes:,.0f}") for name, megabytes in held(args)]
            print(tabulate(rows, ["up to", "MB"], tablefmt="github", disable_numparse=True))
            print(machine_line())
            return 0
        costs: dict[int, list[tuple[float, float]]] = {number: [] for number in STAGES}
        config = load_config(args.config, [SYSTEM])
        config.align.rounds = config.align.epochs_per_round = 1
        config.system(SYSTEM).settings.train.iterations = args.iterations
        for hours in args.hours:
            with tempfile.TemporaryDirectory() as folder:
                work = Path(folder)
                make_corpus(args.data_dir, hours, work / "data")
                write_config(work / "config.yaml", config, SYSTEM)
                for number, name in STAGES.items():
                    options = {
                        "data-dir": work / "data",
                        "exp-dir": work / "exp",
                        "config": work / "config.yaml",
                        "device": "cpu",
                        "seed": args.seed,
                        "cache-mb": args.cache_mb,
                        **({} if name == "align" else {"systems": SYSTEM}),
                    }
                    words = [f"--{key}={value}" for key, value in options.items()]
                    command = [sys.executable, str(ROOT / "local" / f"{name}.py"), *words]
                    seconds, megabytes = cost_of(command, work / f"{name}.log")
                    costs[number].append((seconds, megabytes))
                    log(f"{hours:g} h, stage {number}: {seconds:.0f} s, {megabytes:.0f} MB")
        print(table(costs, args.hours))
        print(machine_line())
        return 0

    return in_one_line("memory.py", run)


if __name__ == "__main__":
    start_program()
    sys.exit(main())
