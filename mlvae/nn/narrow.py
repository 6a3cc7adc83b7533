"""The acoustic model of forced alignment, which sees one frame on each side."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from mlvae.bounds import Context, Depth, Fraction, Settings, Size
from mlvae.nn.layers import FeatureScale


@dataclass
class NarrowAcousticModelConfig(Settings):
    """Sizes of the narrow acoustic model."""

    states_per_unit: Depth = 3  # left-to-right states per unit
    context: Context = 1  # frames seen on each side
    hidden_size: Size = 128  # width of the hidden layers
    dropout: Fraction = 0.2  # dropout after the hidden layers


class NarrowAcousticModel(nn.Module):
    """Posteriors of unit states from a few frames.

    A flat start teaches a model to reproduce the very alignment it is then used to improve. A model
    that sees far around a frame can do so wherever the edges are, and its edges drift by tens of
    milliseconds; one that sees a single frame on each side has to follow the sound.

    Args:
        num_features: feature dimension F, before scaling.
        num_units: units N.
        silence: whether there is a last column for silence.
        config: sizes.
    """

    def __init__(
        self, num_features: int, num_units: int, silence: bool, config: NarrowAcousticModelConfig
    ) -> None:
        super().__init__()
        self.context = config.context
        self.scale = FeatureScale(num_features)
        self.window = nn.Conv1d(
            num_features, config.hidden_size, 2 * config.context + 1, padding=config.context
        )
        self.hidden = nn.Linear(config.hidden_size, config.hidden_size)
        self.output = nn.Linear(
            config.hidden_size, num_units * config.states_per_unit + int(silence)
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Log-posteriors of unit states.

        Padding must be zero: it then equals the padding of the convolution at the edges, and a cut
        gets the same posteriors alone and in a batch.

        Args:
            features: float (B, T, F), cut-mean normalised, zero in padding.

        Returns:
            float (B, T, N * states_per_unit [+ 1]), log-probabilities.
        """
        hidden = self.window(self.scale(features).transpose(1, 2)).transpose(1, 2)
        return self._classify(hidden)

    def middle_frame(self, windows: torch.Tensor) -> torch.Tensor:
        """Log-posteriors of the middle frames of windows: training on frames from anywhere.

        Args:
            windows: float (n, 2 * context + 1, F), zero beyond the edges of a cut.

        Returns:
            float (n, N * states_per_unit [+ 1]), equal to what :meth:`forward` gives there.
        """
        windows = self.scale(windows).transpose(1, 2)
        hidden = F.conv1d(windows, self.window.weight, self.window.bias).squeeze(2)
        return self._classify(hidden)

    def _classify(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = self.dropout(F.relu(hidden))
        hidden = self.dropout(F.relu(self.hidden(hidden)))
        return self.output(hidden).log_softmax(dim=-1)
