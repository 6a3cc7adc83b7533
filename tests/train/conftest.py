from __future__ import annotations

import pytest
import torch
from lhotse import CutSet

from tests.train.tiny import spoken_cuts
from tests.train.trainers import make_trainer


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Sums are the same for the same number of threads only."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def cuts() -> tuple[CutSet, CutSet]:
    return spoken_cuts(24)[0], spoken_cuts(8, seed=1)[0]


@pytest.fixture(scope="module")
def undisturbed(cuts, tmp_path_factory):
    """A run of two iterations and what it returned."""
    folder = tmp_path_factory.mktemp("run") / "ml-vae"
    return folder, make_trainer(cuts, folder).fit()
