import numpy as np
import pytest
from lhotse import MonoCut, SupervisionSegment
from lhotse.supervision import AlignmentItem
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Rectangle

from mlvae.report import picture
from mlvae.report.picture import Span, draw, draw_answer


def make_rows(count=6):
    edges = np.linspace(0, 1.5, count + 1)
    text = [str(index) for index in range(count)]
    said = ["9", *text[1:]]
    return {
        "text": [Span(*each) for each in zip(edges, edges[1:], text, text)],
        "said": [Span(*each) for each in zip(edges, edges[1:], said, text)],
    }


@pytest.fixture
def drawn(monkeypatch):
    """Catch the figures that are drawn."""
    figures = []

    def catch(*args, **options):
        figures.append(Figure(*args, **options))
        return figures[-1]

    monkeypatch.setattr(picture, "Figure", catch)
    return figures


def draw_some(path, rows=None):
    features = np.random.default_rng(0).standard_normal((150, 40)).astype(np.float32)
    draw(features, 1.5, rows or make_rows(), "Mismatch-x: utterance u", "Caption.", path)


def test_file_is_a_picture_and_reproducible(tmp_path):
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
        draw_answer(cut, [], np.zeros(0), np.zeros(0), {}, "", "", tmp_path / "a.png")


def items(symbols, edges):
    return [AlignmentItem(s, b, e - b) for s, b, e in zip(symbols, edges, edges[1:])]


def test_a_row_for_each_system(tmp_path, drawn, monkeypatch):
    edges = np.array([0.0, 0.5, 1.0, 1.5])
    alignment = {"fa": items("352", edges)}
    supervision = SupervisionSegment("u", "u", 0.0, 1.5, alignment=alignment)
    cut = MonoCut("u", 0.0, 1.5, 0, supervisions=[supervision])
    features = np.random.default_rng(0).standard_normal((150, 40)).astype(np.float32)
    monkeypatch.setattr(picture, "load_features", lambda cut: features)
    late = np.array([0.0, 1.5, 1.5, 1.5])
    found = {
        "ours": (items("352", edges), items("3*2", edges)),
        "other": (items("352", late), items("4--", late)),
        "silent": None,
    }
    draw_answer(cut, "372", edges[:-1], edges[1:], found, "t", "Shown.", tmp_path / "a.png")
    _, text, truth, ours, other, silent = drawn[0].axes
    assert ours.get_ylabel() == "ours" and other.get_ylabel() == "other"
    labels = [[label.get_text() for label in axes.texts] for axes in (text, truth, ours, other)]
    assert labels[:3] == [["3", "5", "2"], ["3", "7 ≠ 5", "2"], ["3", "* ≠ 5", "2"]]
    # Units without length at one time are one line with one text.
    assert labels[3] == ["4 ≠ 3", "-\n≠\n5 2"]
    assert len(other.patches) == 1
    assert [label.get_text() for label in silent.texts] == ["no answer"]
    # The true edges of what differs go through all rows, for comparison.
    for axes in (text, truth, ours, other):
        dotted = [line for line in axes.lines if line.get_linestyle() == ":"]
        assert [line.get_xdata()[0] for line in dotted] == [0.5, 1.0]
    solid = [line for line in other.lines if line.get_linestyle() == "-"]
    assert [line.get_xdata()[0] for line in solid] == [1.5]
    caption = drawn[0].get_supxlabel().replace("\n", " ")
    assert "any other unit" in caption and "left out" in caption
    assert drawn[0].get_figheight() == pytest.approx(3.8 + 5 * 0.6)


def test_a_length_that_rounding_made_is_none(tmp_path, drawn):
    spans = [Span(0.0, 0.5, "3", "3"), Span(0.5, 0.5 + 5e-5, "-", "5")]
    draw_some(tmp_path / "a.png", {"found": spans})
    assert len(drawn[0].axes[1].patches) == 1
    assert [line.get_xdata()[0] for line in drawn[0].axes[1].lines] == [0.5]


def test_caption_says_only_what_is_there(tmp_path, drawn, monkeypatch):
    edges = np.array([0.0, 0.5, 1.5])
    alignment = {"fa": items("35", edges)}
    supervision = SupervisionSegment("u", "u", 0.0, 1.5, alignment=alignment)
    cut = MonoCut("u", 0.0, 1.5, 0, supervisions=[supervision])
    monkeypatch.setattr(picture, "load_features", lambda cut: np.eye(150, 40))
    arguments = cut, "35", edges[:-1], edges[1:], {}, "t", "Shown.", tmp_path / "a.png"
    draw_answer(*arguments)
    assert len(drawn[0].axes) == 3
    caption = drawn[0].get_supxlabel()
    for absent in ("any other unit", "left out", "Dotted", "added"):
        assert absent not in caption
    draw_answer(*arguments, added=[AlignmentItem("uh", 0.5, 0.2)])
    text, truth = drawn[1].axes[1:]
    assert [label.get_text() for label in text.texts] == ["3", "5"]
    assert [label.get_text() for label in truth.texts] == ["3", "5", "+uh"]
    assert truth.patches[-1].get_hatch() and not truth.patches[0].get_hatch()
    assert "The sign +: an added sound." in drawn[1].get_supxlabel().replace("\n", " ")
