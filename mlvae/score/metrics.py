"""The three metrics of mismatch localisation, as functions of arrays over all units.

A unit is one canonical symbol of one utterance. It is positive when the reference says it was
mispronounced, flagged when the system says so, and it has an intersection over union (IoU) between
the span where the system put it and its true span. With TP, FP and FN counted as usual and TP_ML
the sum of the IoU over the true positives, the paper defines

    PR_ML = TP_ML / (TP + FP),  RE_ML = TP_ML / (TP + FN),  F1_ML = 2 PR_ML RE_ML / (PR_ML + RE_ML).

* **pooled**: the sums run over all units of the set.
* **macro**: PR_ML, RE_ML and F1_ML of each utterance, averaged over the utterances. A ratio without
  anything to count (no positive, none flagged) is 0, so an utterance without a mismatch costs even
  the perfect system its whole weight.
* **hard**: ordinary detection precision, recall and F1 (TP in place of TP_ML), and with it the
  average IoU over all units that have a time in the reference, flagged or not.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

import numpy as np

SUM_METRICS = (
    "pooled_precision",
    "pooled_recall",
    "pooled_f1",
    "hard_precision",
    "hard_recall",
    "hard_f1",
    "average_iou",
)
MACRO_METRICS = ("macro_precision", "macro_recall", "macro_f1")
NUM_SUMS = 6  # columns of unit_sums()


@dataclass(frozen=True)
class Scores:
    """All metrics of one system on one set, as fractions between 0 and 1."""

    pooled_precision: float
    pooled_recall: float
    pooled_f1: float
    macro_precision: float
    macro_recall: float
    macro_f1: float
    hard_precision: float
    hard_recall: float
    hard_f1: float
    average_iou: float

    def as_dict(self) -> dict[str, float]:
        """Return the metrics by name, pooled ones first."""
        return asdict(self)


METRICS = tuple(field.name for field in fields(Scores))


@dataclass(frozen=True)
class Outcomes:
    """What one system did with each of N units of U utterances.

    Raises:
        ValueError: On construction, when the shapes differ, nothing is there, an IoU is outside
            0..1 or an utterance has no unit.
    """

    positive: np.ndarray  # (N,) bool, mispronounced according to the reference
    flagged: np.ndarray  # (N,) bool, mispronounced according to the system
    iou: np.ndarray  # (N,) float64 in 0..1, of found and true span
    # (N,) int64 in 0..U-1, the utterance of each unit; every utterance has a unit
    utterance: np.ndarray
    # (N,) bool, it is known where the unit is, so that it counts for the average IoU; None: of all
    # units
    annotated: np.ndarray | None = None

    def __post_init__(self) -> None:
        shapes = {array.shape for array in (self.positive, self.flagged, self.iou, self.utterance)}
        if len(shapes) != 1 or len(self.positive.shape) != 1:
            raise ValueError(f"expected four arrays of one shape (N,), got {sorted(shapes)}")
        if len(self.positive) == 0:
            raise ValueError("there is no unit to score")
        if not ((self.iou >= 0) & (self.iou <= 1)).all():
            raise ValueError("an IoU lies outside 0..1")
        if not np.bincount(self.utterance).all():
            raise ValueError("an utterance has no unit")

    @property
    def num_utterances(self) -> int:
        """Number of utterances, U."""
        return int(self.utterance.max()) + 1


def interval_iou(
    starts: np.ndarray, ends: np.ndarray, true_starts: np.ndarray, true_ends: np.ndarray
) -> np.ndarray:
    """Intersection over union of found and true spans, (N,) float64 in 0..1, unit by unit.

    A span without length has IoU 0, also against another span without length: there is no speech
    that it could be found in. A unit that both sides call deleted thus counts in the hard metrics
    and not in the others. Arguments are (N,) float64, seconds.

    Raises:
        ValueError: a span ends before it starts.
    """
    if (ends < starts).any() or (true_ends < true_starts).any():
        raise ValueError("a span ends before it starts")
    shared = np.minimum(ends, true_ends) - np.maximum(starts, true_starts)
    shared = np.maximum(shared, 0.0)
    union = (ends - starts) + (true_ends - true_starts) - shared
    # Rounding may leave the union a hair below the intersection when the spans are equal.
    return np.minimum(_ratio(shared, union), 1.0)


def score(outcomes: Outcomes) -> Scores:
    """Compute all metrics of one system."""
    sums = metrics_of_sums(unit_sums(outcomes).sum(axis=0))
    macro = utterance_values(outcomes).mean(axis=0)
    values = zip(SUM_METRICS + MACRO_METRICS, [*sums.tolist(), *macro.tolist()])
    return Scores(**dict(values))


def unit_sums(outcomes: Outcomes) -> np.ndarray:
    """What each unit adds to the sums that the metrics are made of, (N, 6) float64.

    Columns: true positive, true positive times IoU, flagged, positive, IoU and 1, the last two 0
    for a unit of which it is not known where it is.
    """
    hit = outcomes.positive & outcomes.flagged
    known = np.ones(len(hit)) if outcomes.annotated is None else outcomes.annotated
    columns = (
        hit,
        hit * outcomes.iou,
        outcomes.flagged,
        outcomes.positive,
        outcomes.iou * known,
        known,
    )
    return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)


def utterance_values(outcomes: Outcomes) -> np.ndarray:
    """(U, 3) float64, PR_ML, RE_ML and F1_ML of each utterance; macro metrics are the means."""
    sums = unit_sums(outcomes)
    per_utterance = np.zeros((outcomes.num_utterances, NUM_SUMS))
    np.add.at(per_utterance, outcomes.utterance, sums)
    return precision_recall_f1(per_utterance[:, 1], per_utterance[:, 2], per_utterance[:, 3])


def metrics_of_sums(total: np.ndarray) -> np.ndarray:
    """The pooled and hard metrics and the average IoU, for many sums at once.

    Of ``total`` (..., 6) float64, the columns of `unit_sums` summed over the units, each with the
    same weight or (for resamples) with its own: (..., 7) float64 in the order of `SUM_METRICS`.
    """
    pooled = precision_recall_f1(total[..., 1], total[..., 2], total[..., 3])
    hard = precision_recall_f1(total[..., 0], total[..., 2], total[..., 3])
    average_iou = _ratio(total[..., 4], total[..., 5])[..., None]
    return np.concatenate([pooled, hard, average_iou], axis=-1)


def precision_recall_f1(hit: np.ndarray, flagged: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """(..., 3) float64 of three sums (...,) float64; 0 where there is nothing to count."""
    precision = _ratio(hit, flagged)
    recall = _ratio(hit, positive)
    f1 = _ratio(2 * precision * recall, precision + recall)
    return np.stack([precision, recall, f1], axis=-1)


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """``above / below``, and 0 where ``below`` is 0."""
    return np.divide(above, below, out=np.zeros_like(above, dtype=np.float64), where=below > 0)
