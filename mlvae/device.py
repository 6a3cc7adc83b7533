"""The device and the machine, random seeds, and numbers of parameters."""

from __future__ import annotations

import contextlib
import os
import platform
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from jsonargparse.typing import restricted_number_type

#: What ``--seed`` may be: it fits every generator, also with a few added.
Seed = restricted_number_type("Seed", int, [(">=", 0), ("<", 10**18)])
CPU_INFO = Path("/proc/cpuinfo")


def select_device(name: str) -> torch.device:
    """Turn ``auto``, ``cpu`` or ``cuda`` into a device.

    Raises:
        ValueError: the name is another one, or CUDA is asked for and absent.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu or cuda, not {name!r}")
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise ValueError("--device cuda, but torch finds no CUDA device; see `mlvae env`")
    return torch.device("cuda" if available and name != "cpu" else "cpu")


@contextlib.contextmanager
def denormals_flushed() -> Iterator[None]:
    """Take denormal numbers for zero within a block, on the CPU.

    Gradients that fade through many frames become denormal, and a CPU is tens of times slower on
    them. Threads inherit the setting when they are made, so that it encloses all of a program that
    trains, and all that searches, which is to find what training has found.
    """
    flushed_before = sys.float_info.min / 2 == 0.0
    # numpy looks once at each type, and warns if its smallest number is zero already.
    for kind in (np.float32, np.float64):
        np.finfo(kind)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushed_before)


def seed_everything(seed: int) -> None:
    """Seed Python's, numpy's and torch's global generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def num_parameters(module: torch.nn.Module) -> int:
    """Number of trained parameters, buffers left out."""
    return sum(parameter.numel() for parameter in module.parameters())


def machine_line() -> str:
    """The number of cores, the model of the CPU, and the GPU if there is one.

    Example:
        >>> machine_line()
        '2 cores of Intel(R) Xeon(R) Processor, no GPU'
    """
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))  # what this process may use, which may be fewer
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return f"{cores} core{'s' if cores > 1 else ''} of {cpu_model()}, {gpu}"


def cpu_model() -> str:
    """The model of the CPU as the system names it."""
    if CPU_INFO.exists():
        for line in CPU_INFO.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
