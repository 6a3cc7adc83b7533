"""Settings of training that do not go together; limits of each have a test for all of them."""

from __future__ import annotations

from typing import get_args

import pytest

from mlvae.train import Decoding, TrainConfig
from mlvae.train.settings import TopologyName

FEW = Decoding(competitors=2)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"topology": "single"}, f"topology must be one of {', '.join(get_args(TopologyName))}"),
        ({"pseudo_labels_after": 3}, "pseudo_labels_after goes with topology substitution"),
        ({"estimate_after": 1}, "estimate_after goes with topology substitution"),
        ({"decoding": FEW}, "competitors go with topology substitution"),
        (
            {"topology": "separate", "decoding": Decoding(deletions=True)},
            "separate has no deletions",
        ),
        ({"algorithm": "reinforce", "generator": False}, "it needs the generator"),
        ({"algorithm": "joint", "boundary_detector": False}, "it needs the boundary detector"),
        ({"boundary_detector": False, "boundary_target": "found"}, "there is none"),
        ({"algorithm": "joint", "boundary_target": "found"}, "joint has no E-step: its bound"),
        ({"algorithm": "joint", "estimator_epochs": 2}, "estimator_epochs is 1"),
        (
            {"algorithm": "joint", "topology": "substitution", "pseudo_labels_after": 2},
            "joint has no E-step: nothing",
        ),
        (
            {"algorithm": "joint", "topology": "substitution", "decoding": FEW},
            "joint has no E-step to rank",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(settings, reason):
    with pytest.raises(ValueError, match=reason):
        TrainConfig(**settings)
