"""Checks of arguments, before k2 sees them.

k2 itself ends in bare assertion errors or fatal ones, reads foreign memory, or finds a way round
NaN in silence. Whatever is wrong with an argument is a ValueError here, which names the argument
and, where one is to blame, the utterance.
"""

from __future__ import annotations

import math
import numbers
import operator
import reprlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from .frames import FrameRows
    from .layout import ColumnLayout

#: k2 numbers states, arcs and scores of a whole batch in int32, and keeps the frames, the states of
#: one FSA, the columns of emissions and the FSAs of a batch in uint16, without looking whether they
#: fit (``CompressedArc`` and ``FsaInfo`` in its intersect_dense.cu).
INT32_MAX = 2**31 - 1
UINT16_MAX = 2**16 - 1

#: No logarithm of a probability lies below: that of the smallest double is -745.
LOWEST_LOG_PRIOR = -1e4
#: More than any use of an acoustic scale; sums of scores stay far from infinity.
MAX_ACOUSTIC_SCALE = 1e6


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


def checked_scale(value: object) -> float:
    """A factor of the acoustic part of scores."""
    scale = checked_number(value, "acoustic_scale")
    if not scale > 0 or math.isinf(scale):
        raise ValueError(f"acoustic_scale must be positive and finite, not {scale}")
    if scale > MAX_ACOUSTIC_SCALE:
        raise ValueError(f"acoustic_scale must be at most {MAX_ACOUSTIC_SCALE:g}, not {scale}")
    return scale


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
    # What int64 cannot hold is out of every range.
    return np.minimum(found, np.iinfo(np.int64).max).astype(np.int64)


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


def checked_lengths(num_frames: object, batch: int, width: int, names: Sequence[str]) -> np.ndarray:
    """Numbers of frames, int64 (B,), none of which is more than ``width``."""
    lengths = checked_integers(num_frames, "num_frames", batch)
    wrong = np.flatnonzero((lengths < 0) | (lengths > width))
    if len(wrong):
        index = wrong[0]
        raise ValueError(
            f"{names[index]} has {lengths[index]} frames, but log_posteriors has room for 0 to "
            f"{width}"
        )
    return lengths


def checked_posteriors(
    layout: ColumnLayout, log_posteriors: object, blank: int | None
) -> torch.Tensor:
    """Posteriors of the shape that the layout has; no empty ones."""
    found = checked_floats(log_posteriors, "log_posteriors")
    expected = layout.num_posteriors + (blank is not None)
    if found.ndim != 3 or found.shape[2] != expected:
        parts = f"{layout.num_units} units x {layout.states_per_unit} states"
        parts += " + silence" if layout.silence else ""
        parts += " + blank" if blank is not None else ""
        raise ValueError(
            f"log_posteriors must be (B, T, {expected}) for {parts}, not {tuple(found.shape)}"
        )
    if found.shape[0] == 0 or found.shape[1] == 0:
        raise ValueError(f"log_posteriors is empty: shape {tuple(found.shape)}")
    return found


def checked_blank(layout: ColumnLayout, blank: object) -> int | None:
    """The column of the blank, which comes on top of the layout's; None: there is none."""
    if blank is None:
        return None
    column = checked_int(blank, "blank", -INT32_MAX)
    if not 0 <= column <= layout.num_posteriors:
        raise ValueError(
            f"blank is column {column}, but log_posteriors has {layout.num_posteriors + 1} columns"
        )
    return column


def checked_pairs(values: object, name: str, like: torch.Tensor) -> torch.Tensor | None:
    """Log-probabilities of no and yes, (B, T, 2) beside ``like`` (B, T, C); None stays None."""
    if values is None:
        return None
    found = checked_floats(values, name)
    batch, frames, _ = like.shape
    if found.shape != (batch, frames, 2):
        raise ValueError(f"{name} must be ({batch}, {frames}, 2), not {tuple(found.shape)}")
    _check_same_device(found, name, like)
    return found


def checked_prior(values: object, like: torch.Tensor) -> torch.Tensor | None:
    """Log-probabilities of the columns of ``like``, float32 on its device; None stays None.

    They need not sum to one: a prior may be scaled.
    """
    if values is None:
        return None
    if isinstance(values, (list, tuple)):
        try:
            values = torch.tensor(values)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            raise ValueError(f"log_prior must be numbers, not {shown(values)}") from None
    found = checked_floats(values, "log_prior").to(like.device, torch.float32)
    columns = like.shape[-1]
    if found.shape != (columns,):
        raise ValueError(
            f"log_prior must have one value a column of log_posteriors ({columns}), "
            f"not shape {tuple(found.shape)}"
        )
    least, most = (float(value) for value in torch.aminmax(found.detach()))
    # NaN is both the least and the most, and compares with nothing.
    if not -math.inf < least <= most < math.inf:
        raise ValueError("log_prior must be finite: a column without counts needs smoothing")
    if most > 1e-3:
        raise ValueError(
            f"log_prior has {most:.4g}, above log 1 = 0: log-probabilities are wanted, not "
            "probabilities or counts"
        )
    if least < LOWEST_LOG_PRIOR:
        raise ValueError(f"log_prior has {least:.4g}, which is the log of no probability")
    return found


def check_values(
    values: torch.Tensor,
    rows: FrameRows,
    names: Sequence[str],
    what: str,
    are_probabilities: bool,
) -> None:
    """Refuse NaN, +inf, frames of -inf only, and log-probabilities above 0.

    Args:
        values: float32 (R, C), gathered by ``rows``.
        rows: of which frames they are.
        names: (B,), what the message calls the utterances.
        what: what the message calls the values.
        are_probabilities: whether values above 0 are wrong.
    """
    # The maximum over columns tells all of these at once: NaN wins every comparison.
    best = values.detach().amax(dim=1)
    limit = 1e-3 if are_probabilities else torch.finfo(best.dtype).max
    right = (best > -math.inf) & (best <= limit)
    if bool(right.all()):
        return
    row, index, frame = rows.first_place(~right)
    value = float(best[row])
    if math.isnan(value):
        reason = "is NaN"
    elif value == -math.inf:
        reason = "is -inf in all columns"
    elif value == math.inf:
        reason = "is +inf"
    else:
        reason = f"has {value:.4g}, above log 1 = 0: log-probabilities are wanted, not logits"
    raise ValueError(f"{names[index]}: {what} {reason} at frame {frame}")


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


def _check_same_device(values: torch.Tensor, name: str, like: torch.Tensor) -> None:
    if values.device != like.device:
        raise ValueError(f"{name} is on {values.device}, but log_posteriors is on {like.device}")
