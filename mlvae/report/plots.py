"""Plots as PNG files: an utterance with its tiers, learning curves, reliability curves.

Files are replaced whole or left alone, and the same arguments give the same bytes.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from lhotse import MonoCut
from lhotse.supervision import AlignmentItem
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, NullLocator

from mlvae.data.dataset import load_features
from mlvae.data.manifests import read_json
from mlvae.score.calibration import ReliabilityCurve
from mlvae.stage import atomic_path
from mlvae.tiers import tier

LEARNING_CURVES, TRAINING = "learning_curves.png", "training.json"
INK, ORANGE = "#3b4a5a", "#b5541c"


def _new_figure(width: float, height: float, dpi: int = 150) -> Figure:
    figure = Figure(figsize=(width, height), dpi=dpi, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Figure, path: Path) -> None:
    with atomic_path(path) as temporary:
        # Without this the file names the version of the library and would differ for it alone.
        figure.savefig(temporary, format="png", metadata={"Software": None})


# ---- An utterance -----------------------------------------------------------------------------

# Colours that people with any colour vision tell apart; the hatch and the sign say the same again.
PLAIN, MARKED = "#e8eef4", "#f2a154"
HATCH = "///"
SIGN = "\N{NOT EQUAL TO}"
# Inches: the width for few units, what each further one adds, and the largest.
WIDTH, FEW_UNITS, UNIT_INCHES, MAX_WIDTH = 10.0, 12, 0.25, 24.0
# Inches of the plot without its rows, and of each row.
TOP_INCHES, ROW_INCHES = 3.8, 0.6
# Of a row of a system that gives P: how much higher it is, in heights of a row.
P_HEIGHT, P_BAR = 0.5, "#8fb4d9"
TIME_DECIMALS = 6
# Ends are rounded to a tenth of a millisecond, starts are not: less than this is no length.
NO_LENGTH = 2e-4
POINTS_PER_INCH = 72
CAPTION_COLUMNS_PER_INCH = 12
LARGEST_TEXT, READABLE_TEXT, SMALLEST_TEXT = 13.0, 9.0, 6.0


@dataclass(frozen=True)
class Span:
    """One unit as drawn: times in seconds, its symbol, and the symbol that the text has for it.

    The text has none for an insertion. ``p`` is P(mispronounced) where a system has given it.
    """

    start: float
    end: float
    symbol: str
    written: str | None
    p: float | None = None

    @property
    def marked(self) -> bool:
        """The unit differs from the text."""
        return self.symbol != self.written


def draw_utterance(
    cut: MonoCut,
    perceived: Sequence[str],
    true_starts: np.ndarray,
    true_ends: np.ndarray,
    found: Mapping[str, tuple[Sequence[AlignmentItem], Sequence[AlignmentItem]] | None],
    title: str,
    caption: str,
    path: Path,
    inserted: Sequence[AlignmentItem] = (),
) -> None:
    """Draw the hypotheses for one utterance below its text and its reference.

    Args:
        cut: with FBANK features and the tier ``fa``, whose symbols are the text.
        perceived: symbols of the reference, one per unit, L of them.
        true_starts: (L,) float64, seconds.
        true_ends: (L,) float64, seconds.
        found: by name of a system its L canonical units with the times that it found, and L items
            whose symbols it perceived; one row each, in this order. None: no hypothesis.
        title: line above the plot.
        caption: line below it, before the explanation of the marks.
        path: the file.
        inserted: insertions of the reference.

    Raises:
        KeyError: the tier is missing.
        FeaturesError: the cut has no features, or they are damaged.
    """
    features = load_features(cut)
    written = tier(cut, "fa")
    reference = list(zip(written, perceived, true_starts, true_ends))
    rows = {
        "text\n(forced alignment)": [
            Span(unit.start, unit.end, unit.symbol, unit.symbol) for unit in written
        ],
        "reference\n(perceived)": [
            *[Span(start, end, said, unit.symbol) for unit, said, start, end in reference],
            *[Span(item.start, item.end, f"+{item.symbol}", None) for item in inserted],
        ],
    }
    for name, hypothesis in found.items():
        rows[name] = hypothesis and [
            Span(unit.start, unit.end, said.symbol, unit.symbol, unit.score)
            for unit, said in zip(*hypothesis)
        ]
    marks = f"Hatched, as in 'a {SIGN} b': a where the text says b."
    boundaries = [time for unit, said, *span in reference if said != unit.symbol for time in span]
    if boundaries and found:
        marks += " Dotted lines: the reference boundaries of what differs."
    symbols = {said.symbol for hypothesis in found.values() if hypothesis for said in hypothesis[1]}
    symbols |= set(perceived)
    if "*" in symbols:
        marks += " The symbol * stands for any other unit."
    if "-" in symbols:
        marks += " The symbol -: a deletion; a thick line: a unit without length."
    if inserted:
        marks += " The sign +: an insertion."
    if any(span.p is not None for spans in rows.values() for span in spans or ()):
        marks += " Bars below a row: P(mispronounced) of each unit, from 0 to 1."
    draw_rows(features, cut.duration, rows, title, f"{caption} {marks}", path, boundaries)


def draw_rows(
    features: np.ndarray,
    duration: float,
    rows: Mapping[str, Sequence[Span] | None],
    title: str,
    caption: str,
    path: Path,
    boundaries: Sequence[float] = (),
) -> None:
    """Draw features with rows of spans below them, by labels at the left, from top to bottom.

    ``features`` (T, F) float32 are log FBANK of T frames that cover ``duration`` seconds evenly;
    rows without a hypothesis are None; at the boundaries (seconds) dotted lines go through all
    rows.
    """
    heights = [1.0 + P_HEIGHT * _has_p(spans) for spans in rows.values()]
    height = TOP_INCHES + ROW_INCHES * sum(heights)
    most = max((len(spans) for spans in rows.values() if spans), default=0)
    width = min(WIDTH + UNIT_INCHES * max(most - FEW_UNITS, 0), MAX_WIDTH)
    figure = _new_figure(width, height)
    ratios = {"height_ratios": [3.2, *heights]}
    top, *lower = figure.subplots(1 + len(rows), sharex=True, gridspec_kw=ratios)
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
        for time in boundaries:
            axes.axvline(time, color=INK, linestyle=":", linewidth=1.2, clip_on=False, zorder=3)
    lower[-1].set_xlabel("time (seconds)", fontsize=10)
    for axes in lower[:-1]:
        axes.tick_params(bottom=False)
    figure.supxlabel(textwrap.fill(caption, int(CAPTION_COLUMNS_PER_INCH * width)), fontsize=9)
    _save(figure, path)


def _draw_row(axes: Axes, label: str, spans: Sequence[Span] | None) -> None:
    axes.set_ylim(-P_HEIGHT * _has_p(spans), 1)
    axes.set_yticks([])
    axes.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=10)
    axes.spines[["top", "left", "right", "bottom"]].set_visible(False)
    if spans is None:
        axes.text(0.01, 0.5, "no hypothesis", transform=axes.transAxes, va="center", fontsize=10)
        return
    for span in spans:
        _draw_p(axes, span)
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
                edgecolor=INK,
                linewidth=1.0,
                hatch=HATCH if span.marked else None,
            )
        )
        _write(axes, span)
    for time, together in without_length.items():
        _draw_without_length(axes, time, together, crowded=len(spans) > FEW_UNITS)


def _has_p(spans: Sequence[Span] | None) -> bool:
    return any(span.p is not None for span in spans or ())


def _draw_p(axes: Axes, span: Span) -> None:
    """A bar below a unit that is as high as its P, with the number where there is room."""
    if span.p is None:
        return
    low, room = -P_HEIGHT + 0.04, P_HEIGHT - 0.1
    if span.end - span.start < NO_LENGTH:
        axes.plot([span.start] * 2, [low, low + room * span.p], color=P_BAR, linewidth=3.0)
        return
    width = span.end - span.start
    bar = {"edgecolor": INK, "linewidth": 0.4}
    axes.add_patch(Rectangle((span.start, low), width, room, facecolor="white", **bar))
    axes.add_patch(Rectangle((span.start, low), width, room * span.p, facecolor=P_BAR, **bar))
    number = f"{span.p:.2f}"
    if _fitting_size(axes, span, [number], upright=False) >= SMALLEST_TEXT:
        _text(axes, span.start + width / 2, low + room / 2, number, 7, clip_on=True)


def _text(axes: Axes, x: float, y: float, text: str, size: float, **options: Any) -> None:
    axes.text(x, y, text, ha="center", va="center", fontsize=size, **options)


def _draw_without_length(axes: Axes, time: float, spans: Sequence[Span], crowded: bool) -> None:
    """Units without length at one time are one line, with their text upon it."""
    marked = any(span.marked for span in spans)
    lines = [" ".join(span.written or "" for span in spans)]
    if marked:
        lines = [" ".join(dict.fromkeys(span.symbol for span in spans)), SIGN, *lines]
    text = "\n".join(lines)
    if crowded:  # upright, with room for 11 of the smallest letters
        text = textwrap.shorten(" ".join(lines), 11, placeholder=" \N{HORIZONTAL ELLIPSIS}")
    axes.axvline(time, color=MARKED if marked else INK, linewidth=3.0, clip_on=False)
    _text(
        axes,
        time,
        0.5,
        text,
        SMALLEST_TEXT if crowded else READABLE_TEXT,
        rotation=90 if crowded else 0,
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
    readable = [way for way, size in enumerate(sizes) if size >= READABLE_TEXT]
    best = readable[0] if readable else int(np.argmax(sizes))
    if sizes[best] < SMALLEST_TEXT and not span.marked:
        return
    text, rotation = ways[best]
    _text(
        axes,
        (span.start + span.end) / 2,
        0.5,
        text,
        max(SMALLEST_TEXT, sizes[best]),
        rotation=rotation,
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


# ---- Learning curves --------------------------------------------------------------------------

# Lines are told apart by colour, and again by stroke and marker.
STYLES = ((ORANGE, "-", "o"), ("#2f6690", "--", "s"), ("#5a5a5a", ":", "^"))
CURVES_PER_ROW, CURVE_WIDTH, CURVE_HEIGHT = 3, 3.6, 2.5
CAPTION_LETTERS = 125
#: Titles of groups of scalars; others have their own name. The first ones come first.
TITLES = {
    "loss/estimator": "loss of the phoneme estimator",
    "loss/boundary": "loss of the boundary detector",
    "loss/reconstruction": "reconstruction loss",
    "loss/kl": "KL divergence of the latents",
    "loss/correctness": "loss of the correctness q(π)",
    "path_score": "path score per frame",
    "flag_rate": "fraction of flagged units",
    "changed": "fraction that the E-step changed",
    "corrupted_f1": "F1 of corrupted units",
}


def write_learning_curves(folder: Path) -> bool:
    """Draw ``learning_curves.png`` of a system's folder; whether there was something to draw.

    Scalars come from the ``history`` of ``training.json``, one mapping per iteration, or from its
    ``path_scores``, one per round of the forced alignment.

    Raises:
        FileNotFoundError: there is no ``training.json``.
    """
    training = read_json(folder / TRAINING)
    history = training.get("history")
    if history is None:
        history = [{"path_score/train": score} for score in training.get("path_scores", [])]
    if not history:
        return False
    caption = ""
    if kept := training.get("best_iteration"):
        caption = f"Vertical line: iteration {kept}, which is kept"
        caption += f" (criterion: {training['criterion']})." if "criterion" in training else "."
    draw_learning_curves(
        history, kept, folder.name, caption, folder / LEARNING_CURVES, training.get("chosen_by")
    )
    return True


def draw_learning_curves(
    history: Sequence[Mapping[str, float]],
    kept: int | None,
    title: str,
    caption: str,
    path: Path,
    chosen_by: str | None = None,
) -> None:
    """Draw scalars by iteration.

    Args:
        history: of each iteration its scalars by name. Losses (``loss/...``) have a panel each;
            others whose names are alike before the ``/`` are in one. A scalar may be missing from
            some iterations.
        kept: the iteration that is marked, the first being 1; None: none.
        title: line above the plot.
        caption: text below it.
        path: the file.
        chosen_by: the scalar that has chosen the iteration: its panel has a bold title, and a star
            with the value; None: no panel has.

    Raises:
        ValueError: ``history`` has no scalars.
    """
    panels = group_scalars(history)
    if not panels:
        raise ValueError("there are no scalars to draw")
    num_columns = min(CURVES_PER_ROW, len(panels))
    num_rows = math.ceil(len(panels) / num_columns)
    width = CURVE_WIDTH * max(num_columns, 2)
    figure = _new_figure(width, CURVE_HEIGHT * num_rows + 1.0, dpi=120)
    grid = figure.subplots(num_rows, num_columns, squeeze=False).reshape(-1)
    for axes, (name, keys) in zip(grid, panels.items()):
        _draw_curves_of(axes, name, keys, history, kept)
        if kept is not None and chosen_by in keys and chosen_by in history[kept - 1]:
            _mark_choice(axes, kept, history[kept - 1][chosen_by])
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    figure.suptitle(title, fontsize=12)
    letters = round(CAPTION_LETTERS * width / (CURVE_WIDTH * CURVES_PER_ROW))
    figure.supxlabel(textwrap.fill(caption, letters), fontsize=9)
    _save(figure, path)


def group_scalars(history: Sequence[Mapping[str, float]]) -> dict[str, list[str]]:
    """By panel the scalars that it shows, in the order of ``TITLES``, then of their appearance."""
    groups: dict[str, list[str]] = {}
    for key in dict.fromkeys(key for scalars in history for key in scalars):
        group = key if key.startswith("loss/") else key.split("/")[0]
        # Several measures of change belong together: of units, of frames.
        group = "changed" if group.startswith("changed") else group
        groups.setdefault(group, []).append(key)
    known = list(TITLES)
    # Losses that have no title of their own come after those that have.
    after_losses = known.index("path_score") - 0.5

    def rank(group: str) -> float:
        if group in TITLES:
            return known.index(group)
        return after_losses if group.startswith("loss/") else len(known)

    return {group: groups[group] for group in sorted(groups, key=rank)}


def _draw_curves_of(
    axes: Axes,
    name: str,
    keys: Sequence[str],
    history: Sequence[Mapping[str, float]],
    kept: int | None,
) -> None:
    axes.set_title(TITLES.get(name, name.replace("_", " ")), fontsize=10)
    for index, key in enumerate(keys):
        points = [(i, scalars[key]) for i, scalars in enumerate(history, 1) if key in scalars]
        colour, line, marker = STYLES[index % len(STYLES)]
        label = (key.split("/", 1)[1] if "/" in key else key).replace("_", " ")
        looks = {"color": colour, "linestyle": line, "marker": marker, "label": label}
        axes.plot(*zip(*points), markersize=3.5, linewidth=1.4, **looks)
    if kept is not None:
        axes.axvline(kept, color=INK, linewidth=1.0, linestyle="--", zorder=0)
    if len(keys) > 1:
        axes.legend(fontsize=8, framealpha=0.8)
    axes.set_xlim(0.5, len(history) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("iteration", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25)


def _mark_choice(axes: Axes, kept: int, value: float) -> None:
    axes.set_title(f"{axes.get_title()} (chooses)", fontsize=10, fontweight="bold")
    axes.plot([kept], [value], color=INK, marker="*", markersize=13, linestyle="none", zorder=3)
    axes.annotate(
        f"{value:.3g}", (kept, value), (0, 9), textcoords="offset points", ha="center", fontsize=9
    )
    axes.margins(y=0.2)


# ---- Reliability ------------------------------------------------------------------------------

PANEL_WIDTH, PANEL_HEIGHT = 4.2, 5.4
PANELS_PER_ROW = 4
LETTERS_PER_PANEL = 58
CAPTION = (
    "Above: each point stands for equally many units (units of one probability stay together), its "
    "bar for the 95 % interval of the fraction, as if units were independent (Wilson). On the "
    "dashed line, probabilities are calibrated. Below: how many units have which probability, "
    "on a logarithmic scale."
)


@dataclass(frozen=True)
class Panel:
    """What is drawn of one system."""

    title: str  # above the panel
    probabilities: np.ndarray  # (N,) float64 in 0..1, P(mispronounced) of each unit
    curve: ReliabilityCurve


def draw_reliability(panels: Sequence[Panel], title: str, path: Path) -> None:
    """Draw the reliability curves of some systems, at least one, up to four side by side."""
    # A single panel is given more room, for the title's sake.
    num_rows = math.ceil(len(panels) / PANELS_PER_ROW)
    num_columns = math.ceil(len(panels) / num_rows)
    width = PANEL_WIDTH * max(num_columns, 1.6)
    figure = _new_figure(width, PANEL_HEIGHT * num_rows)
    axes = figure.subplots(
        2 * num_rows,
        num_columns,
        sharex=True,
        squeeze=False,
        gridspec_kw={"height_ratios": [3, 1] * num_rows},
    )
    upper, lower = axes[::2].reshape(-1), axes[1::2].reshape(-1)
    for index, (top, bottom) in enumerate(zip(upper, lower)):
        bottom.sharey(lower[0])
        if index >= len(panels):
            top.set_visible(False)
            bottom.set_visible(False)
            continue
        _draw_curve(top, panels[index])
        _draw_histogram(bottom, panels[index])
        bottom.tick_params(labelbottom=True)
        if index % num_columns == 0:
            top.set_ylabel("fraction mispronounced", fontsize=10)
            bottom.set_ylabel("units", fontsize=10)
    letters = round(LETTERS_PER_PANEL * width / PANEL_WIDTH)
    figure.suptitle(textwrap.fill(title, round(0.8 * letters)), fontsize=11)
    figure.supxlabel(textwrap.fill(CAPTION, letters), fontsize=9)
    _save(figure, path)


def _draw_curve(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title, fontsize=10)
    axes.set_xlim(-0.03, 1.03)
    axes.set_ylim(-0.03, 1.03)
    axes.plot([0, 1], [0, 1], linestyle="--", linewidth=1.0, color=INK)
    curve = panel.curve
    bars = np.stack([curve.fraction - curve.low, curve.high - curve.fraction])
    # Wilson's interval ends at the fraction where that is 0 or 1, up to rounding.
    bars = np.maximum(bars, 0.0)
    looks = {"markersize": 4.5, "elinewidth": 1.2, "capsize": 2.5, "color": ORANGE}
    axes.errorbar(curve.probability, curve.fraction, yerr=bars, fmt="o", **looks)
    axes.grid(alpha=0.25)


def _draw_histogram(axes: Axes, panel: Panel) -> None:
    looks = {"color": "#8fa7bf", "edgecolor": INK, "linewidth": 0.6}
    axes.hist(panel.probabilities, bins=20, range=(0.0, 1.0), log=True, **looks)
    axes.set_ylim(bottom=0.7)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("P(mispronounced)", fontsize=10)
