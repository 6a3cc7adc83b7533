"""From units that were recognised freely to an answer about each canonical unit.

Both baselines end here: the recognised units, aligned with the speech, are compared with the
canonical ones by an edit path of least cost (Levenshtein distance: substitution, deletion and
insertion cost 1 each). There is no P(mispronounced) in it: items have no score.
"""

from __future__ import annotations

from collections.abc import Sequence

from lhotse.cut import Cut
from lhotse.supervision import AlignmentItem
from rapidfuzz.distance import Levenshtein

from mlvae.tiers import DELETED, with_tiers


def pair_units(canonical: Sequence[str], recognised: Sequence[str]) -> list[tuple[int | None, int]]:
    """Pair canonical with recognised units on an edit path of least cost.

    Args:
        canonical: L canonical units.
        recognised: M recognised units, 0 allowed.

    Returns:
        For each canonical unit the index of the recognised unit that stands for it, equal or not,
        or None where there is none; and how many recognised units come before it on the path.
        Recognised units that no canonical unit is paired with were inserted.
    """
    pairs: list[tuple[int | None, int]] = []
    for step in Levenshtein.opcodes(canonical, recognised):
        for place in range(step.src_end - step.src_start):
            paired = step.tag in ("equal", "replace")
            index = step.dest_start + place if paired else None
            pairs.append((index, step.dest_start if index is None else index))
    return pairs


def with_comparison(cut: Cut, canonical: Sequence[str], recognised: Sequence[AlignmentItem]) -> Cut:
    """Add the tiers ``mlvae`` and ``mlvae_perceived`` of a baseline.

    Both have one item a canonical unit, of equal times, and without score:

    * a unit that was recognised, as itself or as another, has the span of what was recognised;
    * one that was not has no length, lies where it would have been (at the start of the recognised
      unit that follows), and ``mlvae_perceived`` says ``-``: it is flagged, and its IoU is 0;
    * the time of a recognised unit that was inserted belongs to no canonical unit: it is left out
      of the tiers, as silence is, so that they have a gap there.

    Args:
        cut: cut with one supervision.
        canonical: its canonical units.
        recognised: the units that were recognised in it, in order, with their times in seconds.
    """
    perceived_symbols = [item.symbol for item in recognised]
    end = recognised[-1].end if recognised else 0.0
    units, perceived = [], []
    for symbol, (index, before) in zip(canonical, pair_units(canonical, perceived_symbols)):
        if index is None:
            start, duration, said = end, 0.0, DELETED
            if before < len(recognised):
                start = recognised[before].start
        else:
            found = recognised[index]
            start, duration, said = found.start, found.duration, found.symbol
        units.append(AlignmentItem(symbol, start, duration, None))
        perceived.append(AlignmentItem(said, start, duration, None))
    return with_tiers(cut, {"mlvae": units, "mlvae_perceived": perceived})
