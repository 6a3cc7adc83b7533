from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Sums are the same for the same number of threads only."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _devices() -> list[str]:
    """The CPU and every GPU that both torch and k2 can use."""
    import k2

    num_gpus = torch.cuda.device_count() if k2.with_cuda else 0
    return ["cpu"] + [f"cuda:{index}" for index in range(num_gpus)]


def pytest_generate_tests(metafunc):
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", _devices())
