"""Small cuts with features in memory, and small models, for the tests of training."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import torch
from lhotse import CutSet, MonoCut, SupervisionSegment
from lhotse.features import Features
from lhotse.features.io import MemoryRawWriter

from mlvae.data.dataset import UnitDataset
from mlvae.data.units import UnitTable
from mlvae.fsa import UnitSpan
from mlvae.nn import (
    MlVaeConfig,
    SpeechGeneratorConfig,
    TrunkConfig,
)
from mlvae.tiers import with_tiers
from mlvae.train.targets import items_of_spans

NUM_FEATURES = 6
TABLE = UnitTable(("a", "b", "c", "d"))


def tiny_model_config(bidirectional: bool = True) -> MlVaeConfig:
    return MlVaeConfig(
        TrunkConfig(1, 8, bidirectional, fc_size=8),
        TrunkConfig(1, 8, bidirectional, fc_size=8, dropout=0.1),
        SpeechGeneratorConfig(
            encoder_fc_size=8,
            encoder_lstm_layers=1,
            encoder_lstm_size=8,
            bidirectional=bidirectional,
            latent_size=4,
            variant_fc_size=8,
            correctness_fc_size=8,
            decoder_layers=1,
            decoder_size=8,
        ),
    )


def make_cut(
    name: str, features: np.ndarray, units: Sequence[str], duration: float | None = None
) -> MonoCut:
    """A cut of (T, F) features, 10 ms a frame, with canonical units."""
    duration = len(features) / 100 if duration is None else duration
    writer = MemoryRawWriter()
    stored = Features(
        type="fbank",
        num_frames=len(features),
        num_features=features.shape[1],
        frame_shift=0.01,
        sampling_rate=8000,
        start=0,
        duration=duration,
        storage_type=writer.name,
        storage_path="",
        storage_key=writer.write(name, features.astype(np.float32)),
        recording_id=name,
        channels=0,
    )
    supervision = SupervisionSegment(name, name, 0.0, duration, custom={"units": list(units)})
    return MonoCut(name, 0.0, duration, 0, supervisions=[supervision], features=stored)


def unit_spans(units: Sequence[int], edges: Sequence[int], wrong=()) -> list[UnitSpan]:
    """Units from each edge to the next; ``wrong`` are the positions that are mispronounced."""
    return [
        UnitSpan(i, unit, edges[i], edges[i + 1], "unit", i in wrong, unit, 0.0, i, i)
        for i, unit in enumerate(units)
    ]


def aligned(cut: MonoCut, edges: Sequence[int]) -> MonoCut:
    """The cut with a tier ``fa`` whose units run from each edge to the next."""
    symbols = cut.supervisions[0].custom["units"]
    spans = unit_spans(TABLE.ids(symbols, cut.id), edges)
    return with_tiers(cut, {"fa": items_of_spans(cut, spans, symbols, [0.0] * len(spans))})


def spoken_cut(name: str, said: Sequence[int], written: Sequence[int], seed: int) -> MonoCut:
    """A cut in which unit u sounds as a bump in feature u, with the true edges in the tier ``fa``.

    The last feature is high in the first frame of each unit.
    """
    rng = np.random.default_rng(seed)
    lengths = rng.integers(5, 9, len(said))
    edges = np.concatenate([[0], np.cumsum(lengths)])
    features = 0.2 * rng.standard_normal((edges[-1], NUM_FEATURES))
    for unit, start, end in zip(said, edges[:-1], edges[1:]):
        features[start:end, unit] += 2.0
        features[start, -1] += 2.0
    cut = make_cut(name, features, TABLE.units(written))
    return aligned(cut, edges.tolist())


def spoken_cuts(count: int, wrong_rate: float = 0.2, seed: int = 0) -> tuple[CutSet, dict]:
    """Cuts of 2 to 5 units, and by cut which units were said otherwise than written."""
    rng = np.random.default_rng(seed)
    cuts, wrong = [], {}
    for number in range(count):
        written = rng.integers(0, len(TABLE), rng.integers(2, 6))
        marks = rng.random(len(written)) < wrong_rate
        shift = rng.integers(1, len(TABLE), len(written))
        said = np.where(marks, (written + shift) % len(TABLE), written)
        name = f"cut{seed}-{number:03d}"
        cuts.append(spoken_cut(name, said.tolist(), written.tolist(), seed=1000 * seed + number))
        wrong[name] = marks.tolist()
    return CutSet.from_cuts(cuts), wrong


def dataset() -> UnitDataset:
    return UnitDataset(TABLE)


CPU = torch.device("cpu")
#: Where tests search and train; see tests/conftest.py.
DEVICE = torch.device(os.environ.get("MLVAE_TEST_DEVICE", "cpu"))
