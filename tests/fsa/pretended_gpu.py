"""A GPU that is pretended: to see without one what a search would copy, and what would fail.

Tensors lie on the CPU all the same. Some are marked as those of the GPU, and so is whatever is made
of them, by torch or by k2. Where the device of one is asked for it is ``PRETENDED``, which torch
takes for the CPU and Python for another device.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator

import _k2
import k2
import pytest
import torch
from torch.overrides import TorchFunctionMode

PRETENDED = torch.device("cpu", 0)
#: Waits for the GPU, and brings what it has found to the CPU; so do ``cpu`` and ``to``.
WAITS = {
    *("item", "tolist", "__bool__", "__int__", "__float__", "__index__", "__contains__"),
    *("nonzero", "equal", "allclose", "masked_select", "unique", "is_nonzero", "isin"),
}
#: Fails with a tensor of a GPU.
FAILS = {"numpy", "__array__", "from_numpy"}
HELD_BY_K2 = (_k2.RaggedArc, _k2.RaggedShape, _k2.DenseFsaVec)
MAKES = {"zeros", "ones", "empty", "full", "arange", "tensor", "as_tensor", "eye", "linspace"}


class PretendedGpu(TorchFunctionMode):
    """Within it tensors that are brought to ``PRETENDED`` are there.

    Attributes:
        waits: how often each line of mlvae has waited for the GPU or copied from it. What k2
            does inside is not known.
        sent: the same for copies to it.
        wrong: lines that would fail, with the reason.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._kept: dict[int, object] = {}

    def is_there(self, value: object) -> bool:
        if isinstance(value, torch.Tensor):
            return getattr(value, "_is_there", False)
        return self._kept.get(id(value)) is value

    def put(self, value: object, there: bool = True):
        """Mark what a function returned."""
        if isinstance(value, torch.Tensor):
            value._is_there = there
        elif isinstance(value, (tuple, list)):
            for one in value:
                self.put(one, there)
        elif isinstance(value, HELD_BY_K2) and there:
            self._kept[id(value)] = value  # which keeps the number from another object, too
        return value

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        if name == "__get__" and function.__self__ is torch.Tensor.device:
            return PRETENDED if self.is_there(args[0]) else function(*args)
        tensors = [value for value in _flat((args, kwargs)) if isinstance(value, torch.Tensor)]
        there = [self.is_there(value) for value in tensors]
        if name in FAILS and any(there):
            self.wrong.append(f"{name} of a tensor on the GPU: {_place()}")
        if (name in WAITS and any(there)) or self._chooses(name, args, kwargs):
            self.waits[f"{name} {_place()}"] += 1
        devices = [v for v in (*args, *kwargs.values()) if isinstance(v, (torch.device, str))]
        if name in ("to", "cpu") and (name == "cpu" or devices):
            wanted = name == "to" and devices[0] == PRETENDED
            if wanted != there[0]:
                (self.sent if wanted else self.waits)[f"{name} {_place()}"] += 1
            result = function(*args, **kwargs)
            return self.put(result.view_as(result) if result is args[0] else result, wanted)
        if name in MAKES or (devices and name.startswith("new_")):
            return self.put(function(*args, **kwargs), PRETENDED in devices)
        if name in ("__getitem__", "__setitem__"):  # places may be on CPU
            there, tensors = there[:1], tensors[:1]
            if any(map(self.is_there, _flat(args[1:]))) and not there[0]:
                self.wrong.append(f"places on the GPU in a tensor on the CPU: {_place()}")
        mixed = {is_there for is_there, one in zip(there, tensors) if one.ndim > 0}
        if len(mixed) > 1:
            self.wrong.append(f"{name} of tensors on the GPU and the CPU: {_place()}")
        result = function(*args, **kwargs)
        return self.put(result) if any(there) else result

    def _chooses(self, name: str, args: tuple, kwargs: dict) -> bool:
        """Whether the size of the result is known to the GPU alone."""
        if name == "repeat_interleave":
            counts = [value for value in args if isinstance(value, torch.Tensor)][-1]
            return self.is_there(counts) and kwargs.get("output_size") is None
        if name in ("__getitem__", "__setitem__"):
            return any(
                isinstance(value, torch.Tensor)
                and value.dtype == torch.bool
                and self.is_there(value)
                for value in _flat(args[1:2])
            )
        return False

    def of_k2(self, function):
        """A function or method of k2's, whose result is where its arguments are."""

        def pretending(*args, **kwargs):
            given = [
                self.is_there(value)
                for value in (*args, *kwargs.values())
                if isinstance(value, (torch.Tensor, *HELD_BY_K2))
            ]
            if len(set(given)) > 1:
                self.wrong.append(f"k2 takes what is on the GPU and the CPU: {_place()}")
            return self.put(function(*args, **kwargs), any(given))

        return pretending

    def to(self, arcs: _k2.RaggedArc, device: torch.device) -> _k2.RaggedArc:
        """``RaggedArc.to``, a copy."""
        self.sent[f"arcs {_place()}"] += 1
        return self.put(arcs.clone(), device == PRETENDED)

    def index(self, values: torch.Tensor, places: object) -> torch.Tensor:
        """``Tensor.__getitem__``, of which torch 1.13 does not tell modes, and torch 2 does."""
        with torch._C.DisableTorchFunction():
            return self.__torch_function__(_getitem, (), (values, places))


_getitem = torch.Tensor.__getitem__


@contextlib.contextmanager
def pretended_gpu() -> Iterator[PretendedGpu]:
    """Pretend within a block."""
    gpu = PretendedGpu()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "__getitem__", lambda *args: gpu.index(*args))
        for owner, names in {
            _k2.RaggedArc: ("values", "shape"),
            _k2.RaggedShape: ("row_splits", "row_ids", "compose"),
            _k2: ("as_float", "intersect_dense", "index", "DenseFsaVec"),
            k2.ops: ("index_select",),
        }.items():
            for name in names:
                patch.setattr(owner, name, gpu.of_k2(getattr(owner, name)))
        patch.setattr(_k2.RaggedArc, "to", lambda arcs, device: gpu.to(arcs, device))
        with gpu:
            yield gpu


def _flat(value: object) -> Iterator[object]:
    if isinstance(value, (tuple, list)):
        for one in value:
            yield from _flat(one)
    elif isinstance(value, dict):
        yield from _flat(list(value.values()))
    else:
        yield value


def _place() -> str:
    """The innermost line of mlvae."""
    frame = sys._getframe(1)
    while frame is not None and "/mlvae/" not in frame.f_code.co_filename:
        frame = frame.f_back
    if frame is None:
        return "elsewhere"
    return f"{frame.f_code.co_filename.rsplit('/', 1)[1]} {frame.f_code.co_name} {frame.f_lineno}"
