"""Baseline b(x) of the reward: what reward a frame brings, whatever is sampled there."""

from __future__ import annotations

import torch
from torch import nn

from mlvae.nn.layers import fully_connected


class RewardBaseline(nn.Module):
    """A fully connected network from the features of a frame to its expected reward.

    The network speaks in nats a feature dimension: a reward is a log-likelihood of tens of nats, to
    which its output would otherwise have to grow by the small steps of an optimizer.

    Args:
        num_features: feature dimension F.
        size: width of the two hidden layers.
    """

    def __init__(self, num_features: int, size: int) -> None:
        super().__init__()
        self.num_features = num_features
        self.layers = nn.Sequential(fully_connected([num_features, size, size]), nn.Linear(size, 1))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Expected reward of each frame, float (B, T), from features (B, T, F), scaled."""
        return self.num_features * self.layers(features).squeeze(2)
