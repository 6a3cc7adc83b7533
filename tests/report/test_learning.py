import json

import pytest
from matplotlib.figure import Figure

from mlvae.report import learning
from mlvae.report.learning import draw_learning_curves, group_scalars, write_learning_curves

HISTORY = [
    {"path_score/train": 1.0, "loss/kl": 8.0, "loss/estimator": 2.0, "corrupted_f1": 0.3},
    {"path_score/train": 1.2, "path_score/valid": 1.1, "loss/kl": 7.0, "loss/estimator": 1.5},
    {"path_score/train": 1.3, "path_score/valid": 1.2, "loss/kl": 6.0, "loss/estimator": 1.4},
]


@pytest.fixture
def drawn(monkeypatch):
    """Catch the figures that are drawn."""
    figures = []
    monkeypatch.setattr(
        learning, "Figure", lambda **options: figures.append(Figure(**options)) or figures[-1]
    )
    return figures


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


def test_forced_alignment_has_scores_only_and_others_may_have_nothing(tmp_path, drawn):
    (tmp_path / "training.json").write_text('{"path_scores": [1.0, 2.0]}')
    assert write_learning_curves(tmp_path)
    (axes,) = visible(drawn[0])
    assert [line.get_xydata().tolist() for line in axes.lines] == [[[1, 1], [2, 2]]]
    (tmp_path / "learning_curves.png").unlink()
    (tmp_path / "training.json").write_text('{"unavailable": "no weights at hand"}')
    assert not write_learning_curves(tmp_path)
    assert not (tmp_path / "learning_curves.png").exists()
