"""The printed tables: all systems with intervals, and the details of annotated corpora."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from tabulate import tabulate

from mlvae.score.graded import GradedHypothesis
from mlvae.score.hypotheses import Evaluation, Hypothesis, covered_units, outcomes
from mlvae.score.intervals import LEVEL, Difference
from mlvae.score.metrics import precision_recall_f1, score
from mlvae.score.reference import Reference
from mlvae.tiers import DELETED

COLUMNS = {
    "pooled PR": "pooled_precision",
    "pooled RE": "pooled_recall",
    "pooled F1": "pooled_f1",
    "macro F1": "macro_f1",
    "hard F1": "hard_f1",
    "average IoU": "average_iou",
}
COMPARED_COLUMNS = ("pooled F1", "macro F1", "hard F1", "average IoU")
HEADLINE = "pooled_f1"
WIDTH = 120
SHOWN_MISSING = 5
# A longer name of a difference goes on in a second line, which keeps the table within 120 columns.
LONGEST_DIFFERENCE = 32

NOTE = """\
Metrics are in percent; in brackets the {level:.0f} % interval over the {num_clusters} \
{clusters}s
that the test units come from: not over training runs, other corpora{or_speakers}.
pooled       precision, recall and F1 of the flagged units over the whole set, where a correct flag
             counts as much as its span overlaps the true one (intersection over union, IoU)
macro        the same F1 per utterance, averaged; an utterance without a mismatch counts 0, so the
             oracle row is its ceiling, not 100
hard         F1 of the flags alone: which units are wrong, not where they are
average IoU  overlap of found and true span over all units, flagged or not: where units are, not
             which are wrong
oracle       the reference itself
flag-all     trivial baseline: every unit flagged, on the spans of FA, of ML-VAE (ours) or of
             ML-VAE-sub (sub)"""
PERCEIVED_NOTE = """
perceived    of the substituted units that are flagged and for which the system names a unit, the
             fraction where it is the perceived one; below, the number of these units (without those
             that annotators call unclear, which no unit describes)"""
DIFFERENCE_NOTE = """
difference   of two systems on the same units and the same resamples, with its interval; each
             interval holds by itself, not all of them at once"""
PROBABILITY_NOTE = """
P(mispronounced): fractions, not percent, over the units with a hypothesis
  AP, AUC            how well P ranks units, whatever its threshold: average precision, which is the
                     fraction of mispronounced units where P says nothing, and area under the ROC
                     curve, .5 there
  calibration error  distance of P and the fraction of mispronounced units, averaged over 15 or
                     fewer bins of equally many units; above 0 also for a calibrated system
  Brier score        mean squared distance of P and the reference (1 or 0)
  Brier skill        1 - Brier score / Brier score of the fraction of mispronounced units as a
                     constant P: 1 is perfect, 0 no better than the constant, below 0 worse"""
SYNTHETIC_NOTE = """
Synthetic speech: the metrics check that everything works and compare systems on it; performance on
real speech does not follow from them."""
CHANGED_NOTE = """
The mismatches were made by changing labels: how well mispronunciations of real speakers are found
does not follow from these metrics."""

#: Error types by their codes in references. Where silence is a unit, so are insertions.
KINDS = {"substituted": "s", "deleted": "d", "inserted": "a", "correct": ""}
#: Units in the text, the most frequent ones: all phones, and some of the words.
MAX_UNITS = 50
#: Systems side by side in the table of units.
SYSTEMS_ABREAST = 7
#: Seconds within which a start counts as correct.
TOLERANCE = 0.02

DETAILS_NOTE = """\
Metrics are in percent, errors of starts in ms.
errors      flagged: of the units of each kind by the annotators (substituted, deleted, correct, and
            inserted where silence is a unit; words that have an error count as substituted), the
            fraction that the system flags. deletion F1: of the units that the system calls deleted
            against those that were deleted
times       average IoU of found and true span over all units that have an interval of the
            annotators, and over those of a kind (a unit that the system calls deleted has the span
            of the boundary aligner, or none: IoU 0); starts, found minus true: median, and fraction
            within 20 ms
