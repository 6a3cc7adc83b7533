import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from mlvae.report import reliability
from mlvae.report.reliability import Panel, draw_reliability


def make_panel(name="ours"):
    rng = np.random.default_rng(0)
    share = np.array([0.0, 0.5, 1.0])
    return Panel(
        title=f"{name}\ncalibration error 0.020",
        probabilities=rng.random(300),
        said=np.array([0.1, 0.5, 0.9]),
        share=share,
        # An end may lie on the wrong side of the share by rounding.
        low=np.array([1e-17, 0.4, 0.8]),
        high=np.array([0.2, 0.6, 1.0 - 1e-16]),
    )


@pytest.mark.parametrize("count", [1, 3])
def test_a_panel_for_each_system(tmp_path, monkeypatch, count):
    figures = []
    monkeypatch.setattr(
        reliability, "Figure", lambda **options: figures.append(Figure(**options)) or figures[-1]
    )
    title = "Mismatch-x: 600 test utterances, 2977 units, 18.3 % of them mismatched"
    draw_reliability([make_panel(str(i)) for i in range(count)], title, tmp_path / "a.png")
    axes = figures[0].axes
    assert len(axes) == 2 * count
    for index in range(count):
        assert axes[index].get_title() == f"{index}\ncalibration error 0.020"
        diagonal, points = axes[index].lines[:2]
        assert diagonal.get_xydata().tolist() == [[0, 0], [1, 1]]
        assert points.get_xydata().tolist() == [[0.1, 0.0], [0.5, 0.5], [0.9, 1.0]]
        assert sum(bar.get_height() for bar in axes[count + index].patches) == 300
        assert axes[count + index].get_xlabel() == "P(mispronounced)"
    assert title in figures[0].get_suptitle().replace("\n", " ")
    image = imread(tmp_path / "a.png")
    assert image.shape[1] > 900 and image.std() > 0.05


def test_many_panels_go_on_in_further_rows(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(
        reliability, "Figure", lambda **options: figures.append(Figure(**options)) or figures[-1]
    )
    draw_reliability([make_panel(str(i)) for i in range(7)], "x", tmp_path / "a.png")
    axes = figures[0].axes
    assert len(axes) == 16
    titles = [one.get_title().split("\n")[0] for one in axes]
    assert [titles[:4], titles[8:12]] == [["0", "1", "2", "3"], ["4", "5", "6", ""]]
    assert [one.get_visible() for one in axes].count(False) == 2
    assert figures[0].get_figheight() > figures[0].get_figwidth() / 2


def test_reproducible(tmp_path):
    for name in "ab":
        draw_reliability([make_panel()], "x", tmp_path / f"{name}.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
