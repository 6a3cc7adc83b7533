"""A picture of how far probabilities can be trusted."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from mlvae.stage import atomic_path

POINT, BAR, DIAGONAL = "#b5541c", "#8fa7bf", "#3b4a5a"
PANEL_WIDTH, HEIGHT, DPI = 4.2, 5.4, 150
HISTOGRAM_BINS = 20
LETTERS_PER_PANEL = 58
CAPTION = (
    "Above: each point stands for equally many units (units of one probability stay together), its "
    "bar for the 95 % interval of the share, as if units were independent (Wilson). On the "
    "dashed line, probabilities are what they say. Below: how many units have which probability, "
    "on a logarithmic scale."
)


@dataclass(frozen=True)
class Panel:
    """What is drawn of one system.

    Attributes:
        title: Text above the panel.
        probabilities: (N,) float64 in 0..1, P(mispronounced) of each unit.
        said: (B,) float64, mean probability of each bin.
        share: (B,) float64, share of each bin's units that was mispronounced.
        low: (B,) float64, lower ends of the shares' intervals.
        high: (B,) float64, upper ends.
    """

    title: str
    probabilities: np.ndarray
    said: np.ndarray
    share: np.ndarray
    low: np.ndarray
    high: np.ndarray


def draw_reliability(panels: Sequence[Panel], title: str, path: Path) -> None:
    """Draw the reliability curves of some systems side by side as a PNG file.

    Args:
        panels: One a system, at least one, from left to right.
        title: Line above the picture.
        path: The file; it is replaced whole or left alone.
    """
    # A single panel is given more room, for the title's sake.
    width = PANEL_WIDTH * max(len(panels), 1.6)
    figure = Figure(figsize=(width, HEIGHT), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(
        2,
        len(panels),
        sharex=True,
        sharey="row",
        squeeze=False,
        gridspec_kw={"height_ratios": [3, 1]},
    )
    for top, bottom, panel in zip(upper, lower, panels):
        _draw_curve(top, panel)
        _draw_histogram(bottom, panel)
    upper[0].set_ylabel("share mispronounced", fontsize=10)
    lower[0].set_ylabel("units", fontsize=10)
    letters = round(LETTERS_PER_PANEL * width / PANEL_WIDTH)
    figure.suptitle(textwrap.fill(title, round(0.8 * letters)), fontsize=11)
    figure.supxlabel(textwrap.fill(CAPTION, letters), fontsize=9)
    with atomic_path(path) as temporary:
        # Without this the file names the version of the library and would differ for it alone.
        figure.savefig(temporary, format="png", metadata={"Software": None})


def _draw_curve(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title, fontsize=10)
    axes.set_xlim(-0.03, 1.03)
    axes.set_ylim(-0.03, 1.03)
    axes.plot([0, 1], [0, 1], linestyle="--", linewidth=1.0, color=DIAGONAL)
    bars = np.stack([panel.share - panel.low, panel.high - panel.share])
    axes.errorbar(
        panel.said,
        panel.share,
        # Wilson's interval ends at the share where that is 0 or 1, up to rounding.
        yerr=np.maximum(bars, 0.0),
        fmt="o",
        markersize=4.5,
        elinewidth=1.2,
        capsize=2.5,
        color=POINT,
    )
    axes.grid(alpha=0.25)


def _draw_histogram(axes: Axes, panel: Panel) -> None:
    axes.hist(
        panel.probabilities,
        bins=HISTOGRAM_BINS,
        range=(0.0, 1.0),
        color=BAR,
        edgecolor=DIAGONAL,
        linewidth=0.6,
        log=True,
    )
    axes.set_ylim(bottom=0.7)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("P(mispronounced)", fontsize=10)
