import json

import numpy as np
import pytest
from lhotse import MonoCut, SupervisionSegment
from lhotse.supervision import AlignmentItem
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Rectangle

from mlvae.report import plots
from mlvae.report.plots import (
    Panel,
    Span,
    draw_learning_curves,
    draw_reliability,
    draw_rows,
    draw_utterance,
    group_scalars,
    write_learning_curves,
)
from mlvae.score.calibration import ReliabilityCurve


@pytest.fixture
def drawn(monkeypatch):
    """Catch the figures that are drawn."""
    figures = []

    def catch(*args, **options):
        figures.append(Figure(*args, **options))
        return figures[-1]

    monkeypatch.setattr(plots, "Figure", catch)
    return figures


def make_rows(count=6):
    boundaries = np.linspace(0, 1.5, count + 1)
    text = [str(index) for index in range(count)]
    said = ["9", *text[1:]]
    return {
        "text": [Span(*each) for each in zip(boundaries, boundaries[1:], text, text)],
        "said": [Span(*each) for each in zip(boundaries, boundaries[1:], said, text)],
    }


def draw_some(path, rows=None):
    features = np.random.default_rng(0).standard_normal((150, 40)).astype(np.float32)
    draw_rows(features, 1.5, rows or make_rows(), "Mismatch-x: utterance u", "Caption.", path)


def test_the_file_is_an_image_and_reproducible(tmp_path):
    draw_some(tmp_path / "a.png")
    draw_some(tmp_path / "b.png")
    image = imread(tmp_path / "a.png")
    assert image.shape[0] > 500 and image.shape[1] > 1000
    assert image.std() > 0.05
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_marked_spans_are_told_by_colour_hatch_and_text(tmp_path, drawn):
    draw_some(tmp_path / "a.png")
    top, text, said = drawn[0].axes
    assert top.get_title() == "Mismatch-x: utterance u"
    assert said.get_xlabel() == "time (seconds)"
    for axes, marked in ((text, []), (said, [0])):
        boxes = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
        assert len(boxes) == 6
        assert [i for i, box in enumerate(boxes) if box.get_hatch()] == marked
        plain = boxes[-1].get_facecolor()
        assert [i for i, box in enumerate(boxes) if box.get_facecolor() != plain] == marked
    labels = [label.get_text() for label in said.texts]
    assert labels == ["9 ≠ 0", "1", "2", "3", "4", "5"]


def test_narrow_spans_stack_their_text(tmp_path, drawn):
    draw_some(tmp_path / "a.png", make_rows(count=40))
    labels = [label.get_text() for label in drawn[0].axes[2].texts]
    assert labels[:2] == ["9\n≠\n0", "1"]
    assert drawn[0].get_figwidth() == pytest.approx(10 + 28 * 0.25)
    assert all(label.get_fontsize() >= 6 for label in drawn[0].axes[2].texts)


def test_short_spans_are_written_upright_or_not_at_all(tmp_path, drawn):
    spans = [
        Span(0.0, 1.3, "iy", "iy"),
        Span(1.3, 1.32, "dh", "dh"),
        Span(1.32, 1.34, "d", "dh"),
        Span(1.34, 1.342, "th", "th"),
        Span(1.342, 1.344, "s", "th"),
    ]
    draw_some(tmp_path / "a.png", {"found": spans})
    found = [(label.get_text(), label.get_rotation()) for label in drawn[0].axes[1].texts]
    assert found == [("iy", 0.0), ("dh", 90.0), ("d ≠ dh", 90.0), ("s ≠ th", 90.0)]
    assert drawn[0].get_figwidth() == 10.0


def test_units_without_length_among_many_are_written_upright(tmp_path, drawn):
    rows = make_rows(count=20)
    names = ("hh", "iy", "sh", "uh", "k", "zh")
    rows["said"] += [Span(0.75, 0.75, "-", name) for name in names]
    draw_some(tmp_path / "a.png", rows)
    last = drawn[0].axes[2].texts[-1]
    assert (last.get_text(), last.get_rotation()) == ("- ≠ hh iy …", 90.0)


