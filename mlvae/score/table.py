"""The printed table: three figures, always together, each with its interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tabulate import tabulate

from mlvae.score.answers import SystemAnswer
from mlvae.score.bootstrap import Difference
from mlvae.score.evaluation import Evaluation
from mlvae.score.truth import Truth

COLUMNS = {
    "pooled PR": "pooled_precision",
    "pooled RE": "pooled_recall",
    "pooled F1": "pooled_f1",
    "macro F1": "macro_f1",
    "hard F1": "hard_f1",
    "average IoU": "average_iou",
}
COMPARED_COLUMNS = ("pooled F1", "macro F1", "hard F1", "average IoU")
SHOWN_MISSING = 5
# A longer name goes on in a second line after its first comma, which keeps the table narrow.
LONGEST_NAME = 20

NOTE = """\
Figures are in percent; in brackets the {level:.0f} % interval over the {num_clusters} \
{clusters}s
that the test units come from: not over training runs, other corpora{or_speakers}.
pooled       precision, recall and F1 of the flagged units over the whole set, where a right flag
             counts as much as its span overlaps the true one (intersection over union, IoU)
macro        the same F1 per utterance, averaged; an utterance without a mismatch counts 0, so the
             oracle row is its ceiling, not 100
hard         F1 of the flags alone: says which units are wrong, nothing about where they are
average IoU  overlap of found and true span over all units, flagged or not: says where units are,
             nothing about which are wrong
