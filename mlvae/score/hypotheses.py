"""Hypotheses of systems as arrays over all units of a test set, and their evaluation.

Every system is brought to the units of the reference in their order; one that has no hypothesis for
an utterance keeps the utterance's units, not flagged and without a span.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from lhotse import MonoCut
from lhotse.supervision import AlignmentItem

from mlvae.score.calibration import Calibration, calibration
from mlvae.score.intervals import Difference, Intervals, bootstrap_intervals
from mlvae.score.metrics import METRICS, Outcomes, interval_iou
from mlvae.score.reference import UNCLEAR, Reference
from mlvae.tiers import DELETED, UNKNOWN, has_tier, tier

# Sums of many path probabilities may leave 0..1 by this much.
ROUNDING = 1e-4


@dataclass(frozen=True)
class Hypothesis:
    """The hypothesis of one system for each of the N units of a ``Reference``."""

    name: str
    starts: np.ndarray  # (N,) float64, seconds
    ends: np.ndarray  # (N,) float64, seconds; equal to the start where the unit was not found
    flags: np.ndarray  # (N,) bool, the system calls the unit mispronounced
    # number of trained parameters, or None where the row has no model
    num_params: int | None = None
    training_seconds: float | None = None  # seconds that training took, or None
    # ids of utterances without a hypothesis; their units are not flagged and have no span
    missing: tuple[str, ...] = ()
    # (N,) float64, P(mispronounced), NaN for the units of missing utterances; None where the system
    # gives none
    probabilities: np.ndarray | None = None
    # N perceived symbols, ``UNKNOWN`` for the units of missing utterances; None where the system
    # names none
    perceived: tuple[str, ...] | None = None


def oracle_hypothesis(reference: Reference) -> Hypothesis:
    """The perfect hypothesis: spans and flags of the reference."""
    return Hypothesis("oracle", reference.starts, reference.ends, reference.positive)


def tier_hypothesis(
    name: str,
    reference: Reference,
    cuts: Iterable[MonoCut],
    spans: str,
    perceived: str | None = None,
) -> Hypothesis:
    """Read a system's hypothesis from tiers of cuts.

    Args:
        name: the row's name.
        reference: the units to score.
        cuts: of ids of utterances of ``reference``, in any order. An utterance without a cut, or
            whose cut lacks a tier, is missing.
        spans: the tier with one item per canonical unit: its symbol and where it was found.
        perceived: the tier of perceived symbols; a unit is flagged where its symbol differs from
            that in ``spans``, and the score of its item in ``spans`` is P(mispronounced), None from
            systems that give none. None: nothing is flagged.

    Raises:
        ValueError: a cut is not in the reference or occurs twice, its units are not those of the
            reference, or a P(mispronounced) is outside 0..1 or missing for some; names the
            utterance.
    """
    starts, ends = np.zeros_like(reference.starts), np.zeros_like(reference.ends)
    flags = np.zeros(len(starts), dtype=bool)
    probabilities = np.full(len(starts), np.nan)
    symbols = [UNKNOWN] * len(starts)
    found: set[str] = set()
    for cut in cuts:
        if cut.id not in reference.units_of:
            raise ValueError(f"{name}: there is no reference for utterance {cut.id}")
        if cut.id in found:
            raise ValueError(f"{name}: there are two hypotheses for utterance {cut.id}")
        if not has_tier(cut, spans) or (perceived is not None and not has_tier(cut, perceived)):
            continue
        found.add(cut.id)
        units = reference.units_of[cut.id]
        items = tier(cut, spans)
        others = items if perceived is None else tier(cut, perceived)
        canonical = [item.symbol for item in items]
        if canonical != reference.canonical[units] or len(others) != len(items):
            raise ValueError(
                f"{name}: utterance {cut.id} has the units {' '.join(canonical)!r} in tier {spans} "
                f"({len(others)} perceived), but the reference's canonical units are "
                f"{' '.join(reference.canonical[units])!r}"
            )
        starts[units] = [item.start for item in items]
        # lhotse rounds ends, but not starts: a span without length may end before it starts.
        ends[units] = [max(item.start, item.end) for item in items]
        if perceived is None:
            continue
        flags[units] = [a.symbol != b.symbol for a, b in zip(items, others)]
        symbols[units] = [item.symbol for item in others]
        probabilities[units] = _probabilities(name, cut.id, items)
    known = ~np.isnan(probabilities)
    hypothesis = Hypothesis(
        name,
        starts,
        ends,
        flags,
        missing=tuple(utterance for utterance in reference.utterances if utterance not in found),
        probabilities=probabilities if known.any() else None,
        perceived=None if perceived is None else tuple(symbols),
    )
    without = covered_units(reference, hypothesis) & ~known
    if known.any() and without.any():
        utterance = reference.utterances[reference.utterance[without][0]]
        raise ValueError(f"{name}: utterance {utterance} has no P(mispronounced), others have")
    return hypothesis


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


def covered_units(reference: Reference, hypothesis: Hypothesis) -> np.ndarray:
    """(N,) bool: the unit's utterance has a hypothesis."""
    missing = set(hypothesis.missing)
    covered = np.array([utterance not in missing for utterance in reference.utterances])
    return covered[reference.utterance]


