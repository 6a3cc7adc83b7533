"""What boundary detector and phoneme estimator begin with: LSTM layers, or convolutions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from torch import nn

from mlvae.bounds import Context, Depth, Fraction, Settings, Size
from mlvae.nn.layers import PaddedLSTM, frame_mask, fully_connected


@dataclass
class ConvolutionConfig(Settings):
    """Sizes of dilated convolutions; a frame sees 14 frames on each side by default."""

    channels: Size = 64  # width of every layer
    kernel_size: Context = 5  # frames that a kernel covers, an odd number
    #: Distance of these frames, a layer an entry.
    dilations: list[Depth] = field(default_factory=lambda: [1, 2, 4])
    dropout: Fraction = 0.3  # dropout after every layer

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be an odd number, not {self.kernel_size}")
        if not self.dilations:
            raise ValueError("dilations must hold a number for each layer, not none")


@dataclass
class TrunkConfig(Settings):
    """Sizes of a trunk; the defaults are the paper's.

    Attributes:
        kind: ``lstm`` (the paper) or ``convolution``, which sees a limited part of the utterance
            and takes a fraction of the time.
        convolution: sizes of kind ``convolution``, which has no use for the others.
    """

    lstm_layers: Depth = 2  # LSTM layers
    lstm_size: Size = 512  # units an LSTM layer and direction
    bidirectional: bool = False  # whether the LSTM looks both ways
    fc_size: Size = 128  # width of the two fully connected layers
    dropout: Fraction = 0.0  # dropout after LSTM layers and fully connected layers
    kind: Literal["lstm", "convolution"] = "lstm"
    convolution: ConvolutionConfig = field(default_factory=ConvolutionConfig)


def new_trunk(num_features: int, config: TrunkConfig) -> tuple[nn.Module, int]:
    """A trunk of features of a dimension, and the dimension of its hidden values."""
    if config.kind == "convolution":
        return ConvolutionTrunk(num_features, config.convolution), config.convolution.channels
    return RecurrentTrunk(num_features, config), config.fc_size


class RecurrentTrunk(nn.Module):
    """LSTM layers and two fully connected layers.

    Args:
        num_features: feature dimension F.
        config: sizes.
    """

    def __init__(self, num_features: int, config: TrunkConfig) -> None:
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

    def forward(self, features: torch.Tensor, num_frames: torch.Tensor) -> torch.Tensor:
        """Hidden values, float (B, T, fc_size).

        Args:
            features: float (B, T, F), scaled.
            num_frames: int64 (B,).
        """
        return self.hidden(self.lstm(features, num_frames))


class ConvolutionTrunk(nn.Module):
    """Dilated convolutions with layer normalisation, ReLU and dropout; residual from the second on.

    It cannot see, and so cannot learn by heart, much more than the unit at hand: labels of which a
    part is wrong then do less harm than to a recurrent network that sees the whole utterance.

    Args:
        num_features: feature dimension F.
        config: sizes.
    """

    def __init__(self, num_features: int, config: ConvolutionConfig) -> None:
        super().__init__()
        sizes = [num_features] + [config.channels] * (len(config.dilations) - 1)
        self.layers = nn.ModuleList(
            nn.Conv1d(
                size,
                config.channels,
                config.kernel_size,
                dilation=dilation,
                padding=dilation * (config.kernel_size // 2),
            )
            for size, dilation in zip(sizes, config.dilations)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(config.channels) for _ in config.dilations)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, features: torch.Tensor, num_frames: torch.Tensor) -> torch.Tensor:
        """Hidden values, float (B, T, channels); padding holds values that mean nothing.

        Args:
            features: float (B, T, F), scaled; padding must be finite.
            num_frames: int64 (B,).
        """
        mask = frame_mask(num_frames, features.shape[1]).unsqueeze(2)
        hidden = features
        for index, (layer, norm) in enumerate(zip(self.layers, self.norms)):
            # What lies beyond the end is zero in every layer, as it is for a cut alone.
            inputs = hidden.masked_fill(~mask, 0.0).transpose(1, 2)
            outputs = self.dropout(F.relu(norm(layer(inputs).transpose(1, 2))))
            hidden = outputs if index == 0 else hidden + outputs
        return hidden