oracle       the true answers; flag-all flags every unit, on the spans of FA, of ML-VAE (ours) or
             of ML-VAE-sub (sub): what a flag is worth that knows nothing"""
HEARD_NOTE = """
heard        of the units that were said as another one and are flagged, and for which the system
             names a unit, the share where it is the one that was said; below, the number of these
             units"""
PROBABILITY_NOTE = """
P > 0.5      flags the units whose P(mispronounced) is above one half, whatever the best path says
P(mispronounced): fractions, not percent, over the units with an answer
  calibration error  distance of P and the share of mispronounced units, averaged over 15 or fewer
                     bins of equally many units; above 0 by chance alone
  Brier score        mean squared distance of P and the truth (1 or 0)
  Brier skill        1 - Brier score / that of saying the share of mispronounced units every time:
                     1 is perfect, 0 worth nothing, below 0 worse than that"""
SYNTHETIC_NOTE = """
Synthetic speech: the figures check that everything works and compare systems on it; how well a
system does on real speech does not follow from them."""
CHANGED_NOTE = """
The mismatches were made by changing labels: how well mispronunciations of real speakers are found
does not follow from these figures."""


def format_table(evaluation: Evaluation, corpus: dict) -> str:
    """Lay out the table of some systems with a heading and notes.

    Blocks: the figures; those of P(mispronounced), if a system gives it; the differences of pairs
    of systems, if there are any.

    Args:
        evaluation: The systems and their figures.
        corpus: Content of ``corpus.json``; its ``title`` and ``synthetic`` are used, and whether it
            has a ``mismatch_rate``, that is, whether its mismatches were made.

    Returns:
        The text, about 110 columns wide, ending in a newline.
    """
    blocks = [heading(evaluation.truth, corpus), _figures(evaluation)]
    if evaluation.calibrations:
        blocks.append(_probabilities(evaluation))
    if evaluation.differences:
        blocks.append(_differences(evaluation))
    blocks += _missing_lines(evaluation.truth, evaluation.answers)
    return "\n\n".join([*blocks, _note(evaluation, corpus)]) + "\n"


def heading(truth: Truth, corpus: dict) -> str:
    """One line: the corpus, whether its speech is synthetic, and the size of the scored set."""
    synthetic = " (synthetic speech)" if corpus["synthetic"] else ""
    return (
        f"{corpus['title']}{synthetic}: {len(truth.utterances)} test utterances, "
        f"{len(truth.canonical)} units, {100 * np.mean(truth.positive):.1f} % of them mismatched"
    )


def _figures(evaluation: Evaluation) -> str:
    headers = ["system", "params", *COLUMNS]
    if evaluation.heard:
        headers.append("heard")
    return tabulate(
        [_row(answer, evaluation)[: len(headers)] for answer in evaluation.answers],
        headers=headers,
        tablefmt="simple",
        colalign=("left", "right", *["center"] * (len(headers) - 2)),
        disable_numparse=True,
    )


def _row(answer: SystemAnswer, evaluation: Evaluation) -> list[str]:
    scores = evaluation.intervals.scores[answer.name]
    cells = []
    for figure in COLUMNS.values():
        ends = evaluation.intervals.interval(answer.name, figure)
        shown = "-" if ends is None else f"[{_percent(ends[0])} {_percent(ends[1])}]"
        cells.append(f"{_percent(getattr(scores, figure))}\n{shown}")
    heard = evaluation.heard.get(answer.name)
    cells.append("-" if heard is None else f"{_percent(heard.share)}\nof {heard.num_named}")
    name = answer.name
    if len(name) > LONGEST_NAME:
        name = name.replace(", ", ",\n", 1)
    return [name, format_count(answer.num_params), *cells]


def _probabilities(evaluation: Evaluation) -> str:
    rows = [
        [
            name,
            f"{figures.expected_calibration_error:.3f}",
            f"{figures.brier_score:.3f}",
            "-" if figures.brier_skill is None else f"{figures.brier_skill:.3f}",
        ]
        for name, figures in evaluation.calibrations.items()
    ]
    return tabulate(
        rows,
        headers=["P(mispronounced)", "calibration error", "Brier score", "Brier skill"],
        tablefmt="simple",
        colalign=("left", "center", "center", "center"),
        disable_numparse=True,
    )


def _differences(evaluation: Evaluation) -> str:
    rows = [
        [
            f"{first} minus {second}",
            *[_difference(by_figure[COLUMNS[column]]) for column in COMPARED_COLUMNS],
        ]
        for (first, second), by_figure in evaluation.differences.items()
    ]
    return tabulate(
        rows,
        headers=["difference", *COMPARED_COLUMNS],
        tablefmt="simple",
        colalign=("left", *["center"] * len(COMPARED_COLUMNS)),
        disable_numparse=True,
    )


def _difference(difference: Difference) -> str:
    shown = f"{100 * difference.estimate:+.1f}"
    if difference.low is None:
        return shown
    return f"{shown} [{100 * difference.low:+.1f} {100 * difference.high:+.1f}]"


def _note(evaluation: Evaluation, corpus: dict) -> str:
    cluster, intervals = evaluation.cluster, evaluation.intervals
    note = NOTE.format(
        level=100 * intervals.level,
        num_clusters=intervals.num_clusters,
        clusters=cluster if cluster == "speaker" else "source recording",
        or_speakers=" or other speakers" if cluster == "recording" else "",
    )
    if evaluation.heard:
        note += HEARD_NOTE
    if evaluation.calibrations:
        note += PROBABILITY_NOTE
    if corpus["synthetic"]:
        note += SYNTHETIC_NOTE
    if corpus.get("mismatch_rate") is not None:
        note += CHANGED_NOTE
    return note


def _percent(fraction: float) -> str:
    """One decimal, except that 100 is short: it is exact, and keeps the columns narrow."""
    return "100" if fraction == 1 else f"{100 * fraction:.1f}"


def format_count(count: int | None) -> str:
    """Shorten a number of parameters: ``24.3 M``, ``812 k``, ``-`` for None."""
    if count is None:
        return "-"
    if count >= 1_000_000:
        return f"{count / 1_000_000:.1f} M"
    return f"{count / 1000:.0f} k" if count >= 10_000 else str(count)


def _missing_lines(truth: Truth, answers: Sequence[SystemAnswer]) -> list[str]:
    """Say which utterances have no answer, once for all systems that lack the same ones."""
    systems: dict[tuple[str, ...], list[str]] = {}
    for answer in answers:
        if answer.missing:
            systems.setdefault(answer.missing, []).append(answer.name)
    lines = []
    for missing, names in systems.items():
        shown = ", ".join(missing[:SHOWN_MISSING]) + (", ..." if missing[SHOWN_MISSING:] else "")
        lines.append(
            f"no answer for {len(missing)} of {len(truth.utterances)} utterances, which count as "
            f"missed ({shown}):\n  {'; '.join(names)}"
        )
    return lines
