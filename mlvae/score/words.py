"""P(mispronounced) of words, scored where words have several units.

A word is mispronounced if any of its units is. Where every word has one unit, its figures are those
of the units and are not repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from lhotse import MonoCut

from mlvae.score.calibration import Calibration, calibration
from mlvae.score.truth import Truth
from mlvae.tiers import has_tier, tier, units_of_words

TIER = "mlvae_word"


def word_calibration(truth: Truth, cuts: Iterable[MonoCut]) -> Calibration | None:
    """The figures of a system's tier ``mlvae_word``.

    Args:
        truth: What was said, unit by unit.
        cuts: Cuts whose ids are utterance ids of ``truth``; those without the tier do not count.

    Returns:
        The figures over all words of these cuts; None where there is no word, or none of several
        units.

    Raises:
        ValueError: A cut is not in the truth, or has other numbers of units or words; names it.
    """
    place = {utterance: index for index, utterance in enumerate(truth.utterances)}
    probabilities: list[float] = []
    wrong: list[bool] = []
    has_long_words = False
    for cut in cuts:
        word_of = units_of_words(cut) if has_tier(cut, TIER) else None
        if word_of is None:
            continue
        if cut.id not in place:
            raise ValueError(f"there is no truth for utterance {cut.id}")
        positive = truth.positive[slice(*truth.first[place[cut.id] : place[cut.id] + 2])]
        items = tier(cut, TIER)
        if (len(positive), len(items)) != (len(word_of), word_of[-1] + 1):
            raise ValueError(
                f"utterance {cut.id} has {len(word_of)} units in {len(items)} words, but the truth "
                f"has {len(positive)} units, and its units are of {word_of[-1] + 1} words"
            )
        probabilities += [item.score for item in items]
        wrong += [
            any(w for w, word in zip(positive, word_of) if word == number)
            for number in range(len(items))
        ]
        has_long_words |= len(items) < len(word_of)
    if not has_long_words:
        return None
    return calibration(np.clip(probabilities, 0.0, 1.0), np.array(wrong))


def word_figures(
    truth: Truth, cuts: Mapping[str, Iterable[MonoCut]]
) -> dict[str, dict[str, float | None]]:
    """Figures of words by the name of a system, as ``results.json`` has them; see above."""
    found = {name: word_calibration(truth, own) for name, own in cuts.items()}
    return {
        name: {
            "brier_score": figures.brier_score,
            "brier_skill": figures.brier_skill,
            "expected_calibration_error": figures.expected_calibration_error,
            "num_words": figures.num_units,
            "mispronounced_rate": figures.base_rate,
        }
        for name, figures in found.items()
        if figures is not None
    }
