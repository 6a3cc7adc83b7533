#!/usr/bin/env python3
"""How fast an E-step is: by k2, as a recipe calls it, and by other ways to find the same paths.

    python benchmarks/estep.py --json estep.json

Each way is given the canonical units and the networks' answers, and has graphs, scores and paths to
find by itself; benchmarks/baselines.py has the others. The exit status is 1 if two paths differ.

What is compared is as fair as this:

* All ways have the same inputs in memory, and none keeps anything from one run to the next. What is
  compiled or loaded at the first call is done before: all ways but the loop DP, which has no such
  thing, run once unmeasured.
* The ways take turns, so that other work on the machine slows all of them down, and each finds the
  caches as another has left them. The loop DP has fewer turns, evenly spread. What counts is the
  ratio of medians.
* Python's garbage collector runs before each run and not during any.
* Freed memory stays with the process, as run.sh has it. Otherwise it depends on the chance of what
  lies where whether a process gives it back after each run and gets it again, which takes the ways
  that use much of it up to 3 ms.
* Each way has one thread, unless --threads gives more to torch; k2's search and the other two have
  one in any case.
* The loop DP is what one writes first and not what one would tune: see benchmarks/baselines.py.

Where other work takes the cores that --threads counts on, set OMP_WAIT_POLICY=passive.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Literal
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs without being installed

import torch
from jsonargparse import ArgumentParser
from jsonargparse.typing import ClosedUnitInterval, NonNegativeInt, PositiveInt
from tabulate import tabulate

from benchmarks.baselines import batched_dp, compiled_dp, loop_dp
from benchmarks.inputs import Inputs, UnitPath, disagreements, random_inputs
from mlvae.data.manifests import write_json
from mlvae.environment import cpu_model, versions
from mlvae.fsa import Emissions, MlFsaCompiler, UnitSpan, best_path, search
from mlvae.program import start_program

K2, LOOP, BATCHED, COMPILED = "k2", "loop", "batched", "compiled"
TITLES = {
    K2: "k2 (mlvae.fsa)",
    LOOP: "loop DP (python, numpy)",
    BATCHED: "batched DP (torch)",
    COMPILED: "compiled DP (numba, 1 thread)",
}
#: What of k2's time is spent where; "other" is to prepare and to divide.
PARTS = {
    "compile": [(MlFsaCompiler, "compile")],
    "emissions": [(MlFsaCompiler, "emissions"), (Emissions, "part")],
    "intersect_dense": [(search, "intersect_dense")],
    "read_paths": [(search, "straight"), (search, "shortest"), (search, "read_paths")],
}


def k2_e_step(inputs: Inputs) -> list[list[UnitSpan]]:
    """One E-step as a recipe does it, on the device of the inputs."""
    compiler = MlFsaCompiler(num_units=inputs.log_posteriors.shape[2], topology="ml")
    with torch.no_grad():
        graphs = compiler.compile(inputs.units)
        emissions = compiler.emissions(
            inputs.log_posteriors,
            inputs.num_frames,
            log_prior=inputs.log_prior,
            log_boundary=inputs.log_boundary,
            log_correctness=inputs.log_correctness,
        )
        return best_path(graphs, emissions)


def timed(function: Callable, seconds: list[float], device: torch.device) -> Callable:
    """The same function, which also appends the time of each call."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        begin = time.perf_counter()
        result = function(*args, **kwargs)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - begin)
        return result

    return wrapper


