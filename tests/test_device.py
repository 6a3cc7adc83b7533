from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from mlvae.device import num_parameters, seed_everything, select_device


def test_select_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [select_device(name).type for name in ("auto", "cpu", "cuda")] == ["cuda", "cpu", "cuda"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert [select_device(name).type for name in ("auto", "cpu")] == ["cpu", "cpu"]
    with pytest.raises(ValueError, match="no CUDA device"):
        select_device("cuda")
    with pytest.raises(ValueError, match="not 'tpu'"):
        select_device("tpu")


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