def flag_all_hypothesis(name: str, reference: Reference, hypothesis: Hypothesis) -> Hypothesis:
    """The trivial baseline: flag every unit that has a hypothesis, on its spans."""
    flags = covered_units(reference, hypothesis)
    return replace(hypothesis, name=name, flags=flags, probabilities=None, perceived=None)


def outcomes(reference: Reference, hypothesis: Hypothesis) -> Outcomes:
    """Compare a hypothesis with the reference, unit by unit."""
    return Outcomes(
        positive=reference.positive,
        flagged=hypothesis.flags,
        iou=interval_iou(hypothesis.starts, hypothesis.ends, reference.starts, reference.ends),
        utterance=reference.utterance,
        annotated=reference.annotated,
    )


def known_probabilities(
    reference: Reference, hypothesis: Hypothesis
) -> tuple[np.ndarray, np.ndarray] | None:
    """P(mispronounced) of the M units that have a hypothesis, and whether they are mispronounced.

    (M,) float64 and (M,) bool; None where the system gives no P(mispronounced).
    """
    if hypothesis.probabilities is None:
        return None
    covered = covered_units(reference, hypothesis)
    return hypothesis.probabilities[covered], reference.positive[covered]


@dataclass(frozen=True)
class PerceivedAccuracy:
    """How often a system names the perceived unit."""

    fraction: float  # fraction of the named units that is right, 0..1
    num_named: int  # number of substituted units that are flagged and for which a unit is named


def perceived_accuracy(reference: Reference, hypothesis: Hypothesis) -> PerceivedAccuracy | None:
    """Compare perceived units of hypothesis and reference where a substitution is flagged.

    Units count that were replaced by another unit and are flagged, if the system names a unit for
    them: not ``UNKNOWN`` or ``DELETED``. Where the reference has a sound that no unit describes
    (``UNCLEAR``), no name can be right, and the unit does not count either. None: no unit counts.
    """
    if hypothesis.perceived is None:
        return None
    nameless = {UNKNOWN, DELETED}
    hits = reference.positive & hypothesis.flags
    right = [
        found == true
        for found, true, hit in zip(hypothesis.perceived, reference.perceived, hits)
        if hit and found not in nameless and true not in {*nameless, UNCLEAR}
    ]
    return PerceivedAccuracy(float(np.mean(right)), len(right)) if right else None


@dataclass(frozen=True)
class Evaluation:
    """Some systems scored on one set."""

    reference: Reference
    hypotheses: tuple[Hypothesis, ...]  # the systems, in the order of the rows
    intervals: Intervals  # their metrics, under the names of ``hypotheses``
    cluster: str  # what the clusters of ``intervals`` are: ``"recording"`` or ``"speaker"``
    # by name, of those that give P(mispronounced), in the order of ``hypotheses``
    calibrations: dict[str, Calibration]
    # by name, of those that name perceived units, where that can be judged
    perceived: dict[str, PerceivedAccuracy]
    # by a pair of names, the first one minus the second one, by metric
    differences: dict[tuple[str, str], dict[str, Difference]]
    # by name of a system without hypotheses the reason
    unavailable: Mapping[str, str] = field(default_factory=dict)
    # by name of a system what it is, in the order of the rows
    notes: Mapping[str, str] = field(default_factory=dict)


def evaluate(
    reference: Reference,
    hypotheses: Sequence[Hypothesis],
    compared: Iterable[tuple[str, str]] = (),
    cluster: str = "recording",
    num_resamples: int = 1000,
    seed: int = 0,
    **texts: Mapping[str, str],
) -> Evaluation:
    """Score systems, whose names differ, on the same units.

    Args:
        reference: the units.
        hypotheses: the systems.
        compared: pairs of names to compare; a pair is omitted unless both are there.
        cluster: what intervals are over: ``"recording"`` or ``"speaker"``.
        num_resamples: behind each interval.
        seed: of the intervals.
        **texts: ``unavailable`` and ``notes`` of the ``Evaluation``.
    """
    intervals = bootstrap_intervals(
        {hypothesis.name: outcomes(reference, hypothesis) for hypothesis in hypotheses},
        reference.clusters(cluster),
        num_resamples=num_resamples,
        seed=seed,
    )
    calibrations, perceived = {}, {}
    for hypothesis in hypotheses:
        known = known_probabilities(reference, hypothesis)
        if known is not None:
            calibrations[hypothesis.name] = calibration(*known)
        accuracy = perceived_accuracy(reference, hypothesis)
        if accuracy is not None:
            perceived[hypothesis.name] = accuracy
    differences = {
        (first, second): {
            metric: intervals.paired_difference(first, second, metric) for metric in METRICS
        }
        for first, second in compared
        if first in intervals.scores and second in intervals.scores
    }
    return Evaluation(
        reference,
        tuple(hypotheses),
        intervals,
        cluster,
        calibrations,
        perceived,
        differences,
        **texts,
    )
