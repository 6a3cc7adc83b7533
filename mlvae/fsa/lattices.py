"""Lattices of acceptors over emissions, by k2 intersection."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set

import k2
import numpy as np
import torch

from .checks import INT32_MAX, UINT16_MAX, shown
from .emissions import Emissions
from .layout import ARC_ATTRIBUTES

# k2 prunes on forward-backward scores relative to the best path, so the best path itself survives
# any beam that is clear of rounding error; :mod:`.paths` measures that error. A narrow one is
# several times faster, and leaves most lattices with the best path alone.
BEST_PATH_BEAM = 0.03
WIDER_BEAMS = (1.0, 10.0, 1e3, 1e6)

#: What is searched at once, in states x (frames of the longest + 2), which is what k2 numbers. It
#: takes up to 13 bytes for each, whether utterances are as long as the longest or not.
MAX_NUMBERED = 100_000_000


def too_short(graphs: k2.Fsa, emissions: Emissions) -> list[int]:
    """Indices of utterances with fewer frames than their graph needs.

    Raises:
        ValueError: as :func:`mlvae.fsa.best_path`.
    """
    check_graphs(graphs, emissions)
    return sorted(short_ones(graphs, emissions))


def short_ones(graphs: k2.Fsa, emissions: Emissions) -> set[int]:
    """:func:`too_short` for graphs that have been checked."""
    fewest = _first_of_each(graphs, "min_frames")
    return set((emissions.num_frames < fewest).nonzero().flatten().tolist())


def long_enough(emissions: Emissions, short: Set[int]) -> list[int]:
    """Positions, in the order of the emissions, of all but the ``short``."""
    order = emissions.order.tolist()
    return [place for place, index in enumerate(order) if index not in short]


def check_graphs(graphs: k2.Fsa, emissions: Emissions) -> None:
    """Check that graphs and emissions are of one compiler and one batch, and fit into k2.

    Raises:
        ValueError: they do not.
    """
    if not isinstance(emissions, Emissions):
        raise ValueError(f"emissions must be those of MlFsaCompiler, not {shown(emissions)}")
    is_fsa_vec = isinstance(graphs, k2.Fsa) and len(graphs.shape) == 3
    names = (*ARC_ATTRIBUTES, "min_frames", "layout_id")
    if not is_fsa_vec or not all(hasattr(graphs, name) for name in names):
        raise ValueError("graphs must be an FsaVec made by MlFsaCompiler.compile")
    batch = len(emissions.order)
    if graphs.shape[0] != batch:
        raise ValueError(f"{graphs.shape[0]} graphs for emissions of {batch} utterances")
    if not bool((graphs.layout_id == emissions.layout.fingerprint).all()):
        raise ValueError(
            "graphs and emissions are of different compilers: the emissions are for "
            f"{emissions.layout}"
        )
    _check_sizes(graphs, emissions)
    _check_scores(graphs, emissions)


def _check_sizes(graphs: k2.Fsa, emissions: Emissions) -> None:
    """Refuse utterances that k2 cannot number by themselves."""
    arcs, states = num_arcs_and_states(graphs)
    frames = emissions.num_frames.numpy()
    columns = emissions.layout.num_columns + 1
    # Rows of frames, with that of the final arc; and one more time that states are reached at.
    rows = np.maximum(frames, 1) + 1
    longest, most_states = int(rows.max()) + 1, int(states.max())
    largest = max(int(arcs.max()), most_states, columns)
    if max(longest, most_states) <= UINT16_MAX and 2 * largest * longest < INT32_MAX:
        return  # none of the numbers below is larger
    for what, number, limit in (
        ("{frames} frames", frames, UINT16_MAX - 1),
        ("a graph of {states} states", states, UINT16_MAX),
        ("{states} states x {frames} frames", states * (rows + 1) + 1, INT32_MAX),
        ("{arcs} arcs x {frames} frames", arcs * rows, INT32_MAX),
        ("{columns} columns x {frames} frames", columns * rows, INT32_MAX),
        ("{arcs} arcs", 2 * arcs, INT32_MAX),
    ):
        wrong = np.flatnonzero(number > limit)
        if len(wrong):
            index = wrong[0]
            of_it = dict(frames=frames[index], states=states[index], arcs=arcs[index])
            raise ValueError(
                f"{emissions.names[index]} is too large for k2: it has "
                f"{what.format(columns=columns, **of_it)}, and k2 can number at most {limit}"
            )


def _check_scores(graphs: k2.Fsa, emissions: Emissions) -> None:
    """Refuse NaN and +inf among the scores of arcs, which a caller may have changed."""
    scores = graphs.scores.detach()
    # The sum is neither where all are finite or -inf.
    if bool(scores.sum() < math.inf):
        return
    wrong = (~(scores < math.inf)).nonzero().flatten()
    if len(wrong):
        index = int(np.searchsorted(arc_row_splits(graphs).numpy(), int(wrong[0]), "right")) - 1
        raise ValueError(f"{emissions.names[index]}: a score of its graph is NaN or +inf")


def prepared(graphs: k2.Fsa, emissions: Emissions) -> tuple[k2.Fsa, k2.Fsa]:
    """Check that graphs fit; return them on the right device, and a sorted copy to search with.

    The copy carries one attribute, ``graph_arc``, instead of all: lattices have hundreds of arcs
    for each of the graph's, and every attribute is copied onto them.
    """
    check_graphs(graphs, emissions)
    device = emissions.device
    if graphs.device != device:
        graphs = graphs.to(device)
    bare = k2.Fsa(graphs.arcs)
    if graphs.scores.requires_grad:
        bare.scores = graphs.scores
    bare.graph_arc = torch.arange(graphs.num_arcs, dtype=torch.int32, device=device)
    order = emissions.order
    if not torch.equal(order, torch.arange(len(order))):
        bare = k2.index_fsa(bare, order.to(device, torch.int32))
    return graphs, bare


def stretches(
    bare: k2.Fsa,
    emissions: Emissions,
    positions: Sequence[int],
    size: int | None = None,
    most: int = MAX_NUMBERED,
) -> Iterator[list[int]]:
    """Cut a batch in stretches that k2 can number, and that take little memory.

    k2 numbers all states of what it searches at once, for each frame of the longest utterance. One
    that is much longer than the others would make them all as large as itself.

    Args:
        bare: those of :func:`prepared`.
        emissions: of the same utterances.
        positions: increasing, in the order of the emissions, which is the longest first.
        size: of a stretch, in states x (frames + 1); they are cut as equal as can be, with this
            size on average or less. None: no such limit.
        most: largest size with all utterances as long as the first, but for one utterance alone.
    """
    arcs, states = num_arcs_and_states(bare)
    splits = emissions.row_splits.numpy()
    rows = np.diff(splits)
    sizes = states * rows
    total = int(sizes[positions].sum())
    wanted = math.inf if size is None else total / math.ceil(total / size)
    columns = emissions.layout.num_columns + 1
    cells_of, end = (arcs * rows).tolist(), splits[1:].tolist()
    sizes, states, rows = sizes.tolist(), states.tolist(), rows.tolist()
    part: list[int] = []
    reached, num_states, cells, longest, begin = 0.0, 0, 0, 0, 0
    for position in positions:
        num_states += states[position]
        cells += cells_of[position]
        numbered = (longest + 1) * num_states + 1
        largest = max(numbered, cells, columns * (end[position] - begin))
        if part and (numbered > most or largest > INT32_MAX or len(part) == UINT16_MAX):
            yield part
            part, reached = [], 0.0
            num_states, cells = states[position], cells_of[position]
        if not part:
            longest, begin = rows[position], end[position] - rows[position]
        part.append(position)
        reached += sizes[position]
        if reached >= wanted:
            yield part
            part, reached, num_states, cells = [], reached - wanted, 0, 0
    if part:
        yield part


def lattices(
    bare: k2.Fsa, emissions: Emissions, positions: list[int], beam: float, frames: bool = False
) -> Iterator[tuple[list[int], k2.Fsa]]:
    """Lattices of utterances, with all paths within the beam of the best one.

    Where rounding has cut the lattice of an utterance in pieces, which k2 refuses or which hold no
    path, that utterance alone is searched again with wider beams.

    Args:
        bare: those of :func:`prepared`.
        emissions: of the same utterances.
        positions: increasing, in the order of the emissions.
        beam: to begin with.
        frames: whether lattices get the arc attribute ``frame``.

    Yields:
        Positions and their lattice, an FsaVec; utterances all of whose paths have a score of -inf
        are in none.
    """
    missing = positions
    for wider in beams(beam):
        found: list[int] = []
        for part in stretches(bare, emissions, missing):
            for some, lattice in _intersected(bare, emissions, part, wider, frames):
                total = lattice.get_tot_scores(log_semiring=True, use_double_scores=True)
                whole = (total.detach() > -math.inf).nonzero().flatten()
                if len(whole) == 0:
                    continue
                if len(whole) < len(some):
                    lattice = k2.index_fsa(lattice, whole.int())
                    some = [some[place] for place in whole.tolist()]
                yield some, lattice
                found += some
        missing = sorted(set(missing) - set(found))
        if not missing:
            break


def _intersected(
    bare: k2.Fsa, emissions: Emissions, positions: list[int], beam: float, frames: bool
) -> Iterator[tuple[list[int], k2.Fsa]]:
    """Lattices as they come from k2, without the utterances whose lattice it refuses."""
    lattice = intersect(bare, emissions, positions, beam, frames)
    if lattice is not None:
        yield positions, lattice
    elif len(positions) > 1:
        half = len(positions) // 2
        yield from _intersected(bare, emissions, positions[:half], beam, frames)
        yield from _intersected(bare, emissions, positions[half:], beam, frames)


def intersect(
    bare: k2.Fsa, emissions: Emissions, positions: list[int], beam: float, frames: bool = False
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
        return k2.intersect_dense(
            bare,
            dense,
            output_beam=beam,
            # k2 would narrow the beam in silence where a lattice has 15 million states.
            max_states=INT32_MAX,
            max_arcs=INT32_MAX,
            a_to_b_map=among,
            frame_idx_name="frame" if frames else None,
        )
    except ValueError:
        return None


def beams(first: float) -> list[float]:
    """Beams to search with in turn, as long as lattices come out empty or in pieces."""
    return [first, *(beam for beam in WIDER_BEAMS if beam > first)]


def arc_row_splits(fsas: k2.Fsa) -> torch.Tensor:
    """int64 (B + 1,) on CPU: where each FSA's arcs begin."""
    shape = fsas.arcs.shape()
    state_splits, arc_splits = shape.row_splits(1), shape.row_splits(2)
    return arc_splits[state_splits.long()].cpu().long()


def num_arcs_and_states(fsas: k2.Fsa) -> tuple[np.ndarray, np.ndarray]:
    """Arcs and states of each FSA, int64 (B,)."""
    states = fsas.arcs.shape().row_splits(1).cpu().numpy().astype(np.int64)
    return np.diff(arc_row_splits(fsas).numpy()), np.diff(states)


def _first_of_each(graphs: k2.Fsa, name: str) -> torch.Tensor:
    """An attribute that is constant within each FSA, int64 (B,) on CPU."""
    begin = arc_row_splits(graphs)[:-1]
    return getattr(graphs, name).cpu()[begin].long()
