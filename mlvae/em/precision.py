"""Precision of training on a GPU: PyTorch's automatic mixed precision.

Weights, optimizers, losses, the recurrence of the speech generator's decoder, the reward's baseline
and the E-step are in float32 whatever is chosen here. In half precision are the matrix products and
the LSTM layers of the module that learns.
"""

from __future__ import annotations

import contextlib
from typing import Any, Literal, get_args

import torch

#: What ``TrainConfig.precision`` may name.
PrecisionName = Literal["float32", "float16", "bfloat16"]
PRECISIONS: tuple[str, ...] = get_args(PrecisionName)


class Precision:
    """Runs networks and takes steps in a precision; one for the modules of a training.

    Float16 has few exponents: losses are scaled up so that small gradients do not vanish, a step
    whose gradients overflow is left out, and the scale adapts (:class:`torch.amp.GradScaler`).

    Args:
        name: one of :data:`PRECISIONS`.
        device: where training runs.

    Raises:
        ValueError: there is no such precision, or not on this device.
    """

    def __init__(self, name: str = "float32", device: torch.device | None = None) -> None:
        if name not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, not {name!r}")
        if name != "float32":
            kind = "cpu" if device is None else device.type
            if kind != "cuda":
                raise ValueError(f"precision {name} needs a GPU; on {kind} it must be float32")
            if name == "bfloat16" and not torch.cuda.is_bf16_supported():
                raise ValueError("precision bfloat16: this GPU lacks it, float16 may do")
        self.name = name
        self._scaler = None
        if name == "float16":
            # Up to torch 2.2 the scaler is to be found with CUDA alone.
            scaler = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
            self._scaler = scaler()

    def autocast(self) -> contextlib.AbstractContextManager:
        """Within it, networks choose the type of each operation; nothing changes in float32."""
        if self.name == "float32":
            return contextlib.nullcontext()
        return torch.autocast("cuda", dtype=getattr(torch, self.name))

    def backward(self, loss: torch.Tensor) -> None:
        """Compute gradients; they are scaled until :meth:`unscale`."""
        (loss if self._scaler is None else self._scaler.scale(loss)).backward()

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Make the gradients of an optimizer's parameters what they are, once a step."""
        if self._scaler is not None:
            self._scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Take an optimizer's step, unless gradients have overflowed."""
        if self._scaler is None:
            optimizer.step()
        else:
            self._scaler.step(optimizer)

    def end_step(self) -> None:
        """Adapt the scale, after the steps of all optimizers that a loss teaches."""
        if self._scaler is not None:
            self._scaler.update()

    def state(self) -> dict[str, Any]:
        """JSON values that a checkpoint needs; none unless losses are scaled."""
        return {} if self._scaler is None else self._scaler.state_dict()

    def restore(self, state: dict[str, Any]) -> None:
        """Take over :meth:`state`."""
        if self._scaler is not None and state:
            self._scaler.load_state_dict(state)
