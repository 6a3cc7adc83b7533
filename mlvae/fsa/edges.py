"""Where units begin and end on average, over all paths."""

from __future__ import annotations

import k2
import torch

from .emissions import Emissions
from .lattices import arc_row_splits, prepared, too_short
from .search import POSTERIOR_BEAM


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
    graphs, bare = prepared(graphs, emissions)
    with torch.no_grad():
        lattice = k2.intersect_dense(
            bare, emissions.dense, output_beam=output_beam, frame_idx_name="frame"
        )
        weight = lattice.get_arc_post(use_double_scores=True, log_semiring=True).exp_().cpu()
    frame, graph_arc = lattice.frame.cpu().double(), lattice.graph_arc.cpu().long()
    slot = graphs.unit_pos.cpu().long()[graph_arc]
    is_start = graphs.is_start.cpu()[graph_arc] != 0
    lattice_splits = arc_row_splits(lattice).tolist()
    del lattice
    num_slots = _num_slots(graphs)
    inverse = torch.argsort(emissions.order).tolist()
    short = set(too_short(graphs, emissions))
    results = []
    for index, count in enumerate(num_slots):
        if index in short:
            results.append(torch.zeros(0, 2, dtype=torch.float64))
            continue
        mine = slice(lattice_splits[inverse[index]], lattice_splits[inverse[index] + 1])
        where, amount, time = slot[mine], weight[mine], frame[mine]
        inside = where >= 0
        starts = inside & is_start[mine]
        zeros = torch.zeros(count, dtype=torch.float64)
        spoken = zeros.index_add(0, where[starts], amount[starts])
        start = zeros.index_add(0, where[starts], (amount * time)[starts]) / spoken
        length = zeros.index_add(0, where[inside], amount[inside]) / spoken
        results.append(torch.stack([start, start + length], dim=1))
    return results


def _num_slots(graphs: k2.Fsa) -> list[int]:
    slot, splits = graphs.unit_pos.cpu(), arc_row_splits(graphs).tolist()
    return [int(slot[begin:end].max()) + 1 for begin, end in zip(splits[:-1], splits[1:])]
