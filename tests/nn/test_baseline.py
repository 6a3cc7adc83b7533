from __future__ import annotations

import pytest
import torch

from mlvae.nn.generator import RewardBaseline


def test_a_frame_alone_gets_what_it_gets_among_others():
    torch.manual_seed(0)
    baseline, features = RewardBaseline(6, 8), torch.randn(3, 5, 6)
    found = baseline(features)
    assert found.shape == (3, 5)
    torch.testing.assert_close(baseline(features[1:2, 3:4]), found[1:2, 3:4])
    assert found.std().item() > 0


def test_it_reaches_rewards_of_tens_of_nats_in_few_steps():
    """Before it does, what it leaves of the reward is noise to q(pi)."""
    torch.manual_seed(0)
    baseline = RewardBaseline(40, 64)
    optimizer = torch.optim.Adam(baseline.parameters(), lr=2e-3)
    features = torch.randn(8, 50, 40)
    reward = -60 + 5 * features[..., 0]
    for _ in range(40):
        error = (baseline(features) - reward).pow(2).mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    assert error.item() < 0.02 * 60**2
    assert baseline(features).mean().item() == pytest.approx(-60, abs=10)
