"""A picture of how a training went: losses, path scores, flag rate and criterion by iteration."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mlvae.stage import atomic_path

FILE, TRAINING = "learning_curves.png", "training.json"
# Lines are told apart by colour, and again by stroke and marker.
STYLES = (("#b5541c", "-", "o"), ("#2f6690", "--", "s"), ("#5a5a5a", ":", "^"))
KEPT = "#3b4a5a"
NUM_COLUMNS, PANEL_WIDTH, PANEL_HEIGHT, DPI = 3, 3.6, 2.5, 120
CAPTION_LETTERS = 125
#: Titles of groups of scalars; others have their own name. The first ones come first.
TITLES = {
    "loss/estimator": "loss of the phoneme estimator",
    "loss/boundary": "loss of the boundary detector",
    "loss/reconstruction": "reconstruction loss",
    "loss/kl": "KL divergence of the latents",
    "loss/correctness": "loss of the correctness q(π)",
    "path_score": "path score a frame",
    "flag_rate": "share of flagged units",
    "changed": "share that the E-step changed",
    "corrupted_f1": "F1 of corrupted units",
}


def write_learning_curves(folder: Path) -> bool:
    """Draw ``learning_curves.png`` of a system's folder from its ``training.json``.

    Scalars come from its ``history``, one mapping an iteration, or from its ``path_scores``, one a
    round of the forced alignment.

    Args:
        folder: Folder of the system.

    Returns:
        Whether there was something to draw.

    Raises:
        FileNotFoundError: There is no ``training.json``.
    """
    training = json.loads((folder / TRAINING).read_text(encoding="utf-8"))
    history = training.get("history")
    if history is None:
        history = [{"path_score/train": score} for score in training.get("path_scores", [])]
    if not history:
        return False
    caption = ""
    if kept := training.get("best_iteration"):
        caption = f"Vertical line: iteration {kept}, which is kept"
        caption += f" (criterion: {training['criterion']})." if "criterion" in training else "."
    draw_learning_curves(history, kept, folder.name, caption, folder / FILE)
    return True


def draw_learning_curves(
    history: Sequence[Mapping[str, float]],
    kept: int | None,
    title: str,
    caption: str,
    path: Path,
) -> None:
    """Draw scalars by iteration as a PNG file.

    Args:
        history: Of each iteration its scalars by name. Losses (``loss/...``) have a panel each;
            others whose names are alike before the ``/`` share one. A scalar may be missing from
            some iterations.
        kept: The iteration that is marked, the first being 1; None: none.
        title: Line above the picture.
        caption: Text below it.
        path: The file; it is replaced whole or left alone.

    Raises:
        ValueError: ``history`` has no scalars.
    """
    panels = group_scalars(history)
    if not panels:
        raise ValueError("there are no scalars to draw")
    num_columns = min(NUM_COLUMNS, len(panels))
    num_rows = math.ceil(len(panels) / num_columns)
    width = PANEL_WIDTH * max(num_columns, 2)
    size = (width, PANEL_HEIGHT * num_rows + 1.0)
    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(num_rows, num_columns, squeeze=False).reshape(-1)
    for axes, (name, keys) in zip(grid, panels.items()):
        _draw_panel(axes, name, keys, history, kept)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    figure.suptitle(title, fontsize=12)
    letters = round(CAPTION_LETTERS * width / (PANEL_WIDTH * NUM_COLUMNS))
    figure.supxlabel(textwrap.fill(caption, letters), fontsize=9)
    with atomic_path(path) as temporary:
        # Without this the file names the version of the library and would differ for it alone.
        figure.savefig(temporary, format="png", metadata={"Software": None})


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

    def place(group: str) -> float:
        if group in TITLES:
            return known.index(group)
        return after_losses if group.startswith("loss/") else len(known)

    return {group: groups[group] for group in sorted(groups, key=place)}


def _draw_panel(
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
        axes.plot(
            *zip(*points),
            color=colour,
            linestyle=line,
            marker=marker,
            markersize=3.5,
            linewidth=1.4,
            label=label,
        )
    if kept is not None:
        axes.axvline(kept, color=KEPT, linewidth=1.0, linestyle="--", zorder=0)
    if len(keys) > 1:
        axes.legend(fontsize=8, framealpha=0.8)
    axes.set_xlim(0.5, len(history) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("iteration", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25)
