"""Lattices of acceptors over emissions, by k2 intersection."""

from __future__ import annotations

import k2
import torch

from .emissions import Emissions

# k2 prunes on forward-backward scores relative to the best path, so the best path itself survives
# any beam that is clear of rounding error, about 1e-7 of the score. A narrow one is several times
# faster, and leaves most lattices with the best path alone.
BEST_PATH_BEAM = 0.03
WIDER_BEAMS = (1.0, 10.0, 1e3, 1e6)

INT32_MAX = 2**31 - 1


def too_short(graphs: k2.Fsa, emissions: Emissions) -> list[int]:
    """Indices of utterances with fewer frames than their graph needs."""
    fewest = _first_of_each(graphs, "min_frames")
    return (emissions.num_frames < fewest).nonzero().flatten().tolist()


def prepared(graphs: k2.Fsa, emissions: Emissions) -> tuple[k2.Fsa, k2.Fsa]:
    """Check that graphs fit; return them on the right device, and a sorted copy to search with.

    The copy carries one attribute, ``graph_arc``, instead of all: lattices have hundreds of arcs
    for each of the graph's, and every attribute is copied onto them.
    """
    batch = len(emissions.order)
    if len(graphs.shape) != 3 or not hasattr(graphs, "layout_id"):
        raise ValueError("graphs must be an FsaVec made by MlFsaCompiler.compile")
    if graphs.shape[0] != batch:
        raise ValueError(f"{graphs.shape[0]} graphs for emissions of {batch} utterances")
    if not bool((graphs.layout_id == emissions.layout.fingerprint).all()):
        raise ValueError(
            "graphs and emissions are of different compilers: the emissions are for "
            f"{emissions.layout}"
        )
    device = emissions.device
    if graphs.device != device:
        graphs = graphs.to(device)
    _check_size(graphs, emissions)
    bare = k2.Fsa(graphs.arcs)
    if graphs.scores.requires_grad:
        bare.scores = graphs.scores
    bare.graph_arc = torch.arange(graphs.num_arcs, dtype=torch.int32, device=device)
    order = emissions.order
    if not torch.equal(order, torch.arange(batch)):
        bare = k2.index_fsa(bare, order.to(device, torch.int32))
    return graphs, bare


def _check_size(graphs: k2.Fsa, emissions: Emissions) -> None:
    splits = arc_row_splits(graphs)
    cells = int(((splits[1:] - splits[:-1]) * (emissions.num_frames + 1)).sum())
    if cells > INT32_MAX:
        raise ValueError(
            f"the batch is too large for k2: {cells} arcs x frames, at most {INT32_MAX}; "
            f"split its {len(emissions.order)} utterances, as plan_batches does"
        )


def intersect(
    bare: k2.Fsa, emissions: Emissions, positions: list[int], beam: float
) -> k2.Fsa | None:
    """Lattice of the utterances at ``positions`` (increasing) in the order of the emissions.

    None where rounding errors beyond the beam have cut the lattice in pieces that k2 refuses.
    """
    begin, end = positions[0], positions[-1] + 1
    among = None
    if len(positions) < len(emissions.order):
        chosen = torch.tensor(positions, dtype=torch.int32, device=bare.device)
        bare = k2.index_fsa(bare, chosen)
        among = None if len(positions) == end - begin else chosen - begin
    dense = emissions.part(begin, end)
    try:
        return k2.intersect_dense(bare, dense, output_beam=beam, a_to_b_map=among)
    except ValueError:
        return None


def beams(first: float | None = None) -> list[float]:
    """Beams to search with in turn, as long as lattices come out empty."""
    first = BEST_PATH_BEAM if first is None else first
    return [first, *(beam for beam in WIDER_BEAMS if beam > first)]


def whole_paths(
    lattice: k2.Fsa, emissions: Emissions, positions: list[int]
) -> tuple[k2.Fsa, torch.Tensor]:
    """Best paths through the lattice of :func:`intersect`, and which are from end to end.

    A lattice that rounding has cut in pieces may hold no path, or one through some of its frames.

    Returns:
        An FsaVec of linear FSAs, and bool (len(positions),) on CPU.
    """
    paths = k2.shortest_path(lattice, use_double_scores=True)
    splits = arc_row_splits(paths)
    # One arc a frame and the final arc.
    num_arcs = emissions.num_frames[emissions.order[positions]] + 1
    return paths, splits[1:] - splits[:-1] == num_arcs


def arc_row_splits(fsas: k2.Fsa) -> torch.Tensor:
    """int64 (B + 1,) on CPU: where each FSA's arcs begin."""
    shape = fsas.arcs.shape()
    state_splits, arc_splits = shape.row_splits(1), shape.row_splits(2)
    return arc_splits[state_splits.long()].cpu().long()


def _first_of_each(graphs: k2.Fsa, name: str) -> torch.Tensor:
    """An attribute that is constant within each FSA, int64 (B,) on CPU."""
    begin = arc_row_splits(graphs)[:-1]
    return getattr(graphs, name).cpu()[begin].long()
