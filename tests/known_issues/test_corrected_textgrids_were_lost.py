"""Stage 5, run again, deleted every TextGrid that no cut claimed, such as a copy that a person had
saved beside the answers after checking it, and overwrote those that were corrected in place.
"""

from __future__ import annotations

import json

import pytest

from mlvae.data.dataset import load_cuts
from tests.answering import Answering
from tests.recipes.conftest import scripts_find_each_other  # noqa: F401


@pytest.fixture
def stage(tmp_path) -> Answering:
    stage = Answering(tmp_path, ["test00", "test01"])
    assert stage() == 0
    return stage


def test_what_is_saved_beside_the_answers_stays(stage):
    answer = (stage.textgrids / "test00.TextGrid").read_text()
    checked = stage.textgrids / "test00-checked.TextGrid"
    checked.write_text(answer)  # nobody made it here, though its content was
    assert stage() == 0
    assert checked.read_text() == answer
    assert stage.asked == 2


def test_one_that_was_corrected_in_place_stops_the_stage_before_the_work(stage, capsys):
    corrected = stage.textgrids / "test01.TextGrid"
    corrected.write_text("corrected")
    capsys.readouterr()
    assert stage() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"localize.py: {corrected}: in the way")
    assert (corrected.read_text(), stage.asked) == ("corrected", 1)
    corrected.rename(stage.exp / "mine.TextGrid")
    assert stage() == 0
    assert corrected.read_text() != "corrected"


def test_one_that_is_corrected_meanwhile_stays_and_the_answers_are_not_lost(stage, capsys):
    corrected = stage.textgrids / "test01.TextGrid"
    stage.meanwhile = lambda: corrected.write_text("corrected")
    assert stage() == 0
    captured = capsys.readouterr()
    assert "2 in = 1 done + 1 skipped" in captured.out
    assert "skipped test01: no TextGrid: " in captured.err
    assert corrected.read_text() == "corrected"
    assert len(load_cuts(stage.exp / "quick" / "cuts_test.jsonl.gz")) == 2


def test_answers_of_cuts_that_are_gone_are_removed_unless_they_were_changed(stage):
    assert {path.stem for path in stage.textgrids.iterdir()} == {"test00", "test01"}
    stage.set_cuts(["test02"])
    (stage.textgrids / "test01.TextGrid").write_text("corrected")
    assert stage() == 0
    assert {path.stem for path in stage.textgrids.iterdir()} == {"test01", "test02"}


def test_answers_of_a_version_without_a_record_are_not_taken_for_ours(stage, capsys):
    (stage.exp / ".mlvae-made.jsonl").unlink()
    capsys.readouterr()
    assert stage() == 1
    assert f"{stage.exp / 'skipped.jsonl'}: in the way" in capsys.readouterr().err
    (stage.exp / "skipped.jsonl").unlink()
    assert stage() == 1
    assert "cuts_test.jsonl.gz: in the way" in capsys.readouterr().err
    assert stage.asked == 1


def test_a_list_of_skipped_that_was_changed_is_not_replaced(stage, capsys):
    notes = stage.exp / "skipped.jsonl"
    notes.write_text(json.dumps({"stage": "mine", "id": "x", "reason": "to be looked at"}))
    assert stage() == 1
    assert f"localize.py: {notes}: in the way" in capsys.readouterr().err
    assert "to be looked at" in notes.read_text()
