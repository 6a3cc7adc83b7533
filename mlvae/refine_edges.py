"""Better edges: what was heard is aligned once more, by a model that sees little context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.supervision import AlignmentItem

from mlvae.align import Aligner
from mlvae.data.dataset import UnitDataset
from mlvae.data.units import UnitTable
from mlvae.tiers import (
    NOTHING_HEARD,
    SPOKEN,
    UNIT_TIERS,
    has_tier,
    tier,
    units_of_words,
    with_tiers,
    with_units,
)
from mlvae.train.loop import Passes


def refine_edges(
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
    """What was heard, and what was left out, in order; ``units`` as `refine_edges` has them."""
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
