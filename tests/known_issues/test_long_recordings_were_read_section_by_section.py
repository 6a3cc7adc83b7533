"""Where no features were kept, an hour was read and checked anew for each of its sections."""

from __future__ import annotations

import numpy as np
from lhotse import CutSet
from lhotse.utils import fastcopy

import mlvae.data.dataset as dataset_module
from mlvae.data.dataset import UnitDataset
from mlvae.train.adaptation import AdaptedDataset, fit_maps
from mlvae.train.goodness import UnitModel
from tests.train.tiny import CPU, NUM_FEATURES, TABLE, aligned, make_cut


def test_a_long_recording_is_read_once_in_a_pass(monkeypatch):
    monkeypatch.setattr(dataset_module, "NETWORK_FRAMES", 600)
    read = []
    load_features = dataset_module.load_features
    monkeypatch.setattr(
        dataset_module, "load_features", lambda cut: read.append(cut.id) or load_features(cut)
    )
    features = np.random.default_rng(0).normal(size=(9000, NUM_FEATURES))
    cuts = []
    for name in ("one", "two"):
        cut = aligned(make_cut(name, features, ["a", "b"]), [10, 4000, 8990])
        cuts.append(fastcopy(cut, supervisions=[fastcopy(cut.supervisions[0], speaker="x")]))

    def log_probs(features, lengths):
        return features[..., : len(TABLE)].log_softmax(-1)

    given = UnitDataset(TABLE, cache_mb=0)
    model = UnitModel(log_probs, given, CPU)
    maps = fit_maps(cuts, model, silence=False)
    assert read == ["one", "two"]
    read.clear()
    adapted = UnitModel(log_probs, AdaptedDataset(given, maps), CPU)
    assert len(list(adapted.of_cuts(CutSet(cuts)))) == 2
    assert sorted(read) == ["one", "two"]
