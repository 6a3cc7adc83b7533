"""Best paths through acceptors over emissions, as arrays.

With a narrow beam most lattices of k2's intersection hold nothing but the best path: they are read
as they are. k2's shortest path is only asked where there is a choice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, fields

import k2
import numpy as np
import torch

from . import lattices as _lattices
from .emissions import Emissions
from .k2_private import RaggedArc, index_arcs, intersect_dense
from .lattices import arc_row_splits, beams, long_enough, stretches

#: What is searched at once on CPU, in states x (frames + 1). k2 walks through all of its scores, 8
#: bytes each, forwards and backwards, which is faster where they stay in the cache of the core.
PART_SIZE = 250_000
#: Most that a part may be larger for k2, to which all are as long as the longest.
MAX_PADDING = 4

#: How many times the rounding error of a path a beam must be, so that no path is lost to it: k2
#: compares two sums of two halves each, and those of paths not found may be somewhat worse.
CLEARANCE = 6.0


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

    def chosen(self, which: torch.Tensor) -> Paths:
        """Those of some utterances, bool (P,)."""
        kept = torch.repeat_interleave(which, self.num_arcs)
        arcs = (self.label[kept], self.score[kept], self.graph_arc[kept])
        return Paths(self.num_arcs[which], *arcs)


@dataclass
class Lattice:
    """What k2's intersection leaves of some utterances, before k2.Fsa looks at it.

    Attributes:
        arcs: k2's ragged arcs, on the device of the search.
        graph_arc: int32, one an arc.
    """

    arcs: RaggedArc
    graph_arc: torch.Tensor

    @property
    def num_arcs(self) -> torch.Tensor:
        """int64 on CPU, arcs of each utterance."""
        shape = self.arcs.shape()
        splits = shape.row_splits(2).cpu().numpy()[shape.row_splits(1).cpu().numpy()]
        return torch.from_numpy(np.diff(splits).astype(np.int64))

    def fsa_vec(self, chosen: torch.Tensor) -> k2.Fsa | None:
        """Some of it as k2.Fsa; None where rounding has left pieces that k2 refuses."""
        arcs, which = index_arcs(self.arcs, chosen.to(self.graph_arc.device))
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
        arcs, which = index_arcs(arcs, chosen)
        graph_arc = graph_arc.index_select(0, which)
    arcs, arc_map = intersect_dense(arcs, emissions.part(begin, end), chosen - begin, beam)
    return Lattice(arcs, graph_arc.index_select(0, arc_map))


def parts(bare: k2.Fsa, emissions: Emissions, positions: list[int]) -> Iterator[list[int]]:
    """Cut ``positions`` in stretches that are best searched one after the other."""
    if bare.device.type != "cpu":
        return stretches(bare, emissions, positions)
    return stretches(bare, emissions, positions, PART_SIZE, MAX_PADDING * PART_SIZE)


def best_paths(bare: k2.Fsa, emissions: Emissions, short: Set[int]) -> tuple[list[int], Paths]:
    """Positions in the order of the emissions, and their best paths; nothing for those without.

    Searches with a narrow beam, and again with wider ones what came out empty or in pieces, or
    where the beam is not clear of rounding error.

    Args:
        bare: those of :func:`mlvae.fsa.lattices.prepared`.
        emissions: of the same utterances.
        short: which are left out, those of :func:`mlvae.fsa.lattices.short_ones`.
    """
    missing = long_enough(emissions, short)
    length = emissions.num_frames[emissions.order] + 1
    positions: list[int] = []
    paths: list[Paths] = []
    all_beams = beams(_lattices.BEST_PATH_BEAM)
    for beam in all_beams:
        if not missing:
            break
        with torch.no_grad():
            some, found = _within_beam(bare, emissions, missing, length, beam)
        clear = torch.from_numpy(CLEARANCE * rounding_errors(found) <= beam)
        if beam < all_beams[-1] and not bool(clear.all()):
            found = found.chosen(clear)
            some = [position for position, is_clear in zip(some, clear.tolist()) if is_clear]
        positions += some
        paths.append(found)
        missing = sorted(set(missing) - set(some))
    return positions, joined(paths)


def warn_of(short: Set[int], emissions: Emissions) -> None:
    """Name utterances that are too short in a warning."""
    for index in sorted(short):
        logging.getLogger(__name__).warning(
            "%s is too short: %d frames", emissions.names[index], emissions.num_frames[index]
        )


def _within_beam(
    bare: k2.Fsa, emissions: Emissions, missing: list[int], length: torch.Tensor, beam: float
) -> tuple[list[int], Paths]:
    """Best paths of utterances whose lattices are whole with this beam, and their positions.

    Args:
        bare: those of :func:`mlvae.fsa.lattices.prepared`.
        emissions: of the same utterances.
        missing: positions to search.
        length: int64 (B,), arcs of a path at each position.
        beam: of the search.
    """
    divided = list(parts(bare, emissions, missing))
    lattices = [search(bare, emissions, part, beam) for part in divided]
    fits, single = straight(lattices, length[missing])
    positions = [position for position, fit in zip(missing, fits.tolist()) if fit]
    undecided = []
    for part, lattice, fit in zip(divided, lattices, fits.split(list(map(len, divided)))):
        rest = (~fit).nonzero().flatten().int()
        fsa_vec = lattice.fsa_vec(rest) if len(rest) else None
        if fsa_vec is not None:
            undecided.append(([part[place] for place in rest.tolist()], fsa_vec))
    if not undecided:
        return positions, single
    found, some = shortest(undecided, length)
    return positions + found, joined([single, some])


def rounding_errors(paths: Paths) -> np.ndarray:
    """How far apart k2's sums along each path are, in natural-log score, float32 (P,).

    k2 adds scores up in single precision, from the beginning and from the end, and prunes each arc
    by the sum of both, which would be the same all along a path if nothing was rounded. The error
    grows with the scores and with their number, most where they are alike, and is measured by doing
    the same. Other paths of the utterance are taken to have errors as large.
    """
    errors = np.zeros(len(paths.num_arcs), dtype=np.float32)
    sizes, score = paths.num_arcs.numpy(), paths.score.numpy()
    ends = np.append(0, np.cumsum(sizes))
    for first in range(0, len(sizes), 64):  # some at a time, as one may be much longer than others
        last = min(first + 64, len(sizes))
        some = sizes[first:last, None]
        padded = np.zeros((last - first, some.max()), dtype=np.float32)
        padded[np.arange(some.max()) < some] = score[ends[first] : ends[last]]
        forwards = np.cumsum(padded, axis=1)
        backwards = np.cumsum(padded[:, ::-1], axis=1)[:, ::-1]
        through = forwards + backwards - padded  # both have counted the arc itself
        errors[first:last] = np.abs(through - forwards[:, -1:]).max(axis=1)
    return errors


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
    undecided: list[tuple[list[int], k2.Fsa]], length: torch.Tensor
) -> tuple[list[int], Paths]:
    """k2's shortest paths of lattices with more than one, all at once: the steps cost the time.

    Leaves out those that rounding has cut in pieces: they may hold no path, or one through some of
    the frames.

    Args:
        undecided: positions and their lattice.
        length: int64 (B,), arcs of a path at each position.
    """
    positions = [position for some, _ in undecided for position in some]
    lattices = [lattice for _, lattice in undecided]
    lattice = k2.cat(lattices) if len(lattices) > 1 else lattices[0]
    paths = k2.shortest_path(lattice, use_double_scores=True)
    num_arcs = arc_row_splits(paths).diff()
    whole = num_arcs == length[positions]
    found = [position for position, is_whole in zip(positions, whole.tolist()) if is_whole]
    every = Paths(num_arcs, paths.labels.cpu(), paths.scores.cpu(), paths.graph_arc.cpu().long())
    return found, every.chosen(whole)
