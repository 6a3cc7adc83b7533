"""The printed table: three figures, always together, each with its interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tabulate import tabulate

from mlvae.score.answers import SystemAnswer, Truth
from mlvae.score.bootstrap import Intervals

COLUMNS = {
    "pooled PR": "pooled_precision",
    "pooled RE": "pooled_recall",
    "pooled F1": "pooled_f1",
    "macro F1": "macro_f1",
    "hard F1": "hard_f1",
    "average IoU": "average_iou",
}
SHOWN_MISSING = 5

NOTE = """\
All figures in percent; in brackets the {level:.0f} % interval over the {num_clusters} \
{clusters}s that the
test units come from: not over training runs, other corpora{or_speakers}.
pooled       precision, recall and F1 of the flagged units over the whole set, where a right flag
             counts as much as its span overlaps the true one (intersection over union, IoU)
macro        the same F1 per utterance, averaged; an utterance without a mismatch counts 0, so the
             oracle row is its ceiling, not 100
hard         F1 of the flags alone: says which units are wrong, nothing about where they are
average IoU  overlap of found and true span over all units, flagged or not: says where units are,
             nothing about which are wrong
oracle       the true answers; flag-all flags every unit on the spans of the row it names, which
             is what a flag is worth that knows nothing{corpus_notes}"""
SYNTHETIC_NOTE = """
Synthetic speech: the figures check that everything works and compare systems on it; how well a
system does on real speech does not follow from them."""
CHANGED_NOTE = """
The mismatches were made by changing labels: how well mispronunciations of real speakers are found
does not follow from these figures."""


def format_table(
    truth: Truth,
    answers: Sequence[SystemAnswer],
    intervals: Intervals,
    corpus: dict,
    cluster: str = "recording",
) -> str:
    """Lay out the table of some systems with a heading and notes.

    Args:
        truth: The scored set.
        answers: The systems, in the order of the rows.
        intervals: Their figures, under the names of ``answers``.
        corpus: Content of ``corpus.json``; its ``title`` and ``synthetic`` are used, and whether it
            has a ``mismatch_rate``, that is, whether its mismatches were made.
        cluster: What the clusters of ``intervals`` are: ``"recording"`` or ``"speaker"``.

    Returns:
        The text, about 100 columns wide for system names of usual length, ending in a newline.
    """
    rows = [_row(answer, intervals) for answer in answers]
    table = tabulate(
        rows,
        headers=["system", "params", *COLUMNS],
        tablefmt="simple",
        colalign=("left", "right", *["center"] * len(COLUMNS)),
        disable_numparse=True,
    )
    note = NOTE.format(
        level=100 * intervals.level,
        num_clusters=intervals.num_clusters,
        clusters=cluster if cluster == "speaker" else "source recording",
        or_speakers=" or other speakers" if cluster == "recording" else "",
        corpus_notes=(SYNTHETIC_NOTE if corpus["synthetic"] else "")
        + (CHANGED_NOTE if corpus.get("mismatch_rate") is not None else ""),
    )
    parts = [heading(truth, corpus), "", table, "", *_missing_lines(truth, answers), note]
    return "\n".join(parts) + "\n"


def heading(truth: Truth, corpus: dict) -> str:
    """One line: the corpus, whether its speech is synthetic, and the size of the scored set."""
    synthetic = " (synthetic speech)" if corpus["synthetic"] else ""
    return (
        f"{corpus['title']}{synthetic}: {len(truth.utterances)} test utterances, "
        f"{len(truth.canonical)} units, {100 * np.mean(truth.positive):.1f} % of them mismatched"
    )


def _row(answer: SystemAnswer, intervals: Intervals) -> list[str]:
    scores = intervals.scores[answer.name]
    cells = []
    for figure in COLUMNS.values():
        ends = intervals.interval(answer.name, figure)
        shown = "-" if ends is None else f"[{_percent(ends[0])} {_percent(ends[1])}]"
        cells.append(f"{_percent(getattr(scores, figure))}\n{shown}")
    return [answer.name, format_count(answer.num_params), *cells]


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
            f"missed ({shown}):\n  {', '.join(names)}"
        )
    return [*lines, ""] if lines else []
