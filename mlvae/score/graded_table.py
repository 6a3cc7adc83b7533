"""The printed table, ``results.json`` and the plot of scoring against experts' scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlvae.report.plots import Panel
from mlvae.score.calibration import reliability_curve
from mlvae.score.graded import (
    LEVELS,
    THRESHOLDS,
    ChangedOnTop,
    GradedEvaluation,
    GradedHypothesis,
    GradedReference,
)
from mlvae.score.intervals import LEVEL, Difference, difference_fields, interval_fields
from mlvae.score.ranking import RANKING_METRICS
from mlvae.score.tables import (
    format_count,
    format_difference,
    missing_lines,
    tabulated,
    title_of,
)

CALIBRATION_METRICS = ("brier_score", "brier_skill", "expected_calibration_error")
THRESHOLD_METRICS = (*RANKING_METRICS, "hard_f1", "hard_flagged", *CALIBRATION_METRICS)
CALIBRATED = (0.5, 1.0)
"""Thresholds whose calibration is shown; all are in results.json."""

_COLUMNS = {
    "AP": "average_precision",
    "AUC": "auc",
    "best F1": "best_f1",
    "its flags": "best_f1_flagged",
    "hard F1": "hard_f1",
    "hard flags": "hard_flagged",
}

NOTE = """\
Metrics are fractions, in brackets the {level:.0f} % interval over the {speakers} speakers: not over
training runs or other corpora. A unit is wrong where the mean score of the experts (2 right,
1 with an accent, 0 wrong or missing) is below the threshold; nothing is known of times and of what
was said.
AP           average precision of the units sorted by P(mispronounced); units of one P share a rank
AUC          fraction of pairs of a wrong and a right unit in which the wrong one has the higher P
best F1      the highest F1 that a threshold on P gives (chosen in view of the scores), and the
             fraction of units that it flags
hard F1      F1 of what the system flags by itself, and the fraction of units that it flags
correlation  Pearson's, of the mean score and -P by unit, by word (P of the tier mlvae_word, or
             without this tier the mean P of its units) and by utterance (mean P of its units);
             {graded_by}
P            calibration of P(mispronounced) by threshold; resamples keep the bins of the whole set
  Brier      mean squared distance of P and the reference (1 or 0)
  skill      1 - Brier / Brier of the base rate as a constant P: 1 is perfect, 0 no better than the
             constant, below 0 worse
  error      distance of P and the fraction of wrong units, averaged over 15 or fewer bins of
             equally many units; above 0 also for a calibrated system
