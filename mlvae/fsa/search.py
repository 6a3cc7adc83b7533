"""The search: best paths and total scores of acceptors over emissions, by k2 intersection.

With a narrow beam most lattices of k2's intersection hold nothing but the best path: they are read
as they are (:func:`best_path`). k2's shortest path is only asked where there is a choice. Lattices
with all paths of weight (:func:`lattices`) are for :mod:`.posteriors` and total scores.

A recording may be too long for that, as an exact search takes time and memory for each arc in each
frame. The pruned one (:func:`pruned_path`) keeps in each frame what is within a beam of the best
there, so that both grow with the frames alone; what it finds is the best path unless that was once
worse than another one by more than the beam. A path that lost the best one on its way looks like
any other, and is far from it in all that follows. So what is found is believed only where the next
wider beam finds nothing better.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, fields

import k2
import numpy as np
import torch

from .checks import (
    INT32_MAX,
    UINT16_MAX,
    checked_beam,
    checked_bool,
    checked_int,
    checked_integers,
    checked_names,
    shown,
)
from .emissions import Emissions
from .graph import fsa_vec, fsa_vec_tensor, ragged
from .k2_private import RaggedArc, index_arcs, intersect_dense
from .layout import ARC_ATTRIBUTES, DELETED_ATTRIBUTES
from .spans import UnitSpan, spans_of_paths

# k2 prunes on forward-backward scores relative to the best path, so the best path itself survives
# any beam that is clear of rounding error; rounding_errors() measures that error. A narrow one is
# several times faster, and leaves most lattices with the best path alone.
BEST_PATH_BEAM = 0.03
WIDER_BEAMS = (1.0, 10.0, 1e3, 1e6)
POSTERIOR_BEAM = 15.0
#: What is searched at once, in states x (frames of the longest + 2), which is what k2 numbers. It
#: takes up to 13 bytes for each, whether utterances are as long as the longest or not.
MAX_NUMBERED = 100_000_000
#: What is searched at once on CPU, in states x (frames + 1). k2 walks through all of its scores, 8
#: bytes each, forwards and backwards, which is faster where they stay in the cache of the core.
PART_SIZE = 250_000
#: Most that a part may be larger for k2, to which all are as long as the longest.
MAX_PADDING = 4
#: How many times the rounding error of a path a beam must be, so that no path is lost to it: k2
#: compares two sums of two halves each, and those of paths not found may be somewhat worse.
CLEARANCE = 6.0
#: Largest batch by default, in cells: arcs of a graph x (frames + 1), summed over utterances. A
#: search with a wide beam then takes at most about 2 GB.
MAX_CELLS = 20_000_000
#: Beams in natural-log scores, each tried where the one before it is not known to be wide enough.
#: A word that was said otherwise than written costs some hundred until the path goes on behind it.
SEARCH_BEAMS = (300.0, 500.0, 1000.0, 3000.0, 10000.0)
#: Most states that are kept in a frame, whatever the beam.
MOST_STATES = 30000
#: What a wider beam must gain to be of another opinion: less is rounding, or a frame at an edge.
GAIN = 1.0


def best_path(graphs: k2.Fsa, emissions: Emissions) -> list[list[UnitSpan]]:
    """Best segmentation and correctness of each utterance: the hard E-step, argmax of Eq. map1.

    Exact: the search is by forward-backward pruning with a narrow beam, retried wider where
    rounding empties a lattice, or where the rounding error of a path is not clear of the beam.
    Where two paths have the same score and segments, the one that says
    "correct" wins.

    Args:
        graphs: FsaVec of ``MlFsaCompiler.compile``, in the caller's order, on any device.
        emissions: of the same compiler's ``emissions``, for the same utterances.

    Returns:
        For each utterance, in the caller's order, spans that tile its frames. Utterances that are
        too short for their units have an empty list, are named in a warning, and are told by
        :func:`too_short`; so have those to which only paths of score -inf are left.

    Raises:
        ValueError: the graphs are not those of the emissions' compiler and batch, or an utterance
            is by itself too large for k2, which the message names. Batches may have any size.
    """
    graphs, bare, short = prepared(graphs, emissions)
    warn_of(short, emissions)
    results: list[list[UnitSpan]] = [[] for _ in emissions.order]
    positions, paths = best_paths(bare, emissions, short)
    found = emissions.order[positions].tolist()
    for index, spans in zip(found, read_paths(paths, graphs, found)):
        results[index] = spans
    return results


def best_columns(graphs: k2.Fsa, emissions: Emissions) -> torch.Tensor:
    """The posterior column that explains each frame on the best path: training targets, by state.

    Args:
        graphs: as in :func:`best_path`.
        emissions: as in :func:`best_path`.

    Returns:
        int64 (B, max(num_frames)) on CPU, in the caller's order: ``unit * states_per_unit +
        state`` of the perceived unit, or ``num_units * states_per_unit`` for silence; -1 where the
        path cannot say what was spoken (the mispronounced branch of topology ``ml``, insertions),
        in padding, and throughout utterances that :func:`best_path` has no spans for.

    Raises:
        ValueError: as :func:`best_path`.
    """
    graphs, bare, short = prepared(graphs, emissions)
    warn_of(short, emissions)
    layout = emissions.layout
    width = int(emissions.num_frames.max())
    result = torch.full((len(emissions.order), width), -1, dtype=torch.int64)
    positions, paths = best_paths(bare, emissions, short)
    emitting = paths.label != -1
    index = emissions.order[positions][paths.row[emitting]]
    result[index, paths.frame[emitting]] = layout.column_of_label(paths.label[emitting].long())
    return result


def total_scores(
    graphs: k2.Fsa,
    emissions: Emissions,
    log_semiring: bool = True,
    output_beam: float = POSTERIOR_BEAM,
) -> torch.Tensor:
    """Score of all paths together, or of the best one.

    Args:
        graphs: as in :func:`best_path`; gradients also reach arc scores that require them.
        emissions: as in :func:`best_path`.
        log_semiring: log of the sum over paths if true, else the best path's score.
        output_beam: as in :func:`mlvae.fsa.posteriors`; only for the log semiring.

    Returns:
        float32 (B,) in the caller's order, on the emissions' device, differentiable with respect to
        what the emissions were made of; -inf for utterances that are too short.

    Raises:
        ValueError: as :func:`best_path`.
    """
    beam, log_semiring = checked_beam(output_beam), checked_bool(log_semiring, "log_semiring")
    graphs, bare, short = prepared(graphs, emissions)
    if log_semiring:
        positions = long_enough(emissions, short)
        every = [
            (some, lattice.get_tot_scores(log_semiring=True, use_double_scores=True))
            for some, lattice in lattices(bare, emissions, positions, beam)
        ]
    else:
        every = [_best_scores(graphs, bare, emissions, short)]
    device, batch = bare.device, len(emissions.order)
    scores = torch.full((batch,), -math.inf, dtype=torch.float64, device=device)
    for some, found in every:
        scores = scores.index_copy(0, torch.tensor(some, dtype=torch.int64, device=device), found)
    return scores.float()[torch.argsort(emissions.order).to(device)]


def _best_scores(
    graphs: k2.Fsa, bare: k2.Fsa, emissions: Emissions, short: Set[int]
) -> tuple[list[int], torch.Tensor]:
    """Positions of utterances with a best path, and its score, float64, with gradients."""
    positions, paths = best_paths(bare, emissions, short)
    dense, device = emissions.dense.scores, bare.device
    begin = emissions.row_splits[torch.tensor(positions, dtype=torch.int64)]
    row = (begin[paths.row] + paths.frame).to(device)
    # Its first column is that of label -1.
    of_graph = graphs.scores[paths.graph_arc.to(graphs.device)].to(device)
    score = dense[row, paths.label.to(device).long() + 1] + of_graph
    totals = torch.zeros(len(positions), dtype=torch.float64, device=device)
    return positions, totals.index_add(0, paths.row.to(device), score.double())


def read_paths(paths: Paths, graphs: k2.Fsa, graph_of: list[int]) -> list[list[UnitSpan]]:
    """Spans of each of ``paths``, the i-th of which is one of graph ``graph_of[i]``."""
    values = zip(ARC_ATTRIBUTES, on_cpu(graphs, ARC_ATTRIBUTES))
    attributes = {name: value.numpy() for name, value in values}
    graph_arc = paths.graph_arc.numpy()
    slots = []
    if attributes["num_deleted"][graph_arc].any():
        tables = slot_tables(graphs)
        slots = [tuple(column.numpy() for column in tables[index]) for index in graph_of]
    return spans_of_paths(
        paths.row.numpy(),
        paths.label.numpy(),
        paths.score.numpy(),
        graph_arc,
        attributes,
        len(graph_of),
        slots,
    )


def on_cpu(graphs: k2.Fsa, names: Sequence[str]) -> Sequence[torch.Tensor]:
    """Attributes of arcs, int32, brought to the CPU in one copy."""
    values = [getattr(graphs, name) for name in names]
    if graphs.device == torch.device("cpu"):
        return values
    return torch.stack(values).cpu().unbind()


def slot_tables(graphs: k2.Fsa) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Unit and word of each slot of each graph, int64 (n,) on CPU."""
    slot, unit, word = (
        values.long() for values in on_cpu(graphs, ("unit_pos", "unit", "word_pos"))
    )
    splits, result = arc_row_splits(graphs).tolist(), []
    for begin, end in zip(splits[:-1], splits[1:]):
        mine = slot[begin:end]
        inside = mine >= 0
        table = torch.zeros(2, int(mine.max()) + 1, dtype=torch.int64)
        table[0, mine[inside]] = unit[begin:end][inside]
        table[1, mine[inside]] = word[begin:end][inside]
        result.append((table[0], table[1]))
    return result