def test_a_cut_without_features_is_refused(tmp_path):
    cut = MonoCut("utt", 0.0, 1.0, 0)
    with pytest.raises(ValueError, match="utt: no features"):
        draw_utterance(cut, [], np.zeros(0), np.zeros(0), {}, "", "", tmp_path / "a.png")


def items(symbols, boundaries):
    return [AlignmentItem(s, b, e - b) for s, b, e in zip(symbols, boundaries, boundaries[1:])]


def test_a_row_for_each_system(tmp_path, drawn, monkeypatch):
    boundaries = np.array([0.0, 0.5, 1.0, 1.5])
    alignment = {"fa": items("352", boundaries)}
    supervision = SupervisionSegment("u", "u", 0.0, 1.5, alignment=alignment)
    cut = MonoCut("u", 0.0, 1.5, 0, supervisions=[supervision])
    features = np.random.default_rng(0).standard_normal((150, 40)).astype(np.float32)
    monkeypatch.setattr(plots, "load_features", lambda cut: features)
    late = np.array([0.0, 1.5, 1.5, 1.5])
    found = {
        "ours": (items("352", boundaries), items("3*2", boundaries)),
        "other": (items("352", late), items("4--", late)),
        "silent": None,
    }
    draw_utterance(
        cut, "372", boundaries[:-1], boundaries[1:], found, "t", "Shown.", tmp_path / "a.png"
    )
    _, text, reference, ours, other, silent = drawn[0].axes
    assert ours.get_ylabel() == "ours" and other.get_ylabel() == "other"
    labels = [[label.get_text() for label in axes.texts] for axes in (text, reference, ours, other)]
    assert labels[:3] == [["3", "5", "2"], ["3", "7 ≠ 5", "2"], ["3", "* ≠ 5", "2"]]
    # Units without length at one time are one line with one text.
    assert labels[3] == ["4 ≠ 3", "-\n≠\n5 2"]
    assert len(other.patches) == 1
    assert [label.get_text() for label in silent.texts] == ["no hypothesis"]
    # The reference boundaries of what differs go through all rows, for comparison.
    for axes in (text, reference, ours, other):
        dotted = [line for line in axes.lines if line.get_linestyle() == ":"]
        assert [line.get_xdata()[0] for line in dotted] == [0.5, 1.0]
    solid = [line for line in other.lines if line.get_linestyle() == "-"]
    assert [line.get_xdata()[0] for line in solid] == [1.5]
    caption = drawn[0].get_supxlabel().replace("\n", " ")
    assert "any other unit" in caption and "deletion" in caption
    assert drawn[0].get_figheight() == pytest.approx(3.8 + 5 * 0.6)


def test_p_is_a_bar_below_each_unit_of_a_system(tmp_path, drawn):
    rows = make_rows()
    pairs = zip(rows["said"], (0.97, 0.0, 0.5, None, 1.0, 0.25))
    rows["said"] = [Span(s.start, s.end, s.symbol, s.written, p) for s, p in pairs]
    rows["said"].append(Span(1.5, 1.5, "-", "8", 0.5))
    draw_some(tmp_path / "a.png", rows)
    _, text, said = drawn[0].axes
    assert text.get_ylim() == (0, 1) and said.get_ylim() == (-plots.P_HEIGHT, 1)
    bars = [box for box in said.patches if box.get_facecolor() == to_rgba(plots.P_BAR)]
    full = plots.P_HEIGHT - 0.1
    assert [bar.get_height() / full for bar in bars] == pytest.approx([0.97, 0.0, 0.5, 1.0, 0.25])
    numbers = [label.get_text() for label in said.texts if "." in label.get_text()]
    assert numbers == ["0.97", "0.00", "0.50", "1.00", "0.25"]
    heights = [line.get_ydata() for line in said.lines if line.get_color() == plots.P_BAR]
    assert [high - low for low, high in heights] == pytest.approx([0.5 * full])
    assert drawn[0].get_figheight() == pytest.approx(3.8 + 0.6 * (2 + plots.P_HEIGHT))


