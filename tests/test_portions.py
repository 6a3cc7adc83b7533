"""Answers in portions: the same as all at once, and a killed run goes on."""

from __future__ import annotations

import pytest
from lhotse import CutSet

from mlvae import portions
from mlvae.data.dataset import load_cuts
from mlvae.made import Record
from mlvae.train import loop
from mlvae.train.loop import Gathered, keep_passes
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


@pytest.mark.parametrize("lost", [False, True])
def test_a_pass_goes_on_in_the_portion_that_it_is_of(tmp_path, monkeypatch, lost):
    monkeypatch.setattr(portions, "MANY", (2, 3600.0))
    monkeypatch.setattr(loop, "INTERVAL", 0.0)
    Record.begin(tmp_path)
    path, cuts = tmp_path / "cuts_test.jsonl.gz", [make_cut(f"cut{n}") for n in range(5)]

    def answered(killed_at=None):
        keeper = keep_passes(tmp_path / "checkpoint.safetensors", {}, 0, [cuts])

        def answer(some, passes):
            found = Gathered([])
            for cut in passes.over(some, found, "quick", "cut", len(some), lambda _: 1):
                if cut.id == killed_at:
                    raise KeyboardInterrupt
                found.value.append(cut.id)
            return CutSet.from_cuts(cut for cut in some if cut.id in found.value), []

        portions.answer_in_portions(path, cuts, keeper, answer).write()

    with pytest.raises(KeyboardInterrupt):
        answered(killed_at="cut3")
    if lost:
        (tmp_path / "cuts_test.0.jsonl.gz").unlink()
    answered()
    assert list(load_cuts(path).ids) == [cut.id for cut in cuts]


def test_parts_of_other_cuts_are_neither_taken_nor_left(tmp_path, monkeypatch):
    stage = Answering(tmp_path, ["a", "b", "c", "d", "e"])
    monkeypatch.setattr(portions, "MANY", (2, 3600.0))
    stage.meanwhile = lambda: stage.asked < 3 or 1 / 0
    with pytest.raises(ZeroDivisionError):
        stage()
    (stage.exp / "quick" / "cuts_test.7.jsonl.gz").write_bytes(b"mine")
    stage.set_cuts(["f", "g"])
    stage.meanwhile = lambda: None
    assert stage() == 0 and stage.asked == 4
    assert list(load_cuts(stage.exp / "quick" / "cuts_test.jsonl.gz").ids) == ["f", "g"]
    left = sorted(path.name for path in (stage.exp / "quick").glob("cuts_test.*"))
    assert left == ["cuts_test.7.jsonl.gz", "cuts_test.jsonl.gz"]


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