def restrict(graphs: k2.Fsa, mispronounced: Sequence[Sequence[bool | None]]) -> k2.Fsa:
    """Leave only the paths on which chosen slots are mispronounced or deleted, and others are not.

    Which units are wrong may be decided by more than the acceptor knows, such as how often the
    speaker errs. Where they lie, and what was said instead, its best path under that decision says.

    Args:
        graphs: as in :func:`best_path`.
        mispronounced: by utterance and slot (as ``unit_pos`` counts them) whether the slot must be
            mispronounced or deleted (True), or neither (False), or is free (None).

    Returns:
        A copy in which arcs that contradict have score -inf. An utterance may be left without a
        path, as when a unit without competitors must be mispronounced.

    Raises:
        ValueError: there are not as many lists as graphs, or not as many values as slots, or a
            value is none of the three.
    """
    splits, tables = arc_row_splits(graphs), slot_tables(graphs)
    if len(mispronounced) != len(tables):
        raise ValueError(f"decisions on {len(mispronounced)} utterances for {len(tables)} graphs")
    codes: list[int] = []
    for index, ((unit, _), decided) in enumerate(zip(tables, mispronounced)):
        if len(decided) != len(unit):
            raise ValueError(
                f"utterance {index}: decisions on {len(decided)} slots, but it has {len(unit)}"
            )
        for value in decided:
            if value is not None and not isinstance(value, (bool, np.bool_)):
                raise ValueError(f"utterance {index}: a decision is {shown(value)}, not a bool")
            codes.append(2 if value is None else int(value))
    wanted = torch.tensor([*codes, 2])  # the last one is for arcs of no slot
    first = torch.tensor([0, *(len(unit) for unit, _ in tables)]).cumsum(0)[:-1]
    offset = first.repeat_interleave(splits.diff())

    def wanted_of(attribute: str) -> torch.Tensor:
        slot = getattr(graphs, attribute).cpu().long()
        return wanted[torch.where(slot >= 0, slot + offset, torch.tensor(len(codes)))]

    wrong = graphs.is_mispronounced.cpu().long()
    of_slot = wanted_of("unit_pos")
    forbidden = (graphs.is_start.cpu() != 0) & (of_slot < 2) & (of_slot != wrong)
    for attribute in DELETED_ATTRIBUTES:
        forbidden |= wanted_of(attribute) == 0
    restricted = graphs.clone()
    restricted.scores = graphs.scores.masked_fill(forbidden.to(graphs.device), -torch.inf)
    return restricted


