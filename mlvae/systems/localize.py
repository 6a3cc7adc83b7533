"""Localisation: from a trained ML-VAE to tiers that say where each unit lies and if it is wrong.

Tiers that are added to a cut; those of units have one item per canonical unit, of equal times:

==================  ==================  ==========================================================
tier                symbol              score
==================  ==================  ==========================================================
``mlvae``           canonical unit      P(mispronounced or deleted) over all paths
``mlvae_perceived`` perceived unit      the same
``mlvae_deleted``   canonical unit      P(deleted) over all paths; the tier is there where the
                                        acceptor has deletions
``mlvae_word``      canonical word      P(any of its units mispronounced or deleted) over all
                                        paths; the tier is there where the cut has words, see
                                        :func:`mlvae.tiers.units_of_words`; where words lie,
                                        :func:`mlvae.tiers.word_spans` says
``mlvae_variant``   perceived unit      (none) the sounds of the best path, where it went through
                                        other pronunciations than the canonical ones; without
                                        deletions
==================  ==================  ==========================================================

Where there is a judge (:mod:`mlvae.systems.judge`), probabilities are its own.

A unit that was left out has no length, or the one that an aligner gives it: what was perceived is
aligned once more for better boundaries, by a model that sees little context; see
:func:`refine_boundaries`. Boundaries that are late by what was measured in spliced recordings are
moved (:mod:`mlvae.train.splices`). How canonical units come by what was found in another
pronunciation, :mod:`mlvae.train.pronunciations` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.supervision import AlignmentItem

from mlvae.data.dataset import UnitDataset
from mlvae.data.units import UnitTable, canonical_units
from mlvae.fsa import UnitSpan
from mlvae.nn import MlVae
from mlvae.systems.align import Aligner
from mlvae.systems.judge import Judge, SearchedModel, Verdict, measure, wrong_and_deleted
from mlvae.tiers import (
    DELETED,
    UNIT_TIERS,
    UNKNOWN,
    VARIANT,
    WORD_TIER,
    has_tier,
    tier,
    units_of_words,
    with_tiers,
    with_units,
    word_items,
)
from mlvae.train.estep import EStep, search_compiler
from mlvae.train.loop import Gathered, Passes
from mlvae.train.pronunciations import (
    canonical_spans,
    positions_of_slots,
    variant_differs,
)
from mlvae.train.splices import Finder, Lateness
from mlvae.train.stretches import Answer, Wanted
from mlvae.train.targets import items_of_spans

#: Largest batch, in frames with padding: memory grows with it, or with one longer recording.
BATCH_FRAMES = 4000

#: Of a cut its tiers, P(mispronounced) of its words, and the canonical unit of each sound.
_CutAnswer = tuple[dict, list[float], "list | None"]


@dataclass(frozen=True)
class TrainedMlVae(SearchedModel):
    """A trained ML-VAE that is ready to answer."""

    #: Aligns what was perceived once more, for better boundaries; None: those of the best path.
    boundary_aligner: Aligner | None = None
    #: Whether only boundaries of units that were left out are the aligner's.
    only_left_out: bool = False
    #: How late boundaries are, by who finds them; whoever is not there is taken to be in time.
    late: Mapping[Finder, Lateness] = field(default_factory=dict)
    #: Says how likely units are mispronounced; cuts then need the tier ``fa``. None: what the
    #: lattice says.
    judge: Judge | None = None

    def localize(
        self,
        cuts: CutSet,
        passes: Passes | None = None,
        max_frames: int = BATCH_FRAMES,
    ) -> tuple[CutSet, list[str]]:
        """Add the tiers that the head of this module lists.

        What was perceived differs from the canonical unit where the best path says "mispronounced".
        A judge decides by its P(mispronounced), above one half; the path is then the best one on
        which these units are mispronounced or deleted and no others.

        Args:
            cuts: cuts with features and canonical units; recordings of a speaker that are here
                together are adapted to and judged together.
            passes: what an earlier run has done; None: nothing.
            max_frames: largest batch, in frames with padding.

        Returns:
            The cuts with the tiers, in their order, and the ids of those too short for their units
            (or, if they are long, that could not be aligned).

        Raises:
            ValueError: a cut's words do not fit its units; names the cut.
        """
        words = {cut.id: units_of_words(cut) for cut in cuts}
        passes = passes or Passes()
        by_id = {cut.id: cut for cut in cuts}
        compiler = search_compiler(self.model, self.topology, self.decoding)
        dataset = self.adapted_to(cuts).dataset
        search = EStep(compiler, cuts, dataset, max_frames)
        answers = (self._searched if self.judge is None else self._judged)(search, passes, by_id)
        found = [
            with_tiers(
                cut,
                {
                    name: [AlignmentItem(*item) for item in items]
                    for name, items in answers[cut.id][0].items()
                },
            )
            for cut in cuts
            if cut.id in answers
        ]
        sounds = {cut.id: answers[cut.id][2] for cut in found}
        if "path" in self.late:
            found = in_time(found, self.late["path"], sounds)
        if self.boundary_aligner is not None:
            late = self.late.get("aligner")
            found = refine_boundaries(
                found, self.dataset, self.boundary_aligner, sounds, passes, self.only_left_out, late
            )
        found = [
            cut if words[cut.id] is None else _with_words(cut, words[cut.id], answers[cut.id][1])
            for cut in found
        ]
        return CutSet.from_cuts(found), [cut.id for cut in cuts if cut.id not in answers]

    def _searched(
        self, search: EStep, passes: Passes, cuts: Mapping[str, Cut]
    ) -> dict[str, _CutAnswer]:
        """Answers by cut id, of the lattice alone."""
        gathered = Gathered({})
        left = search.left(passes, gathered, "localize")
        wanted = Wanted(posteriors=True, words=True)
        for cut_id, answer in search.answers(self.model, self.decoding, self.device, wanted, left):
            if answer.spans:
                cut, table = cuts[cut_id], self.dataset.table
                gathered.value[cut_id] = _answer(
                    cut, answer, *wrong_and_deleted(cut, answer, table), table
                )
        return gathered.value

    def _judged(
        self, search: EStep, passes: Passes, cuts: Mapping[str, Cut]
    ) -> dict[str, _CutAnswer]:
        """Answers by cut id: units are measured, judged together, and then searched once more."""
        judge, table = self.judge, self.dataset.table
        networks = self.model, self.decoding, self.device
        measured = Gathered({})
        wanted = Wanted(paths=False, posteriors=True, log_posteriors=True)
        left = search.left(passes, measured, "localize")
        for cut_id, answer in search.answers(*networks, wanted, left, keep=True):
            if answer.posteriors is None or not bool((answer.posteriors.used > 0).any()):
                continue  # it has no path
            wrong, deleted = wrong_and_deleted(cuts[cut_id], answer, table)
            if isinstance(self.model, MlVae):  # the estimator says nothing else
                judge.estimator.known[cut_id] = answer.log_posteriors
            found = measure([cuts[cut_id]], {cut_id: wrong}, judge.models)
            judge.estimator.known.pop(cut_id, None)
            deletable = None if deleted is None else deleted.tolist()
            measured.value[cut_id] = wrong.tolist(), deletable, found.tolist()
        some = [cut for cut_id, cut in cuts.items() if cut_id in measured.value]
        measures = [np.array(measured.value[cut.id][2]) for cut in some]
        verdicts = judge.judge(some, np.concatenate(measures)) if some else {}
        decided = {cut.id: _decisions(cut, verdicts[cut.id], table) for cut in some}
        gathered = Gathered({})
        left = search.left(passes, gathered, "localize, what was decided")
        for cut_id, answer in search.answers(*networks, Wanted(), left, decided):
            if answer.spans:
                wrong, deleted = (
                    p and torch.tensor(p, dtype=torch.float64) for p in measured.value[cut_id][:2]
                )
                found = _answer(cuts[cut_id], answer, wrong, deleted, table)
                gathered.value[cut_id] = _with_verdict(found, verdicts[cut_id])
        return gathered.value


def _answer(
    cut: Cut,
    answer: Answer,
    wrong: torch.Tensor,
    deleted: torch.Tensor | None,
    table: UnitTable,
) -> _CutAnswer:
    """What a search says of a cut."""
    spans, sounds, variant = answer.spans, None, {}
    positions = positions_of_slots(cut, table)
    if positions is not None:
        units_of_cut = table.ids(canonical_units(cut), cut.id)
        if variant_differs(spans, positions, units_of_cut):
            variant = {VARIANT: _variant(cut, spans, table)}
            sounds = _units_of_sounds(spans, positions)
        spans = canonical_spans(spans, positions, units_of_cut)
    tiers = {**_unit_tiers(cut, spans, wrong, deleted, table), **variant}
    return tiers, (wrong if answer.words is None else answer.words).tolist(), sounds


def _decisions(cut: Cut, verdict: Verdict, table: UnitTable) -> list[bool | None]:
    """What a judge decides of each slot; a sound of no canonical unit is free."""
    of_units = (verdict.mispronounced > 0.5).tolist()
    positions = positions_of_slots(cut, table) or range(len(of_units))
    return [None if position < 0 else of_units[position] for position in positions]


def _with_verdict(answer: _CutAnswer, verdict: Verdict) -> _CutAnswer:
    """An answer with a judge's probabilities; what was perceived agrees with the decision.

    Of a unit that must be mispronounced although no path says as what, it is not known what.
    """
    tiers, wrong = dict(answer[0]), verdict.mispronounced.tolist()
    if "mlvae_deleted" in tiers:
        tiers["mlvae_deleted"] = [
            (*item[:3], p * min(item[3] / max(whole[3], 1e-12), 1.0))
            for item, whole, p in zip(tiers["mlvae_deleted"], tiers["mlvae"], wrong)
        ]
    tiers["mlvae_perceived"] = [
        (_decided_symbol(unit[0], item[0], p > 0.5), *item[1:3], p)
        for unit, item, p in zip(tiers["mlvae"], tiers["mlvae_perceived"], wrong)
    ]
    tiers["mlvae"] = [(*item[:3], p) for item, p in zip(tiers["mlvae"], wrong)]
    return tiers, wrong if verdict.words is None else verdict.words.tolist(), answer[2]


def _decided_symbol(canonical: str, perceived: str, wrong: bool) -> str:
    if wrong:
        return UNKNOWN if perceived == canonical else perceived
    return canonical


def _variant(cut: Cut, spans: Sequence[UnitSpan], table: UnitTable) -> list[AlignmentItem]:
    """The tier of all sounds of a path."""
    sounds = [span for span in spans if span.kind == "unit" and not is_deleted(span)]
    symbols = [perceived_symbol(span, table) for span in sounds]
    return items_of_spans(cut, sounds, symbols, [None] * len(sounds))


def _units_of_sounds(spans: Sequence[UnitSpan], positions: Sequence[int]) -> list[int | None]:
    """The canonical unit of each sound of a path and of each unit that it leaves out, in order.

    A sound of no canonical unit has None; what is left out and is none is no sound at all.
    """
    units = [(span, positions[span.slot]) for span in spans if span.kind == "unit"]
    return [
        None if position < 0 else position
        for span, position in units
        if position >= 0 or not is_deleted(span)
    ]


def _unit_tiers(
    cut: Cut,
    spans: Sequence[UnitSpan],
    wrong: torch.Tensor,
    deleted: torch.Tensor | None,
    table: UnitTable,
) -> dict[str, list[AlignmentItem]]:
    """The tiers of units by name; ``wrong`` and ``deleted`` are by ``slot`` of the spans."""
    units = [span for span in spans if span.kind == "unit"]
    slots = [span.slot for span in units]
    canonical = table.units(span.unit for span in units)
    perceived = [perceived_symbol(span, table) for span in units]
    scores = wrong[slots].tolist()
    tiers = {
        "mlvae": items_of_spans(cut, units, canonical, scores),
        "mlvae_perceived": items_of_spans(cut, units, perceived, scores),
    }
    if deleted is not None:
        tiers["mlvae_deleted"] = items_of_spans(cut, units, canonical, deleted[slots].tolist())
    return tiers


def _with_words(cut: Cut, word_of: Sequence[int], wrong: Sequence[float]) -> Cut:
    """Add the tier of words; ``wrong`` is by word."""
    return with_tiers(cut, {WORD_TIER: word_items(cut, tier(cut, "mlvae"), word_of, wrong)})


def perceived_symbol(span: UnitSpan, table: UnitTable) -> str:
    """What was perceived in a unit's span, as ``mlvae_perceived`` says it."""
    if is_deleted(span):
        return DELETED
    return UNKNOWN if span.perceived < 0 else table.symbols[span.perceived]


