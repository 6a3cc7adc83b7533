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

A unit that was left out has no length, or the one that an aligner gives it: what was heard is
aligned once more for better boundaries, by a model that sees little context; see
:func:`refine_boundaries`. How canonical units come by what was found in another pronunciation,
:mod:`mlvae.train.pronunciations` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.supervision import AlignmentItem

from mlvae.data.dataset import UnitDataset
from mlvae.data.units import UnitTable, canonical_units
from mlvae.fsa import MAX_CELLS, UnitSpan
from mlvae.nn import MlVae
from mlvae.systems.align import Aligner
from mlvae.tiers import (
    NOTHING_HEARD,
    SPOKEN,
    UNIT_TIERS,
    UNKNOWN_HEARD,
    has_tier,
    tier,
    units_of_words,
    with_tiers,
    with_units,
    word_spans,
)
from mlvae.train.estep import EStep, search_compiler
from mlvae.train.loop import Gathered, Passes
from mlvae.train.pronunciations import by_place, canonical_spans, places_of_slots, spoken_differs
from mlvae.train.settings import Decoding
from mlvae.train.stretches import Wanted
from mlvae.train.targets import items_of_spans


def localize(
    model: MlVae,
    cuts: CutSet,
    dataset: UnitDataset,
    decoding: Decoding,
    device: torch.device,
    topology: str = "ml",
    edges: Aligner | None = None,
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
        max_frames: largest batch, in frames with padding.
        passes: what an earlier run has done; None: nothing.
        max_cells: largest search, in cells (arcs x frames); a cut that is larger is searched in
            stretches, see :mod:`mlvae.train.stretches`.

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
    wanted = Wanted(posteriors=True, words=True)
    left = search.left(passes, answers, "localize")
    for name, answer in search.answers(model, decoding, device, wanted, batches=left):
        spans, unit = answer.spans, answer.posteriors
        if not spans:
            continue
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
        found = refine_boundaries(found, dataset.table, edges, sounds, passes)
    found = [
        cut if words[cut.id] is None else _with_words(cut, words[cut.id], answers.value[cut.id][1])
        for cut in found
    ]
    return CutSet.from_cuts(found), [cut.id for cut in cuts if cut.id not in answers.value]


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
    """Whether nothing was heard of a unit.

    A unit that the spoken pronunciation does not have has no length either, and is right.
    """
    return span.is_deletion and span.perceived < 0


def refine_boundaries(
    cuts: Sequence[Cut],
    table: UnitTable,
    edges: Aligner,
    units_of_sounds: Mapping[str, Sequence[int | None] | None] | None = None,
    passes: Passes | None = None,
) -> list[Cut]:
    """Give the units of ``mlvae`` the times that a forced alignment of what was heard has.

    A unit that was left out is aligned too, as the canonical one: it gets the shortest time that
    the aligner has for it, where in the text it should have been, as annotators mark it who start
    from an alignment of the text.

    Where it is not known what was heard there is nothing to align: such cuts stay as they are, as
    do those that are too short for the aligner. A unit that has no counterpart in what was spoken
    instead lies without length at the end of the one before it, as before.

    Args:
        cuts: with the tiers ``mlvae`` and ``mlvae_heard``.
        table: ids of the units.
        edges: the aligner.
        units_of_sounds: of each cut that has the tier ``mlvae_spoken``, by its id: which canonical
            unit each sound of that tier is, None for a sound of none, with the units that were left
            out in between, in order.
        passes: what an earlier run has done; None: nothing.

    Raises:
        ValueError: ``units_of_sounds`` does not fit the tiers of a cut; names it.
    """
    known = units_of_sounds or {}
    sounds = {cut.id: _sounds(cut, known.get(cut.id)) for cut in cuts}
    heard = [
        _with_sounds(cut, sounds[cut.id])
        for cut in cuts
        if any(not sound.left_out for sound in sounds[cut.id])
        and all(sound.symbol in table for sound in sounds[cut.id])
    ]
    if not heard:
        return list(cuts)
    aligned, _ = edges.align(CutSet.from_cuts(heard), UnitDataset(table), passes)
    times = {cut.id: tier(cut, "fa") for cut in aligned}
    return [_moved(cut, sounds[cut.id], times[cut.id]) if cut.id in times else cut for cut in cuts]


@dataclass(frozen=True)
class _Sound:
    """What is aligned for better edges.

    Attributes:
        symbol: what was heard; the canonical one of a unit that was left out.
        start: where it lies up to now, in seconds.
        duration: the same.
        unit: which of the cut's canonical units it is; None where it is none.
        left_out: whether nothing was heard of it.
    """

    symbol: str
    start: float
    duration: float
    unit: int | None
    left_out: bool


def _sounds(cut: Cut, units: Sequence[int | None] | None) -> list[_Sound]:
    """What was heard or left out, in order; ``units`` as in :func:`refine_boundaries`."""
    of_units = []
    for number, (unit, heard) in enumerate(zip(tier(cut, "mlvae"), tier(cut, "mlvae_heard"))):
        left_out = heard.symbol == NOTHING_HEARD
        symbol = unit.symbol if left_out else heard.symbol
        of_units.append(_Sound(symbol, unit.start, unit.duration, number, left_out))
    if not has_tier(cut, SPOKEN):
        return of_units
    left_out = [number is not None and of_units[number].left_out for number in units or ()]
    spoken = tier(cut, SPOKEN)
    if len(spoken) != left_out.count(False):
        raise ValueError(
            f"{cut.id}: {len(spoken)} sounds in {SPOKEN}, units are known of "
            f"{left_out.count(False)}"
        )
    items = iter(spoken)
    return [
        of_units[number] if skipped else _sound_of(next(items), number)
        for number, skipped in zip(units or (), left_out)
    ]


def _sound_of(item: AlignmentItem, unit: int | None) -> _Sound:
    return _Sound(item.symbol, item.start, item.duration, unit, False)


def _with_sounds(cut: Cut, sounds: Sequence[_Sound]) -> Cut:
    """A copy whose canonical units are the sounds, in their words; ``fa`` is where they lie."""
    word_of = units_of_words(cut)
    words = None
    if word_of is not None:
        # A sound of no canonical unit goes with what was before it.
        words, last = [], 0
        for sound in sounds:
            last = last if sound.unit is None else word_of[sound.unit]
            words.append(last)
    copy = with_units(cut, [sound.symbol for sound in sounds], words)
    items = [AlignmentItem(sound.symbol, sound.start, sound.duration) for sound in sounds]
    return with_tiers(copy, {"fa": items})


def _moved(cut: Cut, sounds: Sequence[_Sound], times: Sequence[AlignmentItem]) -> Cut:
    """A cut whose units have the times of their sounds; one without has no length."""
    of_unit = {sound.unit: time for sound, time in zip(sounds, times)}
    places: list[tuple[float, float]] = []
    last = times[0].start
    for number in range(len(tier(cut, "mlvae"))):
        time = of_unit.get(number)
        places.append((last, 0.0) if time is None else (time.start, time.duration))
        last = last if time is None else time.end
    moved = {name: _at(tier(cut, name), places) for name in UNIT_TIERS if has_tier(cut, name)}
    if has_tier(cut, SPOKEN):
        spoken = [time for sound, time in zip(sounds, times) if not sound.left_out]
        moved[SPOKEN] = _at(tier(cut, SPOKEN), [(time.start, time.duration) for time in spoken])
    return with_tiers(cut, moved)


def _at(
    items: Sequence[AlignmentItem], places: Sequence[tuple[float, float]]
) -> list[AlignmentItem]:
    """Items with other starts and durations."""
    return [AlignmentItem(item.symbol, *place, item.score) for item, place in zip(items, places)]
