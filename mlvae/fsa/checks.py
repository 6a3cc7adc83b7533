"""Checks of arguments, before k2 sees them.

k2 itself ends in bare assertion errors or fatal ones, reads foreign memory, or finds a way round
NaN in silence. Whatever is wrong with an argument is a ValueError here, which names the argument
and, where one is to blame, the utterance.
"""

from __future__ import annotations

import numbers
import operator
import reprlib
from collections.abc import Iterable, Sequence

import numpy as np
import torch

#: k2 numbers states, arcs and scores of a whole batch in int32, and keeps the frames, the states of
#: one FSA, the columns of emissions and the FSAs of a batch in uint16, without looking whether they
#: fit (``CompressedArc`` and ``FsaInfo`` in its intersect_dense.cu).
INT32_MAX = 2**31 - 1
UINT16_MAX = 2**16 - 1


def checked_int(value: object, name: str, low: int, high: int | None = None) -> int:
    """An integer from ``low`` to ``high``; those of numpy and torch are taken too, bool is not."""
    try:
        if _is_bool(value):
            raise TypeError
        found = operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} must be an integer, not {shown(value)}") from None
    if high is None and found < low:
        raise ValueError(f"{name} must be at least {low}, not {found}")
    if high is not None and not low <= found <= high:
        raise ValueError(f"{name} must be {low} to {high}, not {found}")
    return found


