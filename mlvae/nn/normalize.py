"""Feature scaling that is stored with the model."""

from __future__ import annotations

import torch
from torch import nn


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
