"""Groups utterances into batches that fit into memory."""

from __future__ import annotations

from collections.abc import Sequence

import k2
import torch

from .lattices import INT32_MAX, arc_row_splits

#: Largest batch by default, in cells: arcs of a graph x (frames + 1), summed over utterances. A
#: search with a wide beam then takes at most about 2 GB.
MAX_CELLS = 20_000_000


def plan_batches(
    num_frames: Sequence[int] | torch.Tensor,
    num_arcs: Sequence[int] | torch.Tensor | k2.Fsa,
    max_cells: int = MAX_CELLS,
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

    So ``max_cells`` may be ten times the default where only best paths are wanted. The emission
    matrix comes on top, with 4 bytes a column and frame. On CPU best paths do without: they are
    searched a part of the batch at a time, and its scores are made then. On other devices the batch
    is one part; searched so on CPU, best paths take 4 to 10 bytes a cell.

    Args:
        num_frames: (B,), frames of each utterance.
        num_arcs: (B,), arcs of each utterance's graph, or the graphs as a k2.FsaVec.
        max_cells: most cells of a batch.

    Returns:
        Batches of indices of utterances, the longest first; each index occurs once.

    Raises:
        ValueError: an utterance alone has more than ``max_cells`` cells, which the message says
            with its index; numbers are negative or not as many as the other; or ``max_cells`` is
            not positive or is more than k2 can number, 2^31 - 1.

    Example:
        >>> plan_batches([100, 30, 90, 10], [10, 10, 10, 10], max_cells=2000)
        [[0, 2], [1, 3]]
    """
    if not 1 <= max_cells <= INT32_MAX:
        raise ValueError(f"max_cells must be 1 to {INT32_MAX}, not {max_cells}")
    frames = torch.as_tensor(num_frames).tolist()
    if isinstance(num_arcs, k2.Fsa):
        if len(num_arcs.shape) != 3:
            raise ValueError("the graphs must be an FsaVec")
        splits = arc_row_splits(num_arcs)
        num_arcs = splits[1:] - splits[:-1]
    arcs = torch.as_tensor(num_arcs).tolist()
    if len(frames) != len(arcs):
        raise ValueError(f"{len(frames)} numbers of frames, but {len(arcs)} of arcs")
    cells = []
    for index, (its_frames, its_arcs) in enumerate(zip(frames, arcs)):
        if its_frames < 0 or its_arcs < 0:
            raise ValueError(f"utterance {index} has {its_frames} frames and {its_arcs} arcs")
        cells.append(its_arcs * (its_frames + 1))
        if cells[-1] > max_cells:
            raise ValueError(
                f"utterance {index} is too large: {its_arcs} arcs x {its_frames + 1} frames are "
                f"{cells[-1]} cells, and at most {max_cells} are allowed (max_cells)"
            )
    batches: list[list[int]] = []
    room = 0
    for index in sorted(range(len(frames)), key=lambda index: -frames[index]):
        if not batches or cells[index] > room:
            batches.append([])
            room = max_cells
        batches[-1].append(index)
        room -= cells[index]
    return batches
