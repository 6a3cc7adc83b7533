"""Phoneme estimator phi_p: which unit a frame belongs to."""

from __future__ import annotations

import torch
from torch import nn

from mlvae.nn.layers import full
from mlvae.nn.trunk import TrunkConfig, new_trunk


class PhonemeEstimator(nn.Module):
    """q(y_t | x_t): LSTM layers, two fully connected layers with ReLU, and a softmax.

    With kind ``convolution``, dilated convolutions stand in for the LSTM and what follows it.

    Args:
        num_features: feature dimension F.
        num_units: units N (plus one where silence is modelled).
        config: sizes.
    """

    def __init__(self, num_features: int, num_units: int, config: TrunkConfig) -> None:
        super().__init__()
        self.trunk, size = new_trunk(num_features, config)
        self.output = nn.Linear(size, num_units)

    def forward(self, features: torch.Tensor, num_frames: torch.Tensor) -> torch.Tensor:
        """Log-posteriors of the units.

        Args:
            features: float (B, T, F), scaled.
            num_frames: int64 (B,).

        Returns:
            float (B, T, N), log-probabilities.
        """
        hidden = self.trunk(features, num_frames)
        return full(self.output(hidden)).log_softmax(dim=2)
