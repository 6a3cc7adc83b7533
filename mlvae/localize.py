"""Localisation: from a trained ML-VAE to tiers that say where each unit lies and if it is wrong.

Tiers that are added to a cut; those of units have one item a canonical unit, of equal times:

==================  ==================  ==========================================================
tier                symbol              score
==================  ==================  ==========================================================
``mlvae``           canonical unit      P(mispronounced or left out) over all paths
``mlvae_heard``     what was heard      the same
``mlvae_left_out``  canonical unit      P(left out) over all paths; the tier is there where the
                                        acceptor can leave units out
``mlvae_word``      canonical word      P(any of its units mispronounced or left out) over all
                                        paths; the tier is there where the cut has words, see
                                        :func:`mlvae.tiers.units_of_words`; where words lie,
                                        :func:`mlvae.tiers.word_spans` says
``mlvae_spoken``    what was heard      (none) the sounds of the best path, where it went through
                                        other pronunciations than the canonical ones; without
                                        what was left out
==================  ==================  ==========================================================

A unit that was left out has no length, or the one that an aligner of edges gives it; see
:func:`.refine_edges`. How canonical units come by what was found in another pronunciation,
:mod:`mlvae.pronunciations` says.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.supervision import AlignmentItem

from mlvae.align import Aligner
from mlvae.data.dataset import UnitDataset
from mlvae.data.units import UnitTable, canonical_units
from mlvae.em.estep import Decoding, EStep, search_compiler
from mlvae.em.passes import Gathered, Passes
from mlvae.em.stretches import Wanted
from mlvae.em.targets import items_of_spans
from mlvae.fsa import MAX_CELLS, UnitSpan
from mlvae.nn import MlVae
from mlvae.pronunciations import by_place, canonical_spans, places_of_slots, spoken_differs
from mlvae.refine_edges import refine_edges
from mlvae.tiers import (
    NOTHING_HEARD,
    SPOKEN,
    UNIT_TIERS,
    UNKNOWN_HEARD,
    has_tier,
    tier,
    units_of_words,
    with_tiers,
    word_spans,
)


def localize(
    model: MlVae,
    cuts: CutSet,
    dataset: UnitDataset,
    decoding: Decoding,
    device: torch.device,
    topology: str = "ml",
    edges: Aligner | None = None,
    mean_edges: bool = False,
    max_frames: int = 8000,
    passes: Passes | None = None,
    max_cells: int = MAX_CELLS,
) -> tuple[CutSet, list[str]]:
    """Add the tiers that the head of this module lists.

    What was heard differs from the canonical unit where the best path says "mispronounced".

    Args:
        model: trained.
        cuts: cuts with features and canonical units.
        dataset: gives features and units.
        decoding: how posteriors become scores.
        device: where to run.
        topology: acceptor to search.
        edges: aligns the units that were heard once more, for better edges; None does not.
        mean_edges: whether edges are their posterior means over all paths, fractions of a frame
            included, instead of the best path's.
        max_frames: largest batch, in frames with padding.
        passes: what an earlier run has done; None: nothing.
        max_cells: largest search, in cells (arcs x frames); a cut that is larger is searched in
            stretches, see :mod:`mlvae.em.stretches`.

    Returns:
        The cuts with the tiers, in their order, and the ids of those too short for their units (or,
        if they are long, that could not be aligned).

    Raises:
        ValueError: a cut's words do not fit its units; names the cut.
    """
    table = dataset.table
    words = {cut.id: units_of_words(cut) for cut in cuts}
    by_id = {cut.id: cut for cut in cuts}
    passes = passes or Passes()
    # By cut its tiers, the chances of its words, and what units its sounds are of.
    answers = Gathered({})
    compiler = search_compiler(model, topology, decoding)
    search = EStep(compiler, cuts, dataset, max_frames, max_cells=max_cells)
    wanted = Wanted(posteriors=True, edges=mean_edges, words=True)
    left = search.left(passes, answers, "localize")
    for name, answer in search.answers(model, decoding, device, wanted, batches=left):
        spans, unit = answer.spans, answer.posteriors
        if not spans:
            continue
        if answer.edges is not None:
            spans = spans_with_edges(spans, answer.edges)
        cut, wrong, left_out = by_id[name], unit.mispronounced + unit.deleted, unit.deleted
        sounds = None
        places = places_of_slots(cut, table)
        if places is not None:
            units_of_cut = table.ids(canonical_units(cut), cut.id)
            if spoken_differs(spans, places, units_of_cut):
                cut = _with_spoken(cut, spans, table)
                sounds = _units_of_sounds(spans, places)
            spans = canonical_spans(spans, places, units_of_cut)
            wrong, left_out = (by_place(p, places, len(spans)) for p in (wrong, left_out))
        # A sum over many paths may exceed 1 in the last digits.
        wrong, left_out = wrong.clamp(max=1.0), left_out.clamp(max=1.0)
        cut = _with_units(cut, spans, wrong, left_out if answer.can_skip else None, table)
        tiers = {t: tier(cut, t) for t in (*UNIT_TIERS, SPOKEN) if has_tier(cut, t)}
        of_words = (wrong if answer.words is None else answer.words).tolist()
        answers.value[name] = tiers, of_words, sounds
    found = []
    for cut in (cut for cut in cuts if cut.id in answers.value):
        tiers = answers.value[cut.id][0]
        items = {t: [AlignmentItem(*item) for item in tiers[t]] for t in tiers}
        found.append(with_tiers(cut, items))
    if edges is not None:
        sounds = {cut.id: answers.value[cut.id][2] for cut in found}
        found = refine_edges(found, dataset.table, edges, sounds, passes)
    found = [
        cut if words[cut.id] is None else _with_words(cut, words[cut.id], answers.value[cut.id][1])
        for cut in found
    ]
    return CutSet.from_cuts(found), [cut.id for cut in cuts if cut.id not in answers.value]


def spans_with_edges(spans: Sequence[UnitSpan], edges: torch.Tensor) -> list[UnitSpan]:
    """The units of a path with other edges, in order and without overlaps.

    Where the path has nothing between two units there is nothing between them; the ends of the
    utterance stay where they are. A unit that the path leaves out lies behind the one before it.

    Args:
        spans: of a best path.
        edges: float (n, 2), start and end of each slot in frames; see
            :func:`mlvae.fsa.expected_boundaries`.

    Returns:
        The spans of kind ``unit``; their ``start`` and ``end`` are floats.
    """
    spoken = [span for span in spans if span.kind == "unit" and not span.is_deletion]
    times = edges[[span.slot for span in spoken]].tolist()
    for here, there, a, b in zip(spoken[:-1], spoken[1:], times[:-1], times[1:]):
        if here.end == there.start:
            # Equal, but for paths on which not both are spoken, or which have silence there.
            a[1] = b[0] = (a[1] + b[0]) / 2
    if spoken and spoken[0].start == 0:
        times[0][0] = 0.0
    if spoken and spoken[-1].end == spans[-1].end:
        times[-1][1] = float(spans[-1].end)
    moved, last, times_of = [], 0.0, iter(times)
    for span in spans:
        if span.kind != "unit":
            continue
        start, end = (last, last) if span.is_deletion else next(times_of)
        start = max(start, last)
        last = max(end, start)
        moved.append(span._replace(start=start, end=last))
    return moved


def _with_spoken(cut: Cut, spans: Sequence[UnitSpan], table: UnitTable) -> Cut:
    """Add the tier of all sounds of a path."""
    spoken = [span for span in spans if span.kind == "unit" and not is_left_out(span)]
    symbols = [heard_symbol(span, table) for span in spoken]
    return with_tiers(cut, {SPOKEN: items_of_spans(cut, spoken, symbols, [None] * len(spoken))})


def _units_of_sounds(spans: Sequence[UnitSpan], places: Sequence[int]) -> list[int | None]:
    """The canonical unit of each sound of a path and of each unit that it leaves out, in order.

    A sound of no canonical unit has None; what is left out and is none is no sound at all.
    """
    units = [(span, places[span.slot]) for span in spans if span.kind == "unit"]
    return [
        None if place < 0 else place for span, place in units if place >= 0 or not is_left_out(span)
    ]


def _with_units(
    cut: Cut,
    spans: Sequence[UnitSpan],
    wrong: torch.Tensor,
    left_out: torch.Tensor | None,
    table: UnitTable,
) -> Cut:
    """Add the tiers of units; ``wrong`` and ``left_out`` are by ``slot`` of the spans."""
    units = [span for span in spans if span.kind == "unit"]
    slots = [span.slot for span in units]
    canonical = table.units(span.unit for span in units)
    heard = [heard_symbol(span, table) for span in units]
    scores = wrong[slots].tolist()
    tiers = {
        "mlvae": items_of_spans(cut, units, canonical, scores),
        "mlvae_heard": items_of_spans(cut, units, heard, scores),
    }
    if left_out is not None:
        tiers["mlvae_left_out"] = items_of_spans(cut, units, canonical, left_out[slots].tolist())
    return with_tiers(cut, tiers)


def _with_words(cut: Cut, word_of: Sequence[int], wrong: Sequence[float]) -> Cut:
    """Add the tier of words; ``wrong`` is by word."""
    spans = word_spans(tier(cut, "mlvae"), word_of)
    words = cut.supervisions[0].custom["words"]
    items = [
        AlignmentItem(symbol, *span, chance) for symbol, span, chance in zip(words, spans, wrong)
    ]
    return with_tiers(cut, {"mlvae_word": items})


def heard_symbol(span: UnitSpan, table: UnitTable) -> str:
    """What was heard in a unit's span, as ``mlvae_heard`` says it."""
    if is_left_out(span):
        return NOTHING_HEARD
    return UNKNOWN_HEARD if span.perceived < 0 else table.symbols[span.perceived]


def is_left_out(span: UnitSpan) -> bool:
    """Whether nothing was heard of a unit. Mean edges may leave one that was heard no length."""
    return span.is_deletion and span.perceived < 0
