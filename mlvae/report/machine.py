"""Where something was measured, in one line without names of hosts or folders."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch

CPU_INFO = Path("/proc/cpuinfo")


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
