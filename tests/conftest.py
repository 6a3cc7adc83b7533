from __future__ import annotations

import os

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Sums are the same for the same number of threads only."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_addoption(parser):
    parser.addoption(
        "--device",
        choices=["cpu", "cuda"],
        help="where tests of searches and of training run (default: searches on the CPU and every "
        "GPU, training on the CPU)",
    )


def pytest_configure(config):
    wanted = config.getoption("--device")
    if wanted == "cuda" and not _gpus():
        raise pytest.UsageError("--device cuda, but torch or k2 can use no CUDA device")
    if wanted is not None:
        os.environ["MLVAE_TEST_DEVICE"] = wanted  # tests/train/tiny.py reads it


def _gpus() -> list[str]:
    """Every GPU that both torch and k2 can use."""
    import k2

    return [f"cuda:{index}" for index in range(torch.cuda.device_count() if k2.with_cuda else 0)]


def pytest_generate_tests(metafunc):
    if "device" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("--device")
        devices = ["cpu"] * (wanted != "cuda") + (_gpus() if wanted != "cpu" else [])
        metafunc.parametrize("device", devices)
