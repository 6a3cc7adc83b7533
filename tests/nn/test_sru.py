from __future__ import annotations

import math

import pytest
import torch

from mlvae.nn.sru import SRU, SRULayer
from tests.nn.padding import batch, check_padding


def randomized(module: torch.nn.Module) -> torch.nn.Module:
    """Biases and recurrent weights start at or near zero, which would hide mistakes in them."""
    generator = torch.Generator().manual_seed(1)
    for parameter in module.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator))
    return module


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def reference(layer: SRULayer, frames: list[list[float]], unit: int, back: bool) -> list[float]:
    """One output unit over one utterance by the equations of Lei et al., in plain numbers.

    Args:
        layer: the layer whose weights are read.
        frames: (T, input_size).
        unit: number of the output unit.
        back: whether that unit runs from the last frame to the first.
    """
    size = layer.output_size
    weight = layer.weight.weight.tolist()
    (forget_state, reset_state), (forget_bias, reset_bias) = (
        [row[unit] for row in layer.recurrent.tolist()],
        [row[unit] for row in layer.bias.tolist()],
    )

    def product(part: int, frame: list[float]) -> float:
        return sum(w * x for w, x in zip(weight[part * size + unit], frame))

    outputs = [0.0] * len(frames)
    state = 0.0
    order = range(len(frames) - 1, -1, -1) if back else range(len(frames))
    for number in order:
        frame = frames[number]
        forget = sigmoid(product(1, frame) + forget_state * state + forget_bias)
        reset = sigmoid(product(2, frame) + reset_state * state + reset_bias)
        state = forget * state + (1 - forget) * product(0, frame)
        skip = product(3, frame) if layer.project_skip else frame[unit]
        outputs[number] = reset * state + (1 - reset) * skip
    return outputs


@pytest.mark.parametrize("input_size", [3, 4, 2])
def test_a_layer_follows_the_equations(input_size):
    hidden_size = 2
    layer = randomized(SRULayer(input_size, hidden_size)).double()
    assert layer.project_skip is (input_size != 4)
    inputs, num_frames = batch(input_size)
    found = layer(inputs.double(), num_frames)
    assert found.shape == (4, 9, 4)
    for row, length in enumerate(num_frames.tolist()):
        frames = inputs[row, :length].tolist()
        for unit in range(4):
            expected = reference(layer, frames, unit, back=unit >= hidden_size)
            assert found[row, :length, unit].tolist() == pytest.approx(expected)
        assert not found[row, length:].any()  # padding is zero


def test_a_stack_is_the_same_alone_and_in_a_padded_batch():
    torch.manual_seed(0)
    stack = randomized(SRU(3, 4, 3))
    inputs, num_frames = batch(3)
    assert stack(inputs, num_frames).shape == (4, 9, stack.output_size)
    assert stack.output_size == 8
    check_padding(stack, inputs, num_frames)


def test_a_stack_is_its_layers_one_after_the_other():
    stack = randomized(SRU(3, 2, 2))
    inputs, num_frames = batch(3)
    first, second = stack.layers
    assert torch.equal(stack(inputs, num_frames), second(first(inputs, num_frames), num_frames))
    assert not second.project_skip


def test_gradients():
    stack = randomized(SRU(2, 2, 2)).double()
    inputs, num_frames = batch(2, [3, 4, 1])
    names = [name for name, _ in stack.named_parameters()]
    values = [value.detach().clone().requires_grad_() for value in stack.parameters()]

    def run(inputs, *values):
        for name, value in zip(names, values):
            path, _, leaf = name.rpartition(".")
            owner = stack.get_submodule(path)
            del owner._parameters[leaf]
            owner._parameters[leaf] = value
        return stack(inputs, num_frames)

    assert len(values) == 6
    assert torch.autograd.gradcheck(run, [inputs.double().requires_grad_(), *values])
