"""Posteriors of units, words and boundaries: sums over all paths of a lattice.

Units of one word are not independent: the probabilities of its units must not be multiplied. A
word's probability is that of all paths on which one of its units is mispronounced or deleted, or
one minus that of the paths on which none is.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

import k2
import numpy as np
import torch

from .checks import checked_beam, checked_bool, checked_integers, listed, shown
from .emissions import Emissions
from .forward_backward import ForwardBackward
from .k2_private import index_arcs
from .layout import DELETED_ATTRIBUTES
from .search import (
    POSTERIOR_BEAM,
    arc_row_splits,
    lattices,
    long_enough,
    num_arcs_and_states,
    prepared,
    slot_tables,
    stretches,
)

#: What sums are made of at once, in states x (frames + 1); kept of it are a few bytes each.
TOGETHER = 6_000_000


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
            that is deleted altogether counts once for each of its pronunciations.
        mispronounced: (n,), P(used and mispronounced); divide by ``used`` for the conditional.
        deleted: (n,), P(used and deleted); 0 without deletion arcs. It is no part of
            ``mispronounced``.
        perceived: (n, N), P(used and spoken as that unit); rows sum to ``used`` minus ``deleted``,
            and for topology ``ml`` to less, as its mispronounced branch cannot say what was spoken.
        occupancy: (T, n) on request, P(frame belongs to slot); rows sum to 1 minus P(silence) and
            P(insertion).
        frame_mispronounced: (T,) on request, P(frame belongs to a mispronounced unit).
    """

    unit: torch.Tensor
    word: torch.Tensor
    used: torch.Tensor
    mispronounced: torch.Tensor
    deleted: torch.Tensor
    perceived: torch.Tensor
    occupancy: torch.Tensor | None = None
    frame_mispronounced: torch.Tensor | None = None


def posteriors(
    graphs: k2.Fsa, emissions: Emissions, frames: bool = False, output_beam: float = POSTERIOR_BEAM
) -> list[UnitPosteriors]:
    """P(mispronounced) and P(deleted) of every unit, by forward-backward over all paths.

    Args:
        graphs: as in :func:`best_path`.
        emissions: as in :func:`best_path`.
        frames: whether frame-level posteriors are wanted too.
        output_beam: paths whose best completion is worse than the best path by more than this
            natural-log score, above 0, may be left out. Where rounding empties the lattice of an
            utterance, it is searched again with a wider one. On CPU all paths count, unless frames
            are wanted: there, sums need no lattice; see :mod:`.forward_backward`.

    Returns:
        One :class:`UnitPosteriors` an utterance, in the caller's order.

    Raises:
        ValueError: as :func:`best_path`.
    """
    beam, frames = checked_beam(output_beam), checked_bool(frames, "frames")
    graphs, bare, short = prepared(graphs, emissions)
    if frames or bare.device.type != "cpu":
        arcs = arc_posteriors(bare, emissions, short, beam)
    else:
        arcs = _taken(graphs, bare, emissions, short, beam)
    results = _unit_posteriors(graphs, arcs, short, emissions.layout.num_units)
    if frames:
        where, wrong = (getattr(graphs, n).cpu().long() for n in ("unit_pos", "is_mispronounced"))
        for index, (result, mine) in enumerate(zip(results, arcs)):
            _add_frames(result, where, wrong, mine, int(emissions.num_frames[index]))
    return results


def word_posteriors(
    graphs: k2.Fsa,
    emissions: Emissions,
    words: Sequence[Sequence[int]] | None = None,
    output_beam: float = POSTERIOR_BEAM,
) -> list[torch.Tensor]:
    """P(some unit of the word was mispronounced or deleted), for every word.

    With alternative pronunciations it is P(no pronunciation of the word was spoken as it is). The
    time grows with the largest number of words: one forward pass over the lattice for each.

    Args:
        graphs: as in :func:`mlvae.fsa.best_path`.
        emissions: as in :func:`mlvae.fsa.best_path`.
        words: by utterance the word of each of its slots, from 0 on without a gap; None: as the
            graphs were compiled, where every unit of a plain list is a word of its own.
        output_beam: as in :func:`mlvae.fsa.posteriors`.

    Returns:
        By utterance, in the caller's order, float64 (number of words,) on CPU; empty for those that
        are too short.

    Raises:
        ValueError: as :func:`mlvae.fsa.best_path`, or ``words`` does not fit the graphs.
    """
    beam = checked_beam(output_beam)
    graphs, bare, short = prepared(graphs, emissions)
    broken, num_words = _broken_words(graphs, words, emissions.names)
    order = emissions.order.tolist()
    results = [
        torch.zeros(0 if index in short else count, dtype=torch.float64)
        for index, count in enumerate(num_words)
    ]
    with torch.no_grad():
        positions = long_enough(emissions, short)
        for some, lattice in lattices(bare, emissions, positions, beam):
            indices = [order[position] for position in some]
            wrong = _of_lattice(lattice, broken, max(num_words[index] for index in indices))
            for index, row in zip(indices, wrong):
                results[index] = row[: num_words[index]]
    return results


