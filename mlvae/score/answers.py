"""The answers of systems as arrays over all units of a test set.

Every system is brought to the units of the truth in their order; one that has no answer for an
utterance keeps the utterance's units, not flagged and without a span.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from lhotse import MonoCut
from lhotse.supervision import AlignmentItem

from mlvae.score.metrics import Outcomes, interval_iou
from mlvae.score.truth import UNCLEAR, UNKNOWN, Truth
from mlvae.tiers import has_tier, tier

#: What a tier of heard symbols says where a unit was left out.
LEFT_OUT = "-"
# Sums of many path probabilities may leave 0..1 by this much.
ROUNDING = 1e-4


@dataclass(frozen=True)
class SystemAnswer:
    """What one system says about each of the N units of a ``Truth``.

    Attributes:
        name: The row's name in the table.
        starts: (N,) float64, seconds.
        ends: (N,) float64, seconds; equal to the start where the unit was not found.
        flags: (N,) bool, the system calls the unit mispronounced.
        num_params: Number of trained parameters, or None where the row has no model.
        training_seconds: Seconds that training took, or None.
        missing: Ids of utterances without an answer; their units are not flagged and have no span.
        probabilities: (N,) float64, P(mispronounced), NaN for the units of missing utterances;
            None where the system gives none.
        heard: N symbols that the system heard: those of ``UNKNOWN`` and ``LEFT_OUT`` name no unit,
            and ``UNKNOWN`` also stands for the units of missing utterances; None where the system
            says of no unit what was heard.
        secondary: The row is in the second table.
    """

    name: str
    starts: np.ndarray
    ends: np.ndarray
    flags: np.ndarray
    num_params: int | None = None
    training_seconds: float | None = None
    missing: tuple[str, ...] = ()
    probabilities: np.ndarray | None = None
    heard: tuple[str, ...] | None = None
    secondary: bool = False


def oracle_answer(truth: Truth, name: str = "oracle") -> SystemAnswer:
    """The perfect answer: true spans and true flags."""
    return SystemAnswer(name, truth.starts, truth.ends, truth.positive)


def tier_answer(
    name: str,
    truth: Truth,
    cuts: Iterable[MonoCut],
    spans: str,
    heard: str | None = None,
    num_params: int | None = None,
    training_seconds: float | None = None,
) -> SystemAnswer:
    """Read a system's answer from tiers of cuts.

    Args:
        name: The row's name.
        truth: The units to answer for.
        cuts: Cuts whose ids are the utterance ids of ``truth``, in any order. An utterance without
            a cut, or whose cut lacks a tier, is missing.
        spans: The tier with one item per canonical unit: its symbol and where it was found.
        heard: The tier with what was heard; a unit is flagged where its symbol differs from that
            in ``spans``, and the score of its item in ``spans`` is P(mispronounced) (left out by
            systems that have none). None: nothing is flagged.
        num_params: Passed on.
        training_seconds: Passed on.

    Raises:
        ValueError: A cut is not in the truth or occurs twice, its units are not those of the
            truth, or a P(mispronounced) is outside 0..1 or missing for some; names the utterance.
    """
    place = {utterance: index for index, utterance in enumerate(truth.utterances)}
    starts, ends = np.zeros_like(truth.starts), np.zeros_like(truth.ends)
    flags = np.zeros(len(starts), dtype=bool)
    probabilities = np.full(len(starts), np.nan)
    symbols_heard = [UNKNOWN] * len(starts)
    answered: set[str] = set()
    for cut in cuts:
        if cut.id not in place:
            raise ValueError(f"{name}: there is no truth for utterance {cut.id}")
        if cut.id in answered:
            raise ValueError(f"{name}: utterance {cut.id} is answered twice")
        if not has_tier(cut, spans) or (heard is not None and not has_tier(cut, heard)):
            continue
        answered.add(cut.id)
        begin, end = truth.first[place[cut.id] : place[cut.id] + 2]
        items = tier(cut, spans)
        said = items if heard is None else tier(cut, heard)
        symbols = [item.symbol for item in items]
        if symbols != truth.canonical[begin:end] or len(said) != len(items):
            raise ValueError(
                f"{name}: utterance {cut.id} has the units {' '.join(symbols)!r} in tier {spans} "
                f"({len(said)} heard), but the truth's canonical units are "
                f"{' '.join(truth.canonical[begin:end])!r}"
            )
        starts[begin:end] = [item.start for item in items]
        # lhotse rounds ends, but not starts: a span without length may end before it starts.
        ends[begin:end] = [max(item.start, item.end) for item in items]
        if heard is None:
            continue
        flags[begin:end] = [a.symbol != b.symbol for a, b in zip(items, said)]
        symbols_heard[begin:end] = [item.symbol for item in said]
        probabilities[begin:end] = _probabilities(name, cut.id, items)
    missing = tuple(utterance for utterance in truth.utterances if utterance not in answered)
    known = ~np.isnan(probabilities)
    answer = SystemAnswer(
        name,
        starts,
        ends,
        flags,
        num_params,
        training_seconds,
        missing,
        probabilities=probabilities if known.any() else None,
        heard=None if heard is None else tuple(symbols_heard),
    )
    if known.any() and not known[answered_units(truth, answer)].all():
        without = truth.utterance[answered_units(truth, answer) & ~known][0]
        raise ValueError(
            f"{name}: utterance {truth.utterances[without]} has no P(mispronounced), others have"
        )
    return answer


def _probabilities(name: str, cut_id: str, items: Iterable[AlignmentItem]) -> np.ndarray:
    """The scores of items as probabilities; NaN where none has a score."""
    scores = [item.score for item in items]
    if all(score is None for score in scores):
        return np.full(len(scores), np.nan)
    found = np.array(scores, dtype=np.float64)
    if not ((found >= -ROUNDING) & (found <= 1 + ROUNDING)).all():
        raise ValueError(
            f"{name}: utterance {cut_id} has a P(mispronounced) that is missing or outside 0..1: "
            f"{scores}"
        )
    return np.clip(found, 0.0, 1.0)


def answered_units(truth: Truth, answer: SystemAnswer) -> np.ndarray:
    """(N,) bool: the unit's utterance has an answer."""
    missing = set(answer.missing)
    answered = np.array([utterance not in missing for utterance in truth.utterances])
    return answered[truth.utterance]


