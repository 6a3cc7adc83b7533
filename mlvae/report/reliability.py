"""A picture of how far probabilities can be trusted."""

from __future__ import annotations

import math
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
PANELS_PER_ROW = 4
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
    """Draw the reliability curves of some systems as a PNG file, up to four side by side.

    Args:
        panels: One a system, at least one, from left to right and from top to bottom.
        title: Line above the picture.
        path: The file; it is replaced whole or left alone.
    """
    # A single panel is given more room, for the title's sake.
    num_rows = math.ceil(len(panels) / PANELS_PER_ROW)
    num_columns = math.ceil(len(panels) / num_rows)
    width = PANEL_WIDTH * max(num_columns, 1.6)
    figure = Figure(figsize=(width, HEIGHT * num_rows), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
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
            top.set_ylabel("share mispronounced", fontsize=10)
            bottom.set_ylabel("units", fontsize=10)
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