def too_short(graphs: k2.Fsa, emissions: Emissions) -> list[int]:
    """Indices of utterances with fewer frames than their graph needs.

    Raises:
        ValueError: as :func:`best_path`.
    """
    check_graphs(graphs, emissions)
    return sorted(short_ones(graphs, emissions))


def short_ones(graphs: k2.Fsa, emissions: Emissions) -> set[int]:
    """:func:`too_short` for graphs that have been checked."""
    begin = arc_splits_of(graphs.arcs)[:-1]
    fewest = graphs.min_frames.index_select(0, begin).cpu().long()
    return set((emissions.num_frames < fewest).nonzero().flatten().tolist())


def long_enough(emissions: Emissions, short: Set[int]) -> list[int]:
    """Positions, in the order of the emissions, of all but the ``short``."""
    order = emissions.order.tolist()
    return [place for place, index in enumerate(order) if index not in short]


def warn_of(short: Set[int], emissions: Emissions) -> None:
    """Name utterances that are too short in a warning."""
    for index in sorted(short):
        logging.getLogger(__name__).warning(
            "%s is too short: %d frames", emissions.names[index], emissions.num_frames[index]
        )


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


def prepared(graphs: k2.Fsa, emissions: Emissions) -> tuple[k2.Fsa, k2.Fsa, set[int]]:
    """Check that graphs fit, and set up a search.

    The copy to search with carries one attribute, ``graph_arc``, instead of all: lattices have
    hundreds of arcs for each of the graph's, and every attribute is copied onto them. Arcs that no
    path takes are not in it: those of score -inf, and what only they lead to. It alone goes to the
    device of the emissions.

    Returns:
        The graphs; a copy on the device and in the order of the emissions; and the indices of
        utterances that are too short.
    """
    check_graphs(graphs, emissions)
    device = graphs.device
    if graphs.scores.requires_grad:
        bare = k2.Fsa(graphs.arcs)
        bare.scores = graphs.scores
        bare.graph_arc = torch.arange(graphs.num_arcs, dtype=torch.int32, device=device)
    else:
        bare, graph_arc = without_dead_ends(graphs.arcs)
        bare.graph_arc = graph_arc
    order = emissions.order
    if not torch.equal(order, torch.arange(len(order))):
        bare = k2.index_fsa(bare, order.to(device, torch.int32))
    return graphs, bare.to(emissions.device), short_ones(graphs, emissions)


