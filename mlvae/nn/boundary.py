"""Boundary detector phi_b: where units start."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from mlvae.nn.layers import full
from mlvae.nn.trunk import TrunkConfig, new_trunk


class BoundaryDetector(nn.Module):
    """q(eta_t | x_t) = Beta(alpha_t, beta_t), where b_t ~ Bernoulli(eta_t).

    LSTM layers, two fully connected layers with ReLU, and two separate outputs with Softplus. With
    kind ``convolution``, dilated convolutions stand in for the LSTM and what follows it.

    Args:
        num_features: feature dimension F.
        config: sizes.
    """

    # Softplus may underflow to 0, where a Beta distribution is not defined.
    MIN_CONCENTRATION = 1e-3

    def __init__(self, num_features: int, config: TrunkConfig) -> None:
        super().__init__()
        self.trunk, size = new_trunk(num_features, config)
        self.alpha = nn.Linear(size, 1)
        self.beta = nn.Linear(size, 1)

    def forward(
        self, features: torch.Tensor, num_frames: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Parameters of the Beta distribution of each frame.

        Args:
            features: float (B, T, F), scaled.
            num_frames: int64 (B,).

        Returns:
            alpha and beta, float (B, T), positive.
        """
        hidden = self.trunk(features, num_frames)
        alpha = F.softplus(full(self.alpha(hidden))).squeeze(2) + self.MIN_CONCENTRATION
        beta = F.softplus(full(self.beta(hidden))).squeeze(2) + self.MIN_CONCENTRATION
        return alpha, beta
