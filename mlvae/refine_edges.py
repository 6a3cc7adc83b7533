"""Better boundaries: perceived units are aligned once more, by a model that sees little context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.supervision import AlignmentItem

from mlvae.align import Aligner
from mlvae.data.dataset import UnitDataset
from mlvae.data.units import UnitTable
from mlvae.em.passes import Passes
from mlvae.tiers import (
    DELETED,
    UNIT_TIERS,
    VARIANT,
    has_tier,
    tier,
    units_of_words,
    with_tiers,
    with_units,
)


def refine_boundaries(
    cuts: Sequence[Cut],
    table: UnitTable,
    aligner: Aligner,
    units_of_sounds: Mapping[str, Sequence[int | None] | None] | None = None,
    passes: Passes | None = None,
) -> list[Cut]:
    """Give the units of ``mlvae`` the times that a forced alignment of what was perceived has.

    A deleted unit is aligned too, as the canonical one: it gets the shortest time that
    the aligner has for it, where in the text it should have been, as annotators mark it who start
    from an alignment of the text.

    Cuts with an unknown perceived unit stay as they are, and so do those that are too short for the
    aligner. A unit without a counterpart in the pronunciation that was found lies without length at
    the end of the one before it, as before.

    Args:
        cuts: with the tiers ``mlvae`` and ``mlvae_perceived``.
        table: ids of the units.
        aligner: a trained one.
        units_of_sounds: of each cut that has the tier ``mlvae_variant``, by its id: which canonical
            unit each sound of that tier is, None for a sound of none, with the deleted units in
            between, in order.
        passes: what an earlier run has done; None: nothing.

    Raises:
        ValueError: ``units_of_sounds`` does not fit the tiers of a cut; names it.
    """
    known = units_of_sounds or {}
    sounds = {cut.id: _sounds(cut, known.get(cut.id)) for cut in cuts}
    perceived = [
        _with_sounds(cut, sounds[cut.id])
        for cut in cuts
        if any(not sound.deleted for sound in sounds[cut.id])
        and all(sound.symbol in table for sound in sounds[cut.id])
    ]
    if not perceived:
        return list(cuts)
    aligned, _ = aligner.align(CutSet.from_cuts(perceived), UnitDataset(table), passes)
    times = {cut.id: tier(cut, "fa") for cut in aligned}
    return [_moved(cut, sounds[cut.id], times[cut.id]) if cut.id in times else cut for cut in cuts]


@dataclass(frozen=True)
class _Sound:
    """What is aligned for better boundaries.

    Attributes:
        symbol: the perceived one; the canonical one of a deleted unit.
        start: where it lies up to now, in seconds.
        duration: the same.
        unit: which of the cut's canonical units it is; None where it is none.
        deleted: whether it is a deletion.
    """

    symbol: str
    start: float
    duration: float
    unit: int | None
    deleted: bool


def _sounds(cut: Cut, units: Sequence[int | None] | None) -> list[_Sound]:
    """Perceived and deleted units in order; ``units`` as for `refine_boundaries`."""
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
    variant = tier(cut, VARIANT)
    if len(variant) != deleted.count(False):
        raise ValueError(
            f"{cut.id}: {len(variant)} sounds in {VARIANT}, units are known of "
            f"{deleted.count(False)}"
        )
    items = iter(variant)
    return [
        of_units[number] if skipped else _sound_of(next(items), number)
        for number, skipped in zip(units or (), deleted)
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
    spans: list[tuple[float, float]] = []
    last = times[0].start
    for number in range(len(tier(cut, "mlvae"))):
        time = of_unit.get(number)
        spans.append((last, 0.0) if time is None else (time.start, time.duration))
        last = last if time is None else time.end
    moved = {name: _at(tier(cut, name), spans) for name in UNIT_TIERS if has_tier(cut, name)}
    if has_tier(cut, VARIANT):
        kept = [time for sound, time in zip(sounds, times) if not sound.deleted]
        moved[VARIANT] = _at(tier(cut, VARIANT), [(time.start, time.duration) for time in kept])
    return with_tiers(cut, moved)


def _at(
    items: Sequence[AlignmentItem], spans: Sequence[tuple[float, float]]
) -> list[AlignmentItem]:
    """Items with other starts and durations."""
    return [AlignmentItem(item.symbol, *span, item.score) for item, span in zip(items, spans)]