def without_dead_ends(arcs: RaggedArc) -> tuple[k2.Fsa, torch.Tensor]:
    """Leave out arcs of score -inf, and states and arcs that only they lead to.

    Start and final states stay, also where no path is left. Each arc is looked at once.

    Args:
        arcs: of an FsaVec, on any device.

    Returns:
        An FsaVec of the others, and int32, which of the arcs before each is.
    """
    values = arcs.values()
    possible = values[:, 3].contiguous().view(torch.float32) > -math.inf
    if bool(possible.all()):
        return k2.Fsa(arcs), torch.arange(len(possible), dtype=torch.int32, device=values.device)
    alive = possible.cpu().numpy()
    state_splits, arc_splits = (arcs.shape().row_splits(axis).cpu().numpy() for axis in (1, 2))
    num_states = np.diff(state_splits)
    source = np.repeat(np.arange(len(arc_splits) - 1), np.diff(arc_splits))
    first = np.repeat(state_splits[:-1], num_states)  # of the acceptor of each state
    old = values.cpu().numpy()
    target = old[:, 1] + first[source]
    # Of each state, the arcs left that enter it from another one; of start states one more.
    entering = np.bincount(target[alive & (target != source)], minlength=len(first))
    entering[state_splits[:-1][num_states > 0]] += 1
    dead = np.flatnonzero(entering == 0)
    while len(dead):
        row, place = ragged(np.diff(arc_splits)[dead])
        leaving = arc_splits[dead][row] + place
        leaving = leaving[alive[leaving]]
        alive[leaving] = False
        entered, count = np.unique(
            target[leaving[target[leaving] != source[leaving]]], return_counts=True
        )
        entering[entered] -= count
        dead = entered[entering[entered] == 0]
    reached = entering > 0
    reached[state_splits[1:][num_states > 0] - 1] = True
    number = np.append(0, np.cumsum(reached))
    which = np.flatnonzero(alive)
    source, target = source[which], target[which]
    new = np.stack(
        [
            number[source] - number[first[source]],
            number[target] - number[first[target]],
            *old[which, 2:].T,
        ],
        axis=1,
    )
    splits = arc_splits[state_splits]
    found = k2.Fsa(
        fsa_vec_tensor(new, np.diff(number[state_splits]), np.diff(np.searchsorted(which, splits)))
    )
    return found.to(values.device), torch.from_numpy(which.astype(np.int32)).to(values.device)


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
        return arc_splits_of(self.arcs).cpu().long().diff()

    def fsa_vec(self, chosen: torch.Tensor) -> k2.Fsa | None:
        """Some of it as k2.Fsa; None where rounding has left pieces that k2 refuses."""
        arcs, which = index_arcs(self.arcs, chosen.to(self.graph_arc.device))
        try:
            lattice = k2.Fsa(arcs)
        except ValueError:
            return None
        lattice.graph_arc = self.graph_arc.index_select(0, which)
        return lattice


