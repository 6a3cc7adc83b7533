"""Where tensors live, and that the same seed gives the same numbers."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import sys
from collections.abc import Iterator

import numpy as np
import torch
from jsonargparse.typing import restricted_number_type

#: What ``--seed`` may be: it fits every generator, also with a few added.
Seed = restricted_number_type("Seed", int, [(">=", 0), ("<", 10**18)])


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


def give_back_memory() -> None:
    """Give memory that was freed back to the system, where the C library is glibc.

    Left to itself it keeps what lies between small things that are still in use, and a long run
    comes to hold more than it ever needed at once.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def keep_no_kernels() -> None:
    """Let oneDNN, which runs convolutions, forget a kernel when it has run.

    It makes one for every shape of a batch, and would keep 1024 of them, 60 kB each, among what is
    freed again. Where no shape comes twice, as where recordings pass once, keeping them is slower,
    too. This must be called before the first convolution of the process; what the user has set
    stays.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "0")


def seed_everything(seed: int) -> None:
    """Seed Python's, numpy's and torch's global generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def num_parameters(module: torch.nn.Module) -> int:
    """Number of trained parameters, buffers left out."""
    return sum(parameter.numel() for parameter in module.parameters())
