"""Answers in portions: the same as all at once, and a killed run goes on."""

from __future__ import annotations

import pytest

from mlvae import portions
from mlvae.data.dataset import load_cuts
from mlvae.train.loop import keep_passes
from tests.answering import Answering, make_cut
from tests.recipes.conftest import scripts_find_each_other  # noqa: F401


@pytest.mark.parametrize("lost", [False, True])
def test_a_killed_stage_goes_on_behind_its_last_portion(tmp_path, monkeypatch, lost):
    """Unless a part is lost: then it begins again."""
    names = [f"test{number}" for number in range(5)]
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    whole, stage = (Answering(tmp_path / name, names) for name in ("whole", "parts"))
    assert whole() == 0 and whole.asked == 1
    monkeypatch.setattr(portions, "MANY", (2, 3600.0))

    def kill():
        if stage.asked == 3:
            raise KeyboardInterrupt

    stage.meanwhile = kill
    with pytest.raises(KeyboardInterrupt):
        stage()
    folder = stage.exp / "quick"
    parts = sorted(path.name for path in folder.glob("cuts_test.*"))
    assert parts == ["cuts_test.0.jsonl.gz", "cuts_test.1.jsonl.gz"]
    assert not list(folder.rglob("*.TextGrid"))
    if lost:
        (folder / parts[0]).unlink()
    assert stage() == 0 and stage.asked == (6 if lost else 4)
    answers = [load_cuts(own.exp / "quick" / "cuts_test.jsonl.gz") for own in (whole, stage)]
    assert [cut.drop_features() for cut in answers[0]] == [
        cut.drop_features() for cut in answers[1]
    ]
    made = {path.relative_to(whole.exp) for path in whole.exp.rglob("*")}
    assert {path.relative_to(stage.exp) for path in stage.exp.rglob("*")} == made


def test_parts_of_other_cuts_are_not_taken(tmp_path, monkeypatch):
    stage = Answering(tmp_path, ["a", "b", "c"])
    monkeypatch.setattr(portions, "MANY", (2, 3600.0))
    stage.meanwhile = lambda: stage.asked == 1 or 1 / 0
    with pytest.raises(ZeroDivisionError):
        stage()
    stage.set_cuts(["d", "e", "f"])
    stage.meanwhile = lambda: None
    assert stage() == 0 and stage.asked == 4
    assert list(load_cuts(stage.exp / "quick" / "cuts_test.jsonl.gz").ids) == ["d", "e", "f"]


def test_portions_do_not_depend_on_which_cuts_are_answered(tmp_path, monkeypatch):
    monkeypatch.setattr(portions, "MANY", (2, 3600.0))
    cuts, asked = [make_cut(str(number)) for number in range(7)], []

    def answer(some, passes):
        asked.append(list(some.ids))
        return some, []

    keeper = keep_passes(tmp_path / "checkpoint.safetensors", {}, 0, [])
    path, ids = tmp_path / "cuts.jsonl.gz", {"0", "3", "4", "5"}
    portions.answer_in_portions(path, cuts, keeper, answer, ids).write()
    assert asked == [["0"], ["3"], ["4", "5"]]
    assert set(load_cuts(path).ids) == ids
