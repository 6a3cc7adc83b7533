"""Figures beside the table for a corpus with annotators: errors by type, times, words, units.

The figures are fractions; None stands where nothing is there to count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from tabulate import tabulate

from mlvae.score.answers import LEFT_OUT, SystemAnswer, answered_units, outcomes
from mlvae.score.metrics import score
from mlvae.score.truth import Truth

#: Error types of annotators by their names here. Where silence is a unit, so are added sounds.
KINDS = {"substituted": "s", "left_out": "d", "added": "a", "correct": ""}
#: Units in the text, the most frequent ones: all phones, and some of the words.
MAX_UNITS = 50
#: Seconds within which an edge is said to be right.
TOLERANCE = 0.02

NOTE = """\
Figures are in percent, errors of starts in ms.
errors      flagged: of the units of each kind by the annotators (substituted, left out, correct,
            and added where silence is a unit; words that have an error count as substituted), the
            share that the system flags. left out F1: of the units of which the system says that
            nothing was said, against those that were left out
times       average IoU of found and true span over all units that have an interval of the
            annotators, and over those of a kind (a unit that is found to be left out has the span
            that the aligner of edges gives it, or none: IoU 0); starts, found less true: median,
            and share within 20 ms
words       a word is wrong if the annotators mark an error in it, and flagged if any of its units
            is; pooled F1 counts a right flag as much as the spans overlap
