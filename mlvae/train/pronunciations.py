"""Pronunciation variants: compiler input for a cut, and its slots mapped to canonical units.

A cut's ``custom["pronunciations"]`` lists, by word, what is correct: lists of units, the first of
them being the word's canonical units. The acceptor has a path for each. Tiers and reference have
one item per canonical unit, whichever path was taken; units of another pronunciation are brought to
them by the alignment of symbols that the reference is made with:

* a canonical unit has the time of its counterpart, and is wrong where that is, unless what was
  perceived is the canonical unit;
* one without a counterpart is correct and has no length;
* a sound without a canonical unit is in no tier of units; a tier of its own (``fa_variant``,
  ``mlvae_variant``) has all units of the path, where it is not the canonical pronunciation.

Alternatives with a unit that the unit table lacks cannot be modelled and are passed over.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from lhotse.cut import Cut

from mlvae.data.units import UnitTable, align_symbols, canonical_units
from mlvae.fsa import UnitSpan
from mlvae.tiers import units_of_words


def cut_pronunciations(
    cut: Cut, table: UnitTable, units: Sequence[int] | None = None
) -> list[list[list[int]]]:
    """The pronunciations of each word of a cut, the canonical one first, each once.

    A cut without words has a word for each unit.

    Args:
        cut: with canonical units.
        table: ids of the units.
        units: other canonical units than the cut's own; they then have no alternatives.

    Raises:
        ValueError: units are not in the table, or do not fit the words; names the cut.
    """
    ids = table.ids(canonical_units(cut), cut.id) if units is None else list(units)
    word_of = units_of_words(cut) or range(len(ids))
    words: list[list[list[int]]] = [[[]] for _ in range(word_of[-1] + 1)]
    for unit, word in zip(ids, word_of):
        words[word][0].append(unit)
    known = (cut.supervisions[0].custom or {}).get("pronunciations")
    if units is not None or not known:
        return words
    if len(known) != len(words):
        raise ValueError(f"{cut.id}: pronunciations of {len(known)} words, but it has {len(words)}")
    for own, alternatives in zip(words, known):
        for symbols in alternatives:
            if all(symbol in table for symbol in symbols):
                found = table.ids(symbols, cut.id)
                if found not in own:
                    own.append(found)
    return words


def positions_of_slots(cut: Cut, table: UnitTable) -> list[int] | None:
    """The canonical unit that each slot of a cut's graph stands for.

    Returns:
        By slot the position of its canonical unit, -1 for none; None where slots are the canonical
        units, as no word has alternatives.
    """
    words = cut_pronunciations(cut, table)
    if all(len(word) == 1 for word in words):
        return None
    positions: list[int] = []
    first = 0
    for canonical, *others in words:
        positions += range(first, first + len(canonical))
        for other in others:
            mine = [-1] * len(other)
            counterparts = align_symbols(canonical, other)
            for position, counterpart in enumerate(counterparts):
                if counterpart is not None:
                    mine[counterpart] = first + position
            positions += mine
        first += len(canonical)
    return positions


def canonical_spans(
    spans: Sequence[UnitSpan], positions: Sequence[int], units: Sequence[int]
) -> list[UnitSpan]:
    """The canonical units of a best path that went through any of the pronunciations.

    Args:
        spans: of the path; those of kind ``unit`` count.
        positions: of `positions_of_slots`.
        units: the canonical units.

    Returns:
        One span a canonical unit, in order; ``slot`` is its ``position``.
    """
    found = {positions[span.slot]: span for span in spans if span.kind == "unit"}
    result, end = [], 0
    for position, unit in enumerate(units):
        span = found.get(position)
        if span is None:
            at = end or min((later.start for later in found.values()), default=0)
            result.append(UnitSpan(position, unit, at, at, "unit", False, unit, 0.0, -1, position))
            continue
        perceived = span.perceived if span.mispronounced else unit
        wrong = span.mispronounced and perceived != unit
        result.append(
            span._replace(
                position=position,
                unit=unit,
                mispronounced=wrong,
                perceived=perceived,
                slot=position,
            )
        )
        end = span.end
    return result


def variant_differs(
    spans: Sequence[UnitSpan], positions: Sequence[int], units: Sequence[int]
) -> bool:
    """Whether a path went through other units than the canonical ones, in number or kind."""
    spoken = [span for span in spans if span.kind == "unit"]
    return [positions[s.slot] for s in spoken] != list(range(len(units))) or any(
        span.unit != unit for span, unit in zip(spoken, units)
    )


def by_position(values: torch.Tensor, positions: Sequence[int], num_units: int) -> torch.Tensor:
    """Probabilities of slots added up by canonical unit, (num_units,).

    Paths go through one pronunciation of a word each, so that the sum is over disjoint events.
    """
    positions = torch.tensor(positions)
    known = positions >= 0
    return values.new_zeros(num_units).index_add(0, positions[known], values[known])
