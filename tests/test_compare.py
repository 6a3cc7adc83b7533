from __future__ import annotations

import csv
from pathlib import Path

import pytest

from mlvae.answers import answer_of
from mlvae.cli import main
from mlvae.compare import TextGrids, verdicts_of
from mlvae.data.textgrid import read_textgrid
from mlvae.report.exports import write_answer_textgrid
from mlvae.report.textgrid import write_textgrid
from tests.formats import PAGE, read_page
from tests.made_answers import answered, write_answers

CUTS = {
    cut.id: cut
    for cut in (
        answered("ann-1", "abc de", "axc d-"),
        answered("ann-2", "fgh ij", "fgh i*"),
        answered("bob-1", "kl mno", "kl mno"),
    )
}


@pytest.fixture
def answers(tmp_path) -> Path:
    return write_answers(tmp_path / "answers", list(CUTS.values()))


@pytest.fixture
def grids(tmp_path) -> Path:
    """The TextGrids of the answers, which nobody has corrected yet."""
    for cut in CUTS.values():
        write_answer_textgrid(answer_of(cut), tmp_path / "corrected")
    return tmp_path / "corrected"


def corrected(path: Path, tier: str, *changes: tuple[str, str], encoding: str = "utf-16") -> None:
    """Change what a tier says, as a person does, and write it in Praat's way."""
    head, name, rest = path.read_text(encoding="utf-8").partition(f'name = "{tier}" ')
    body, item, tail = rest.partition("item [")
    assert name, f"no tier {tier}"
    for old, new in changes:
        assert old in body
        body = body.replace(old, new)
    path.write_text(head + name + body + item + tail, encoding=encoding)


def differences(path: Path) -> list[tuple[str, ...]]:
    with path.open(encoding="utf-8", newline="") as file:
        names = ("utterance", "index", "unit", "answer", "correction", "difference")
        return [tuple(row[name] for name in names) for row in csv.DictReader(file)]


def test_what_was_not_changed_is_right(answers, grids, tmp_path, capsys):
    assert main(["compare", str(answers), str(grids), str(tmp_path / "out.csv")]) == 0
    said = capsys.readouterr().out
    assert "15 units of 3 utterances were judged: 3 mispronounced (20.0 %), 3 flagged" in said
    assert "3 of 3 files say what the answers say" in said and "average precision 1.000" in said
    assert "average IoU 100.0 %" in said  # though a unit is deleted
    assert differences(tmp_path / "out.csv") == []


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8", "latin-1"])
def test_labels_and_boundaries_are_read_as_praat_writes_them(
    encoding, answers, grids, tmp_path, capsys
):
    change = {"encoding": encoding}
    corrected(grids / "ann-1.TextGrid", "perceived", ('"x"', '" é "'), ('"c"', '"-"'), **change)
    corrected(grids / "ann-2.TextGrid", "perceived", ('"*"', '"?"'), **change)
    corrected(grids / "bob-1.TextGrid", "units", ("= 0.2", "= 0.25"), **change)  # l ends, m begins
    assert main(["compare", str(answers), str(grids), str(tmp_path / "out.csv")]) == 0
    assert differences(tmp_path / "out.csv") == [
        ("ann-1", "1", "b", "x", "é", "other sound"),
        ("ann-1", "2", "c", "c", "-", "missed"),
        ("bob-1", "1", "l", "l", "l", "boundary"),
        ("bob-1", "2", "m", "m", "m", "boundary"),
    ]
    said = capsys.readouterr().out
    assert "14 units of 3 utterances were judged: 3 mispronounced" in said and "1 more are" in said
    hard = next(line for line in said.splitlines() if line.startswith("hard"))
    assert hard.split()[1:] == ["100.0", "66.7", "80.0"]
    assert "perceived unit: right in 0.0 % of 1 that" in said
    assert "starts: 92.3 % within 20 ms of the correction, median +0 ms" in said


def test_tiers_may_be_added_and_removed_and_stage_5_names_them_otherwise(tmp_path):
    cut = CUTS["ann-1"]
    path = tmp_path / "x.TextGrid"
    write_textgrid(cut, path, ["fa", "mlvae_perceived"])
    found = verdicts_of(read_textgrid(path), answer_of(cut))
    assert "".join(verdict.perceived for verdict in found.values()) == "axcd-"
    write_textgrid(cut, path, ["fa", "mlvae"])
    with pytest.raises(ValueError, match="no tier 'perceived', which is to be corrected"):
        verdicts_of(read_textgrid(path), answer_of(cut))