def checked_bool(value: object, name: str) -> bool:
    """True or False, and nothing that Python would count as one of them."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, not {shown(value)}")
    return bool(value)


def checked_number(value: object, name: str) -> float:
    """A number as float, NaN and infinity included; no bool, no text."""
    is_array = isinstance(value, (np.ndarray, torch.Tensor)) and value.ndim == 0
    try:
        if _is_bool(value) or not (is_array or isinstance(value, numbers.Real)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ValueError(f"{name} must be a number, not {shown(value)}") from None


def checked_rate(value: object, name: str) -> float:
    """A probability that is neither 0 nor 1."""
    rate = checked_number(value, name)
    if not 0 < rate < 1:
        raise ValueError(f"{name} must lie between 0 and 1, not {rate}")
    return rate


def checked_beam(value: object) -> float:
    """A beam: above 0 and finite, also for k2, which takes it in single precision."""
    beam = checked_number(value, "output_beam")
    if not 0 < beam <= float(np.finfo(np.float32).max) or np.float32(beam) == 0:
        raise ValueError(f"output_beam must be positive and finite, not {beam}")
    return beam


def checked_choice(value: object, name: str, choices: Sequence[str]) -> str:
    """One of some words."""
    if not isinstance(value, str) or value not in choices:
        known = ", ".join(choices)
        raise ValueError(f"{name} {shown(value)} is not available; there are: {known}")
    return value


def checked_device(value: object) -> torch.device:
    """The CPU or a GPU that is there: k2 knows no other devices."""
    try:
        device = torch.device(value)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"device must be a torch.device or its name, not {shown(value)}") from None
    number = torch.cuda.device_count() if device.type == "cuda" else 1
    if device.type not in ("cpu", "cuda") or (device.index or 0) >= number:
        raise ValueError(f"device {device} is not available: k2 works on CPU and CUDA devices")
    return device


def checked_names(names: Iterable[str] | None, count: int) -> list[str]:
    """What messages call the utterances; None: their indices."""
    if names is None:
        return [f"utterance {index}" for index in range(count)]
    try:
        found = listed(names)
        if not all(isinstance(name, str) for name in found):
            raise TypeError
    except TypeError:
        raise ValueError(f"names must be a list of strings, not {shown(names)}") from None
    if len(found) != count:
        raise ValueError(f"{len(found)} names for {count} utterances")
    return found


def checked_integers(values: object, name: str, count: int | None = None) -> np.ndarray:
    """Integers in a list, an array of numpy or a tensor on any device.

    Args:
        values: the integers; neither bool nor float.
        name: of the argument.
        count: how many there must be; None: any number.

    Returns:
        int64 (n,).
    """
    try:
        if isinstance(values, torch.Tensor):
            found = values.detach().cpu().numpy()
        elif isinstance(values, np.ndarray):
            found = values
        else:
            found = _array_of_list(listed(values))
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ValueError(f"{name} must be integers, not {shown(values)}") from None
    if found.dtype.kind not in "iu" or found.ndim != 1 or count not in (None, len(found)):
        wanted = "integers" if count is None else f"{count} integers"
        raise ValueError(f"{name} must be {wanted}, not {found.dtype} of shape {found.shape}")
    if found.dtype.kind == "u":  # what int64 cannot hold is out of every range
        found = np.minimum(found, np.uint64(np.iinfo(np.int64).max))
    return found.astype(np.int64)


def listed(values: object) -> list:
    """What can be iterated as a list; TypeError for text, dicts and what cannot."""
    if isinstance(values, (str, bytes, dict)):
        raise TypeError
    try:
        return list(values.tolist() if isinstance(values, (torch.Tensor, np.ndarray)) else values)
    except Exception as error:  # anything may come from an object that somebody else wrote
        raise TypeError from error


def integer_array(values: list) -> np.ndarray:
    """Integers of any size, int64; TypeError where one is no integer, or is a bool."""
    kinds = set(map(type, values))
    if not all(issubclass(kind, numbers.Integral) and kind is not bool for kind in kinds):
        raise TypeError
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        # Out of every range; the sign is what is left to tell.
        return np.array([max(min(value, 2**62), -(2**62)) for value in values], dtype=np.int64)


def _array_of_list(values: list) -> np.ndarray:
    try:
        return integer_array(values)
    except TypeError:
        has_bool = any(issubclass(kind, (bool, np.bool_)) for kind in set(map(type, values)))
        return np.asarray(values, dtype=bool if has_bool else None)


def checked_floats(values: object, name: str) -> torch.Tensor:
    """A floating point tensor that k2's devices can have; arrays of numpy are copied into one."""
    try:
        if isinstance(values, np.ndarray):
            values = torch.from_numpy(np.array(values, order="C"))
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be floating point, not {values.dtype}") from None
    if not isinstance(values, torch.Tensor):
        raise ValueError(f"{name} must be a tensor or a numpy array, not {shown(values)}")
    if not values.is_floating_point():
        raise ValueError(f"{name} must be floating point, not {values.dtype}")
    if values.layout != torch.strided or values.is_quantized:
        raise ValueError(f"{name} must be a dense tensor, not {values.layout}")
    checked_device(values.device)
    return values


def checked_unit_names(units: object, name: str = "units") -> list[str]:
    """Names of units for drawing: a list of strings, which are not empty and have no blanks."""
    try:
        found = listed(units)
    except TypeError:
        message = f"{name} must be a list of names of units, not {shown(units)}"
        raise ValueError(message) from None
    for unit in found:
        if not isinstance(unit, str) or not unit or unit.split() != [unit]:
            raise ValueError(f"{name}: {shown(unit)} is no name of a unit: a word is wanted")
    return found


def shown(value: object) -> str:
    """A value as messages show it: short, on one line, and no tensor with its values."""
    if isinstance(value, (torch.Tensor, np.ndarray)) and value.ndim > 0:
        return f"{value.dtype} of shape {tuple(value.shape)}"
    try:
        text = reprlib.repr(value)
    except Exception:  # the repr of an object that somebody else wrote
        text = f"a {type(value).__name__}"
    return " ".join(text.split())


def _is_bool(value: object) -> bool:
    is_array = isinstance(value, (np.ndarray, torch.Tensor))
    return isinstance(value, (bool, np.bool_)) or (
        is_array and value.dtype in (torch.bool, np.dtype(bool))
    )
