"""A read passage of 16 s in the test part, with twelve competitors, stopped stage 5 for every cut:
"utterance 0 is too large". One of a minute in the training part ended stage 4.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lhotse import CutSet, MonoCut, SupervisionSegment
from lhotse.features import Features
from lhotse.features.io import NumpyFilesWriter

from mlvae.data.dataset import load_cuts
from mlvae.data.manifests import write_manifest
from mlvae.data.units import UnitTable
from mlvae.tiers import tier
from tests.data.conftest import ROOT
from tests.recipes.conftest import Recipe

SYMBOLS = tuple("abcdefghijklmnop")
CONFIG = (
    f"base: {ROOT}/recipes/systems.yaml\n"
    + """\
align:
  model: {states_per_unit: 3, hidden_size: 48}
  rounds: 2
  epochs_per_round: 4
  batch_frames: 256
  learning_rate: 5.0e-3
systems:
  ml-vae:
    model:
      boundary: {lstm_layers: 1, lstm_size: 8, fc_size: 8}
      estimator: {kind: convolution, convolution: {channels: 24, dropout: 0.0}}
      generator:
        encoder_fc_size: 8
        encoder_lstm_layers: 1
        encoder_lstm_size: 8
        latent_size: 4
        variant_fc_size: 8
        correctness_fc_size: 8
        decoder_layers: 1
        decoder_size: 8
    train: {iterations: 1, max_frames: 2000, learning_rate: 2.0e-2}
  ml-vae-sub:
    train: {decoding: {acoustic_scale: 0.3, competitors: 12}}
    calibration: {scales: [0.3]}
"""
)


def utterance(folder: Path, name: str, num_units: int, seed: int) -> MonoCut:
    """Unit u sounds as a bump in feature u, for 80 ms."""
    rng = np.random.default_rng(seed)
    units = np.cumsum(rng.integers(1, len(SYMBOLS), num_units)) % len(SYMBOLS)
    features = 0.3 * rng.standard_normal((8 * num_units, len(SYMBOLS)))
    features[np.arange(len(features)), units.repeat(8)] += 2.0
    duration = len(features) / 100
    writer = NumpyFilesWriter(folder)
    stored = Features(
        type="fbank",
        num_frames=len(features),
        num_features=features.shape[1],
        frame_shift=0.01,
        sampling_rate=8000,
        start=0,
        duration=duration,
        storage_type=writer.name,
        storage_path=str(folder),
        storage_key=writer.write(name, features.astype(np.float32)),
        recording_id=name,
        channels=0,
    )
    custom = {"units": [SYMBOLS[unit] for unit in units]}
    supervision = SupervisionSegment(name, name, 0.0, duration, custom=custom)
    return MonoCut(name, 0.0, duration, 0, supervisions=[supervision], features=stored)


@pytest.fixture
def recipe(tmp_path, monkeypatch) -> Recipe:
    """After stage 2: utterances of a second, one of a minute to train on, one of 16 s to test."""
    monkeypatch.syspath_prepend(str(ROOT / "local"))
    data = tmp_path / "data"
    parts = {
        "train": [("minute", 750), *((f"train{number}", 12) for number in range(20))],
        "valid": [(f"valid{number}", 12) for number in range(3)],
        "test": [("passage", 200), ("test0", 12), ("test1", 12)],
    }
    seed = 0
    for part, utterances in parts.items():
        cuts = []
        for name, num_units in utterances:
            seed += 1
            cuts.append(utterance(data / "features", name, num_units, seed))
        write_manifest(data / "fbank" / f"cuts_{part}.jsonl.gz", CutSet.from_cuts(cuts))
    UnitTable(SYMBOLS).save(data / "units" / "tokens.txt")
    config = tmp_path / "tiny.yaml"
    config.write_text(CONFIG)
    return Recipe(data, tmp_path / "exp", config, systems="ml-vae-sub")


def test_every_cut_is_aligned_trained_on_and_localised(recipe):
    assert recipe.run(3, 4, 5) == [0, 0, 0]
    assert recipe.skipped() == {}
    for system in ("ml-vae-sub", "gop-fa", "gop-sub"):
        cuts = load_cuts(recipe.exp / system / "cuts_test.jsonl.gz")
        assert sorted(cut.id for cut in cuts) == ["passage", "test0", "test1"]
        for cut in cuts:
            found = tier(cut, "mlvae")
            assert [item.symbol for item in found] == cut.supervisions[0].custom["units"]
            assert found[0].start == 0 and found[-1].end == pytest.approx(cut.duration)
            # 80 ms a unit.
            late = [abs(item.start - 0.08 * place) for place, item in enumerate(found)]
            assert np.median(late) <= 0.0201
