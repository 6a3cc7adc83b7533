"""The printed table: three figures, always together, each with its interval."""

from __future__ import annotations

import re
import textwrap
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
HEADLINE = "pooled_f1"
WIDTH = 120
SHOWN_MISSING = 5
# A longer name of a difference goes on in a second line, which keeps the table within 120 columns.
LONGEST_DIFFERENCE = 32

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
oracle       the true answers
flag-all     flags every unit, on the spans of FA, of ML-VAE (ours) or of ML-VAE-sub (sub): what a
             flag is worth that knows nothing"""
HEARD_NOTE = """
heard        of the units that were said as another one and are flagged, and for which the system
             names a unit, the share where it is the one that was said; below, the number of these
             units (without those that annotators call unclear, which no unit describes)"""
DIFFERENCE_NOTE = """
difference   of two systems on the same units and the same resamples, with its interval; each
             interval holds by itself, not all of them at once"""
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

    Blocks: the figures; those of secondary rows, those of P(mispronounced) and the differences of
    pairs of systems, each if there are any.

    Args:
        evaluation: The systems and their figures.
        corpus: Content of ``corpus.json``; its ``title`` and ``synthetic`` are used, and whether it
            has a ``mismatch_rate``, that is, whether its mismatches were made.

    Returns:
        The text, at most 120 columns wide, ending in a newline.
    """
    blocks = [heading(evaluation.truth, corpus), _figures(evaluation)]
    if any(answer.secondary for answer in evaluation.answers):
        blocks.append(_secondary(evaluation))
    if evaluation.calibrations:
        blocks.append(_probabilities(evaluation))
    if evaluation.differences:
        blocks += [_differences(evaluation), _zero_line(evaluation)]
    blocks += _missing_lines(evaluation.truth, evaluation.answers)
    return "\n\n".join([*blocks, _note(evaluation, corpus)]) + "\n"


def title_of(corpus: dict) -> str:
    """The title of a corpus, which says once if its speech is synthetic."""
    said = not corpus.get("synthetic") or "simulated" in corpus["title"]
    return corpus["title"] if said else f"{corpus['title']} (synthetic speech)"


def heading(truth: Truth, corpus: dict) -> str:
    """One line: the corpus, whether its speech is synthetic, and the size of the scored set.

    Of BPE tokens words are scored.
    """
    kind = "words" if corpus.get("unit") == "bpe" else "units"
    return (
        f"{title_of(corpus)}: {len(truth.utterances)} test utterances, "
        f"{len(truth.canonical)} {kind}, {100 * np.mean(truth.positive):.1f} % of them mismatched"
    )


def _figures(evaluation: Evaluation) -> str:
    headers = ["system", "params", *COLUMNS]
    if evaluation.heard:
        headers.append("heard")
    rows = {
        answer.name: _row(answer, evaluation)[: len(headers)]
        for answer in evaluation.answers
        if not answer.secondary
    }
    for name in evaluation.unavailable:
        rows[name] = [name, *["-"] * (len(headers) - 1)]
    order = list(evaluation.notes)
    table = tabulate(
        # Rows of no system (oracle, flag-all) stay before those of systems.
        [rows[name] for name in sorted(rows, key=lambda n: order.index(n) if n in order else -1)],
        headers=headers,
        tablefmt="simple",
        colalign=("left", "right", *["center"] * (len(headers) - 2)),
        disable_numparse=True,
    )
    lines = table.splitlines()
    # The reason takes the place of the figures, from the first of their columns on.
    column = [match.start() for match in re.finditer("-+", lines[1])][2]
    for index, line in enumerate(lines):
        reason = evaluation.unavailable.get(line.split("  ")[0])
        if reason is not None:
            lines[index] = f"{line[:column]}{reason}"
    return "\n".join(lines)


def _secondary(evaluation: Evaluation) -> str:
    """Rows in one line each, with fewer figures."""
    rows = []
    for answer in evaluation.answers:
        if answer.secondary:
            cells = []
            for column in COMPARED_COLUMNS:
                figure = COLUMNS[column]
                estimate = getattr(evaluation.intervals.scores[answer.name], figure)
                shown = _interval(evaluation.intervals.interval(answer.name, figure))
                cells.append(f"{_percent(estimate)} {shown}".rstrip())
            rows.append([answer.name, format_count(answer.num_params), *cells])
    return tabulate(
        rows,
        headers=["further rows", "params", *COMPARED_COLUMNS],
        tablefmt="simple",
        colalign=("left", "right", *["center"] * len(COMPARED_COLUMNS)),
        disable_numparse=True,
    )


def _interval(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f"[{_percent(ends[0])} {_percent(ends[1])}]"


def _row(answer: SystemAnswer, evaluation: Evaluation) -> list[str]:
    scores = evaluation.intervals.scores[answer.name]
    cells = []
    for figure in COLUMNS.values():
        shown = _interval(evaluation.intervals.interval(answer.name, figure))
        cells.append(f"{_percent(getattr(scores, figure))}\n{shown or '-'}")
    heard = evaluation.heard.get(answer.name)
    cells.append("-" if heard is None else f"{_percent(heard.share)}\nof {heard.num_named}")
    return [answer.name, format_count(answer.num_params), *cells]


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
            _difference_name(first, second),
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


def _difference_name(first: str, second: str) -> str:
    name = f"{first} minus {second}"
    return name if len(name) <= LONGEST_DIFFERENCE else f"{first} minus\n{second}"


def _zero_line(evaluation: Evaluation) -> str:
    """Say for the headline figure of which differences the interval excludes 0."""
    within = [
        f"{first} minus {second}"
        for (first, second), by_figure in evaluation.differences.items()
        if not by_figure[HEADLINE].excludes_zero
    ]
    total, level = len(evaluation.differences), 100 * evaluation.intervals.level
    line = (
        f"* the {level:.0f} % interval excludes 0: for pooled F1 in {total - len(within)} of "
        f"{total} differences"
    )
    if within:
        line += f", not in {'; '.join(within)}"
    return textwrap.fill(line, WIDTH, subsequent_indent="  ")


def _difference(difference: Difference) -> str:
    shown = f"{100 * difference.estimate:+.1f}"
    if difference.low is None:
        return shown
    mark = "*" if difference.excludes_zero else " "
    return f"{shown} [{100 * difference.low:+.1f} {100 * difference.high:+.1f}]{mark}"


def _note(evaluation: Evaluation, corpus: dict) -> str:
    cluster, intervals = evaluation.cluster, evaluation.intervals
    note = NOTE.format(
        level=100 * intervals.level,
        num_clusters=intervals.num_clusters,
        clusters=cluster if cluster == "speaker" else "source recording",
        or_speakers=" or other speakers" if cluster == "recording" else "",
    )
    secondary = {answer.name: answer.secondary for answer in evaluation.answers}
    secondary.update(dict.fromkeys(evaluation.unavailable, False))
    for name, text in evaluation.notes.items():
        if secondary.get(name) is False:
            note += f"\n{name:<11}  {text}"
    if evaluation.heard:
        note += HEARD_NOTE
    if evaluation.calibrations:
        note += PROBABILITY_NOTE
    for name, text in evaluation.notes.items():
        if secondary.get(name):
            note += f"\n{name}: {text}"
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
