"""Groups utterances into batches that fit into memory."""

from __future__ import annotations

from collections.abc import Sequence

import k2
import numpy as np
import torch

from .checks import INT32_MAX, checked_int, checked_integers, checked_names
from .lattices import num_arcs_and_states

#: Largest batch by default, in cells: arcs of a graph x (frames + 1), summed over utterances. A
#: search with a wide beam then takes at most about 2 GB.
MAX_CELLS = 20_000_000


def plan_batches(
    num_frames: Sequence[int] | torch.Tensor,
    num_arcs: Sequence[int] | torch.Tensor | k2.Fsa,
    max_cells: int = MAX_CELLS,
    names: Sequence[str] | None = None,
) -> list[list[int]]:
    """Group utterances of similar length, so that no batch takes too much memory.

    The work and the memory of a search are in proportion to its cells: a cell is one arc of a graph
    in one frame, and each utterance has arcs x (frames + 1) of them. Measured on CPU (peak of the
    resident memory, k2 1.23.4), bytes a cell, from sharp to flat posteriors:

    ===================================================================  ===========
    :func:`.best_path` with a beam of 1 (its own is narrower)            1 to 2
    :func:`.total_scores` with output_beam 15                            8 to 60
    the same and its gradient                                            8 to 80
    :func:`.posteriors` with output_beam 15                              8 to 80
    :func:`.posteriors` with a beam that keeps everything, and frames    65 to 100
    ===================================================================  ===========

    Besides, k2 numbers all states of a batch for each frame of the longest utterance, and has up to
    13 bytes for each: a batch of one long and many short utterances has few cells and a lot of
    these. They are held below ``max_cells`` too.

    So ``max_cells`` may be ten times the default where only best paths are wanted. The emission
    matrix comes on top, with 4 bytes a column and frame. On CPU best paths do without: they are
    searched a part of the batch at a time, and its scores are made then. On other devices the batch
    is one part; searched so on CPU, best paths take 4 to 10 bytes a cell.

    Args:
        num_frames: (B,), frames of each utterance.
        num_arcs: (B,), arcs of each utterance's graph, or the graphs as a k2.FsaVec. Where there
            are numbers alone, each state is taken to have two arcs, as most have or more.
        max_cells: most cells of a batch; and most states of all its graphs x frames of the longest.
        names: (B,), what messages call the utterances; by default their index.

    Returns:
        Batches of indices of utterances, the longest first; each index occurs once.

    Raises:
        ValueError: an utterance alone has more than ``max_cells`` cells, which the message says
            with its name; numbers are negative or not as many as the other; or ``max_cells`` is
            not positive or is more than k2 can number, 2^31 - 1.

    Example:
        >>> plan_batches([100, 30, 90, 10], [10, 10, 10, 10], max_cells=2000)
        [[0, 2], [1, 3]]
    """
    max_cells = checked_int(max_cells, "max_cells", 1, INT32_MAX)
    frames = checked_integers(num_frames, "num_frames")
    names = checked_names(names, len(frames))
    arcs, states = _sizes_of_graphs(num_arcs)
    if len(frames) != len(arcs):
        raise ValueError(f"{len(frames)} numbers of frames, but {len(arcs)} of arcs")
    _check_each(frames, arcs, states, names, max_cells)
    frames, arcs, states = frames.tolist(), arcs.tolist(), states.tolist()
    batches: list[list[int]] = []
    cells = num_states = longest = 0
    for index in sorted(range(len(frames)), key=lambda index: -frames[index]):
        cells += arcs[index] * (frames[index] + 1)
        num_states += states[index]
        if not batches or max(cells, num_states * (longest + 1)) > max_cells:
            batches.append([])
            longest, num_states = frames[index], states[index]
            cells = arcs[index] * (frames[index] + 1)
        batches[-1].append(index)
    return batches


def _sizes_of_graphs(num_arcs: Sequence[int] | torch.Tensor | k2.Fsa) -> tuple[np.ndarray, ...]:
    """Arcs and states of each graph, int64 (B,)."""
    if not isinstance(num_arcs, k2.Fsa):
        arcs = checked_integers(num_arcs, "num_arcs")
        return arcs, arcs // 2
    if len(num_arcs.shape) != 3:
        raise ValueError("the graphs must be an FsaVec")
    return num_arcs_and_states(num_arcs)


def _check_each(
    frames: np.ndarray, arcs: np.ndarray, states: np.ndarray, names: Sequence[str], max_cells: int
) -> None:
    """Refuse negative numbers, and utterances that are too large by themselves."""
    for index in np.flatnonzero((frames < 0) | (arcs < 0))[:1]:
        raise ValueError(f"{names[index]} has {frames[index]} frames and {arcs[index]} arcs")
    # In floating point, which does not overflow.
    for what, number in (("arcs", arcs), ("states", states)):
        cells = number * (frames + 1.0)
        for index in np.flatnonzero(cells > max_cells)[:1]:
            raise ValueError(
                f"{names[index]} is too large: {number[index]} {what} x {frames[index] + 1} frames "
                f"are {int(cells[index])} cells, and at most {max_cells} are allowed (max_cells)"
            )