def is_deleted(span: UnitSpan) -> bool:
    """Whether nothing was perceived of a unit.

    A unit that the spoken pronunciation does not have has no length either, and is right.
    """
    return span.is_deletion and span.perceived < 0


def in_time(
    cuts: Sequence[Cut],
    late: Lateness,
    units_of_sounds: Mapping[str, Sequence[int | None] | None] | None = None,
) -> list[Cut]:
    """Move the boundaries of ``mlvae``, which are late by what was measured.

    Args:
        cuts: as in :func:`refine_boundaries`.
        late: how late.
        units_of_sounds: the same.
    """
    moved = []
    for cut in cuts:
        sounds = _sounds(cut, (units_of_sounds or {}).get(cut.id))
        times = [(sound.start, sound.start + sound.duration) for sound in sounds]
        moved.append(_moved(cut, sounds, _corrected(sounds, times, late)))
    return moved


def _corrected(
    sounds: Sequence[_Sound], times: Sequence[tuple[float, float]], late: Lateness
) -> list[tuple[float, float]]:
    return late.corrected([sound.symbol for sound in sounds], times)


def refine_boundaries(
    cuts: Sequence[Cut],
    dataset: UnitDataset,
    aligner: Aligner,
    units_of_sounds: Mapping[str, Sequence[int | None] | None] | None = None,
    passes: Passes | None = None,
    left_out: bool = False,
    late: Lateness | None = None,
) -> list[Cut]:
    """Give the units of ``mlvae`` the times that a forced alignment of what was perceived has.

    A unit that was left out is aligned too, as the canonical one: it gets the shortest time that
    the aligner has for it, where in the text it should have been, as annotators mark it who start
    from an alignment of the text.

    Cuts with an unknown perceived unit stay as they are, and so do those that are too short for the
    aligner. A unit without a counterpart in the pronunciation that was found lies without length at
    the end of the one before it, as before.

    Args:
        cuts: with the tiers ``mlvae`` and ``mlvae_perceived``.
        dataset: gives features and units.
        aligner: a trained one.
        units_of_sounds: of each cut that has the tier ``mlvae_variant``, by its id: which canonical
            unit each sound of that tier is, None for a sound of none, with the units that were left
            out in between, in order.
        passes: what an earlier run has done; None: nothing.
        left_out: whether only the times of units that were left out, which had none, and those
            beside them are of the alignment; all others stay.
        late: how late the aligner finds boundaries; None: it is in time.

    Raises:
        ValueError: ``units_of_sounds`` does not fit the tiers of a cut; names it.
    """
    known = units_of_sounds or {}
    sounds = {cut.id: _sounds(cut, known.get(cut.id)) for cut in cuts}
    perceived = [
        _with_sounds(cut, sounds[cut.id])
        for cut in cuts
        if any(not sound.deleted for sound in sounds[cut.id])
        and all(sound.symbol in dataset.table for sound in sounds[cut.id])
        and (not left_out or any(sound.deleted for sound in sounds[cut.id]))
    ]
    if not perceived:
        return list(cuts)
    aligned, _ = aligner.align(CutSet.from_cuts(perceived), dataset.plain(), passes)
    times = {cut.id: [(item.start, item.end) for item in tier(cut, "fa")] for cut in aligned}
    if late is not None:
        times = {name: _corrected(sounds[name], times[name], late) for name in times}
    if left_out:
        times = {name: _times_of_both(sounds[name], times[name]) for name in times}
    return [_moved(cut, sounds[cut.id], times[cut.id]) if cut.id in times else cut for cut in cuts]