def best_paths(bare: k2.Fsa, emissions: Emissions, short: Set[int]) -> tuple[list[int], Paths]:
    """Positions in the order of the emissions, and their best paths; nothing for those without.

    Searches with a narrow beam, and again with wider ones what came out empty or in pieces, or
    where the beam is not clear of rounding error.

    Args:
        bare: those of :func:`prepared`.
        emissions: of the same utterances.
        short: which are left out, those of :func:`short_ones`.
    """
    missing = long_enough(emissions, short)
    length = emissions.num_frames[emissions.order] + 1
    positions: list[int] = []
    paths: list[Paths] = []
    all_beams = beams(BEST_PATH_BEAM)
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


def _within_beam(
    bare: k2.Fsa, emissions: Emissions, missing: list[int], length: torch.Tensor, beam: float
) -> tuple[list[int], Paths]:
    """Best paths of utterances whose lattices are whole with this beam, and their positions.

    Args:
        bare: those of :func:`prepared`.
        emissions: of the same utterances.
        missing: positions to search.
        length: int64 (B,), arcs of a path at each position.
        beam: of the search.
    """
    divided = list(parts(bare, emissions, missing))
    found = [searched(bare, emissions, part, beam) for part in divided]
    fits, single = straight(found, length[missing])
    if bool(fits.all()):
        return missing, single
    positions = [position for position, fit in zip(missing, fits.tolist()) if fit]
    undecided = []
    for part, lattice, fit in zip(divided, found, fits.split(list(map(len, divided)))):
        rest = (~fit).nonzero().flatten().int()
        fsa_vec = lattice.fsa_vec(rest) if len(rest) else None
        if fsa_vec is not None:
            undecided.append(([part[place] for place in rest.tolist()], fsa_vec))
    if not undecided:
        return positions, single
    others, some = shortest(undecided, length)
    return positions + others, joined([single, some])


def parts(bare: k2.Fsa, emissions: Emissions, positions: list[int]) -> Iterator[list[int]]:
    """Cut ``positions`` in stretches that are best searched one after the other."""
    if bare.device.type != "cpu":
        return stretches(bare, emissions, positions)
    return stretches(bare, emissions, positions, PART_SIZE, MAX_PADDING * PART_SIZE)


