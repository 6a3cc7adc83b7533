from __future__ import annotations

import torch

from mlvae.device import num_parameters
from mlvae.nn import FeatureScale


def test_each_dimension_gets_unit_variance_and_a_constant_one_stays():
    scale = FeatureScale(3)
    features = torch.randn(200, 3) * torch.tensor([0.1, 30.0, 0.0])
    assert torch.equal(scale(features), features)
    scale.set(features.pow(2).mean(0).sqrt())
    variance = scale(features).pow(2).mean(0)
    torch.testing.assert_close(variance, torch.tensor([1.0, 1.0, 0.0]))


def test_the_scale_travels_with_the_weights_and_is_no_parameter():
    scale, other = FeatureScale(2), FeatureScale(2)
    scale.set(torch.tensor([2.0, 4.0]))
    other.load_state_dict(scale.state_dict())
    assert other.inverse_std.tolist() == [0.5, 0.25]
    assert num_parameters(scale) == 0
