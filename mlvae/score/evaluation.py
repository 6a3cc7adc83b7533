"""All that scoring computes about some systems, in one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlvae.score.answers import (
    HeardAccuracy,
    SystemAnswer,
    heard_accuracy,
    known_probabilities,
    outcomes,
)
from mlvae.score.bootstrap import Difference, Intervals, bootstrap_intervals
from mlvae.score.calibration import Calibration, calibration
from mlvae.score.metrics import FIGURES
from mlvae.score.truth import Truth


@dataclass(frozen=True)
class Evaluation:
    """Some systems scored on one set.

    Attributes:
        truth: The scored set.
        answers: The systems, in the order of the rows.
        intervals: Their figures, under the names of ``answers``.
        cluster: What the clusters of ``intervals`` are: ``"recording"`` or ``"speaker"``.
        calibrations: By name, of those that give P(mispronounced), in the order of ``answers``.
        heard: By name, of those that say what was heard, where it can be judged.
        differences: By a pair of names, the first one minus the second one, by figure.
        unavailable: By name of a system without answers the reason.
        notes: By name of a system what it is, in the order of the rows.
    """

    truth: Truth
    answers: tuple[SystemAnswer, ...]
    intervals: Intervals
    cluster: str
    calibrations: dict[str, Calibration]
    heard: dict[str, HeardAccuracy]
    differences: dict[tuple[str, str], dict[str, Difference]]
    unavailable: dict[str, str]
    notes: dict[str, str]


def evaluate(
    truth: Truth,
    answers: Sequence[SystemAnswer],
    compared: Sequence[tuple[str, str]] = (),
    cluster: str = "recording",
    num_resamples: int = 1000,
    seed: int = 0,
    unavailable: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
) -> Evaluation:
    """Score systems on the same units.

    Args:
        truth: The units.
        answers: The systems; their names differ.
        compared: Pairs of names to compare; a pair is left out unless both are there.
        cluster: What intervals are over: ``"recording"`` or ``"speaker"``.
        num_resamples: Number of resamples for the intervals.
        seed: Seed of the intervals.
        unavailable: By name of a system without answers the reason.
        notes: By name of a system what it is, in the order of the rows.
    """
    intervals = bootstrap_intervals(
        {answer.name: outcomes(truth, answer) for answer in answers},
        truth.clusters(cluster),
        num_resamples=num_resamples,
        seed=seed,
    )
    calibrations, heard = {}, {}
    for answer in answers:
        known = known_probabilities(truth, answer)
        if known is not None:
            calibrations[answer.name] = calibration(*known)
        accuracy = heard_accuracy(truth, answer)
        if accuracy is not None:
            heard[answer.name] = accuracy
    differences = {
        (first, second): {
            figure: intervals.paired_difference(first, second, figure) for figure in FIGURES
        }
        for first, second in compared
        if first in intervals.scores and second in intervals.scores
    }
    return Evaluation(
        truth,
        tuple(answers),
        intervals,
        cluster,
        calibrations,
        heard,
        differences,
        dict(unavailable or {}),
        dict(notes or {}),
    )
