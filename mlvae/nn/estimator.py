"""Phoneme estimator phi_p: which unit a frame belongs to."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from mlvae.nn.layers import RecurrentConfig, RecurrentTrunk


@dataclass
class PhonemeEstimatorConfig(RecurrentConfig):
    """Sizes of the phoneme estimator."""


class PhonemeEstimator(nn.Module):
    """q(y_t | x_t): LSTM layers, two fully connected layers with ReLU, and a softmax.

    Args:
        num_features: feature dimension F.
        num_units: units N (plus one where silence is modelled).
        config: sizes.
    """

    def __init__(self, num_features: int, num_units: int, config: PhonemeEstimatorConfig) -> None:
        super().__init__()
        self.trunk = RecurrentTrunk(num_features, config)
        self.output = nn.Linear(config.fc_size, num_units)

    def forward(self, features: torch.Tensor, num_frames: torch.Tensor) -> torch.Tensor:
        """Log-posteriors of the units.

        Args:
            features: float (B, T, F), scaled.
            num_frames: int64 (B,).

        Returns:
            float (B, T, N), log-probabilities.
        """
        hidden = self.trunk(features, num_frames)
        return self.output(hidden).log_softmax(dim=2)