def test_a_length_that_rounding_made_is_none(tmp_path, drawn):
    spans = [Span(0.0, 0.5, "3", "3"), Span(0.5, 0.5 + 5e-5, "-", "5")]
    draw_some(tmp_path / "a.png", {"found": spans})
    assert len(drawn[0].axes[1].patches) == 1
    assert [line.get_xdata()[0] for line in drawn[0].axes[1].lines] == [0.5]


def test_caption_says_only_what_is_there(tmp_path, drawn, monkeypatch):
    boundaries = np.array([0.0, 0.5, 1.5])
    alignment = {"fa": items("35", boundaries)}
    supervision = SupervisionSegment("u", "u", 0.0, 1.5, alignment=alignment)
    cut = MonoCut("u", 0.0, 1.5, 0, supervisions=[supervision])
    monkeypatch.setattr(plots, "load_features", lambda cut: np.eye(150, 40))
    arguments = cut, "35", boundaries[:-1], boundaries[1:], {}, "t", "Shown.", tmp_path / "a.png"
    draw_utterance(*arguments)
    assert len(drawn[0].axes) == 3
    caption = drawn[0].get_supxlabel()
    for absent in ("any other unit", "deletion", "Dotted", "insertion"):
        assert absent not in caption
    draw_utterance(*arguments, inserted=[AlignmentItem("uh", 0.5, 0.2)])
    text, reference = drawn[1].axes[1:]
    assert [label.get_text() for label in text.texts] == ["3", "5"]
    assert [label.get_text() for label in reference.texts] == ["3", "5", "+uh"]
    assert reference.patches[-1].get_hatch() and not reference.patches[0].get_hatch()
    assert "The sign +: an insertion." in drawn[1].get_supxlabel().replace("\n", " ")


HISTORY = [
    {"path_score/train": 1.0, "loss/kl": 8.0, "loss/estimator": 2.0, "corrupted_f1": 0.3},
    {"path_score/train": 1.2, "path_score/valid": 1.1, "loss/kl": 7.0, "loss/estimator": 1.5},
    {"path_score/train": 1.3, "path_score/valid": 1.2, "loss/kl": 6.0, "loss/estimator": 1.4},
]


def visible(figure):
    return [axes for axes in figure.axes if axes.get_visible()]


def test_losses_have_a_panel_each_and_others_share_one():
    groups = group_scalars([*HISTORY, {"loss/reward": 1.0, "changed_units": 0.1, "new": 2.0}])
    assert groups == {
        "loss/estimator": ["loss/estimator"],
        "loss/kl": ["loss/kl"],
        "loss/reward": ["loss/reward"],
        "path_score": ["path_score/train", "path_score/valid"],
        "changed": ["changed_units"],
        "corrupted_f1": ["corrupted_f1"],
        "new": ["new"],
    }
    assert list(groups)[:5] == ["loss/estimator", "loss/kl", "loss/reward", "path_score", "changed"]


