from __future__ import annotations

import pytest
import torch

from mlvae.nn import PhonemeEstimator, PhonemeEstimatorConfig
from mlvae.nn.convolution import ConvolutionConfig
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


def convolutional(**sizes) -> PhonemeEstimator:
    config = PhonemeEstimatorConfig(kind="convolution", convolution=ConvolutionConfig(**sizes))
    return PhonemeEstimator(3, 4, config)


def test_convolutions_give_a_cut_the_same_alone_and_in_a_batch():
    torch.manual_seed(0)
    module = convolutional(channels=6, kernel_size=3, dilations=[1, 2]).eval()
    inputs, num_frames = batch(3)
    found = module(inputs, num_frames)
    assert found.shape == (4, 9, 4)
    torch.testing.assert_close(found.exp().sum(2), torch.ones(4, 9))
    check_padding(module, inputs, num_frames)


def test_convolutions_see_as_far_as_their_dilations_reach():
    torch.manual_seed(0)
    module = convolutional(channels=6, kernel_size=3, dilations=[1, 2]).eval()
    inputs, num_frames = torch.randn(1, 15, 3), torch.tensor([15])
    before = module(inputs, num_frames)
    inputs[0, 7] += 1
    changed = (module(inputs, num_frames) != before).any(2)[0]
    assert changed.nonzero().flatten().tolist() == list(range(4, 11))


def test_convolutions_have_dropout_in_training():
    inputs, num_frames = batch(3)
    module = convolutional()
    assert not torch.equal(module(inputs, num_frames), module(inputs, num_frames))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: PhonemeEstimatorConfig(kind="gru"), "kind"),
        (lambda: ConvolutionConfig(kernel_size=4), "odd"),
        (lambda: ConvolutionConfig(dilations=[]), "dilations"),
        (lambda: ConvolutionConfig(dilations=[0]), "dilations"),
    ],
)
def test_wrong_sizes_are_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()