def keep_freed_memory() -> None:
    """What run.sh sets by environment variables of glibc, which are read before a process starts.

    Does nothing with other C libraries, which do not have these settings.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mmap_threshold, trim_threshold = -3, -1  # of malloc.h
        mallopt(mmap_threshold, 32 * 2**20)  # the most there can be
        mallopt(trim_threshold, 2**30)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Collect garbage now and not inside."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def measure(
    ways: dict[str, Callable[[], list]], repeats: dict[str, int], device: torch.device
) -> tuple[dict[str, list], dict[str, list[float]], dict[str, list[float]]]:
    """Let the ways take turns; those with fewer repeats than others sit out some, evenly.

    Args:
        ways: by name.
        repeats: how often each runs.
        device: to wait for.

    Returns:
        The last answer of each way, the seconds of each of its runs, and the seconds of each part
        of each of k2's.
    """
    answers: dict[str, list] = {}
    runs: dict[str, list[float]] = {name: [] for name in ways}
    parts: dict[str, list[float]] = {name: [] for name in (*PARTS, "other")}
    num_turns = max(repeats.values())
    for turn in range(num_turns):
        for name, way in ways.items():
            if (turn + 1) * repeats[name] // num_turns == turn * repeats[name] // num_turns:
                continue
            with ExitStack() as stack:
                stack.enter_context(_without_collector())
                inside: dict[str, list[float]] = {part: [] for part in PARTS}
                for part, functions in PARTS.items():
                    for owner, attribute in functions:
                        watched = timed(getattr(owner, attribute), inside[part], device)
                        stack.enter_context(mock.patch.object(owner, attribute, watched))
                answers[name] = timed(way, runs[name], device)()
            if name == K2:
                for part in PARTS:
                    parts[part].append(sum(inside[part]))
                parts["other"].append(runs[name][-1] - sum(map(sum, inside.values())))
    return answers, runs, parts


def device_megabytes(way: Callable[[], list], device: torch.device) -> float | None:
    """Run a way once; how much memory of a GPU it took at most, besides its inputs."""
    if device.type != "cuda":
        way()
        return None
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    way()
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def paths_of(spans: list[list[UnitSpan]]) -> list[UnitPath]:
    """k2's answer in the form of the others'."""
    return [
        UnitPath(
            [span.start for span in path],
            [span.mispronounced for span in path],
            sum(span.score for span in path),
        )
        for path in spans
    ]


def machine() -> dict:
    """Where this runs: names, counts, and the load before."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def print_report(report: dict) -> None:
    """Tables of milliseconds and ratios."""
    settings, hardware = report["settings"], report["machine"]
    print(
        "one E-step: {num_utterances} utterances of {num_frames} frames and {num_units} units of "
        "{alphabet}; on {device}, {threads} thread(s), seed {seed}".format(**settings)
    )
    print(f"{hardware['cpu']}, {hardware['cores']} cores, load {hardware['load_average']:.1f}")
    print(", ".join(f"{name} {version}" for name, version in report["versions"].items()))
    rows = []
    for name, runs in report["seconds"].items():
        ratios = [report[which][name] for which in ("ratio_to_k2", "fastest_ratio_to_k2")]
        rows.append((TITLES[name], len(runs), 1e3 * median(runs), 1e3 * min(runs), *ratios))
    headers = ("", "runs", "median ms", "fastest ms", "median by k2's", "fastest by k2's")
    print("\n" + tabulate(rows, headers, floatfmt=("", "", ".1f", ".1f", ".3g", ".3g")))
    rows = [
        (f"k2: {part.replace('_', ' ')}", 1e3 * median(runs), 1e3 * min(runs))
        for part, runs in report["k2_parts_seconds"].items()
    ]
    print("\n" + tabulate(rows, ("", "median ms", "fastest ms"), floatfmt=".1f"))
    sentence = f"k2 is {report['ratio_to_k2'][LOOP]:.0f} times as fast as the loop DP"
    if COMPILED in report["ratio_to_k2"]:
        slower = 1 / report["ratio_to_k2"][COMPILED]
        sentence += f" and takes {slower:.1f} times as long as the compiled DP"
    print(f"\n{sentence} (medians).")


def print_table(files: Sequence[Path]) -> None:
    """One table of several files of ``--json``; of ways that know no GPU, the runs on CPU."""
    rows = []
    for path in files:
        report = json.loads(path.read_text(encoding="utf-8"))
        device, runs = report["settings"]["device"], report["seconds"]
        for name in runs if device == "cpu" else (K2, BATCHED):
            seconds = median(runs[name])
            ratio = seconds / median(runs[COMPILED]) if COMPILED in runs else None
            megabytes, size = report["device_megabytes"][name], report["settings"]["num_utterances"]
            rows.append((TITLES[name], device, size, 1 / seconds, ratio, megabytes))
    headers = ("", "on", "utterances", "E-steps/s", "time by compiled DP's", "device MB")
    print(tabulate(rows, headers, floatfmt=("", "", "", ".4g", ".3g", ".1f")))


