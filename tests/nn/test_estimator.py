from __future__ import annotations

import pytest
import torch

from mlvae.nn import PhonemeEstimator, TrunkConfig
from mlvae.nn.trunk import ConvolutionConfig
from tests.nn.padding import batch, check_padding


def convolutional(**sizes) -> TrunkConfig:
    convolution = ConvolutionConfig(6, 3, [1, 2], **sizes)
    return TrunkConfig(kind="convolution", convolution=convolution)


CONFIGS = [
    TrunkConfig(2, 6, False, fc_size=5, dropout=0.3),
    TrunkConfig(2, 6, True, fc_size=5, dropout=0.3),
    convolutional(dropout=0.3),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_shapes_probabilities_padding_and_dropout(config):
    torch.manual_seed(0)
    module = PhonemeEstimator(3, 4, config)
    inputs, num_frames = batch(3)
    assert not torch.equal(module(inputs, num_frames), module(inputs, num_frames))
    module.eval()
    found = module(inputs, num_frames)
    assert found.shape == (4, 9, 4)
    torch.testing.assert_close(found.exp().sum(2), torch.ones(4, 9))
    check_padding(module, inputs, num_frames)


def test_convolutions_see_as_far_as_their_dilations_reach():
    torch.manual_seed(0)
    module = PhonemeEstimator(3, 4, convolutional()).eval()
    inputs, num_frames = torch.randn(1, 15, 3), torch.tensor([15])
    before = module(inputs, num_frames)
    inputs[0, 7] += 1
    changed = (module(inputs, num_frames) != before).any(2)[0]
    assert changed.nonzero().flatten().tolist() == list(range(4, 11))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ConvolutionConfig(kernel_size=4), "odd"),
        (lambda: ConvolutionConfig(dilations=[]), "dilations"),
    ],
)
def test_wrong_sizes_are_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()
