"""Damaged lines of answers: each is skipped with its reason, and the others are read."""

from __future__ import annotations

import copy
import gzip
import json

import pytest

from mlvae.answers import read_answers, read_skipped
from tests.made_answers import answered, write_answers


def _tiers(line: dict) -> dict:
    return line["supervisions"][0]["alignment"]


def _set(name: str, place: int, value: object):
    return lambda line: _tiers(line)[name][0].__setitem__(place, value)


DAMAGE = {
    "no answer: no units": lambda line: _tiers(line).update(mlvae=[], mlvae_perceived=[]),
    "no answer: no tier mlvae_perceived": lambda line: _tiers(line).pop("mlvae_perceived"),
    "tier mlvae_perceived has 2 items in the place of 3": lambda line: _tiers(line)[
        "mlvae_perceived"
    ].pop(),
    "tier mlvae_deleted has 2 items in the place of 3": lambda line: _tiers(line).update(
        mlvae_deleted=_tiers(line)["mlvae"][1:]
    ),
    "tier mlvae_word has 0 items in the place of 1": lambda line: _tiers(line).update(
        mlvae_word=[]
    ),
    "a P of its answer is outside 0 to 1": _set("mlvae", 3, 7.5),
    "a time, P, score_per_frame or loop_gain of its answer is no number": _set("mlvae", 3, "x"),
    "no loop_gain, as stage 3 writes it: run the stages from 3 on": lambda line: line.pop("custom"),
    "another line has this id, too": lambda line: line.update(id="good"),
}


@pytest.mark.parametrize("reason", DAMAGE)
def test_a_damaged_line_is_skipped_with_its_reason(tmp_path, reason):
    folder = write_answers(tmp_path, [answered("good", "abc")])
    path = folder / "cuts.jsonl.gz"
    line = json.loads(gzip.decompress(path.read_bytes()))
    bad = {**copy.deepcopy(line), "id": "bad"}
    DAMAGE[reason](bad)
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, [line, bad])).encode()))
    skipped = []
    found = list(read_answers(folder, lambda *about: skipped.append(about), with_fit=True))
    assert [answer.id for answer in found] == ["good"]
    assert skipped == [(bad["id"], reason, f"{path}, line 2")]


def test_what_was_skipped_is_that_of_the_run_and_of_no_folder_above(tmp_path):
    def write(folder, stage):
        folder.mkdir(exist_ok=True)
        line = {"stage": stage, "id": folder.name, "reason": "r"}
        (folder / "skipped.jsonl").write_text(json.dumps(line) + "\n")

    write(tmp_path, "localize")
    write_answers(tmp_path / "within", [answered("good", "abc")])
    (tmp_path / "within" / "skipped.jsonl").unlink(missing_ok=True)
    assert list(read_skipped(tmp_path / "within")) == []
    write(tmp_path, "5 localize")
    system = tmp_path / "ml-vae-sub"
    system.mkdir()
    (system / "cuts_test.jsonl.gz").write_bytes((tmp_path / "within/cuts.jsonl.gz").read_bytes())
    assert list(read_skipped(system)) == list(read_skipped(tmp_path)) == [(tmp_path.name, "r")]