@dataclass(frozen=True)
class _Sound:
    """What is aligned for better boundaries."""

    symbol: str  # what was perceived; the canonical one of a unit that was left out
    start: float  # where it lies up to now, in seconds
    duration: float  # the same
    unit: int | None  # which of the cut's canonical units it is; None where it is none
    deleted: bool  # whether nothing was perceived of it


def _sounds(cut: Cut, units: Sequence[int | None] | None) -> list[_Sound]:
    """What was perceived or left out, in order; ``units`` as in :func:`refine_boundaries`."""
    of_units = []
    for number, (unit, perceived) in enumerate(
        zip(tier(cut, "mlvae"), tier(cut, "mlvae_perceived"))
    ):
        deleted = perceived.symbol == DELETED
        symbol = unit.symbol if deleted else perceived.symbol
        of_units.append(_Sound(symbol, unit.start, unit.duration, number, deleted))
    if not has_tier(cut, VARIANT):
        return of_units
    deleted = [number is not None and of_units[number].deleted for number in units or ()]
    spoken = tier(cut, VARIANT)
    if len(spoken) != deleted.count(False):
        raise ValueError(
            f"{cut.id}: {len(spoken)} sounds in {VARIANT}, units are known of "
            f"{deleted.count(False)}"
        )
    items = iter(spoken)
    return [
        of_units[number] if skipped else _Sound(*next(items)[:3], number, False)
        for number, skipped in zip(units or (), deleted)
    ]


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