def searched(bare: k2.Fsa, emissions: Emissions, positions: Sequence[int], beam: float) -> Lattice:
    """Lattice of the utterances at ``positions`` (increasing) in the order of the emissions."""
    begin, end = positions[0], positions[-1] + 1
    arcs, graph_arc = bare.arcs, bare.graph_arc
    chosen = torch.from_numpy(np.array(positions, dtype=np.int32)).to(graph_arc.device)
    if len(positions) < len(emissions.order):
        arcs, which = index_arcs(arcs, chosen)
        graph_arc = graph_arc.index_select(0, which)
    arcs, arc_map = intersect_dense(arcs, emissions.part(begin, end), chosen - begin, beam)
    return Lattice(arcs, graph_arc.index_select(0, arc_map))


def straight(some: Sequence[Lattice], length: torch.Tensor) -> tuple[torch.Tensor, Paths]:
    """Which utterances of lattices have a single path from end to end, bool; and these paths.

    Args:
        some: lattices, one after the other.
        length: int64, how many arcs a path of each utterance has.
    """
    num_arcs = torch.cat([lattice.num_arcs for lattice in some])
    values = torch.cat([lattice.arcs.values().cpu() for lattice in some])
    graph_arc = torch.cat([lattice.graph_arc.cpu() for lattice in some])
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
    several = [lattice for _, lattice in undecided]
    lattice = k2.cat(several) if len(several) > 1 else several[0]
    paths = k2.shortest_path(lattice, use_double_scores=True)
    num_arcs = arc_row_splits(paths).diff()
    whole = num_arcs == length[positions]
    found = [position for position, is_whole in zip(positions, whole.tolist()) if is_whole]
    every = Paths(num_arcs, paths.labels.cpu(), paths.scores.cpu(), paths.graph_arc.cpu().long())
    return found, every.chosen(whole)


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
    wanted = math.inf if size is None or not positions else total / math.ceil(total / size)
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


def arc_splits_of(arcs: RaggedArc) -> torch.Tensor:
    """int32 (B + 1,) on their device: where the arcs of each FSA begin."""
    shape = arcs.shape()
    return shape.row_splits(2).index_select(0, shape.row_splits(1))


def arc_row_splits(fsas: k2.Fsa) -> torch.Tensor:
    """int64 (B + 1,) on CPU: where each FSA's arcs begin."""
    return arc_splits_of(fsas.arcs).cpu().long()


def num_arcs_and_states(fsas: k2.Fsa) -> tuple[np.ndarray, np.ndarray]:
    """Arcs and states of each FSA, int64 (B,)."""
    states = fsas.arcs.shape().row_splits(1).cpu().numpy().astype(np.int64)
    return np.diff(arc_row_splits(fsas).numpy()), np.diff(states)


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


def open_ended(graph: k2.Fsa) -> k2.Fsa:
    """A graph that may also end before each of its units: what follows was not spoken yet.

    Args:
        graph: FsaVec of one utterance by ``MlFsaCompiler.compile``, without deletions.

    Returns:
        An FsaVec of one FSA with the same states and attributes, and a final arc without a score
        from each state in which a unit may start. All of it may be silence, where there is any.

    Raises:
        ValueError: there is not one graph.
    """
    if len(graph.shape) != 3 or graph.shape[0] != 1:
        raise ValueError("open_ended takes an FsaVec of one graph")
    arcs = graph.arcs.values().cpu().numpy()
    attributes = {name: getattr(graph, name).cpu().numpy() for name in ARC_ATTRIBUTES}
    names = ("min_frames", "layout_id")
    attributes.update({name: getattr(graph, name).cpu().numpy() for name in names})
    is_final = arcs[:, 2] == -1
    final_state, example = arcs[is_final, 1][0], int(np.flatnonzero(is_final)[0])
    waiting = np.unique(arcs[attributes["is_start"] != 0, 0])
    waiting = np.setdiff1d(waiting, arcs[is_final, 0])
    added = np.zeros((len(waiting), 4), dtype=np.int32)
    added[:, 0], added[:, 1], added[:, 2] = waiting, final_state, -1
    arcs = np.concatenate([arcs, added])
    order = arcs[:, 0].argsort(kind="stable")
    attributes["min_frames"] = np.ones_like(attributes["min_frames"])
    attributes = {
        name: np.append(values, np.full(len(waiting), values[example]))[order]
        for name, values in attributes.items()
    }
    sizes = np.array([final_state + 1]), np.array([len(arcs)])
    return fsa_vec(arcs[order], *sizes, attributes).to(graph.device)


