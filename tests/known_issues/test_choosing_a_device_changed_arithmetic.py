"""To ask for a device switched denormal numbers off for the whole process.

That is a setting for training. Whoever only looked at a device had other arithmetic from there on,
and numpy warned in every log that "the value of the smallest subnormal is zero".
"""

from __future__ import annotations

import warnings

import numpy as np
import torch

from mlvae import device
from mlvae.train import distributed


def is_flushed() -> bool:
    return float(torch.tensor(1e-30) * 1e-10) == 0


def test_choosing_a_device_changes_nothing(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    try:
        device.select_device("cpu")
        with distributed.process_group("auto"):
            assert not is_flushed()
    finally:
        torch.set_flush_denormal(False)


def test_numpy_does_not_warn_where_they_are_flushed():
    np.finfo._finfo_cache.clear()  # as in a new process
    with warnings.catch_warnings(), device.denormals_flushed():
        warnings.simplefilter("error")
        assert is_flushed()
        assert str(np.finfo(np.float32)) and str(np.finfo(np.float64))