units       by canonical unit: how many there are, how many are mispronounced, F1 of the flags; of
            many kinds of units the most frequent ones, all are in results.json"""


def details_of(
    truth: Truth, answers: Sequence[SystemAnswer], word_answers: Sequence[SystemAnswer]
) -> dict[str, Any]:
    """All figures, as ``results.json`` has them under ``details``.

    Args:
        truth: With what annotators say besides.
        answers: Of the systems, to its units.
        word_answers: The same to its words; empty where it has none.
    """
    shown = [answer for answer in answers if not answer.secondary]
    of_words = [answer for answer in word_answers if not answer.secondary]
    return {
        "errors": {answer.name: by_error(truth, answer) for answer in shown},
        "times": {
            answer.name: times(truth, answer)
            for answer in shown
            if not answer.name.startswith("flag-all")
        },
        "words": {
            answer.name: score(outcomes(truth.annotation.words, answer)).as_dict()
            for answer in of_words
        },
        "units": {answer.name: by_unit(truth, answer) for answer in shown},
        "counts": dict(truth.annotation.counts),
    }


def by_error(truth: Truth, answer: SystemAnswer) -> dict[str, float | int | None]:
    """How many units of each error type are flagged, and whether what was left out is named."""
    errors = np.array(truth.annotation.errors)
    found: dict[str, float | int | None] = {}
    for name, kind in KINDS.items():
        of_kind = errors == kind
        found[f"num_{name}"] = int(of_kind.sum())
        found[f"{name}_flagged"] = _share(answer.flags[of_kind])
    precision = recall = f1 = None
    if answer.heard is not None and LEFT_OUT in answer.heard:
        said = np.array([symbol == LEFT_OUT for symbol in answer.heard])
        precision, recall, f1 = _precision_recall_f1(errors == "d", said)
    return {
        **found,
        "left_out_precision": precision,
        "left_out_recall": recall,
        "left_out_f1": f1,
    }


def times(truth: Truth, answer: SystemAnswer) -> dict[str, float | None]:
    """How well times fit, over units that have an interval of the annotators."""
    errors, known = np.array(truth.annotation.errors), truth.annotated
    iou = outcomes(truth, answer).iou
    placed = known & (answer.ends > answer.starts) & answered_units(truth, answer)
    late = (answer.starts - truth.starts)[placed]
    return {
        "average_iou": _share(iou[known]),
        **{f"iou_{name}": _share(iou[known & (errors == kind)]) for name, kind in KINDS.items()},
        "median_start_error": float(np.median(late)) if len(late) else None,
        "starts_within_tolerance": _share(np.abs(late) <= TOLERANCE),
    }


def by_unit(truth: Truth, answer: SystemAnswer) -> dict[str, dict[str, float | int]]:
    """Detection of each canonical unit by itself."""
    canonical, positive = np.array(truth.canonical), truth.positive
    found = {}
    for symbol in sorted(set(truth.canonical)):
        mine = canonical == symbol
        precision, recall, f1 = _precision_recall_f1(positive[mine], answer.flags[mine])
        found[symbol] = {
            "num_units": int(mine.sum()),
            "num_mispronounced": int(positive[mine].sum()),
            "precision": precision,
            "recall": recall,
            "f1": f1,
        }
    return found


def format_details(details: dict[str, Any], heading: str) -> str:
    """Lay out the figures as text.

    Args:
        details: Of `details_of`.
        heading: The first line.
    """
    blocks = [heading, _errors(details["errors"])]
    blocks.append(_times(details["times"], _kinds(details["errors"])))
    if details["words"]:
        blocks.append(_words(details["words"]))
    blocks.append(_units(details["units"]))
    blocks.append("\n".join(_apart(details["counts"])))
    return "\n\n".join([*blocks, NOTE]) + "\n"


def _apart(counts: dict[str, int]) -> list[str]:
    """What is in no figure above."""
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
            f"Units of {counts['excused']} words count as correct because these were said as "
            "another of their pronunciations; among words they are wrong, as annotated."
        )
    return lines or ["Every annotated error is in these figures."]


def _kinds(found: dict[str, dict]) -> dict[str, int]:
    """The kinds of units that are there, with their numbers."""
    first = next(iter(found.values()))
    return {name: first[f"num_{name}"] for name in KINDS if first[f"num_{name}"]}


def _errors(found: dict[str, dict]) -> str:
    kinds = _kinds(found)
    headers = [f"{name.replace('_', ' ')} ({number})" for name, number in kinds.items()]
    keys = [f"{name}_flagged" for name in kinds]
    if "left_out" in kinds:
        headers.append("left out F1")
        keys.append("left_out_f1")
    return _table(["errors", *headers], found, keys)


def _times(found: dict[str, dict], kinds: Iterable[str]) -> str:
    kinds = list(kinds)
    headers = ["times", "average IoU", *[name.replace("_", " ") for name in kinds]]
    keys = ["average_iou", *[f"iou_{name}" for name in kinds]]
    rows = [
        [
            name,
            *[_percent(row[key]) for key in keys],
            "-" if row["median_start_error"] is None else f"{1e3 * row['median_start_error']:+.1f}",
            _percent(row["starts_within_tolerance"]),
        ]
        for name, row in found.items()
    ]
    return _tabulate([*headers, "start", "20 ms"], rows)


def _words(found: dict[str, dict]) -> str:
    headers = ["words", "pooled F1", "hard PR", "hard RE", "hard F1", "average IoU"]
    keys = ("pooled_f1", "hard_precision", "hard_recall", "hard_f1", "average_iou")
    return _table(headers, found, keys)


def _units(found: dict[str, dict]) -> str:
    """A row a unit and a column a system that may be wrong."""
    systems = [name for name in found if name not in ("oracle", "FA")]
    systems = [name for name in systems if not name.startswith("flag-all")]
    shown = sorted(found["oracle"].items(), key=lambda item: -item[1]["num_units"])[:MAX_UNITS]
    rows = [
        [
            symbol,
            str(row["num_units"]),
            str(row["num_mispronounced"]),
            *[_percent(found[name][symbol]["f1"]) for name in systems],
        ]
        for symbol, row in sorted(shown)
    ]
    return _tabulate(["units", "number", "wrong", *systems], rows)


def _table(headers: list[str], found: dict[str, dict], keys: Sequence[str]) -> str:
    return _tabulate(
        headers, [[name, *[_percent(row[key]) for key in keys]] for name, row in found.items()]
    )


def _tabulate(headers: list[str], rows: list[list[str]]) -> str:
    return tabulate(
        rows,
        headers=headers,
        tablefmt="simple",
        colalign=("left", *["right"] * (len(headers) - 1)),
        disable_numparse=True,
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _share(values: np.ndarray) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _precision_recall_f1(positive: np.ndarray, flagged: np.ndarray) -> tuple[float, float, float]:
    """0 where there is nothing to count, as in the table."""
    hit = float((positive & flagged).sum())
    precision = hit / flagged.sum() if flagged.any() else 0.0
    recall = hit / positive.sum() if positive.any() else 0.0
    f1 = 2 * precision * recall / (precision + recall) if hit else 0.0
    return float(precision), float(recall), float(f1)
