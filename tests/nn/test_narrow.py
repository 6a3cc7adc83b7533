from __future__ import annotations

import pytest
import torch

from mlvae.nn import NarrowAcousticModel, NarrowAcousticModelConfig
from tests.nn.padding import batch, check_padding


def model(context=1, silence=False, **changes):
    torch.manual_seed(0)
    config = NarrowAcousticModelConfig(context=context, hidden_size=8, **changes)
    found = NarrowAcousticModel(3, 4, silence, config)
    found.scale.set(torch.tensor([0.5, 2.0, 1.0]))
    return found.eval()


@pytest.mark.parametrize("silence", [False, True])
def test_shape_and_probabilities(silence):
    inputs, _ = batch(3)
    found = model(silence=silence, states_per_unit=2)(inputs)
    assert found.shape == (4, 9, 8 + silence)
    torch.testing.assert_close(found.exp().sum(2), torch.ones(4, 9))


def test_a_cut_is_the_same_alone_and_in_a_batch_padded_with_zeros():
    narrow = model(context=2)
    inputs, num_frames = batch(3)
    check_padding(lambda inputs, _: narrow(inputs), inputs, num_frames, contents=(0.0,))


@pytest.mark.parametrize("context", [0, 1, 3])
def test_the_middle_frame_of_a_window_is_what_the_whole_cut_gives(context):
    narrow = model(context)
    inputs, _ = batch(3, [9])
    padded = torch.nn.functional.pad(inputs, (0, 0, context, context))
    windows = padded[0].unfold(0, 2 * context + 1, 1).transpose(1, 2)
    assert windows.shape == (9, 2 * context + 1, 3)
    torch.testing.assert_close(narrow.middle_frame(windows), narrow(inputs)[0])


@pytest.mark.parametrize("context", [0, 1, 3])
def test_the_receptive_field_is_the_context(context):
    narrow = model(context)
    inputs = batch(3, [15])[0].requires_grad_()
    narrow(inputs)[0, 7].pow(2).sum().backward()
    seen = inputs.grad[0].abs().sum(1) > 0
    assert seen.nonzero().flatten().tolist() == list(range(7 - context, 8 + context))


def test_the_scale_is_applied():
    narrow, inputs = model(), batch(3)[0]
    before = narrow(inputs)
    narrow.scale.set(torch.ones(3))
    assert not torch.allclose(narrow(inputs), before)
    torch.testing.assert_close(narrow(inputs / torch.tensor([0.5, 2.0, 1.0])), before)
