from __future__ import annotations

import pytest
import torch
from torch import nn

from mlvae.device import num_parameters
from mlvae.nn.layers import FeatureScale, PaddedLSTM, flip, flip_index, frame_mask, fully_connected
from tests.nn.padding import batch, check_padding


def test_flip_reverses_each_utterance_within_its_own_length():
    values = torch.arange(8.0).view(2, 4, 1)
    flipped = flip(values, flip_index(torch.tensor([3, 4]), 4))
    assert flipped.squeeze(2).tolist() == [[2, 1, 0, 3], [7, 6, 5, 4]]
    assert torch.equal(flip(flipped, flip_index(torch.tensor([3, 4]), 4)), values)


def test_frame_mask():
    assert frame_mask(torch.tensor([2, 0, 3]), 3).tolist() == [
        [True, True, False],
        [False, False, False],
        [True, True, True],
    ]


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_lstm_is_the_same_alone_and_in_a_padded_batch(bidirectional, num_layers):
    torch.manual_seed(0)
    lstm = PaddedLSTM(3, 4, num_layers, bidirectional)
    inputs, num_frames = batch(3)
    assert lstm(inputs, num_frames).shape == (4, 9, lstm.output_size)
    assert lstm.output_size == (8 if bidirectional else 4)
    check_padding(lstm, inputs, num_frames)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_lstm_equals_that_of_torch_over_packed_sequences(bidirectional):
    torch.manual_seed(0)
    ours = PaddedLSTM(3, 4, 2, bidirectional)
    theirs = nn.LSTM(3, 4, 2, batch_first=True, bidirectional=bidirectional)
    directions = {"": ours.ahead, "_reverse": ours.back}
    for suffix, layers in directions.items():
        for number, layer in enumerate(layers):
            for name, value in layer.named_parameters():
                target = getattr(theirs, name.replace("l0", f"l{number}{suffix}"))
                target.data.copy_(value.data)
    inputs, num_frames = batch(3)
    packed = nn.utils.rnn.pack_padded_sequence(
        inputs, num_frames, batch_first=True, enforce_sorted=False
    )
    expected, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    found = ours(inputs, num_frames) * frame_mask(num_frames, 9).unsqueeze(2)
    torch.testing.assert_close(found, expected)


def test_lstm_in_one_direction_does_not_see_what_comes():
    torch.manual_seed(0)
    lstm = PaddedLSTM(3, 4, 2)
    inputs, num_frames = batch(3, [9])
    before = lstm(inputs, num_frames)
    inputs[0, 5:] += 1.0
    after = lstm(inputs, num_frames)
    assert torch.equal(before[0, :5], after[0, :5])
    assert not torch.allclose(before[0, 5], after[0, 5])


def test_dropout_lies_between_layers_and_acts_in_training_only():
    torch.manual_seed(0)
    inputs, num_frames = batch(3)
    single, double = PaddedLSTM(3, 4, 1, dropout=0.5), PaddedLSTM(3, 4, 2, dropout=0.5)
    for module, varies in ((single, False), (double, True)):
        first, second = module(inputs, num_frames), module(inputs, num_frames)
        assert torch.equal(first, second) is not varies
        module.eval()
        assert torch.equal(module(inputs, num_frames), module(inputs, num_frames))


def test_fully_connected_ends_in_relu():
    layers = fully_connected([3, 5, 2], dropout=0.1)
    assert [type(layer).__name__ for layer in layers] == ["Linear", "ReLU", "Dropout"] * 2
    assert [type(layer).__name__ for layer in fully_connected([3, 5])] == ["Linear", "ReLU"]
    assert layers(torch.randn(50, 3)).min() >= 0


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
