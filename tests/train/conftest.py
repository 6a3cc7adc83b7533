from __future__ import annotations

import pytest
from lhotse import CutSet

from tests.train.tiny import spoken_cuts
from tests.train.trainers import make_trainer


@pytest.fixture(scope="module")
def cuts() -> tuple[CutSet, CutSet]:
    return spoken_cuts(24)[0], spoken_cuts(8, seed=1)[0]


@pytest.fixture(scope="module")
def undisturbed(cuts, tmp_path_factory):
    """A run of two iterations and what it returned."""
    folder = tmp_path_factory.mktemp("run") / "ml-vae"
    return folder, make_trainer(cuts, folder).fit()
