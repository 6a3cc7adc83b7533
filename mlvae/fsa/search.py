"""Best paths, posteriors and total scores of acceptors over emissions, by k2 intersection."""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass

import k2
import torch

from .checks import checked_beam, checked_bool
from .emissions import Emissions
from .lattices import arc_row_splits, lattices, long_enough, prepared, short_ones
from .layout import ARC_ATTRIBUTES, SKIPPED_ATTRIBUTES, SLOT_ATTRIBUTES
from .paths import Paths, best_paths, warn_of
from .spans import PathArcs, UnitSpan, spans_of_paths

POSTERIOR_BEAM = 15.0


@dataclass
class UnitPosteriors:
    """What the lattice says of each unit of one utterance; float64 on CPU.

    All arrays are indexed by slot: with plain unit lists the position of the unit; with alternative
    pronunciations, units counted over words and pronunciations as in the graph's ``unit_pos``.
    An utterance that is too short has empty arrays.

    Attributes:
        unit: int64 (n,), the canonical unit of each slot.
        word: int64 (n,), its word.
        used: (n,), P(the slot's pronunciation is the one spoken); 1 without alternatives. A word
            that is left out altogether counts once for each of its pronunciations.
        mispronounced: (n,), P(used and mispronounced); divide by ``used`` for the conditional.
        deleted: (n,), P(used and left out); 0 without skip arcs. It is no part of
            ``mispronounced``.
        heard: (n, N), P(used and spoken as that unit); rows sum to ``used`` minus ``deleted``, and
            for topology ``ml`` to less, as its mispronounced branch cannot say what was spoken.
        occupancy: (T, n) on request, P(frame belongs to slot); rows sum to 1 minus P(silence) and
            P(filler).
        frame_mispronounced: (T,) on request, P(frame belongs to a mispronounced unit).
    """

    unit: torch.Tensor
    word: torch.Tensor
    used: torch.Tensor
    mispronounced: torch.Tensor
    deleted: torch.Tensor
    heard: torch.Tensor
    occupancy: torch.Tensor | None = None
    frame_mispronounced: torch.Tensor | None = None


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
    graphs, bare = prepared(graphs, emissions)
    short = short_ones(graphs, emissions)
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
        state`` of the unit that was heard, or ``num_units * states_per_unit`` for silence; -1 where
        the path cannot say what was spoken (the mispronounced branch of topology ``ml``, fillers),
        in padding, and throughout utterances that :func:`best_path` has no spans for.

    Raises:
        ValueError: as :func:`best_path`.
    """
    graphs, bare = prepared(graphs, emissions)
    short = short_ones(graphs, emissions)
    warn_of(short, emissions)
    layout = emissions.layout
    width = int(emissions.num_frames.max())
    result = torch.full((len(emissions.order), width), -1, dtype=torch.int64)
    positions, paths = best_paths(bare, emissions, short)
    emitting = paths.label != -1
    index = emissions.order[positions][paths.row[emitting]]
    result[index, paths.frame[emitting]] = layout.column_of_label(paths.label[emitting].long())
    return result


def posteriors(
    graphs: k2.Fsa, emissions: Emissions, frames: bool = False, output_beam: float = POSTERIOR_BEAM
) -> list[UnitPosteriors]:
    """P(mispronounced) and P(deleted) of every unit, by forward-backward over all paths.

    Args:
        graphs: as in :func:`best_path`.
        emissions: as in :func:`best_path`.
        frames: whether frame-level posteriors are wanted too.
        output_beam: paths whose best completion is worse than the best path by more than this
            natural-log score, above 0, are left out. Where rounding empties the lattice of an
            utterance, it is searched again with a wider one.

    Returns:
        One :class:`UnitPosteriors` an utterance, in the caller's order.

    Raises:
        ValueError: as :func:`best_path`.
    """
    beam, frames = checked_beam(output_beam), checked_bool(frames, "frames")
    graphs, bare = prepared(graphs, emissions)
    short = short_ones(graphs, emissions)
    lattice_arcs = arc_posteriors(bare, emissions, short, beam)
    attribute = {name: getattr(graphs, name).cpu().long() for name in ARC_ATTRIBUTES}
    graph_splits = arc_row_splits(graphs)
    results = []
    for index, arcs in enumerate(lattice_arcs):
        mine = slice(int(graph_splits[index]), int(graph_splits[index + 1]))
        unit, word = _slot_table(attribute, mine)
        if index in short:
            unit, word = unit[:0], word[:0]
        results.append(
            _unit_posteriors(
                unit,
                word,
                attribute,
                arcs,
                emissions.layout.num_units,
                int(emissions.num_frames[index]) if frames else None,
            )
        )
    return results


@dataclass
class LatticeArcs:
    """Arcs of one utterance's lattice, on CPU.

    Attributes:
        graph_arc: int64 (n,), the arc of the graphs behind each.
        frame: int32 (n,).
        posterior: float64 (n,), P(a path has the arc).
    """

    graph_arc: torch.Tensor
    frame: torch.Tensor
    posterior: torch.Tensor


def arc_posteriors(
    bare: k2.Fsa, emissions: Emissions, short: Set[int], beam: float
) -> list[LatticeArcs]:
    """Posteriors of the arcs of each utterance's lattice, in the caller's order.

    An utterance that is too ``short``, or to which only paths of score -inf are left, has no arcs.
    """
    none = torch.empty(0, dtype=torch.int64)
    results = [LatticeArcs(none, none.int(), none.double())] * len(emissions.order)
    order = emissions.order.tolist()
    with torch.no_grad():
        positions = long_enough(emissions, short)
        for some, lattice in lattices(bare, emissions, positions, beam, frames=True):
            weight = lattice.get_arc_post(use_double_scores=True, log_semiring=True).exp_().cpu()
            graph_arc, frame = lattice.graph_arc.cpu().long(), lattice.frame.cpu()
            splits = arc_row_splits(lattice).tolist()
            del lattice
            for position, begin, end in zip(some, splits[:-1], splits[1:]):
                mine = slice(begin, end)
                results[order[position]] = LatticeArcs(graph_arc[mine], frame[mine], weight[mine])
    return results


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
        output_beam: as in :func:`posteriors`; only for the log semiring.

    Returns:
        float32 (B,) in the caller's order, on the emissions' device, differentiable with respect to
        what the emissions were made of; -inf for utterances that are too short.

    Raises:
        ValueError: as :func:`best_path`.
    """
    beam, log_semiring = checked_beam(output_beam), checked_bool(log_semiring, "log_semiring")
    graphs, bare = prepared(graphs, emissions)
    short = short_ones(graphs, emissions)
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
    score = (
        dense[row, paths.label.to(device).long() + 1] + graphs.scores[paths.graph_arc.to(device)]
    )
    totals = torch.zeros(len(positions), dtype=torch.float64, device=device)
    return positions, totals.index_add(0, paths.row.to(device), score.double())


