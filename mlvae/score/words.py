"""Words, scored where they have several units.

A word is mispronounced if any of its units is. Where every word has one unit, its metrics are those
of the units and are not repeated. Where the reference has words and the hypotheses have tokens, and
where phones and BPE tokens are to be compared, hypotheses are brought to words first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from lhotse import MonoCut
from lhotse.supervision import AlignmentItem
from lhotse.utils import fastcopy

from mlvae.config import System
from mlvae.score.calibration import CALIBRATION_METRICS, Calibration, calibration
from mlvae.score.reference import Reference
from mlvae.systems import KINDS
from mlvae.tiers import (
    UNKNOWN,
    WORD_TIER,
    has_tier,
    tier,
    units_of_words,
    with_tiers,
    word_spans,
)


def word_calibration(reference: Reference, cuts: Iterable[MonoCut]) -> Calibration | None:
    """The metrics of a system's tier ``mlvae_word``, over all words of the cuts that have it.

    None where there is no word, or none of several units.

    Raises:
        ValueError: a cut is not in the reference, or has other numbers of units or words; names it.
    """
    probabilities: list[float] = []
    wrong: list[bool] = []
    any_of_several = False
    for cut in cuts:
        word_of = units_of_words(cut) if has_tier(cut, WORD_TIER) else None
        if word_of is None:
            continue
        if cut.id not in reference.units_of:
            raise ValueError(f"there is no reference for utterance {cut.id}")
        positive = reference.positive[reference.units_of[cut.id]]
        items = tier(cut, WORD_TIER)
        if (len(positive), len(items)) != (len(word_of), word_of[-1] + 1):
            raise ValueError(
                f"utterance {cut.id} has {len(word_of)} units in {len(items)} words, but the "
                f"reference has {len(positive)} units, and its units are of {word_of[-1] + 1} words"
            )
        probabilities += [item.score for item in items]
        wrong += [
            any(w for w, word in zip(positive, word_of) if word == number)
            for number in range(len(items))
        ]
        any_of_several |= len(items) < len(word_of)
    if not any_of_several:
        return None
    return calibration(np.clip(probabilities, 0.0, 1.0), np.array(wrong))


def word_hypothesis(cut: MonoCut, spans: str, perceived: str | None) -> MonoCut | None:
    """A cut whose tiers are of its words in place of their units.

    A word lies where `word_spans` says. It is flagged, and ``*`` was perceived, where any of its
    units is flagged; its P(mispronounced) is that of ``mlvae_word``. The tier ``fa``, which plots
    need, is kept; None where the cut has no words or lacks the tiers.
    """
    word_of = units_of_words(cut)
    wanted = {spans, perceived or spans, "fa"}
    if word_of is None or not all(has_tier(cut, name) for name in wanted):
        return None
    words = cut.supervisions[0].custom["words"]
    scores: list[float | None] = [None] * len(words)
    if perceived is not None and has_tier(cut, WORD_TIER):
        scores = [item.score for item in tier(cut, WORD_TIER)]
    tiers = {name: _words_of_tier(tier(cut, name), word_of, words) for name in wanted}
    if perceived is not None:
        wrong = {
            word
            for word, unit, other in zip(word_of, tier(cut, spans), tier(cut, perceived))
            if unit.symbol != other.symbol
        }
        tiers[spans] = [i._replace(score=s) for i, s in zip(tiers[spans], scores)]
        tiers[perceived] = [
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
    """By name of a system its cuts with tiers of words; see `word_hypothesis`."""
    made: dict[str, list[MonoCut]] = {}
    for system in systems:
        kind = KINDS[system.kind]
        hypotheses = (
            word_hypothesis(cut, kind.spans, kind.perceived) for cut in cuts[system.label]
        )
        made[system.label] = [hypothesis for hypothesis in hypotheses if hypothesis is not None]
    return made


def word_metrics(
    reference: Reference, cuts: Mapping[str, Iterable[MonoCut]]
) -> dict[str, dict[str, float | None]]:
    """Metrics of words by the name of a system, as in ``results.json``."""
    found = {name: word_calibration(reference, own) for name, own in cuts.items()}
    return {
        name: {
            **{metric: getattr(metrics, metric) for metric in CALIBRATION_METRICS},
            "num_words": metrics.num_units,
            "mispronounced_rate": metrics.base_rate,
        }
        for name, metrics in found.items()
        if metrics is not None
    }