def _times_of_both(
    sounds: Sequence[_Sound], times: Sequence[tuple[float, float]]
) -> Sequence[tuple[float, float]]:
    """Begin and end of each sound: where it lies, but beside one that was left out other times.

    Where these do not go together, as a sound would have no length, all are the other ones.
    """
    found: list[tuple[float, float]] = []
    left_out = [False, *(sound.deleted for sound in sounds), False]
    for number, (sound, (start, end)) in enumerate(zip(sounds, times)):
        if not (left_out[number] or sound.deleted):
            start = sound.start
        if not (sound.deleted or left_out[number + 2]):
            end = sound.start + sound.duration
        found.append((start, end))
    in_order = all(end > start for start, end in found)
    return found if in_order else times


def _moved(cut: Cut, sounds: Sequence[_Sound], times: Sequence[tuple[float, float]]) -> Cut:
    """A cut whose units have the begins and ends of their sounds; one without has no length."""
    of_unit = {sound.unit: time for sound, time in zip(sounds, times)}
    new_times: list[tuple[float, float]] = []
    last = times[0][0]
    for number in range(len(tier(cut, "mlvae"))):
        start, last = of_unit.get(number, (last, last))
        new_times.append((start, last))
    moved = {name: _at(tier(cut, name), new_times) for name in UNIT_TIERS if has_tier(cut, name)}
    if has_tier(cut, VARIANT):
        spoken = [time for sound, time in zip(sounds, times) if not sound.deleted]
        moved[VARIANT] = _at(tier(cut, VARIANT), spoken)
    return with_tiers(cut, moved)


def _at(
    items: Sequence[AlignmentItem], times: Sequence[tuple[float, float]]
) -> list[AlignmentItem]:
    """Items with other begins and ends."""
    return [
        AlignmentItem(item.symbol, round(start, 6), round(end - start, 6), item.score)
        for item, (start, end) in zip(items, times)
    ]
