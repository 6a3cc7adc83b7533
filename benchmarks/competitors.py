#!/usr/bin/env python3
"""What competitors, states, units and frames cost in an E-step: time, memory, size of the graphs.

    python benchmarks/competitors.py --json competitors.json

One row a case; each runs in a process of its own, so that its peak of memory is its own. Times are
medians of graphs, emissions and best paths together, and given as ratios to topology `ml`.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs without being installed

import torch
from jsonargparse import ArgumentParser
from jsonargparse.typing import NonNegativeInt, PositiveInt
from tabulate import tabulate

from mlvae.data.manifests import write_json
from mlvae.fsa import MlFsaCompiler, best_path
from mlvae.program import start_program


@dataclass(frozen=True)
class Case:
    """One E-step of ``num_utterances`` random utterances."""

    topology: str = "substitution"
    competitors: int = 8
    states: int = 3
    num_units: int = 35
    num_frames: int = 360
    num_utterances: int = 8
    alphabet: int = 40
    seed: int = 0
    repeats: int = 7


def cases(base: Case) -> list[Case]:
    """The paper's graph, and one size after the other doubled from a base."""
    rows = [replace(base, topology="ml", competitors=0, states=1), base]
    rows += [replace(base, competitors=number) for number in (2, 4, 16, 32)]
    rows += [replace(base, states=number) for number in (1, 2, 6)]
    rows += [replace(base, num_units=number) for number in (9, 17, 70)]
    rows += [replace(base, num_frames=number) for number in (180, 720)]
    return rows


def run(case: Case) -> dict:
    """Time one case in this process.

    Returns:
        ``arcs`` a graph, ``milliseconds``, and ``megabytes`` by which the peak of the resident
        memory grew.
    """
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(case.seed)
    competitors = None
    if case.topology == "substitution":
        competitors = [
            [(unit + step) % case.alphabet for step in range(1, case.competitors + 1)]
            for unit in range(case.alphabet)
        ]
    compiler = MlFsaCompiler(
        case.alphabet, case.topology, states_per_unit=case.states, competitors=competitors
    )
    shape = (case.num_utterances, case.num_units)
    units = torch.randint(case.alphabet, shape, generator=generator).tolist()
    columns = case.alphabet * case.states
    noise = torch.randn(case.num_utterances, case.num_frames, columns, generator=generator)
    log_posteriors = (2 * noise).log_softmax(2)
    num_frames = torch.full((case.num_utterances,), case.num_frames)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    for _ in range(case.repeats):
        begin = time.perf_counter()
        graphs = compiler.compile(units)
        best_path(graphs, compiler.emissions(log_posteriors, num_frames))
        seconds.append(time.perf_counter() - begin)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "arcs": graphs.num_arcs // case.num_utterances,
        "milliseconds": 1e3 * median(seconds),
        "megabytes": (after - before) / 1024,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; returns the exit status."""
    parser = ArgumentParser(prog="competitors.py", description=__doc__)
    parser.add_argument("--num-utterances", type=PositiveInt, default=8, help="in the batch")
    parser.add_argument("--seed", type=NonNegativeInt, default=0, help="of the random inputs")
    parser.add_argument("--repeats", type=PositiveInt, default=7, help="timed runs of each case")
    parser.add_argument("--json", type=str, help="file to write the rows to")
    parser.add_argument("--case", type=str, help="run one case, given as JSON, in this process")
    args = parser.parse_args(argv)
    if args.case:
        print(json.dumps(run(Case(**json.loads(args.case)))))
        return 0
    base = Case(num_utterances=args.num_utterances, seed=args.seed, repeats=args.repeats)
    rows = []
    for case in cases(base):
        command = [sys.executable, __file__, "--case", json.dumps(asdict(case))]
        done = subprocess.run(command, check=True, capture_output=True, encoding="utf-8")
        rows.append({**asdict(case), **json.loads(done.stdout)})
        rows[-1]["ratio_to_ml"] = rows[-1]["milliseconds"] / rows[0]["milliseconds"]
    names = ("topology", "competitors", "states", "num_units", "num_frames")
    names += ("arcs", "milliseconds", "ratio_to_ml", "megabytes")
    table = [[row[name] for name in names] for row in rows]
    print(tabulate(table, headers=[name.replace("_", " ") for name in names], floatfmt=".1f"))
    if args.json:
        write_json(Path(args.json), rows)
    return 0


if __name__ == "__main__":
    start_program()
    sys.exit(main())
