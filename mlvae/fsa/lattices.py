"""Lattices of acceptors over emissions, by k2 intersection, and best paths through them."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator

import k2
import torch

from .emissions import Emissions

# k2 prunes on forward-backward scores relative to the best path, so the best path itself survives
# any beam that is clear of rounding error; a narrow one is several times faster.
BEST_PATH_BEAM = 1.0
WIDER_BEAMS = (10.0, 1e3, 1e6)

#: What is searched at once on CPU, in states x (frames + 1). k2 walks through all of its scores, 8
#: bytes each, forwards and backwards, which is faster where they stay in the cache of the core.
PART_SIZE = 300_000

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


def _parts(bare: k2.Fsa, emissions: Emissions, positions: list[int]) -> Iterator[list[int]]:
    """Cut ``positions`` in stretches that are best searched one after the other."""
    if bare.device.type != "cpu":
        yield positions
        return
    splits = bare.arcs.shape().row_splits(1).long()
    sizes = (splits[1:] - splits[:-1]) * (emissions.num_frames[emissions.order] + 1)
    sizes = sizes.tolist()
    total = sum(sizes[position] for position in positions)
    wanted = total / math.ceil(total / PART_SIZE)
    part, size = [], 0.0
    for position in positions:
        part.append(position)
        size += sizes[position]
        if size >= wanted:
            yield part
            part, size = [], size - wanted
    if part:
        yield part


def beams(first: float | None = None) -> list[float]:
    """Beams to search with in turn, as long as lattices come out empty."""
    first = BEST_PATH_BEAM if first is None else first
    return [first, *(beam for beam in WIDER_BEAMS if beam > first)]


def shortest_paths(
    graphs: k2.Fsa, bare: k2.Fsa, emissions: Emissions
) -> Iterator[tuple[list[int], k2.Fsa]]:
    """Positions in the order of the emissions, and their best paths; nothing for those without.

    Searches with a narrow beam, and again with wider ones what came out empty or in pieces.
    Utterances that are too short are named in a warning.
    """
    order = emissions.order.tolist()
    short = set(too_short(graphs, emissions))
    for index in sorted(short):
        logging.getLogger(__name__).warning(
            "%s is too short: %d frames", emissions.names[index], emissions.num_frames[index]
        )
    missing = [position for position, index in enumerate(order) if index not in short]
    for beam in beams():
        if not missing:
            return
        with torch.no_grad():
            lattices, searched = [], []
            for part in _parts(bare, emissions, missing):
                lattice = intersect(bare, emissions, part, beam)
                if lattice is not None:
                    lattices.append(lattice)
                    searched += part
            if not lattices:
                continue
            # One search for all, as its time is mainly that of its steps from frame to frame.
            lattice = k2.cat(lattices) if len(lattices) > 1 else lattices[0]
            paths, whole = whole_paths(lattice, emissions, searched)
        found = [position for position, is_whole in zip(searched, whole.tolist()) if is_whole]
        if 0 < len(found) < len(searched):
            kept = whole.nonzero().flatten().to(paths.device, torch.int32)
            paths = k2.index_fsa(paths, kept)
        if found:
            yield found, paths
        missing = sorted(set(missing) - set(found))


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


def rows(fsas: k2.Fsa) -> torch.Tensor:
    """int64 (num_arcs,) on CPU: the FSA of each arc."""
    splits = arc_row_splits(fsas)
    return torch.repeat_interleave(torch.arange(len(splits) - 1), splits[1:] - splits[:-1])


def arc_row_splits(fsas: k2.Fsa) -> torch.Tensor:
    """int64 (B + 1,) on CPU: where each FSA's arcs begin."""
    shape = fsas.arcs.shape()
    state_splits, arc_splits = shape.row_splits(1), shape.row_splits(2)
    return arc_splits[state_splits.long()].cpu().long()


def _first_of_each(graphs: k2.Fsa, name: str) -> torch.Tensor:
    """An attribute that is constant within each FSA, int64 (B,) on CPU."""
    begin = arc_row_splits(graphs)[:-1]
    return getattr(graphs, name).cpu()[begin].long()
