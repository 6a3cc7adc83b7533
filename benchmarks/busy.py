#!/usr/bin/env python3
"""What threads that wait cost a training, on an idle machine and beside another busy program.

    python benchmarks/busy.py --threads 2

A step is one of the phoneme estimator of recipes/audiomnist/conf/small.yaml on random features.
Each round measures, in turn and each in a process of its own, OpenMP threads that spin while they
wait (OpenMP's own way), threads that sleep at once (``GOMP_SPINCOUNT=0``), and threads that sleep
after a moment (as run.sh and the command mlvae have it), alone and beside --busy programs that
train likewise, in OpenMP's own way. What counts are the ratios of medians: other work on the
machine changes from round to round.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs without being installed

from jsonargparse import ArgumentParser
from jsonargparse.typing import PositiveInt
from tabulate import tabulate

from mlvae.program import SPINS, start_program

ROOT = Path(__file__).resolve().parents[1]
POLICIES = {"spin": "", "sleep at once": "0", f"sleep after {SPINS} looks": SPINS}
FOR_EVER = 10**9
#: Runs this file without start_program, so that threads are what the environment says.
STEP = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from benchmarks.busy import main; main()"


def step_seconds(threads: int, steps: int) -> float:
    """Median seconds of a training step in this process."""
    import torch

    from mlvae.config import load_config
    from mlvae.nn import PhonemeEstimator

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    config = load_config(ROOT / "recipes" / "audiomnist" / "conf" / "small.yaml")
    config = config.systems["ml-vae"].settings.model
    model = PhonemeEstimator(40, 10, config.estimator)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    features, num_frames = torch.randn(32, 250, 40), torch.full((32,), 250)
    seconds = []
    for _ in range(steps + 2):  # two to warm up
        begin = time.perf_counter()
        optimizer.zero_grad()
        model(features, num_frames)[..., 0].mean().neg().backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    return median(seconds[2:])


def measure(policy: str, busy: int, threads: int, steps: int) -> float:
    """Seconds of a step in a process of its own, beside ``busy`` others."""
    names = [name for name in os.environ if not name.startswith(("OMP_", "GOMP_"))]
    env = {name: os.environ[name] for name in names}
    command = [sys.executable, "-c", STEP, "--threads", str(threads), "--step", "--steps"]
    others = [subprocess.Popen([*command, str(FOR_EVER)], env=env) for _ in range(busy)]
    env |= {"GOMP_SPINCOUNT": policy} if policy else {}
    try:
        time.sleep(5 if busy else 0)  # until the others are at work
        done = subprocess.run([*command, str(steps)], env=env, check=True, capture_output=True)
        return json.loads(done.stdout)
    finally:
        for other in others:
            other.kill()
            other.wait()


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit status."""
    parser = ArgumentParser(prog="busy.py", description=__doc__)
    parser.add_argument("--threads", type=PositiveInt, default=2, help="of the training")
    parser.add_argument("--busy", type=PositiveInt, default=1, help="programs beside it")
    parser.add_argument("--rounds", type=PositiveInt, default=3, help="of all four")
    parser.add_argument("--steps", type=PositiveInt, default=8, help="of which the median counts")
    parser.add_argument("--step", action="store_true", help="measure in this process alone")
    options = parser.parse_args(argv)
    if options.step:
        print(json.dumps(step_seconds(options.threads, options.steps)))
        return 0
    seconds: dict[tuple[str, int], list[float]] = {}
    for _ in range(options.rounds):
        for busy in (0, options.busy):
            for name, policy in POLICIES.items():
                found = measure(policy, busy, options.threads, options.steps)
                seconds.setdefault((name, busy), []).append(found)
    rows = []
    for name in POLICIES:
        alone, beside = (median(seconds[name, busy]) for busy in (0, options.busy))
        rows.append((name, 1e3 * alone, 1e3 * beside, beside / alone))
    headers = ("threads that wait", "ms a step, idle", f"beside {options.busy} busy", "ratio")
    print(tabulate(rows, headers, floatfmt=("", ".0f", ".0f", ".1f")))
    return 0


if __name__ == "__main__":
    start_program()
    sys.exit(main())