words       a word is wrong if the annotators mark an error in it, and flagged if any of its units
            is; pooled F1 counts a correct flag as much as the spans overlap
units       by canonical unit: how many there are, how many are mispronounced, F1 of the flags; of
            many kinds of units the most frequent ones, of systems with the same flags the first;
            all are in results.json"""


def format_table(evaluation: Evaluation, corpus: dict) -> str:
    """The table of some systems with a heading and notes, at most 120 columns wide.

    Blocks: the metrics; those of P(mispronounced) and the differences of pairs of systems, each if
    there are any. Of ``corpus.json``, ``title`` and ``synthetic`` are used, and whether it has a
    ``mismatch_rate``, that is, whether its mismatches were made.
    """
    blocks = [heading(evaluation.reference, corpus), _metrics(evaluation)]
    if evaluation.calibrations:
        blocks.append(_probabilities(evaluation))
    if evaluation.differences:
        blocks += [_differences(evaluation), _zero_line(evaluation)]
    blocks += missing_lines(evaluation.reference, evaluation.hypotheses)
    return "\n\n".join([*blocks, _note(evaluation, corpus)]) + "\n"


def title_of(corpus: dict) -> str:
    """The title of a corpus, which says once if its speech is synthetic."""
    title = corpus["title"]
    plain = not corpus.get("synthetic") or "simulated" in title
    return title if plain else f"{title} (synthetic speech)"


def heading(reference: Reference, corpus: dict) -> str:
    """One line: the corpus, whether its speech is synthetic, and the size of the scored set."""
    kind = "words" if corpus.get("unit") == "bpe" else "units"  # of BPE tokens words are scored
    return (
        f"{title_of(corpus)}: {len(reference.utterances)} test utterances, "
        f"{len(reference.canonical)} {kind}, "
        f"{100 * np.mean(reference.positive):.1f} % of them mismatched"
    )


def format_count(count: int | None) -> str:
    """Shorten a number of parameters: ``24.3 M``, ``812 k``, ``-`` for None."""
    if count is None:
        return "-"
    if count >= 1_000_000:
        return f"{count / 1_000_000:.1f} M"
    return f"{count / 1000:.0f} k" if count >= 10_000 else str(count)


def tabulated(headers: Sequence[str], rows: Sequence[Sequence[str]], *align: str) -> str:
    """A table; ``align`` is of the first columns, and its last entry of all further ones."""
    return tabulate(
        rows,
        headers=headers,
        tablefmt="simple",
        colalign=(*align, *[align[-1]] * (len(headers) - len(align))),
        disable_numparse=True,
    )


def _metrics(evaluation: Evaluation) -> str:
    headers = ["system", "params", *COLUMNS]
    if evaluation.perceived:
        headers.append("perceived")
    rows = {
        hypothesis.name: _row(hypothesis, evaluation)[: len(headers)]
        for hypothesis in evaluation.hypotheses
    }
    for name in evaluation.unavailable:
        rows[name] = [name, *["-"] * (len(headers) - 1)]
    order = list(evaluation.notes)
    # Rows of no system (oracle, flag-all) stay before those of systems.
    names = sorted(rows, key=lambda name: order.index(name) if name in order else -1)
    lines = tabulated(headers, [rows[name] for name in names], "left", "right", "center")
    lines = lines.splitlines()
    # The reason replaces the metrics, from the first of their columns on.
    column = [match.start() for match in re.finditer("-+", lines[1])][2]
    for index, line in enumerate(lines):
        reason = evaluation.unavailable.get(line.split("  ")[0])
        if reason is not None:
            lines[index] = f"{line[:column]}{reason}"
    return "\n".join(lines)


def _row(hypothesis: Hypothesis, evaluation: Evaluation) -> list[str]:
    name, cells = hypothesis.name, []
    for metric in COLUMNS.values():
        ends = evaluation.intervals.interval(name, metric)
        interval = "-" if ends is None else f"[{_percent(ends[0])} {_percent(ends[1])}]"
        estimate = getattr(evaluation.intervals.scores[name], metric)
        cells.append(f"{_percent(estimate)}\n{interval}")
    if (perceived := evaluation.perceived.get(name)) is None:
        cells.append("-")
    else:
        cells.append(f"{_percent(perceived.fraction)}\nof {perceived.num_named}")
    return [name, format_count(hypothesis.num_params), *cells]


def _probabilities(evaluation: Evaluation) -> str:
    columns = {
        "AP": "average_precision",
        "AUC": "area_under_curve",
        "calibration error": "expected_calibration_error",
        "Brier score": "brier_score",
        "Brier skill": "brier_skill",
    }
    rows = []
    for name, metrics in evaluation.calibrations.items():
        values = [getattr(metrics, metric) for metric in columns.values()]
        rows.append([name, *("-" if value is None else f"{value:.3f}" for value in values)])
    return tabulated(["P(mispronounced)", *columns], rows, "left", "center")


def _differences(evaluation: Evaluation) -> str:
    rows = []
    for (first, second), by_metric in evaluation.differences.items():
        name = f"{first} minus {second}"
        if len(name) > LONGEST_DIFFERENCE:
            name = f"{first} minus\n{second}"
        cells = [format_difference(by_metric[COLUMNS[column]]) for column in COMPARED_COLUMNS]
        rows.append([name, *cells])
    return tabulated(["difference", *COMPARED_COLUMNS], rows, "left", "center")


def format_difference(found: Difference | None, spec: str = "+.1f", scale: float = 100.0) -> str:
    """A difference with its interval, and a star where that excludes 0; default: in percent."""
    if found is None:
        return "-"
    shown = f"{scale * found.estimate:{spec}}"
    if found.low is None:
        return shown
    mark = "*" if found.excludes_zero else " "
    return f"{shown} [{scale * found.low:{spec}} {scale * found.high:{spec}}]{mark}"


def _zero_line(evaluation: Evaluation) -> str:
    """For the headline metric: of which differences the interval excludes 0."""
    within = [
        f"{first} minus {second}"
        for (first, second), by_metric in evaluation.differences.items()
        if not by_metric[HEADLINE].excludes_zero
    ]
    total, level = len(evaluation.differences), 100 * LEVEL
    line = (
        f"* the {level:.0f} % interval excludes 0: for pooled F1 in {total - len(within)} of "
        f"{total} differences"
    )
    if within:
        line += f", not in {'; '.join(within)}"
    return textwrap.fill(line, WIDTH, subsequent_indent="  ")


def _note(evaluation: Evaluation, corpus: dict) -> str:
    cluster, intervals = evaluation.cluster, evaluation.intervals
    note = NOTE.format(
        level=100 * LEVEL,
        num_clusters=intervals.num_clusters,
        clusters=cluster if cluster == "speaker" else "source recording",
        or_speakers=" or other speakers" if cluster == "recording" else "",
    )
    shown = {hypothesis.name for hypothesis in evaluation.hypotheses} | set(evaluation.unavailable)
    for name, text in evaluation.notes.items():
        if name in shown:
            note += f"\n{name:<11}  {text}"
    if evaluation.perceived:
        note += PERCEIVED_NOTE
    if evaluation.calibrations:
        note += PROBABILITY_NOTE
    if evaluation.differences:
        note += DIFFERENCE_NOTE
    if corpus.get("synthetic"):
        note += SYNTHETIC_NOTE
    if corpus.get("mismatch_rate") is not None:
        note += CHANGED_NOTE
    return note


def _percent(fraction: float) -> str:
    """One decimal, except that 100 is short: it is exact, and keeps the columns narrow."""
    return "100" if fraction == 1 else f"{100 * fraction:.1f}"


def missing_lines(
    reference: Reference, hypotheses: Sequence[Hypothesis | GradedHypothesis]
) -> list[str]:
    """Say which utterances have no hypothesis, once for all systems that lack the same ones."""
    systems: dict[tuple[str, ...], list[str]] = {}
    for hypothesis in hypotheses:
        if hypothesis.missing:
            systems.setdefault(hypothesis.missing, []).append(hypothesis.name)
    lines = []
    for missing, names in systems.items():
        shown = ", ".join(missing[:SHOWN_MISSING]) + (", ..." if missing[SHOWN_MISSING:] else "")
        lines.append(
            f"no hypothesis for {len(missing)} of {len(reference.utterances)} utterances, which "
            f"count as missed ({shown}):\n  {'; '.join(names)}"
        )
    return lines


# ---- Details ----------------------------------------------------------------------------------


def details_of(
    reference: Reference,
    hypotheses: Sequence[Hypothesis],
    word_hypotheses: Sequence[Hypothesis],
) -> dict[str, Any]:
    """Errors by type, times, words and units, as ``results.json`` has them under ``details``.

    All are fractions; None stands where nothing is there to count. The reference has an annotation,
    and ``word_hypotheses`` are empty where it has no words.
    """
    return {
        "errors": {hypothesis.name: by_error(reference, hypothesis) for hypothesis in hypotheses},
        "times": {
            hypothesis.name: times(reference, hypothesis)
            for hypothesis in hypotheses
            if not hypothesis.name.startswith("flag-all")
        },
        "words": {
            hypothesis.name: score(outcomes(reference.annotation.words, hypothesis)).as_dict()
            for hypothesis in word_hypotheses
        },
        "units": {hypothesis.name: by_unit(reference, hypothesis) for hypothesis in hypotheses},
        "counts": dict(reference.annotation.counts),
    }


def by_error(reference: Reference, hypothesis: Hypothesis) -> dict[str, float | int | None]:
    """How many units of each error type are flagged, and how well deletions are found."""
    errors = np.array(reference.annotation.errors)
    found: dict[str, float | int | None] = {}
    for name, kind in KINDS.items():
        of_kind = errors == kind
        found[f"num_{name}"] = int(of_kind.sum())
        found[f"{name}_flagged"] = _fraction(hypothesis.flags[of_kind])
    deletion: Sequence[float | None] = (None, None, None)
    if hypothesis.perceived is not None and DELETED in hypothesis.perceived:
        deleted = np.array([symbol == DELETED for symbol in hypothesis.perceived])
        deletion = _detection(errors == "d", deleted)
    return {
        **found,
        **dict(zip(("deletion_precision", "deletion_recall", "deletion_f1"), deletion)),
    }


def times(reference: Reference, hypothesis: Hypothesis) -> dict[str, float | None]:
    """How well times fit, over units that have an interval of the annotators."""
    errors, known = np.array(reference.annotation.errors), reference.annotated
    iou = outcomes(reference, hypothesis).iou
    placed = known & (hypothesis.ends > hypothesis.starts) & covered_units(reference, hypothesis)
    late = (hypothesis.starts - reference.starts)[placed]
    return {
        "average_iou": _fraction(iou[known]),
        **{f"iou_{name}": _fraction(iou[known & (errors == kind)]) for name, kind in KINDS.items()},
        "median_start_error": float(np.median(late)) if len(late) else None,
        "starts_within_tolerance": _fraction(np.abs(late) <= TOLERANCE),
    }


def by_unit(reference: Reference, hypothesis: Hypothesis) -> dict[str, dict[str, float | int]]:
    """Detection of each canonical unit by itself."""
    canonical, positive = np.array(reference.canonical), reference.positive
    found = {}
    for symbol in sorted(set(reference.canonical)):
        mine = canonical == symbol
        precision, recall, f1 = _detection(positive[mine], hypothesis.flags[mine])
        found[symbol] = {
            "num_units": int(mine.sum()),
            "num_mispronounced": int(positive[mine].sum()),
            "precision": precision,
            "recall": recall,
            "f1": f1,
        }
    return found


def _fraction(values: np.ndarray) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _detection(positive: np.ndarray, flagged: np.ndarray) -> list[float]:
    """Precision, recall and F1, 0 where there is nothing to count."""
    sums = [[array.sum()] for array in (positive & flagged, flagged, positive)]
    return precision_recall_f1(*np.array(sums, dtype=np.float64))[0].tolist()


def format_details(details: dict[str, Any], heading: str) -> str:
    """Lay out what ``details_of`` returns below a first line."""
    first = next(iter(details["errors"].values()))
    kinds = {name: first[f"num_{name}"] for name in KINDS if first[f"num_{name}"]}
    blocks = [heading, _errors(details["errors"], kinds), _times(details["times"], kinds)]
    if details["words"]:
        headers = ["words", "pooled F1", "hard PR", "hard RE", "hard F1", "average IoU"]
        keys = ("pooled_f1", "hard_precision", "hard_recall", "hard_f1", "average_iou")
        blocks.append(_table(headers, details["words"], keys))
    blocks.append(_units(details["units"]))
    blocks.append("\n".join(_counts(details["counts"])))
    return "\n\n".join([*blocks, DETAILS_NOTE]) + "\n"


def _counts(counts: dict[str, int]) -> list[str]:
    """Errors that no metric above includes."""
    lines = []
    if counts["insertions"]:
        lines.append(
            f"Apart from these: {counts['insertions']} inserted sounds in "
            f"{counts['words with insertions']} words."
        )
    if counts["unplaced"]:
        lines.append(
            f"{counts['unplaced']} errors are on phones that the text's pronunciation lacks."
        )
    if counts["excused"]:
        lines.append(
            f"Units of {counts['excused']} words count as correct because these were read in "
            "another of their pronunciations; among words they are wrong, as annotated."
        )
    return lines or ["Every annotated error is in these metrics."]


def _errors(found: dict[str, dict], kinds: dict[str, int]) -> str:
    headers = [f"{name} ({number})" for name, number in kinds.items()]
    keys = [f"{name}_flagged" for name in kinds]
    if "deleted" in kinds:
        headers.append("deletion F1")
        keys.append("deletion_f1")
    return _table(["errors", *headers], found, keys)


def _times(found: dict[str, dict], kinds: Iterable[str]) -> str:
    keys = ["average_iou", *[f"iou_{name}" for name in kinds]]
    rows = [
        [
            name,
            *[_cell(row[key]) for key in keys],
            "-" if row["median_start_error"] is None else f"{1e3 * row['median_start_error']:+.1f}",
            _cell(row["starts_within_tolerance"]),
        ]
        for name, row in found.items()
    ]
    return tabulated(["times", "average IoU", *kinds, "start", "20 ms"], rows, "left", "right")


def _units(found: dict[str, dict]) -> str:
    """A row per unit and a column per system that flags some units and not others.

    Of systems with the same flags the first one has a column. Many are in several tables.
    """
    systems: list[str] = []
    for name, own in found.items():
        constant = name in ("oracle", "FA") or name.startswith("flag-all")
        if not constant and all(own != found[other] for other in systems):
            systems.append(name)
    shown = sorted(found["oracle"].items(), key=lambda item: -item[1]["num_units"])[:MAX_UNITS]
    blocks = []
    for first in range(0, max(len(systems), 1), SYSTEMS_ABREAST):
        some = systems[first : first + SYSTEMS_ABREAST]
        rows = [
            [
                symbol,
                str(row["num_units"]),
                str(row["num_mispronounced"]),
                *[_cell(found[name][symbol]["f1"]) for name in some],
            ]
            for symbol, row in sorted(shown)
        ]
        blocks.append(tabulated(["units", "number", "wrong", *some], rows, "left", "right"))
    return "\n\n".join(blocks)


def _table(headers: list[str], found: dict[str, dict], keys: Sequence[str]) -> str:
    rows = [[name, *[_cell(row[key]) for key in keys]] for name, row in found.items()]
    return tabulated(headers, rows, "left", "right")


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"
