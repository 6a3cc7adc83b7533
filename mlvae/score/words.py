"""Words, scored where they have several units.

A word is mispronounced if any of its units is. Where every word has one unit, its figures are those
of the units and are not repeated. Where truth is of words and answers are of pieces of them, and
where phones and BPE tokens are to be compared, answers are brought to words first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from lhotse import MonoCut
from lhotse.supervision import AlignmentItem
from lhotse.utils import fastcopy

from mlvae.config import System
from mlvae.score.calibration import Calibration, calibration
from mlvae.score.truth import UNKNOWN, Truth
from mlvae.systems import KINDS
from mlvae.tiers import has_tier, tier, units_of_words, with_tiers, word_spans

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


def word_answer(cut: MonoCut, spans: str, heard: str | None) -> MonoCut | None:
    """A cut whose tiers are of its words in place of their units.

    A word lies where `word_spans` says. It is flagged, and ``*`` was heard, where any of its units
    is flagged; its P(mispronounced) is that of ``mlvae_word``.

    Args:
        cut: With an answer.
        spans: The tier with one item a unit.
        heard: The tier with what was heard, or None.

    Returns:
        The cut with the tier ``fa`` as well, which pictures need; None where it has no words or
        lacks the tiers.
    """
    word_of = units_of_words(cut)
    wanted = {spans, heard or spans, "fa"}
    if word_of is None or not all(has_tier(cut, name) for name in wanted):
        return None
    words = cut.supervisions[0].custom["words"]
    chances: list[float | None] = [None] * len(words)
    if heard is not None and has_tier(cut, TIER):
        chances = [item.score for item in tier(cut, TIER)]
    tiers = {name: _words_of_tier(tier(cut, name), word_of, words) for name in wanted}
    if heard is not None:
        wrong = {
            word
            for word, unit, said in zip(word_of, tier(cut, spans), tier(cut, heard))
            if unit.symbol != said.symbol
        }
        tiers[spans] = [i._replace(score=chance) for i, chance in zip(tiers[spans], chances)]
        tiers[heard] = [
            item._replace(symbol=UNKNOWN) if word in wrong else item
            for word, item in enumerate(tiers[spans])
        ]
    supervision = fastcopy(cut.supervisions[0], alignment=None)
    return with_tiers(fastcopy(cut, supervisions=[supervision]), tiers)


def _words_of_tier(
    items: Sequence[AlignmentItem], word_of: Sequence[int], words: Sequence[str]
) -> list[AlignmentItem]:
    spans = word_spans(items, word_of)
    return [AlignmentItem(word, *span, None) for word, span in zip(words, spans)]


def word_cuts(
    systems: Sequence[System], cuts: Mapping[str, Iterable[MonoCut]]
) -> dict[str, list[MonoCut]]:
    """By name of a system its cuts with tiers of words; see `word_answer`."""
    made: dict[str, list[MonoCut]] = {}
    for system in systems:
        kind = KINDS[system.kind]
        answers = (word_answer(cut, kind.spans, kind.heard) for cut in cuts[system.label])
        made[system.label] = [answer for answer in answers if answer is not None]
    return made


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