def test_every_value_is_drawn_and_the_kept_iteration_marked(tmp_path, drawn):
    draw_learning_curves(HISTORY, 2, "ml-vae", "Caption.", tmp_path / "a.png")
    estimator, kl, score, criterion = visible(drawn[0])
    assert estimator.get_title() == "loss of the phoneme estimator"
    assert kl.lines[0].get_xydata().tolist() == [[1, 8], [2, 7], [3, 6]]
    assert score.lines[1].get_xydata().tolist() == [[2, 1.1], [3, 1.2]]
    assert [text.get_text() for text in score.get_legend().get_texts()] == ["train", "valid"]
    # Two lines of a panel differ by more than their colour.
    assert score.lines[0].get_linestyle() != score.lines[1].get_linestyle()
    assert criterion.lines[0].get_xydata().tolist() == [[1, 0.3]]
    for axes in (estimator, kl, score, criterion):
        assert list(axes.lines[-1].get_xdata()) == [2, 2]
    draw_learning_curves(HISTORY, 2, "ml-vae", "Caption.", tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    with pytest.raises(ValueError, match="no scalars"):
        draw_learning_curves([{}], None, "", "", tmp_path / "c.png")


def test_from_what_a_training_left(tmp_path, drawn):
    training = {"history": HISTORY, "best_iteration": 3, "criterion": "F1 of units"}
    (tmp_path / "training.json").write_text(json.dumps(training))
    assert write_learning_curves(tmp_path)
    assert (tmp_path / "learning_curves.png").read_bytes().startswith(b"\x89PNG")
    caption = drawn[0].get_supxlabel()
    assert caption == "Vertical line: iteration 3, which is kept (criterion: F1 of units)."
    assert not any("chooses" in axes.get_title() for axes in visible(drawn[0]))
    (tmp_path / "training.json").write_text(
        json.dumps(training | {"chosen_by": "path_score/valid"})
    )
    assert write_learning_curves(tmp_path)
    (score,) = [axes for axes in visible(drawn[1]) if axes.get_title().endswith("(chooses)")]
    (star,) = [line for line in score.lines if line.get_marker() == "*"]
    assert star.get_xydata().tolist() == [[3, 1.2]]
    assert [text.get_text() for text in score.texts] == ["1.2"]


def test_forced_alignment_has_scores_only_and_others_may_have_nothing(tmp_path, drawn):
    (tmp_path / "training.json").write_text('{"path_scores": [1.0, 2.0]}')
    assert write_learning_curves(tmp_path)
    (axes,) = visible(drawn[0])
    assert [line.get_xydata().tolist() for line in axes.lines] == [[[1, 1], [2, 2]]]
    (tmp_path / "learning_curves.png").unlink()
    (tmp_path / "training.json").write_text('{"unavailable": "no weights at hand"}')
    assert not write_learning_curves(tmp_path)
    assert not (tmp_path / "learning_curves.png").exists()


def make_panel(name="ours"):
    rng = np.random.default_rng(0)
    return Panel(
        title=f"{name}\ncalibration error 0.020",
        probabilities=rng.random(300),
        curve=ReliabilityCurve(
            probability=np.array([0.1, 0.5, 0.9]),
            fraction=np.array([0.0, 0.5, 1.0]),
            # An end may lie on the wrong side of the fraction by rounding.
            low=np.array([1e-17, 0.4, 0.8]),
            high=np.array([0.2, 0.6, 1.0 - 1e-16]),
            num_units=np.array([100, 100, 100]),
        ),
    )


@pytest.mark.parametrize("count", [1, 3])
def test_a_panel_for_each_system(tmp_path, drawn, count):
    title = "Mismatch-x: 600 test utterances, 2977 units, 18.3 % of them mismatched"
    draw_reliability([make_panel(str(i)) for i in range(count)], title, tmp_path / "a.png")
    axes = drawn[0].axes
    assert len(axes) == 2 * count
    for index in range(count):
        assert axes[index].get_title() == f"{index}\ncalibration error 0.020"
        diagonal, points = axes[index].lines[:2]
        assert diagonal.get_xydata().tolist() == [[0, 0], [1, 1]]
        assert points.get_xydata().tolist() == [[0.1, 0.0], [0.5, 0.5], [0.9, 1.0]]
        assert sum(bar.get_height() for bar in axes[count + index].patches) == 300
        assert axes[count + index].get_xlabel() == "P(mispronounced)"
    assert title in drawn[0].get_suptitle().replace("\n", " ")
    image = imread(tmp_path / "a.png")
    assert image.shape[1] > 900 and image.std() > 0.05


def test_many_panels_go_on_in_further_rows(tmp_path, drawn):
    draw_reliability([make_panel(str(i)) for i in range(7)], "x", tmp_path / "a.png")
    axes = drawn[0].axes
    assert len(axes) == 16
    titles = [one.get_title().split("\n")[0] for one in axes]
    assert [titles[:4], titles[8:12]] == [["0", "1", "2", "3"], ["4", "5", "6", ""]]
    assert [one.get_visible() for one in axes].count(False) == 2
    assert drawn[0].get_figheight() > drawn[0].get_figwidth() / 2


def test_reliability_is_reproducible(tmp_path):
    for name in "ab":
        draw_reliability([make_panel()], "x", tmp_path / f"{name}.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
