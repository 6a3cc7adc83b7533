"""Boundary detector phi_b: where units start."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from mlvae.nn.layers import PaddedLSTM, fully_connected


@dataclass
class BoundaryDetectorConfig:
    """Sizes of the boundary detector; the defaults are the paper's.

    Attributes:
        lstm_layers: LSTM layers.
        lstm_size: units an LSTM layer and direction.
        bidirectional: whether the LSTM looks both ways.
        fc_size: width of the two fully connected layers.
        dropout: dropout after LSTM layers and fully connected layers.
    """

    lstm_layers: int = 2
    lstm_size: int = 512
    bidirectional: bool = False
    fc_size: int = 128
    dropout: float = 0.0


class BoundaryDetector(nn.Module):
    """q(eta_t | x_t) = Beta(alpha_t, beta_t), where b_t ~ Bernoulli(eta_t).

    LSTM layers, two fully connected layers with ReLU, and two separate outputs with Softplus.

    Args:
        num_features: feature dimension F.
        config: sizes.
    """

    # Softplus may underflow to 0, where a Beta distribution is not defined.
    MIN_CONCENTRATION = 1e-3

    def __init__(self, num_features: int, config: BoundaryDetectorConfig) -> None:
        super().__init__()
        self.lstm = PaddedLSTM(
            num_features,
            config.lstm_size,
            config.lstm_layers,
            config.bidirectional,
            config.dropout,
        )
        sizes = [self.lstm.output_size, config.fc_size, config.fc_size]
        self.hidden = fully_connected(sizes, config.dropout)
        self.alpha = nn.Linear(config.fc_size, 1)
        self.beta = nn.Linear(config.fc_size, 1)

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
        hidden = self.hidden(self.lstm(features, num_frames))
        alpha = F.softplus(self.alpha(hidden)).squeeze(2) + self.MIN_CONCENTRATION
        beta = F.softplus(self.beta(hidden)).squeeze(2) + self.MIN_CONCENTRATION
        return alpha, beta


def boundary_log_probs(alpha: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    """Log q(b_t = 0) and log q(b_t = 1) by the mean of the Beta distribution, for decoding.

    Args:
        alpha: float (B, T).
        beta: float (B, T).

    Returns:
        float (B, T, 2).
    """
    total = (alpha + beta).log()
    return torch.stack([beta.log() - total, alpha.log() - total], dim=2)