def flag_all_answer(name: str, truth: Truth, answer: SystemAnswer) -> SystemAnswer:
    """Flag every unit that has an answer, on the spans of this answer."""
    flags = answered_units(truth, answer)
    return replace(answer, name=name, flags=flags, probabilities=None, heard=None)


def threshold_answer(name: str, answer: SystemAnswer, threshold: float = 0.5) -> SystemAnswer:
    """Flag the units of this answer whose P(mispronounced) is above a threshold.

    What was heard is left out: it goes with the flags of the best path. The row is secondary.

    Raises:
        ValueError: The answer has no P(mispronounced).
    """
    if answer.probabilities is None:
        raise ValueError(f"{answer.name} has no P(mispronounced)")
    flags = answer.probabilities > threshold
    return replace(answer, name=name, flags=flags, probabilities=None, heard=None, secondary=True)


def outcomes(truth: Truth, answer: SystemAnswer) -> Outcomes:
    """Compare an answer with the truth, unit by unit."""
    return Outcomes(
        positive=truth.positive,
        flagged=answer.flags,
        iou=interval_iou(answer.starts, answer.ends, truth.starts, truth.ends),
        utterance=truth.utterance,
        annotated=truth.annotated,
    )


def known_probabilities(truth: Truth, answer: SystemAnswer) -> tuple[np.ndarray, np.ndarray] | None:
    """P(mispronounced) of the M units that have an answer, and what is true of them.

    Returns:
        (M,) float64 and (M,) bool; None where the system gives no P(mispronounced).
    """
    if answer.probabilities is None:
        return None
    answered = answered_units(truth, answer)
    return answer.probabilities[answered], truth.positive[answered]


@dataclass(frozen=True)
class HeardAccuracy:
    """How often a system names what was said in place of a unit.

    Attributes:
        share: Of the named ones the share that is right, 0..1.
        num_named: Number of substituted units that are flagged and for which a unit is named.
    """

    share: float
    num_named: int


def heard_accuracy(truth: Truth, answer: SystemAnswer) -> HeardAccuracy | None:
    """Compare what was heard with what was said, where a substitution was rightly flagged.

    Units count that were replaced by another unit and are flagged, if the system names a unit for
    them: not where it heard ``UNKNOWN`` or ``LEFT_OUT``. Where a sound was said that no unit
    describes (``UNCLEAR``), no name can be right, and the unit is left out as well.

    Returns:
        The accuracy; None where no unit counts.
    """
    if answer.heard is None:
        return None
    nameless = {UNKNOWN, LEFT_OUT}
    right = [
        heard == said
        for heard, said, hit in zip(answer.heard, truth.perceived, truth.positive & answer.flags)
        if hit and heard not in nameless and said not in {*nameless, UNCLEAR}
    ]
    return HeardAccuracy(float(np.mean(right)), len(right)) if right else None
