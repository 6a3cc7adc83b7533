"""What CTC posteriors say: the units recognised, and where they lie.

The segmentation is that of Kürzinger et al., "CTC-segmentation of large corpora" (2020): the best
path of a unit sequence through the posteriors, blanks included, and edges in the middle between
neighbouring units, but never further from a unit than a margin. The search is k2's, which needs no
compiler.
"""

from __future__ import annotations

from collections.abc import Sequence

import k2
import torch

from mlvae.fsa import MAX_CELLS
from mlvae.train.stretches import WordTime, divide, stretch_size

BLANK = 0
# The best path survives any beam that is clear of rounding error; see mlvae.fsa.
BEAMS = (1.0, 10.0, 1e3, 1e6)


def greedy_units(log_probs: torch.Tensor) -> list[int]:
    """Units of the best column of each frame, repetitions and blanks taken out.

    Args:
        log_probs: float (T, N + 1), column 0 the blank, column u + 1 unit u.

    Returns:
        Units, 0 to N - 1.
    """
    columns = torch.unique_consecutive(log_probs.argmax(dim=1))
    return (columns[columns != BLANK] - 1).tolist()


def greedy_spans(
    log_probs: torch.Tensor, max_cells: int = MAX_CELLS
) -> tuple[list[int], list[tuple[int, int]]]:
    """The units of :func:`greedy_units` and their frames, for any number of frames.

    What is too large for one search is divided in the longest blanks.

    Args:
        log_probs: float (T, N + 1), as in :func:`greedy_units`.
        max_cells: largest search, in units x frames.
    """
    units = greedy_units(log_probs)
    num_frames = len(log_probs)
    if len(units) * num_frames <= max_cells:
        return units, ctc_spans(log_probs, units)
    columns, counts = torch.unique_consecutive(log_probs.argmax(dim=1), return_counts=True)
    ends = counts.cumsum(0)
    spoken = columns != BLANK
    edges = zip((ends - counts)[spoken].tolist(), ends[spoken].tolist())
    times = [WordTime(first, end, 0.0) for first, end in edges]
    size = stretch_size(len(units) * num_frames, num_frames, max_cells, num_frames)
    spans: list[tuple[int, int]] = []
    for part in divide(times, num_frames, size):
        own = ctc_spans(log_probs[part.begin : part.end], units[part.first_word : part.end_word])
        spans += [(part.begin + first, part.begin + end) for first, end in own]
    return units, spans


def ctc_spans(log_probs: torch.Tensor, units: Sequence[int]) -> list[tuple[int, int]]:
    """Frames that the best path of a unit sequence gives to its units.

    Args:
        log_probs: float (T, N + 1), as in :func:`greedy_units`.
        units: the sequence, 0 to N - 1.

    Returns:
        Of each unit its first frame, inclusive, and its end, exclusive. Blanks may lie between.

    Raises:
        ValueError: a unit is out of range, or there are fewer frames than units and the blanks
            that have to part equal neighbours.
    """
    num_frames, num_columns = log_probs.shape
    if not all(0 <= unit < num_columns - 1 for unit in units):
        raise ValueError(f"units must be 0 to {num_columns - 2}, not {list(units)}")
    if not units:
        return []
    needed = fewest_frames(units)
    if num_frames < needed:
        raise ValueError(f"{num_frames} frames for units that take at least {needed}")
    graph = k2.ctc_graph([[unit + 1 for unit in units]], device=log_probs.device)
    segments = torch.tensor([[0, 0, num_frames]], dtype=torch.int32)
    dense = k2.DenseFsaVec(log_probs.detach().float().unsqueeze(0), segments)
    for beam in BEAMS:
        lattice = k2.intersect_dense(graph, dense, output_beam=beam)
        path = k2.shortest_path(lattice, use_double_scores=True)
        if path.num_arcs == num_frames + 1:
            return _spans(path.labels[:-1].tolist(), path.aux_labels[:-1].tolist())
    raise ValueError("the posteriors leave no path to the units")


def fewest_frames(units: Sequence[int]) -> int:
    """Frames that CTC needs: one a unit, and a blank between equal neighbours."""
    return len(units) + sum(a == b for a, b in zip(units[:-1], units[1:]))


def _spans(columns: Sequence[int], starts: Sequence[int]) -> list[tuple[int, int]]:
    """Spans from the column of each frame, and what is above 0 where a unit starts."""
    spans: list[tuple[int, int]] = []
    for frame, (column, starting) in enumerate(zip(columns, starts)):
        if starting > 0:
            spans.append((frame, frame + 1))
        elif column != BLANK:
            spans[-1] = (spans[-1][0], frame + 1)
    return spans


def segment_times(
    spans: Sequence[tuple[int, int]], num_frames: int, duration: float, margin: float
) -> list[tuple[float, float]]:
    """Starts and ends in seconds: neighbours share the blanks between them.

    Args:
        spans: frames of each unit, from :func:`ctc_spans`.
        num_frames: T; frames divide the duration evenly.
        duration: of the audio, in seconds.
        margin: how far a segment may reach beyond the frames of its unit, in seconds.
    """
    shift = duration / num_frames
    times = []
    for place, (first, end) in enumerate(spans):
        before = spans[place - 1][1] if place else -first
        after = spans[place + 1][0] if place + 1 < len(spans) else 2 * num_frames - end
        start = max((before + first) / 2 * shift, first * shift - margin)
        stop = min((end + after) / 2 * shift, end * shift + margin)
        times.append((start, stop))
    return times