random       P drawn at random
flag-all     P = 1 for every unit"""
CHANGED_NOTE = """
on top       fraction of the strings of digits, one word of the text replaced by another digit, in
             which that word is above each other one; what is missing counts as wrong
  by P       P of the words, as for the correlation
  evidence   that another word was said, as `mlvae audit` has it: log odds of its units' P, less
             those of the mean P of all units of the strings, summed up"""
DIFFERENCE_NOTE = """
difference   of the AP of two systems on the same resamples of speakers; * the interval excludes 0;
             each interval holds by itself, not all of them at once"""


@dataclass(frozen=True)
class ChangedWords:
    """Utterances with a changed word, and how often systems find it."""

    reference: GradedReference
    hypotheses: Sequence[GradedHypothesis]
    on_top: dict[str, ChangedOnTop]  # of `changed_on_top`


def format_graded(
    evaluation: GradedEvaluation, corpus: dict, changed: ChangedWords | None = None
) -> str:
    """The table, at most 120 columns wide; ``corpus`` is the content of ``corpus.json``."""
    blocks = [_heading(evaluation, corpus)]
    blocks += [_ranking(evaluation, threshold) for threshold in THRESHOLDS]
    blocks += [_correlations(evaluation), _calibrations(evaluation)]
    if evaluation.compared:
        blocks.append(_differences(evaluation))
    if changed is not None:
        blocks.append(_changed(changed))
    blocks += [f"{name}: {reason}" for name, reason in evaluation.unavailable.items()]
    blocks += missing_lines(evaluation.reference.units, evaluation.hypotheses)
    if changed is not None:
        blocks += missing_lines(changed.reference.units, changed.hypotheses)
    note = _note(evaluation) + CHANGED_NOTE * (changed is not None)
    return "\n\n".join([*blocks, note]) + "\n"


def _heading(evaluation: GradedEvaluation, corpus: dict) -> str:
    reference = evaluation.reference
    return (
        f"{title_of(corpus)}: {len(reference.units.utterances)} test utterances of "
        f"{evaluation.num_speakers} speakers, {int(reference.scored.sum())} units with a score, "
        f"{int((~reference.scored).sum())} without"
    )


def _ranking(evaluation: GradedEvaluation, threshold: float) -> str:
    rate = evaluation.reference.base_rate(threshold)
    rows = [
        [h.name]
        + [_cell(evaluation.estimate(h.name, (threshold, key))) for key in _COLUMNS.values()]
        for h in evaluation.hypotheses
    ]
    table = tabulated(["system", *_COLUMNS], rows, "left", "center")
    return f"wrong below {threshold:g}: base rate {rate:.4f}\n{table}"


def _correlations(evaluation: GradedEvaluation) -> str:
    rows = [
        [h.name, format_count(h.num_params)]
        + [_cell(evaluation.estimate(h.name, ("correlation", level))) for level in LEVELS]
        for h in evaluation.hypotheses
    ]
    headers = ["correlation", "params", "units", "words", "utterances"]
    return tabulated(headers, rows, "left", "right", "center")


def _calibrations(evaluation: GradedEvaluation) -> str:
    headers = ["P", *[f"{name} {t:g}" for t in CALIBRATED for name in ("Brier", "skill", "error")]]
    rows = [
        [h.name]
        + [
            _cell(evaluation.estimate(h.name, (threshold, metric)), 2 if "skill" in metric else 3)
            for threshold in CALIBRATED
            for metric in CALIBRATION_METRICS
        ]
        for h in evaluation.hypotheses
    ]
    return tabulated(headers, rows, "left", "center")


def _differences(evaluation: GradedEvaluation) -> str:
    rows = [
        [f"{first} minus {second}"]
        + [
            format_difference(evaluation.difference(first, second, t), "+.3f", 1.0)
            for t in THRESHOLDS
        ]
        for first, second in evaluation.compared
    ]
    headers = ["difference", *[f"AP below {threshold:g}" for threshold in THRESHOLDS]]
    return tabulated(headers, rows, "left", "center")


def _changed(changed: ChangedWords) -> str:
    reference, rows = changed.reference, []
    for name, found in changed.on_top.items():
        cells = (_cell(one).replace("\n", " ") for one in (found.by_p, found.by_evidence))
        rows.append([name, *cells])
    headers = ["changed word", "on top by P", "on top by evidence"]
    table = tabulated(headers, rows, "left", "center")
    speakers = len(set(reference.units.speakers))
    return f"{len(reference.units.utterances)} strings of digits of {speakers} speakers\n{table}"


def _cell(found: Difference | None, digits: int = 3) -> str:
    if found is None:
        return "-\n"
    interval = "-" if found.low is None else f"[{found.low:.{digits}f} {found.high:.{digits}f}]"
    return f"{found.estimate:.{digits}f}\n{interval}"


def _note(evaluation: GradedEvaluation) -> str:
    graded_by = "the experts have scored words and utterances (accuracy)"
    if not evaluation.reference.words_are_scored:
        graded_by = "the score of a word or an utterance is the mean of its units' scores"
    note = NOTE.format(level=100 * LEVEL, speakers=evaluation.num_speakers, graded_by=graded_by)
    rows = {hypothesis.name for hypothesis in evaluation.hypotheses}
    for name, text in evaluation.notes.items():
        if name in rows:
            note += f"\n{name:<11}  {text}"
    return note + DIFFERENCE_NOTE * bool(evaluation.compared)


# ---- results.json and the plot ----------------------------------------------------------------


def graded_results(
    evaluation: GradedEvaluation, changed: ChangedWords | None = None
) -> dict[str, Any]:
    """What is in ``results.json`` of the metrics, see docs/formats.md."""
    reference = evaluation.reference
    on_top = {} if changed is None else changed.on_top
    return {
        "counts": {
            "num_utterances": len(reference.units.utterances),
            "num_words": len(reference.word_scores),
            "num_units": int(reference.scored.sum()),
            "num_unscored": int((~reference.scored).sum()),
            "base_rates": {f"{t:g}": reference.base_rate(t) for t in THRESHOLDS},
            "words_are_scored": reference.words_are_scored,
        },
        "intervals": {
            "level": LEVEL,
            "over": "speaker",
            "num_clusters": evaluation.num_speakers,
            "num_resamples": evaluation.num_resamples,
        },
        "systems": {
            h.name: {
                "below": {
                    f"{threshold:g}": _fields(evaluation, h.name, threshold, THRESHOLD_METRICS)
                    for threshold in THRESHOLDS
                },
                "correlation": _fields(evaluation, h.name, "correlation", LEVELS),
                "num_params": h.num_params,
                "training_seconds": h.training_seconds,
                "num_missing": len(h.missing),
            }
            for h in evaluation.hypotheses
        },
        "unavailable": dict(evaluation.unavailable),
        "differences": {
            f"{first} minus {second}": {
                f"{threshold:g}": difference_fields(
                    "average_precision", evaluation.difference(first, second, threshold)
                )
                for threshold in THRESHOLDS
            }
            for first, second in evaluation.compared
        },
        "changed_words": {
            "num_utterances": 0 if changed is None else len(changed.reference.units.utterances),
            "systems": {
                name: {
                    **interval_fields("on_top", found.by_p),
                    **interval_fields("on_top_by_evidence", found.by_evidence),
                }
                for name, found in on_top.items()
            },
        },
    }


def _fields(
    evaluation: GradedEvaluation, name: str, group: Any, metrics: Sequence[str]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for metric in metrics:
        found.update(interval_fields(metric, evaluation.estimate(name, (group, metric))))
    return found


def graded_panels(evaluation: GradedEvaluation) -> list[Panel]:
    """What the reliability plot shows, a panel for each system and threshold of `CALIBRATED`."""
    reference, panels = evaluation.reference, []
    for hypothesis in evaluation.hypotheses:
        if hypothesis.num_params is None:
            continue  # random and flag-all
        probabilities = hypothesis.probabilities[reference.scored]
        for threshold in CALIBRATED:
            wrong = reference.scores[reference.scored] < threshold
            skill = evaluation.estimate(hypothesis.name, (threshold, "brier_skill"))
            note = f"wrong below {threshold:g}"
            if skill is not None:
                note += f", Brier skill {skill.estimate:.3f}"
            curve = reliability_curve(probabilities, wrong)
            panels.append(Panel(f"{hypothesis.name}\n{note}", probabilities, curve))
    return panels
