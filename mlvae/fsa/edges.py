"""Where units begin and end on average, over all paths."""

from __future__ import annotations

import k2
import torch

from .checks import checked_beam
from .emissions import Emissions
from .lattices import arc_row_splits, prepared, short_ones
from .search import POSTERIOR_BEAM, arc_posteriors


def expected_edges(
    graphs: k2.Fsa, emissions: Emissions, output_beam: float = POSTERIOR_BEAM
) -> list[torch.Tensor]:
    """Posterior means of the start and the end of every unit, given that it is spoken.

    On each path a unit's frames are one stretch, so that its mean end is its mean start and its
    mean number of frames. Where all paths speak two units, one right after the other, the first
    ends where the second starts.

    Args:
        graphs: as in :func:`mlvae.fsa.best_path`.
        emissions: as in :func:`mlvae.fsa.best_path`.
        output_beam: as in :func:`mlvae.fsa.posteriors`.

    Returns:
        By utterance, in the caller's order, float64 (n, 2) on CPU: start and end of each of the n
        slots in frames, fractions included, the end exclusive. NaN for a slot that is spoken on no
        path; (0, 2) for an utterance that is too short.

    Raises:
        ValueError: as :func:`mlvae.fsa.best_path`.
    """
    beam = checked_beam(output_beam)
    graphs, bare = prepared(graphs, emissions)
    unit_pos, is_start = graphs.unit_pos.cpu().long(), graphs.is_start.cpu() != 0
    short = short_ones(graphs, emissions)
    every = arc_posteriors(bare, emissions, short, beam)
    results = []
    for index, (count, arcs) in enumerate(zip(_num_slots(graphs), every)):
        if index in short:
            results.append(torch.zeros(0, 2, dtype=torch.float64))
            continue
        where, amount, time = unit_pos[arcs.graph_arc], arcs.posterior, arcs.frame.double()
        inside = where >= 0
        starts = inside & is_start[arcs.graph_arc]
        zeros = torch.zeros(count, dtype=torch.float64)
        spoken = zeros.index_add(0, where[starts], amount[starts])
        start = zeros.index_add(0, where[starts], (amount * time)[starts]) / spoken
        length = zeros.index_add(0, where[inside], amount[inside]) / spoken
        results.append(torch.stack([start, start + length], dim=1))
    return results


def _num_slots(graphs: k2.Fsa) -> list[int]:
    slot, splits = graphs.unit_pos.cpu(), arc_row_splits(graphs).tolist()
    return [int(slot[begin:end].max()) + 1 for begin, end in zip(splits[:-1], splits[1:])]
