from __future__ import annotations

import ctypes
import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from mlvae.device import (
    denormals_flushed,
    give_back_memory,
    num_parameters,
    seed_everything,
    select_device,
)


def test_select_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [select_device(name).type for name in ("auto", "cpu", "cuda")] == ["cuda", "cpu", "cuda"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert [select_device(name).type for name in ("auto", "cpu")] == ["cpu", "cpu"]
    with pytest.raises(ValueError, match="no CUDA device"):
        select_device("cuda")
    with pytest.raises(ValueError, match="not 'tpu'"):
        select_device("tpu")


def test_denormal_numbers_are_flushed_within_a_block_alone():
    """On them a CPU is tens of times slower, and gradients through many frames become such."""
    tiny = torch.tensor(1e-30)
    assert float(tiny * 1e-10) > 0
    with pytest.raises(ZeroDivisionError), denormals_flushed():
        assert float(tiny * 1e-10) == 0
        with denormals_flushed():
            assert float(tiny * 1e-10) == 0
        assert float(tiny * 1e-10) == 0
        raise ZeroDivisionError
    assert float(tiny * 1e-10) > 0


@pytest.mark.parametrize("seed", [0, 7, 2**40])
def test_a_seed_fixes_all_three_generators(seed):
    def draws():
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    seed_everything(seed)
    first = draws()
    assert all(a != b for a, b in zip(first, draws()))
    seed_everything(seed)
    assert draws() == first


def test_buffers_are_no_parameters():
    assert num_parameters(torch.nn.BatchNorm1d(5)) == 10


def test_freed_memory_is_given_back():
    """Blocks of 64 kB, each second of which is freed: nothing of the other half is lost."""
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("the C library is not glibc")

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    blocks = [np.ones(2**13) for _ in range(4000)]
    kept = blocks[::2]
    del blocks
    before = resident()
    give_back_memory()
    assert before - resident() > 80 * 2**20
    assert all(block.all() for block in kept)
