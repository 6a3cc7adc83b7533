"""Building blocks shared by the three modules."""

from __future__ import annotations

import torch
from torch import nn


class PaddedLSTM(nn.Module):
    """LSTM layers whose answer for a cut is the same alone and in a padded batch.

    Padding comes last, so the forward direction never sees it before a real frame; the backward
    direction runs forward over utterances that are reversed within their own length. (Packed
    sequences would do the same, but their backward pass is tens of times slower on a CPU.)

    Args:
        input_size: input dimension.
        hidden_size: units a direction.
        num_layers: layers.
        bidirectional: whether to look both ways; the output has twice ``hidden_size`` then.
        dropout: dropout between layers.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bidirectional: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.output_size = hidden_size * (2 if bidirectional else 1)
        sizes = [input_size] + [self.output_size] * (num_layers - 1)
        self.ahead = nn.ModuleList(nn.LSTM(size, hidden_size, batch_first=True) for size in sizes)
        self.back = nn.ModuleList(
            nn.LSTM(size, hidden_size, batch_first=True) for size in sizes if bidirectional
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, inputs: torch.Tensor, num_frames: torch.Tensor) -> torch.Tensor:
        """Run the layers.

        Args:
            inputs: float (B, T, input_size); padding must be finite.
            num_frames: int64 (B,).

        Returns:
            float (B, T, output_size); padding holds values that mean nothing.
        """
        index = flip_index(num_frames, inputs.shape[1]) if self.back else None
        for layer, ahead in enumerate(self.ahead):
            outputs = ahead(inputs)[0]
            if index is not None:
                reverse = self.back[layer](flip(inputs, index))[0]
                outputs = torch.cat([outputs, flip(reverse, index)], dim=2)
            inputs = self.dropout(outputs) if layer + 1 < len(self.ahead) else outputs
        return inputs


def flip_index(num_frames: torch.Tensor, max_frames: int) -> torch.Tensor:
    """int64 (B, T): reverses the frames of each utterance and leaves its padding in place."""
    frame = torch.arange(max_frames, device=num_frames.device).expand(len(num_frames), -1)
    reverse = num_frames.unsqueeze(1) - 1 - frame
    return torch.where(reverse >= 0, reverse, frame)


def flip(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Reverse ``values``, (B, T, D), in time by an index of :func:`flip_index`."""
    return values.gather(1, index.unsqueeze(2).expand_as(values))


def fully_connected(sizes: list[int], dropout: float = 0.0) -> nn.Sequential:
    """Linear layers with ReLU after each; ``sizes`` are input, hidden ..., output."""
    layers: list[nn.Module] = []
    for size_in, size_out in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(size_in, size_out), nn.ReLU()]
        if dropout > 0:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)


def frame_mask(num_frames: torch.Tensor, max_frames: int) -> torch.Tensor:
    """Bool (B, max_frames): true where a frame belongs to the utterance."""
    return torch.arange(max_frames, device=num_frames.device) < num_frames.unsqueeze(1)


def full(values: torch.Tensor) -> torch.Tensor:
    """Half precision, as mixed precision leaves it, to float32; others as they are."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


class FeatureScale(nn.Module):
    """Divides each feature dimension by the standard deviation of the training set.

    Cut-mean normalisation has happened before; the scale is part of the model, so that one file
    alone gets the same features as in a batch. It counts as a buffer, not as parameters.

    Args:
        num_features: feature dimension F.
    """

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.register_buffer("inverse_std", torch.ones(num_features))

    def set(self, std: torch.Tensor) -> None:
        """Take over standard deviations, (F,); constant dimensions are left unscaled."""
        safe = torch.where(std > 1e-5, std, torch.ones_like(std))
        self.inverse_std.copy_(1.0 / safe)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Scale features, (B, T, F)."""
        return features * self.inverse_std
