"""Best paths through acceptors over emissions, as arrays.

With a narrow beam most lattices of k2's intersection hold nothing but the best path: they are read
as they are. k2's shortest path is only asked where there is a choice.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import _k2
import k2
import numpy as np
import torch

from .emissions import Emissions
from .lattices import arc_row_splits, beams, too_short, whole_paths

#: What is searched at once on CPU, in states x (frames + 1). k2 walks through all of its scores, 8
#: bytes each, forwards and backwards, which is faster where they stay in the cache of the core.
PART_SIZE = 250_000


@dataclass
class Paths:
    """Linear FSAs of P utterances with n arcs, on CPU: an arc a frame, then the final arc.

    Attributes:
        num_arcs: int64 (P,).
        label: int32 (n,), -1 on final arcs.
        score: float32 (n,).
        graph_arc: int64 (n,), the arc of the graphs behind each.
    """

    num_arcs: torch.Tensor
    label: torch.Tensor
    score: torch.Tensor
    graph_arc: torch.Tensor

    @property
    def row(self) -> torch.Tensor:
        """int64 (n,): the utterance of each arc."""
        return torch.from_numpy(np.repeat(np.arange(len(self.num_arcs)), self.num_arcs.numpy()))

    @property
    def frame(self) -> torch.Tensor:
        """int64 (n,): the frame of each arc."""
        begin = self.num_arcs.cumsum(0) - self.num_arcs
        return torch.arange(len(self.label)) - torch.repeat_interleave(begin, self.num_arcs)


@dataclass
class Lattice:
    """What k2's intersection leaves of some utterances, before k2.Fsa looks at it.

    Attributes:
        arcs: k2's ragged arcs, on the device of the search.
        graph_arc: int32, one an arc.
    """

    arcs: _k2.RaggedArc
    graph_arc: torch.Tensor

    @property
    def num_arcs(self) -> torch.Tensor:
        """int64 on CPU, arcs of each utterance."""
        shape = self.arcs.shape()
        splits = shape.row_splits(2).cpu().numpy()[shape.row_splits(1).cpu().numpy()]
        return torch.from_numpy(np.diff(splits).astype(np.int64))

    def fsa_vec(self, chosen: torch.Tensor) -> k2.Fsa | None:
        """Some of it as k2.Fsa; None where rounding has left pieces that k2 refuses."""
        arcs, which = _k2.index(
            self.arcs, axis=0, indexes=chosen.to(self.graph_arc.device), need_value_indexes=True
        )
        try:
            lattice = k2.Fsa(arcs)
        except ValueError:
            return None
        lattice.graph_arc = self.graph_arc.index_select(0, which)
        return lattice


def straight(lattices: Sequence[Lattice], length: torch.Tensor) -> tuple[torch.Tensor, Paths]:
    """Which utterances of lattices have a single path from end to end, bool; and these paths.

    Args:
        lattices: one after the other.
        length: int64, how many arcs a path of each utterance has.
    """
    num_arcs = torch.cat([lattice.num_arcs for lattice in lattices])
    values = torch.cat([lattice.arcs.values().cpu() for lattice in lattices])
    graph_arc = torch.cat([lattice.graph_arc.cpu() for lattice in lattices])
    # numpy, which wakes no threads.
    sizes = num_arcs.numpy()
    row = np.repeat(np.arange(len(sizes)), sizes)
    frame = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    # From state to state in a row. A lattice in pieces may have as many arcs.
    source, target = values.numpy()[:, 0], values.numpy()[:, 1]
    jumps = (source != frame) | (target != frame + 1)
    fits = sizes == length.numpy()
    fits[row[jumps]] = False
    fits = torch.from_numpy(fits)
    if not bool(fits.all()):
        kept = fits[torch.from_numpy(row)]
        values, graph_arc = values[kept], graph_arc[kept]
    label, score = values[:, 2], values[:, 3].contiguous().view(torch.float32)
    return fits, Paths(num_arcs[fits], label, score, graph_arc.long())


def search(bare: k2.Fsa, emissions: Emissions, positions: Sequence[int], beam: float) -> Lattice:
    """Lattice of the utterances at ``positions`` (increasing) in the order of the emissions."""
    begin, end = positions[0], positions[-1] + 1
    arcs, graph_arc = bare.arcs, bare.graph_arc
    chosen = torch.tensor(positions, dtype=torch.int32, device=bare.device)
    if len(positions) < len(emissions.order):
        arcs, which = _k2.index(arcs, axis=0, indexes=chosen, need_value_indexes=True)
        graph_arc = graph_arc.index_select(0, which)
    arcs, arc_map = intersect_dense(arcs, emissions.part(begin, end), chosen - begin, beam)
    return Lattice(arcs, graph_arc.index_select(0, arc_map))


def intersect_dense(
    arcs: _k2.RaggedArc, dense: k2.DenseFsaVec, among: torch.Tensor, beam: float
) -> tuple[_k2.RaggedArc, torch.Tensor]:
    """``k2.intersect_dense`` without its preparations for gradients.

    Returns:
        Arcs of the lattice, and int32, which of ``arcs`` each is.
    """
    lattice, arc_map, _ = _k2.intersect_dense(
        a_fsas=arcs, b_fsas=dense.dense_fsa_vec, a_to_b_map=among, output_beam=beam
    )
    return lattice, arc_map


def parts(bare: k2.Fsa, emissions: Emissions, positions: list[int]) -> Iterator[list[int]]:
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


def best_paths(graphs: k2.Fsa, bare: k2.Fsa, emissions: Emissions) -> tuple[list[int], Paths]:
    """Positions in the order of the emissions, and their best paths; nothing for those without.

    Searches with a narrow beam, and again with wider ones what came out empty or in pieces.
    Utterances that are too short are named in a warning.

    Args:
        graphs: in the caller's order.
        bare: those of :func:`mlvae.fsa.lattices.prepared`.
        emissions: of the same utterances.
    """
    order = emissions.order.tolist()
    short = set(too_short(graphs, emissions))
    for index in sorted(short):
        logging.getLogger(__name__).warning(
            "%s is too short: %d frames", emissions.names[index], emissions.num_frames[index]
        )
    missing = [position for position, index in enumerate(order) if index not in short]
    length = emissions.num_frames[emissions.order] + 1
    positions: list[int] = []
    paths: list[Paths] = []
    for beam in beams():
        if not missing:
            break
        with torch.no_grad():
            divided = list(parts(bare, emissions, missing))
            lattices = [search(bare, emissions, part, beam) for part in divided]
            fits, single = straight(lattices, length[missing])
            positions += [position for position, fit in zip(missing, fits.tolist()) if fit]
            paths.append(single)
            undecided = []
            for part, lattice, fit in zip(divided, lattices, fits.split(list(map(len, divided)))):
                rest = (~fit).nonzero().flatten().int()
                fsa_vec = lattice.fsa_vec(rest) if len(rest) else None
                if fsa_vec is not None:
                    undecided.append(([part[place] for place in rest.tolist()], fsa_vec))
            if undecided:
                found, some = shortest(undecided, emissions)
                positions += found
                paths.append(some)
        missing = sorted(set(missing) - set(positions))
    return positions, joined(paths)


def joined(paths: Sequence[Paths]) -> Paths:
    """Paths one after the other."""
    if not paths:
        none = torch.empty(0, dtype=torch.int64)
        return Paths(none, none.int(), none.float(), none)
    if len(paths) == 1:
        return paths[0]
    names = [field.name for field in fields(Paths)]
    return Paths(**{name: torch.cat([getattr(one, name) for one in paths]) for name in names})


def shortest(
    undecided: list[tuple[list[int], k2.Fsa]], emissions: Emissions
) -> tuple[list[int], Paths]:
    """k2's shortest paths of lattices with more than one, all at once: the steps cost the time.

    Leaves out those that rounding has cut in pieces.
    """
    positions = [position for some, _ in undecided for position in some]
    lattices = [lattice for _, lattice in undecided]
    lattice = k2.cat(lattices) if len(lattices) > 1 else lattices[0]
    paths, whole = whole_paths(lattice, emissions, positions)
    num_arcs = arc_row_splits(paths).diff()
    kept = torch.repeat_interleave(whole, num_arcs)
    found = [position for position, is_whole in zip(positions, whole.tolist()) if is_whole]
    return found, Paths(
        num_arcs[whole],
        paths.labels.cpu()[kept],
        paths.scores.cpu()[kept],
        paths.graph_arc.cpu().long()[kept],
    )
