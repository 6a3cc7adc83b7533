"""P(mispronounced) sums the posteriors of many arcs, and came out as 1.0000000000000024."""

from __future__ import annotations

import numpy as np
from lhotse import CutSet

from mlvae.systems.localize import TrainedMlVae
from mlvae.tiers import tier
from mlvae.train import Decoding
from tests.train.test_estep import BOUNDARY, GivenFeatures, features_of, stand_in
from tests.train.tiny import CPU, TABLE, make_cut


def test_scores_never_leave_the_range_of_probabilities():
    cuts = []
    for number in range(20):
        frames = 20 + number
        features = features_of(frames, [3] * frames, wrong=range(frames), sure=10.0)
        features += 0.3 * np.random.default_rng(number).standard_normal(features.shape)
        features[:, BOUNDARY] = -1.0  # starts may be anywhere, so that there are many arcs
        cuts.append(make_cut(f"x{number}", features, ["a", "b", "c"]))
    system = TrainedMlVae(stand_in(), "ml", Decoding(), GivenFeatures(TABLE), CPU)
    found, _ = system.localize(CutSet.from_cuts(cuts))
    scores = [item.score for cut in found for item in tier(cut, "mlvae")]
    assert max(scores) <= 1.0
    assert max(scores) > 0.9999
