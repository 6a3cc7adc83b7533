"""Where nothing that was perceived was long enough for the aligner of edges, its training broke off
with an error of torch about an empty list, after the whole training of the system.
"""

from __future__ import annotations

import pytest

from mlvae.config import RecipeConfig
from mlvae.nn import MlVae
from mlvae.systems import Setup
from mlvae.systems.ml_vae import TrainedMlVae, train_boundary_aligner
from mlvae.train import Decoding
from tests.train.tiny import CPU, NUM_FEATURES, TABLE, dataset, spoken_cuts, tiny_model_config


def test_it_is_said(tmp_path):
    config = RecipeConfig()
    config.align.model.states_per_unit = 40
    model = MlVae(NUM_FEATURES, len(TABLE), False, tiny_model_config())
    system = TrainedMlVae(model, "substitution", Decoding(), dataset(), CPU)
    with pytest.raises(ValueError, match="no training cut has 40 frames for each unit"):
        train_boundary_aligner(
            system, Setup("x", config, dataset(), CPU, 0, tmp_path), spoken_cuts(3)[0]
        )
