from __future__ import annotations

import pytest
import torch

from mlvae.nn import PhonemeEstimator, PhonemeEstimatorConfig
from tests.nn.padding import batch, check_padding


@pytest.mark.parametrize("bidirectional", [False, True])
def test_shapes_probabilities_and_padding(bidirectional):
    torch.manual_seed(0)
    config = PhonemeEstimatorConfig(2, 6, bidirectional, fc_size=5, dropout=0.3)
    module = PhonemeEstimator(3, 4, config).eval()
    inputs, num_frames = batch(3)
    found = module(inputs, num_frames)
    assert found.shape == (4, 9, 4)
    torch.testing.assert_close(found.exp().sum(2), torch.ones(4, 9))
    check_padding(module, inputs, num_frames)


def test_dropout_acts_in_training():
    config = PhonemeEstimatorConfig(1, 6, fc_size=5, dropout=0.3)
    module = PhonemeEstimator(3, 4, config)
    inputs, num_frames = batch(3)
    assert not torch.equal(module(inputs, num_frames), module(inputs, num_frames))
