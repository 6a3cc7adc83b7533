"""Phoneme estimator phi_p: which unit a frame belongs to."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from mlvae.nn.layers import PaddedLSTM, fully_connected


@dataclass
class PhonemeEstimatorConfig:
    """Sizes of the phoneme estimator; the defaults are the paper's.

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


class PhonemeEstimator(nn.Module):
    """q(y_t | x_t): LSTM layers, two fully connected layers with ReLU, and a softmax.

    Args:
        num_features: feature dimension F.
        num_units: units N (plus one where silence is modelled).
        config: sizes.
    """

    def __init__(self, num_features: int, num_units: int, config: PhonemeEstimatorConfig) -> None:
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
        self.output = nn.Linear(config.fc_size, num_units)

    def forward(self, features: torch.Tensor, num_frames: torch.Tensor) -> torch.Tensor:
        """Log-posteriors of the units.

        Args:
            features: float (B, T, F), scaled.
            num_frames: int64 (B,).

        Returns:
            float (B, T, N), log-probabilities.
        """
        hidden = self.hidden(self.lstm(features, num_frames))
        return self.output(hidden).log_softmax(dim=2)
