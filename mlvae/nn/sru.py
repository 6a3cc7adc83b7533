"""Simple recurrent units (Lei et al. 2018, the paper's decoder).

For input x_t and elementwise product *::

    f_t = sigmoid(W_f x_t + v_f * c_{t-1} + b_f)
    r_t = sigmoid(W_r x_t + v_r * c_{t-1} + b_r)
    c_t = f_t * c_{t-1} + (1 - f_t) * (W x_t)
    h_t = r_t * c_t + (1 - r_t) * x_t

Only c_t is recurrent, and elementwise. All matrix products, the gate r and the output are computed
for all frames at once. Where input and output differ in size, x_t in the last line is projected.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from mlvae.nn.layers import flip, flip_index, frame_mask, full


class _Scan(torch.autograd.Function):
    """The recurrence over frames, three small operations per frame forward and one backward.

    Scripting the loop instead makes torch compile its gradient anew for every length of batch.
    Arguments are W x, (T, B, H), W_f x + b_f, (T, B, H), and v_f, (H,); the result are the states
    c_0 .. c_T, (T + 1, B, H), the first of which is zero.
    """

    @staticmethod
    def forward(ctx, candidate, forget, weight):  # noqa: D102
        states = candidate.new_zeros(candidate.shape[0] + 1, *candidate.shape[1:])
        gates = torch.empty_like(candidate)
        for frame in range(candidate.shape[0]):
            torch.addcmul(forget[frame], states[frame], weight, out=gates[frame])
            gates[frame].sigmoid_()
            torch.lerp(candidate[frame], states[frame], gates[frame], out=states[frame + 1])
        ctx.save_for_backward(candidate, gates, states, weight)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_states):  # noqa: D102
        candidate, gates, states, weight = ctx.saved_tensors
        # d c_t / d (W_f x_t + b_f), and through it and directly d c_t / d c_{t-1}.
        through_gate = (states[:-1] - candidate) * gates * (1 - gates)
        through_state = torch.addcmul(gates, through_gate, weight)
        grads = grad_states[1:].clone()
        for frame in range(len(grads) - 2, -1, -1):
            grads[frame].addcmul_(grads[frame + 1], through_state[frame + 1])
        grad_forget = grads * through_gate
        grad_weight = (grad_forget * states[:-1]).sum((0, 1))
        return grads * (1 - gates), grad_forget, grad_weight


class SRULayer(nn.Module):
    """One layer of simple recurrent units, which runs both ways.

    Args:
        input_size: input dimension.
        hidden_size: units a direction; the output has twice as many.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.output_size = 2 * hidden_size
        self.project_skip = input_size != self.output_size
        parts = 4 if self.project_skip else 3
        self.weight = nn.Linear(input_size, parts * self.output_size, bias=False)
        self.recurrent = nn.Parameter(torch.zeros(2, self.output_size))
        self.bias = nn.Parameter(torch.zeros(2, self.output_size))
        bound = (3.0 / input_size) ** 0.5
        nn.init.uniform_(self.weight.weight, -bound, bound)
        nn.init.uniform_(self.recurrent, -bound, bound)

    def forward(self, inputs: torch.Tensor, num_frames: torch.Tensor) -> torch.Tensor:
        """Run the layer.

        Args:
            inputs: float (B, T, input_size).
            num_frames: int64 (B,).

        Returns:
            float (B, T, output_size), zero in padding.
        """
        # Under mixed precision the product alone is in half precision: states add up over frames.
        products = full(self.weight(inputs))
        parts = products.chunk(4 if self.project_skip else 3, dim=2)
        candidate, forget, reset = parts[0], parts[1] + self.bias[0], parts[2] + self.bias[1]
        skip = parts[3] if self.project_skip else full(inputs)
        index = flip_index(num_frames, inputs.shape[1])
        candidate, forget = self._flip_back(candidate, index), self._flip_back(forget, index)
        states = _Scan.apply(
            candidate.transpose(0, 1).contiguous(),
            forget.transpose(0, 1).contiguous(),
            self.recurrent[0],
        ).transpose(0, 1)
        previous, current = states[:, :-1], states[:, 1:]
        previous, current = self._flip_back(previous, index), self._flip_back(current, index)
        gate = torch.sigmoid(torch.addcmul(reset, previous, self.recurrent[1]))
        output = torch.lerp(skip, current, gate)
        return output * frame_mask(num_frames, inputs.shape[1]).unsqueeze(2)

    def _flip_back(self, values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """Reverse the second half of the last dimension in time, within each utterance."""
        ahead, back = values.split(self.hidden_size, dim=2)
        return torch.cat([ahead, flip(back, index)], dim=2)


class SRU(nn.Module):
    """A stack of :class:`SRULayer`.

    Args:
        input_size: input dimension.
        hidden_size: units a layer and direction.
        num_layers: layers.
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int) -> None:
        super().__init__()
        layers = []
        for _ in range(num_layers):
            layers.append(SRULayer(input_size, hidden_size))
            input_size = layers[-1].output_size
        self.layers = nn.ModuleList(layers)
        self.output_size = input_size

    def forward(self, inputs: torch.Tensor, num_frames: torch.Tensor) -> torch.Tensor:
        """Run all layers; arguments and result as in :class:`SRULayer`."""
        for layer in self.layers:
            inputs = layer(inputs, num_frames)
        return inputs