def make_parser() -> ArgumentParser:
    """The options."""
    parser = ArgumentParser(prog="estep.py", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--num-utterances", type=PositiveInt, default=32, help="in the batch")
    parser.add_argument("--num-frames", type=PositiveInt, default=360, help="of an utterance")
    parser.add_argument("--num-units", type=PositiveInt, default=35, help="of an utterance")
    parser.add_argument("--alphabet", type=PositiveInt, default=40, help="different units")
    parser.add_argument(
        "--vary",
        type=ClosedUnitInterval,
        default=0.0,
        help="utterances have fewer frames and units by up to this share",
    )
    parser.add_argument("--seed", type=NonNegativeInt, default=0, help="of the random inputs")
    parser.add_argument("--threads", type=PositiveInt, default=1, help="of torch")
    parser.add_argument(
        "--device", type=Literal["cpu", "cuda"], default="cpu", help="of k2 and torch"
    )
    parser.add_argument("--repeats", type=PositiveInt, default=20, help="timed runs of each way")
    parser.add_argument("--loop-repeats", type=PositiveInt, default=5, help="and of the loop DP")
    parser.add_argument("--json", type=Path, help="file to write all times to")
    parser.add_argument(
        "--table", type=Path, nargs="+", help="measure nothing, print one table of such files"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; returns 1 where the answers differ, or the options do not fit."""
    options = make_parser().parse_args(argv)
    if options.table:
        print_table(options.table)
        return 0
    settings = {
        name: value for name, value in options.as_dict().items() if name not in ("json", "table")
    }
    hardware = machine()
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    try:
        if options.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("--device cuda, but torch finds no CUDA device; see `mlvae env`")
        if options.json is not None and not options.json.absolute().parent.is_dir():
            raise ValueError(f"--json {options.json}: there is no such folder")
        inputs = random_inputs(
            options.num_utterances,
            options.num_frames,
            options.num_units,
            options.alphabet,
            options.vary,
            options.seed,
        )
    except ValueError as error:
        print(f"estep.py: {error}", file=sys.stderr)
        return 1
    device = torch.device(options.device)
    moved = inputs.to(device)
    ways = {
        K2: lambda: k2_e_step(moved),
        LOOP: lambda: loop_dp(inputs),
        BATCHED: lambda: batched_dp(moved),
    }
    try:
        compiled = compiled_dp()
        ways[COMPILED] = lambda: compiled(inputs)
    except ImportError:
        print("numba is not installed (extra dev): no compiled DP", file=sys.stderr)
    # The loop has nothing to warm up.
    warmed = {name: device_megabytes(way, device) for name, way in ways.items() if name != LOOP}
    repeats = dict.fromkeys(ways, options.repeats) | {LOOP: options.loop_repeats}
    answers, runs, parts = measure(ways, repeats, device)

    answers[K2] = paths_of(answers[K2])
    wrong, num_ties = disagreements(inputs, answers, reference=K2)
    report = {
        "settings": settings,
        "machine": hardware,
        "versions": versions(["numba"]),
        "same_paths": not wrong,
        "ties": num_ties,
        "ratio_to_k2": {name: median(runs[name]) / median(runs[K2]) for name in runs},
        "fastest_ratio_to_k2": {name: min(runs[name]) / min(runs[K2]) for name in runs},
        "seconds": runs,
        "k2_parts_seconds": parts,
        "device_megabytes": {LOOP: None, **warmed},
    }
    print_report(report)
    if options.json is not None:
        write_json(options.json, report)
    if wrong:
        print("the answers differ:\n  " + "\n  ".join(wrong[:10]), file=sys.stderr)
        return 1
    ties = f", {num_ties} with an equal score in another way" if num_ties else ""
    print(f"All ways found the same {len(inputs.units)} paths{ties}.")
    return 0


if __name__ == "__main__":
    start_program()
    sys.exit(main())
