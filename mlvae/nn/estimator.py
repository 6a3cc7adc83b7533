"""Phoneme estimator phi_p: which unit a frame belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import nn

from mlvae.nn.convolution import ConvolutionConfig, ConvolutionTrunk
from mlvae.nn.layers import RecurrentConfig, RecurrentTrunk, full


@dataclass
class PhonemeEstimatorConfig(RecurrentConfig):
    """Sizes of the phoneme estimator.

    Attributes:
        kind: ``lstm`` (the paper) or ``convolution``, which sees a limited part of the utterance.
        convolution: sizes of kind ``convolution``, which has no use for those of the LSTM.
    """

    kind: Literal["lstm", "convolution"] = "lstm"
    convolution: ConvolutionConfig = field(default_factory=ConvolutionConfig)


class PhonemeEstimator(nn.Module):
    """q(y_t | x_t): LSTM layers, two fully connected layers with ReLU, and a softmax.

    With kind ``convolution``, dilated convolutions stand in for the LSTM and what follows it.

    Args:
        num_features: feature dimension F.
        num_units: units N (plus one where silence is modelled).
        config: sizes.
    """

    def __init__(self, num_features: int, num_units: int, config: PhonemeEstimatorConfig) -> None:
        super().__init__()
        if config.kind == "convolution":
            self.trunk: nn.Module = ConvolutionTrunk(num_features, config.convolution)
            size = config.convolution.channels
        else:
            self.trunk = RecurrentTrunk(num_features, config)
            size = config.fc_size
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