def expected_boundaries(
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
    graphs, bare, short = prepared(graphs, emissions)
    unit_pos, is_start = graphs.unit_pos.cpu().long(), graphs.is_start.cpu() != 0
    every = arc_posteriors(bare, emissions, short, beam)
    results = []
    for index, ((unit, _), arcs) in enumerate(zip(slot_tables(graphs), every)):
        if index in short:
            results.append(torch.zeros(0, 2, dtype=torch.float64))
            continue
        where, amount, time = unit_pos[arcs.graph_arc], arcs.posterior, arcs.frame.double()
        inside = where >= 0
        starts = inside & is_start[arcs.graph_arc]
        zeros = torch.zeros(len(unit), dtype=torch.float64)
        spoken = zeros.index_add(0, where[starts], amount[starts])
        start = zeros.index_add(0, where[starts], (amount * time)[starts]) / spoken
        length = zeros.index_add(0, where[inside], amount[inside]) / spoken
        results.append(torch.stack([start, start + length], dim=1))
    return results


@dataclass
class TakenArcs:
    """Arcs of the graphs that the paths of one utterance take, on CPU.

    Attributes:
        graph_arc: int64 (n,), which arcs; one comes once a frame, or once for all.
        posterior: float64 (n,), P(a path takes the arc then), or the sum over frames.
        frame: int32 (n,); None: for all frames.
    """

    graph_arc: torch.Tensor
    posterior: torch.Tensor
    frame: torch.Tensor | None = None


def arc_posteriors(
    bare: k2.Fsa, emissions: Emissions, short: Set[int], beam: float
) -> list[TakenArcs]:
    """Posteriors of the arcs of each utterance's lattice by frame, in the caller's order.

    An utterance that is too ``short``, or to which only paths of score -inf are left, has no arcs.
    """
    none = torch.empty(0, dtype=torch.int64)
    results = [TakenArcs(none, none.double(), none.int())] * len(emissions.order)
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
                results[order[position]] = TakenArcs(graph_arc[mine], weight[mine], frame[mine])
    return results


def _taken(
    graphs: k2.Fsa, bare: k2.Fsa, emissions: Emissions, short: Set[int], beam: float
) -> list[TakenArcs]:
    """The arcs of each utterance that enter or delete units, in the caller's order; on CPU.

    Arguments and what is left without arcs as in :func:`arc_posteriors`.
    """
    none = torch.empty(0, dtype=torch.int64)
    results = [TakenArcs(none, none.double())] * len(emissions.order)
    order = emissions.order.tolist()
    beyond: list[int] = []
    for some in stretches(bare, emissions, long_enough(emissions, short), TOGETHER):
        arcs, which = index_arcs(bare.arcs, torch.tensor(some, dtype=torch.int32))
        graph_arc = bare.graph_arc[which.long()].long()
        chosen = _enters_or_deletes(graphs, graph_arc)
        num_arcs, num_states = (sizes[some] for sizes in num_arcs_and_states(bare))
        algorithm = ForwardBackward(arcs.values().numpy(), num_arcs, num_states)
        scores = [emissions.rows(position) for position in some]
        found, known = algorithm.occupancies(scores, chosen.numpy())
        posterior, ends = torch.from_numpy(found), np.cumsum(num_arcs).tolist()
        for position, begin, end in zip(some, [0, *ends], ends):
            mine = chosen[begin:end].nonzero().flatten() + begin
            results[order[position]] = TakenArcs(graph_arc[mine], posterior[mine])
        beyond += [order[position] for position, is_known in zip(some, known) if not is_known]
    if beyond:
        others = set(range(len(order))) - set(beyond)
        every = arc_posteriors(bare, emissions, others, beam)
        for index in beyond:
            results[index] = every[index]
    return results


def _enters_or_deletes(graphs: k2.Fsa, graph_arc: torch.Tensor) -> torch.Tensor:
    """Which arcs enter a slot or delete units, bool; each path does it once for every slot."""
    some = (graphs.is_start != 0) | (graphs.num_deleted != 0)
    return some.cpu()[graph_arc]


def _unit_posteriors(
    graphs: k2.Fsa, every: Sequence[TakenArcs], short: Set[int], num_units: int
) -> list[UnitPosteriors]:
    """Sum posteriors of arcs by slot; those that are too ``short`` have no slots."""
    here = torch.cat([arcs.graph_arc for arcs in every])
    some = _enters_or_deletes(graphs, here)  # a small part of a lattice
    here, entering = here[some], torch.cat([arcs.posterior for arcs in every])[some].numpy()
    tables = slot_tables(graphs)
    sizes = [len(unit) for unit, _ in tables]
    num_slots = sum(sizes)
    first = np.cumsum(sizes) - sizes
    utterance = np.repeat(np.arange(len(every)), [len(arcs.graph_arc) for arcs in every])
    offset = first[utterance[some.numpy()]]

    def of_arcs(name: str) -> np.ndarray:
        return getattr(graphs, name).cpu()[here].numpy()

    def total(slot: np.ndarray, weight: np.ndarray) -> np.ndarray:
        kept = slot >= 0
        return np.bincount((slot + offset)[kept], weight[kept], num_slots).astype(np.float64)

    slot, perceived = of_arcs("unit_pos"), of_arcs("perceived")
    deleted = sum(total(of_arcs(name), entering) for name in DELETED_ATTRIBUTES)
    known = (slot >= 0) & (perceived >= 0)
    cell = (slot + offset)[known] * num_units + perceived[known]
    by_unit = np.bincount(cell, entering[known], num_slots * num_units).astype(np.float64)
    columns = {
        "used": total(slot, entering) + deleted,
        "mispronounced": total(slot, entering * of_arcs("is_mispronounced")),
        "deleted": deleted,
        "perceived": by_unit.reshape(num_slots, num_units),
    }
    parts = {name: torch.from_numpy(values).split(sizes) for name, values in columns.items()}
    results = []
    for index, (unit, word) in enumerate(tables):
        found = {"unit": unit, "word": word}
        found.update((name, values[index]) for name, values in parts.items())
        if index in short:
            found = {name: values[:0] for name, values in found.items()}
        results.append(UnitPosteriors(**found))
    return results


def _add_frames(
    result: UnitPosteriors,
    unit_pos: torch.Tensor,
    wrong: torch.Tensor,
    arcs: TakenArcs,
    num_frames: int,
) -> None:
    """Sum posteriors of the arcs of a lattice by frame; the graphs' attributes are int64."""
    # Column 0 takes the arcs of no slot, and the last row final arcs.
    height, width = num_frames + 1, len(result.unit) + 1
    frame = arcs.frame.long()
    cell = (unit_pos[arcs.graph_arc] + 1).add_(frame, alpha=width)
    cells = torch.zeros(height * width, dtype=torch.float64).index_add_(0, cell, arcs.posterior)
    result.occupancy = cells.view(height, width)[:-1, 1:].contiguous()
    weight = arcs.posterior * wrong[arcs.graph_arc]
    by_frame = torch.zeros(height, dtype=torch.float64).index_add_(0, frame, weight)
    result.frame_mispronounced = by_frame[:-1]


def _of_lattice(lattice: k2.Fsa, broken: torch.Tensor, num_words: int) -> torch.Tensor:
    """P(wrong) of each word of each utterance of a lattice, float64 (B, num_words) on CPU."""
    everything = lattice.get_tot_scores(log_semiring=True, use_double_scores=True)
    broken = broken.to(lattice.device)[:, lattice.graph_arc.long()]
    scores, right = lattice.scores.clone(), []
    for word in range(num_words):
        lattice.scores = scores.masked_fill((broken == word).any(0), -torch.inf)
        right.append(lattice.get_tot_scores(log_semiring=True, use_double_scores=True))
    # 1 - p without losing what is small; rounding may leave more than everything.
    share = (torch.stack(right, dim=1) - everything.unsqueeze(1)).cpu().clamp(max=0.0)
    return torch.expm1(share).abs()


def _broken_words(
    graphs: k2.Fsa, words: Sequence[Sequence[int]] | None, names: Sequence[str]
) -> tuple[torch.Tensor, list[int]]:
    """What each graph arc says of words.

    Returns:
        int64 (1 + MAX_DELETIONS, num_arcs) on CPU: the words that are not right on a path with this
        arc, -1 for none; and by utterance the number of words.
    """
    used = ("unit_pos", "is_mispronounced", *DELETED_ATTRIBUTES)
    slot, wrong, *deleted = (getattr(graphs, name).cpu().long() for name in used)
    none = torch.full_like(slot, -1)
    slots = torch.stack([torch.where(wrong == 1, slot, none), *deleted])
    broken = torch.full_like(slots, -1)
    splits = arc_row_splits(graphs).tolist()
    if words is not None:
        words = _checked_batch(words, len(splits) - 1)
    num_words = []
    for index, (_, word_of) in enumerate(slot_tables(graphs)):
        mine = slice(splits[index], splits[index + 1])
        if words is not None:
            word_of = _checked(words[index], len(word_of), names[index])
        num_words.append(int(word_of.max()) + 1)
        found = slots[:, mine]
        broken[:, mine] = torch.where(found >= 0, word_of[found.clamp(min=0)], -1)
    return broken, num_words


def _checked_batch(words: object, batch: int) -> list:
    try:
        found = listed(words)
    except TypeError:
        raise ValueError(f"words must be a list for each utterance, not {shown(words)}") from None
    if len(found) != batch:
        raise ValueError(f"words of {len(found)} utterances for {batch} graphs")
    return found


def _checked(words: Sequence[int], num_slots: int, name: str) -> torch.Tensor:
    found = checked_integers(words, f"{name}: words")
    if len(found) != num_slots:
        raise ValueError(f"{name}: words of {len(found)} slots, but it has {num_slots}")
    if not np.array_equal(np.unique(found), np.arange(found.max() + 1)):
        raise ValueError(
            f"{name}: words must be 0, 1, 2, ... without a gap: {shown(found.tolist())}"
        )
    return torch.from_numpy(found)
