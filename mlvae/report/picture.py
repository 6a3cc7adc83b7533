"""A picture of one utterance: its FBANK, and below it what was written, said and found."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from lhotse import MonoCut
from lhotse.supervision import AlignmentItem
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mlvae.data.dataset import load_features
from mlvae.stage import atomic_path
from mlvae.tiers import tier

# Colours that people with any colour vision tell apart; the hatch and the sign say the same again.
PLAIN, MARKED, EDGE = "#e8eef4", "#f2a154", "#3b4a5a"
HATCH = "///"
SIGN = "\N{NOT EQUAL TO}"
DPI = 150
# Inches: the width of a picture of few units, what each further one adds, and no more than that.
WIDTH, FEW_UNITS, UNIT_INCHES, MAX_WIDTH = 10.0, 12, 0.25, 24.0
# Inches of the picture without its rows, and of each row.
TOP_INCHES, ROW_INCHES = 3.8, 0.6
TIME_DECIMALS = 6
# Ends are rounded to a tenth of a millisecond, starts are not: less than this is no length.
NO_LENGTH = 2e-4
POINTS_PER_INCH = 72
CAPTION_COLUMNS_PER_INCH = 12
LARGEST_TEXT, READABLE_TEXT, SMALLEST_TEXT = 13.0, 9.0, 6.0
# Letters of the smallest size that an upright line has room for.
UPRIGHT_COLUMNS = 11


@dataclass(frozen=True)
class Span:
    """One unit as drawn: times in seconds, its symbol, and the symbol that the text has for it.

    The text has none for an added sound.
    """

    start: float
    end: float
    symbol: str
    written: str | None

    @property
    def marked(self) -> bool:
        """The unit differs from the text."""
        return self.symbol != self.written


def draw_answer(
    cut: MonoCut,
    perceived: Sequence[str],
    true_starts: np.ndarray,
    true_ends: np.ndarray,
    found: Mapping[str, tuple[Sequence[AlignmentItem], Sequence[AlignmentItem]] | None],
    title: str,
    caption: str,
    path: Path,
    added: Sequence[AlignmentItem] = (),
) -> None:
    """Draw the answer to one utterance beside its truth as a PNG file.

    Args:
        cut: A cut with FBANK features and the tier ``fa``, whose symbols are the text.
        perceived: What was really said, one symbol a unit, L of them.
        true_starts: (L,) float64, seconds.
        true_ends: (L,) float64, seconds.
        found: By name of a system L units with their times as it found them, and L items whose
            symbols are what it heard; one row each, in this order. None: it has no answer.
        title: Line above the picture.
        caption: Line below it, before the explanation of the marks.
        path: The file; it is replaced whole or left alone.
        added: Sounds that were said and are no unit of the text.

    Raises:
        KeyError: The tier is missing.
        FeaturesError: The cut has no features, or they are damaged.
    """
    features = load_features(cut)
    written = tier(cut, "fa")
    truth = list(zip(written, perceived, true_starts, true_ends))
    rows = {
        "text\n(forced alignment)": [
            Span(unit.start, unit.end, unit.symbol, unit.symbol) for unit in written
        ],
        "truth\n(what was said)": [
            *[Span(start, end, said, unit.symbol) for unit, said, start, end in truth],
            *[Span(item.start, item.end, f"+{item.symbol}", None) for item in added],
        ],
    }
    for name, answer in found.items():
        rows[name] = answer and [
            Span(unit.start, unit.end, said.symbol, unit.symbol) for unit, said in zip(*answer)
        ]
    marks = f"Hatched, as in 'a {SIGN} b': a where the text says b."
    edges = [time for unit, said, *span in truth if said != unit.symbol for time in span]
    if edges and found:
        marks += " Dotted lines: the true edges of what differs."
    symbols = {said.symbol for answer in found.values() if answer for said in answer[1]}
    symbols |= set(perceived)
    if "*" in symbols:
        marks += " The symbol * stands for any other unit."
    if "-" in symbols:
        marks += " The symbol -: left out; a thick line: a unit without length."
    if added:
        marks += " The sign +: an added sound."
    draw(features, cut.duration, rows, title, f"{caption} {marks}", path, edges)


def draw(
    features: np.ndarray,
    duration: float,
    rows: Mapping[str, Sequence[Span] | None],
    title: str,
    caption: str,
    path: Path,
    edges: Sequence[float] = (),
) -> None:
    """Draw features with rows of spans below them.

    Args:
        features: (T, F) float32, log FBANK of T frames that cover the duration evenly.
        duration: Seconds.
        rows: Per label at the left the spans of a row, from top to bottom; None: no answer.
        title: Line above the picture.
        caption: Line below it.
        path: The PNG file; it is replaced whole or left alone.
        edges: Seconds at which a dotted line goes through all rows.
    """
    height = TOP_INCHES + ROW_INCHES * len(rows)
    most = max((len(spans) for spans in rows.values() if spans), default=0)
    width = min(WIDTH + UNIT_INCHES * max(most - FEW_UNITS, 0), MAX_WIDTH)
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    heights = [3.2] + [1.0] * len(rows)
    top, *lower = figure.subplots(len(heights), sharex=True, gridspec_kw={"height_ratios": heights})
    # Percentiles keep digital silence (a constant far below everything) from eating the contrast.
    darkest, brightest = np.percentile(features, [5, 99.5])
    top.imshow(
        features.T,
        origin="lower",
        aspect="auto",
        extent=(0.0, duration, 0, features.shape[1]),
        cmap="magma",
        vmin=darkest,
        vmax=brightest,
        interpolation="nearest",
    )
    top.set_ylabel("FBANK\n(mel bin)", fontsize=10)
    top.set_title(title, fontsize=12)
    lower[-1].set_xlim(0.0, duration)
    for axes, (label, spans) in zip(lower, rows.items()):
        _draw_row(axes, label, spans)
        for time in edges:
            axes.axvline(time, color=EDGE, linestyle=":", linewidth=1.2, clip_on=False, zorder=3)
    lower[-1].set_xlabel("time (seconds)", fontsize=10)
    for axes in lower[:-1]:
        axes.tick_params(bottom=False)
    figure.supxlabel(textwrap.fill(caption, int(CAPTION_COLUMNS_PER_INCH * width)), fontsize=9)
    with atomic_path(path) as temporary:
        # Without this the file names the version of the library and would differ for it alone.
        figure.savefig(temporary, format="png", metadata={"Software": None})


def _draw_row(axes: Axes, label: str, spans: Sequence[Span] | None) -> None:
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    axes.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=10)
    axes.spines[["top", "left", "right", "bottom"]].set_visible(False)
    if spans is None:
        axes.text(0.01, 0.5, "no answer", transform=axes.transAxes, va="center", fontsize=10)
        return
    without_length: dict[float, list[Span]] = {}
    for span in spans:
        if span.end - span.start < NO_LENGTH:
            without_length.setdefault(round(span.start, TIME_DECIMALS), []).append(span)
            continue
        axes.add_patch(
            Rectangle(
                (span.start, 0.06),
                span.end - span.start,
                0.88,
                facecolor=MARKED if span.marked else PLAIN,
                edgecolor=EDGE,
                linewidth=1.0,
                hatch=HATCH if span.marked else None,
            )
        )
        _write(axes, span)
    for time, together in without_length.items():
        _draw_without_length(axes, time, together, crowded=len(spans) > FEW_UNITS)


def _draw_without_length(axes: Axes, time: float, spans: Sequence[Span], crowded: bool) -> None:
    """Units without length at one time are one line, with their text upon it."""
    marked = any(span.marked for span in spans)
    lines = [" ".join(span.written or "" for span in spans)]
    if marked:
        lines = [" ".join(dict.fromkeys(span.symbol for span in spans)), SIGN, *lines]
    text = "\n".join(lines)
    if crowded:
        text = textwrap.shorten(
            " ".join(lines), UPRIGHT_COLUMNS, placeholder=" \N{HORIZONTAL ELLIPSIS}"
        )
    axes.axvline(time, color=MARKED if marked else EDGE, linewidth=3.0, clip_on=False)
    axes.text(
        time,
        0.5,
        text,
        ha="center",
        va="center",
        rotation=90 if crowded else 0,
        fontsize=SMALLEST_TEXT if crowded else READABLE_TEXT,
        fontweight="bold" if marked else "normal",
        linespacing=1.0,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5 if crowded else 1.0},
        zorder=4,
    )


def _write(axes: Axes, span: Span) -> None:
    """Write the text of a span into it, as large as it fits: on one line, on three, or upright.

    A symbol that would run into its neighbours is left out, unless it is marked.
    """
    line = span.symbol
    ways = [(line, 0)]
    if span.marked and span.written is not None:
        line = f"{span.symbol} {SIGN} {span.written}"
        ways = [(line, 0), (f"{span.symbol}\n{SIGN}\n{span.written}", 0)]
    ways.append((line, 90))
    sizes = [_fitting_size(axes, span, text.split("\n"), rotation == 90) for text, rotation in ways]
    best = next(
        (way for way, size in enumerate(sizes) if size >= READABLE_TEXT), int(np.argmax(sizes))
    )
    if sizes[best] < SMALLEST_TEXT and not span.marked:
        return
    text, rotation = ways[best]
    axes.text(
        (span.start + span.end) / 2,
        0.5,
        text,
        ha="center",
        va="center",
        rotation=rotation,
        fontsize=max(SMALLEST_TEXT, sizes[best]),
        fontweight="bold" if span.marked else "normal",
        # A plain ground keeps the letters apart from the hatch.
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0} if span.marked else None,
        clip_on=True,
    )


def _fitting_size(axes: Axes, span: Span, lines: Sequence[str], upright: bool) -> float:
    """The font size in points, not above the largest, at which lines fit into a span."""
    left, right = axes.get_xlim()
    # About 0.85 of the figure's width is time, and a letter is about 0.7 of its height wide.
    inches = 0.85 * axes.figure.get_figwidth()
    across = (span.end - span.start) / (right - left) * inches * POINTS_PER_INCH
    down = 0.8 * ROW_INCHES * POINTS_PER_INCH
    if upright:
        across, down = down, across
    widest = max(len(line) for line in lines)
    return min(LARGEST_TEXT, across / (0.7 * widest + 0.6), down / (1.2 * len(lines)))
