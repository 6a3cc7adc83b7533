"""Warnings that need no reference: what may have gone wrong, and what to do then."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lhotse.cut import Cut

from mlvae.tiers import DELETED, has_tier, tier

#: More flagged units than this are seldom mispronounced.
LARGEST_FRACTION = 1 / 3
#: Less to learn from has been too little to align phones by.
FEWEST_SENTENCES, FEWEST_MINUTES = 450, 30.0


@dataclass(frozen=True)
class FlaggedUnits:
    """How many units of some cuts a system has flagged."""

    num_units: int  # units with an answer
    num_flagged: int  # those of which something else was perceived, or nothing
    num_deleted: int  # those of which nothing was perceived

    @property
    def flagged(self) -> float:
        """Fraction of units flagged, the deleted ones included; 0 of no units."""
        return self.num_flagged / max(self.num_units, 1)

    @property
    def deleted(self) -> float:
        """Fraction of units deleted; 0 of no units."""
        return self.num_deleted / max(self.num_units, 1)

    def line(self) -> str:
        """Both fractions in words."""
        return (
            f"{100 * self.flagged:.1f} % of {self.num_units:,} units flagged, "
            f"{100 * self.deleted:.1f} % deleted"
        )

    def warnings(self) -> list[str]:
        """A sentence for the user where more is flagged than is likely to be wrong."""
        if self.flagged <= LARGEST_FRACTION:
            return []
        return [
            f"{100 * self.flagged:.1f} % of the units are flagged, more than a third. Seldom is as "
            "much mispronounced: recordings may not belong to their texts, the lexicon may not fit "
            "the speakers, or training had too little data or too few iterations. Listen to some "
            "of what is flagged, and look at the alignment and at learning_curves.png, before you "
            "rely on it"
        ]

    def as_dict(self) -> dict[str, float]:
        """For a JSON file; fractions are within 0 and 1."""
        return {**asdict(self), "flagged": self.flagged, "deleted": self.deleted}


def count_flagged(
    cuts: Iterable[Cut], units: str = "mlvae", perceived: str = "mlvae_perceived"
) -> FlaggedUnits:
    """Count what the tiers of an answer flag.

    Args:
        cuts: with both tiers; others have no answer and do not count.
        units: name of the tier of canonical units.
        perceived: name of the tier of what was perceived.
    """
    said = [
        (unit.symbol, other.symbol)
        for cut in cuts
        if has_tier(cut, units) and has_tier(cut, perceived)
        for unit, other in zip(tier(cut, units), tier(cut, perceived))
    ]
    return FlaggedUnits(
        len(said),
        sum(unit != other for unit, other in said),
        sum(other == DELETED for _, other in said),
    )


def training_warnings(folder: Path) -> list[str]:
    """What stage 4 has warned of, as ``training.json`` of a system's folder says."""
    content = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    return content.get("warnings", [])


def training_data_warnings(num_sentences: int, seconds: float) -> list[str]:
    """A sentence for the user where a model had too little to learn from.

    Args:
        num_sentences: utterances of the training part.
        seconds: of their speech.
    """
    if num_sentences >= FEWEST_SENTENCES and seconds >= 60 * FEWEST_MINUTES:
        return []
    return [
        f"{num_sentences:,} sentences and {seconds / 60:.1f} minutes to learn from: of fewer than "
        f"{FEWEST_SENTENCES} sentences or {FEWEST_MINUTES:g} minutes, units are seldom found where "
        "they are, so do not rely on what is flagged"
    ]


def edge_warnings(name: str, chosen: float, grid: Sequence[float], option: str) -> list[str]:
    """A sentence for the user where a value was chosen at the edge of what was tried.

    Args:
        name: of the value.
        chosen: one of the grid.
        grid: what was tried; of a single value nothing is chosen.
        option: the setting that gives the grid.
    """
    low, high = min(grid), max(grid)
    if low == high or low < chosen < high:
        return []
    edge, beyond = ("smallest", "smaller") if chosen == low else ("largest", "larger")
    tried = ", ".join(f"{value:g}" for value in sorted(grid))
    return [
        f"the {name}, {chosen:g}, is the {edge} that was tried ({tried}), so that a better one may "
        f"lie beyond: put {beyond} ones into {option} of the configuration, and run stage 4 again"
    ]