def test_each_bad_file_is_a_line_and_the_rest_goes_on(answers, grids, capsys):
    corrected(grids / "ann-1.TextGrid", "units", ('"b"', '"z"'))
    corrected(grids / "ann-2.TextGrid", "perceived", ('"g"', '""'))
    (grids / "deep").mkdir()
    (grids / "deep" / "ann-1.TextGrid").write_text("of nobody")
    (grids / "empty.TextGrid").write_bytes(b"")
    (grids / "notes.txt").write_text("passed over")
    (grids / "bob-1.textgrid").write_text("twice")
    assert main(["compare", str(answers), str(grids)]) == 1
    said = capsys.readouterr().out
    lines = [line for line in said.splitlines() if "skipped /" in line]
    for name, reason in (
        ("ann-1", "tier 'units' has the units 'a z c d e', and the answer 'a b c d e'"),
        ("ann-2", "tier 'perceived' has 4 labels for 5 units"),
        ("deep/ann-1", "no answer for an utterance of this name"),
        ("empty", "no answer for an utterance of this name"),
        ("bob-1", "bob-1.TextGrid has the same name, and is used"),
    ):
        assert sum(f"{grids}/{name}." in line and reason in line for line in lines) == 1
    assert "6 in = 1 done + 5 skipped" in said and len(lines) == 5


def test_nothing_usable_and_nothing_at_all(answers, tmp_path, capsys):
    (tmp_path / "none").mkdir()
    assert main(["compare", str(answers), str(tmp_path / "none")]) == 2
    assert main(["compare", str(answers), str(tmp_path / "missing.csv")]) == 2
    assert main(["compare", str(tmp_path / "none"), str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("\n") == 2
    assert TextGrids(tmp_path / "none").skipped == {}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("sign", [",", ";", "\t"])
def test_verdicts_of_a_table(encoding, sign, answers, tmp_path, capsys):
    rows = """utterance,index,start,unit,verdict,said
        ann-1,1,,b,right,
        ann-1,2,,,wrong,q
        ann-1,,0.301,d,unsure,
        ann-2,0,,f,,
        ann-2,1,,g,perhaps,
        ann-2,9,,,right,
        ann-2,,0.15,,right,
        ann-2,,soon,,right,
        ann-1,1,,,wrong,
        ann-2,4,,x,wrong,
        ann-2,3,,,wrong,i
        eve-1,1,,,right,
        bob-1,4,,o,Right,"""
    table = tmp_path / "verdicts.csv"
    table.write_text(rows.replace(" ", "").replace(",", sign), encoding=encoding)
    assert main(["compare", str(answers), str(table), str(tmp_path / "out.csv")]) == 1
    assert differences(tmp_path / "out.csv") == [
        ("ann-1", "1", "b", "x", "b", "false alarm"),
        ("ann-1", "2", "c", "c", "q", "missed"),
    ]
    said = capsys.readouterr().out
    assert (
        "3 units of 2 utterances were judged: 1 mispronounced (33.3 %), 1 flagged; 1 more" in said
    )
    assert "12 in = 4 done + 8 skipped" in said and "pooled" not in said and "IoU" not in said
    for line, reason in {
        6: "'perhaps' is none of right, wrong, unsure",
        7: "no unit 9: there are 5",
        8: "no unit starts at 0.15 s",
        9: "start is 'soon', which is no number",
        10: "a second verdict on unit 1 of ann-1",
        11: "unit 4 of ann-2 is 'j', not 'x'",
        12: "unit 3 of ann-2 is wrong, and 'i' all the same",
        13: "no answer for the utterance 'eve-1'",
    }.items():
        assert f"skipped {table}, line {line}: " in said and reason in said


def test_columns_are_documented_and_nothing_of_others_is_replaced(answers, grids, tmp_path, capsys):
    corrected(grids / "ann-1.TextGrid", "perceived", ('"c"', '"-"'))
    out = tmp_path / "out.csv"
    for _ in range(2):
        assert main(["compare", str(answers), str(grids), str(out)]) == 0
    names = list(read_page(PAGE.read_text(encoding="utf-8"))["differences of compare"].names)
    assert out.read_text().splitlines()[0].split(",") == names
    out.write_text("mine")
    assert main(["compare", str(answers), str(grids), str(out)]) == 2
    assert out.read_text() == "mine" and "in the way" in capsys.readouterr().err
    assert main(["compare", str(answers), str(grids)]) == 0
    assert "correction" in capsys.readouterr().out
    table = tmp_path / "table.csv"
    table.write_text("utterance,verdict\nann-1,right\n")
    assert main(["compare", str(answers), str(table)]) == 2
    assert "index or start are needed" in capsys.readouterr().err
    table.write_bytes(b"utterance,index,verdict\0\n")
    assert main(["compare", str(answers), str(table)]) == 2
    assert f"{table}, line 1: line contains NUL" in capsys.readouterr().err


def test_an_earlier_table_stays_where_no_correction_can_be_used(answers, grids, tmp_path):
    out, empty = tmp_path / "out.csv", tmp_path / "empty"
    empty.mkdir()
    corrected(grids / "ann-1.TextGrid", "perceived", ('"c"', '"-"'))
    assert main(["compare", str(answers), str(grids), str(out)]) == 0
    before = out.read_bytes()
    assert main(["compare", str(answers), str(empty), str(out)]) == 2
    assert out.read_bytes() == before