def pruned_path(graph: k2.Fsa, emissions: Emissions) -> list[UnitSpan]:
    """Best path of one utterance by pruned search; time and memory grow with its frames.

    Args:
        graph: FsaVec of one graph, of any number of arcs, on the device of the emissions.
        emissions: of the same compiler, for the one utterance.

    Returns:
        Spans that tile its frames; none where no path is within the widest beam, as where there are
        fewer frames than the graph needs.

    Raises:
        ValueError: there is not one utterance, or the graph is of another compiler.
    """
    if graph.shape[0] != 1 or len(emissions.order) != 1:
        raise ValueError("pruned_path takes one utterance")
    if not bool((graph.layout_id == emissions.layout.fingerprint).all()):
        raise ValueError(f"the graph is not of the emissions' compiler: {emissions.layout}")
    spans: list[UnitSpan] = []
    before = math.inf
    for spans in _of_beams(graph, emissions):
        score = sum(span.score for span in spans) if spans else math.inf
        if score <= before + GAIN < math.inf:
            break
        before = score
    return spans


def _of_beams(graph: k2.Fsa, emissions: Emissions) -> Iterator[list[UnitSpan]]:
    """What :data:`SEARCH_BEAMS` find one after another.

    The first two, which nearly always settle it, are one search of two: what k2 takes its time for
    is the number of frames, hardly what there is in each.
    """
    yield from _within(SEARCH_BEAMS[:2], graph, emissions)
    for beam in SEARCH_BEAMS[2:]:
        yield from _within((beam,), graph, emissions)


def _within(
    all_beams: Sequence[float], graph: k2.Fsa, emissions: Emissions
) -> list[list[UnitSpan]]:
    """By beam the best path that is nowhere worse than another one by more; none: no spans.

    k2 has one beam for all: scores that are k times as large have the k-th part of it.
    """
    widest, num_frames = max(all_beams), int(emissions.num_frames[0])
    factors = [widest / beam for beam in all_beams]
    bare = k2.Fsa(graph.arcs)
    bare.graph_arc = torch.arange(graph.num_arcs, dtype=torch.int32, device=graph.device)
    scores = emissions.dense.scores[:num_frames, 1:]  # without the column of the end
    segments = [[row, 0, num_frames] for row in range(len(factors))]
    dense = k2.DenseFsaVec(
        torch.stack([factor * scores for factor in factors]),
        torch.tensor(segments, dtype=torch.int32),
    )
    with torch.no_grad():
        lattice = k2.intersect_dense_pruned(
            k2.cat([_scaled(bare, factor) for factor in factors]),
            dense,
            search_beam=widest,
            output_beam=1.0,
            min_active_states=30,
            max_active_states=MOST_STATES,
        )
        paths = k2.shortest_path(lattice, use_double_scores=True)
    num_arcs = arc_row_splits(paths).cpu().diff()
    whole = num_arcs == num_frames + 1
    row = torch.repeat_interleave(torch.arange(len(factors)), num_arcs)
    of_path = torch.tensor(factors)[row]
    found = Paths(
        num_arcs, paths.labels.cpu(), paths.scores.cpu() / of_path, paths.graph_arc.cpu().long()
    ).chosen(whole)
    spans = iter(read_paths(found, graph, [0] * int(whole.sum())))
    return [next(spans) if fits else [] for fits in whole.tolist()]


def _scaled(bare: k2.Fsa, factor: float) -> k2.Fsa:
    """The same FsaVec with scores times a factor."""
    scaled = bare.clone()
    scaled.scores = factor * scaled.scores
    return scaled
