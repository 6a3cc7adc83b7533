"""Checks of what networks hand over, before k2 sees it.

k2 itself ends in bare assertion errors, reads foreign memory, or finds a way round NaN in silence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from .frames import FrameRows
from .layout import ColumnLayout


def checked_shapes(
    layout: ColumnLayout,
    log_posteriors: torch.Tensor,
    num_frames: torch.Tensor,
    log_boundary: torch.Tensor | None,
    log_correctness: torch.Tensor | None,
    blank: int | None,
) -> torch.Tensor:
    """Check shapes and lengths; return num_frames as int64 on CPU."""
    expected = layout.num_posteriors + (blank is not None)
    if log_posteriors.ndim != 3 or log_posteriors.shape[2] != expected:
        parts = f"{layout.num_units} units x {layout.states_per_unit} states"
        parts += " + silence" if layout.silence else ""
        parts += " + blank" if blank is not None else ""
        raise ValueError(
            f"log_posteriors must be (B, T, {expected}) for {parts}, "
            f"not {tuple(log_posteriors.shape)}"
        )
    batch, frames, columns = log_posteriors.shape
    if batch == 0 or frames == 0:
        raise ValueError(f"log_posteriors is empty: shape {tuple(log_posteriors.shape)}")
    if not log_posteriors.is_floating_point():
        raise ValueError(f"log_posteriors must be floating point, not {log_posteriors.dtype}")
    if blank is not None and not 0 <= blank < columns:
        raise ValueError(f"blank is column {blank}, but log_posteriors has {columns} columns")
    num_frames = torch.as_tensor(num_frames)
    if num_frames.shape != (batch,) or num_frames.is_floating_point():
        raise ValueError(
            f"num_frames must be {batch} integers, not {num_frames.dtype} of shape "
            f"{tuple(num_frames.shape)}"
        )
    num_frames = num_frames.to("cpu", torch.int64)
    wrong = (num_frames < 0) | (num_frames > frames)
    if wrong.any():
        index = int(wrong.nonzero()[0])
        raise ValueError(
            f"utterance {index} has {int(num_frames[index])} frames, but log_posteriors has "
            f"room for 0 to {frames}"
        )
    for name, value in (("log_boundary", log_boundary), ("log_correctness", log_correctness)):
        if value is not None and value.shape != (batch, frames, 2):
            raise ValueError(f"{name} must be ({batch}, {frames}, 2), not {tuple(value.shape)}")
    return num_frames


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