def read_paths(paths: Paths, graphs: k2.Fsa, graph_of: list[int]) -> list[list[UnitSpan]]:
    """Spans of each of ``paths``, the i-th of which is one of graph ``graph_of[i]``."""
    arcs = PathArcs(
        path=paths.row.numpy(),
        label=paths.label.numpy(),
        score=paths.score.numpy(),
        graph_arc=paths.graph_arc.numpy(),
        attributes={name: getattr(graphs, name).cpu().numpy() for name in ARC_ATTRIBUTES},
    )
    units, words = [[]] * len(graph_of), [[]] * len(graph_of)
    if arcs["num_skipped"].any():
        attribute = {name: getattr(graphs, name).cpu().long() for name in SLOT_ATTRIBUTES}
        splits = arc_row_splits(graphs).tolist()
        for path, index in enumerate(graph_of):
            mine = slice(splits[index], splits[index + 1])
            units[path], words[path] = _slot_table(attribute, mine)
    return spans_of_paths(arcs, len(graph_of), units, words)


def _slot_table(attribute: dict[str, torch.Tensor], arcs: slice) -> tuple[torch.Tensor, ...]:
    """Unit and word of each slot of one graph, from its arcs."""
    slot = attribute["unit_pos"][arcs]
    num_slots = int(slot.max()) + 1
    inside = slot >= 0
    unit = torch.zeros(num_slots, dtype=torch.int64)
    word = torch.zeros(num_slots, dtype=torch.int64)
    unit[slot[inside]] = attribute["unit"][arcs][inside]
    word[slot[inside]] = attribute["word_pos"][arcs][inside]
    return unit, word


def _unit_posteriors(
    unit: torch.Tensor,
    word: torch.Tensor,
    attribute: dict[str, torch.Tensor],
    arcs: LatticeArcs,
    num_units: int,
    num_frames: int | None,
) -> UnitPosteriors:
    """Sum arc posteriors of one utterance by slot and, where wanted, by frame."""
    num_slots = len(unit)
    graph_arc, weight, frame = arcs.graph_arc, arcs.posterior, arcs.frame

    def total(slot, weight):
        kept = slot >= 0
        zeros = torch.zeros(num_slots, dtype=torch.float64)
        return zeros.index_add(0, slot[kept], weight[kept])

    # Each path enters a slot once, through one start arc, or leaves it out on one arc. These are a
    # small part of a lattice.
    some = ((attribute["is_start"] != 0) | (attribute["num_skipped"] != 0))[graph_arc]
    here, entering = graph_arc[some], weight[some]
    slot, heard = attribute["unit_pos"][here], attribute["heard"][here]
    deleted = sum(total(attribute[name][here], entering) for name in SKIPPED_ATTRIBUTES)
    known = (slot >= 0) & (heard >= 0)
    by_unit = torch.zeros(num_slots * num_units, dtype=torch.float64)
    by_unit.index_add_(0, slot[known] * num_units + heard[known], entering[known])
    result = UnitPosteriors(
        unit=unit,
        word=word,
        used=total(slot, entering) + deleted,
        mispronounced=total(slot, entering * attribute["is_mispronounced"][here]),
        deleted=deleted,
        heard=by_unit.view(num_slots, num_units),
    )
    if num_frames is not None:
        # Column 0 takes the arcs of no slot, and the last row final arcs.
        height, width = num_frames + 1, num_slots + 1
        frame = frame.long()
        cell = (attribute["unit_pos"][graph_arc] + 1).add_(frame, alpha=width)
        cells = torch.zeros(height * width, dtype=torch.float64).index_add_(0, cell, weight)
        result.occupancy = cells.view(height, width)[:-1, 1:].contiguous()
        weight = weight * attribute["is_mispronounced"][graph_arc]
        by_frame = torch.zeros(height, dtype=torch.float64).index_add_(0, frame, weight)
        result.frame_mispronounced = by_frame[:-1]
    return result
