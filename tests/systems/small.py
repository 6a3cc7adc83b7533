"""An aligner that is trained in a second, for the tests of systems."""

from __future__ import annotations

from mlvae.nn import NarrowAcousticModelConfig
from mlvae.systems.align import AlignConfig

ALIGN = AlignConfig(
    NarrowAcousticModelConfig(states_per_unit=2, hidden_size=32),
    rounds=4,
    epochs_per_round=3,
    batch_frames=128,
    learning_rate=5e-3,
    search_frames=200,
)
