from __future__ import annotations

import csv
import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest

from mlvae.answers import answer_of
from mlvae.audit import fit_of, ranked, worst_stretch
from mlvae.cli import main
from mlvae.data.manifests import write_json
from mlvae.lock import folder_lock
from mlvae.made import Record, atomic_path
from tests.formats import PAGE, read_page
from tests.made_answers import answered, write_answers


def usual(count: int = 60) -> list:
    """Utterances of which nothing stands out."""
    gains = np.random.default_rng(0).normal(1.0, 0.1, count)
    return [answered(f"u{n:02d}", "abc de fgh", gain=gain) for n, gain in enumerate(gains)]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    "perceived, gain, reason, words, times",
    [
        ("xyzuvwqh", 2.0, "the text does not fit the recording", "abc de fgh", (0.0, 0.7)),
        ("xyzuvwqp", 1.0, "most of the text does not match", "abc de fgh", (0.0, 0.8)),
        ("abcxyfgh", 1.0, "'de' does not match: perceived as 'x y'", "de", (0.3, 0.5)),
        ("abc**fgh", 1.0, "'de' does not match what is said there", "de", (0.3, 0.5)),
        ("abcde---", 1.0, "'fgh' does not seem to be said at the end", "fgh", (0.5, 0.7)),
        ("---defgh", 1.0, "'abc' does not seem to be said at the beginning", "abc", (0.0, 0.2)),
        ("abcdefgh", 3.0, "without a place that stands out: more is said", "", None),
    ],
)
def test_a_wrong_text_comes_first_with_its_place(perceived, gain, reason, words, times, tmp_path):
    cut = answered("x", "abc de fgh", perceived, gain=gain)
    folder = write_answers(tmp_path / "answers", [*usual(), cut])
    assert main(["audit", str(folder), str(tmp_path / "out.csv")]) == 0
    first, second, *_ = rows_of(tmp_path / "out.csv")
    assert first["utterance"] == "x" and reason in first["reason"]
    assert float(first["score"]) > float(second["score"]) + 1
    assert first["words"] == words
    found = (float(first["start"]), float(first["end"])) if first["start"] else None
    assert found == times


def test_the_columns_are_documented_and_nothing_stands_out(tmp_path):
    folder = write_answers(tmp_path / "system", usual(), "cuts_test.jsonl.gz")
    assert main(["audit", str(folder), str(tmp_path / "out.csv")]) == 0
    rows = rows_of(tmp_path / "out.csv")
    assert list(rows[0]) == list(read_page(PAGE.read_text(encoding="utf-8"))["audit.csv"].names)
    assert {row["reason"] for row in rows} == {"nothing stands out"} and len(rows) == 60
    assert [int(row["rank"]) for row in rows] == list(range(1, 61))


def test_a_long_text_is_not_suspicious_for_its_length():
    """The learners' errors of a page are as many a unit as those of a sentence."""
    rng = np.random.default_rng(1)

    def said(name: str, size: int):
        units = "ab" * (size // 2)
        wrong = np.where(rng.random(size) < 0.1, 0.8, 0.03).tolist()
        return answer_of(answered(name, units, wrong=wrong))

    answers = [said(f"s{n}", 20) for n in range(40)] + [said("page", 2000)]
    scores = {finding.utterance: finding.score for finding in ranked(lambda: answers)}
    assert scores["page"] < 3 and max(scores.values()) < 4


def test_the_stretch_is_the_best_of_all():
    answer = answer_of(answered("x", "abcdefgh", wrong=[0.1, 0.9, 0.1, 0.9, 0.9, 1e-4, 0.9, 0.1]))
    found = worst_stretch(answer.units, 0.1)
    odds = np.log(9)
    assert (found.first, found.last) == (1, 5)  # over the fourth of P = 0.1, which costs nothing
    assert found.evidence == pytest.approx(3 * 2 * odds - np.log(8))
    assert worst_stretch(answer.units, 0.9999) is None


def test_fit_is_of_what_is_usual_at_a_length():
    rng = np.random.default_rng(2)
    sizes = np.repeat([5, 50], 200)
    gains = rng.normal(0, 1, 400) * np.where(sizes == 5, 0.5, 0.1) + 1
    fit = fit_of(gains, sizes)
    assert abs(fit[:200].std() - 1) < 0.2 and abs(fit[200:].std() - 1) < 0.2
    assert not fit_of(np.ones(3), np.ones(3)).any()


def test_answers_without_probabilities_are_ranked_by_flags():
    cuts = [answered(f"u{n}", "abc", wrong=[None] * 3) for n in range(20)]
    cuts.append(answered("x", "abc", "azz", [None] * 3))
    assert ranked(lambda: map(answer_of, cuts))[0].utterance == "x"


def test_what_has_no_answer_is_a_row_all_the_same(tmp_path, capsys):
    folder = write_answers(tmp_path / "answers", usual(5))
    path = folder / "cuts.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    broken = json.loads(lines[0])
    del broken["supervisions"][0]["alignment"]["mlvae"]
    old = json.loads(lines[1])
    del old["custom"]
    odd = json.loads(lines[2])
    odd["custom"]["loop_gain"] = math.nan
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, [broken, old, odd])).encode()))
    with path.open("ab") as file:
        file.write(gzip.compress(("\n" + "\n".join(lines[3:])).encode()))
    skipped = [("short", "too short for its units"), ("odd", "not in the lexicon: odd")]
    (folder / "skipped.jsonl").write_text(
        "".join(json.dumps({"stage": "localize", "id": i, "reason": r}) + "\n" for i, r in skipped)
    )
    assert main(["audit", str(folder), str(tmp_path / "out.csv")]) == 1
    rows = rows_of(tmp_path / "out.csv")
    assert [row["utterance"] for row in rows if not row["score"]] == [
        "short",
        "odd",
        "u00",
        "u01",
        "u02",
    ]
    assert rows[0]["reason"] == "no answer: too short for its units"
    said = capsys.readouterr().out
    assert "u00" in said and "no tier mlvae" in said and "run the stages from 3 on" in said
    assert "loop_gain of its answer is no number" in said
    assert "7 in = 2 done + 5 without an answer" in said


def test_nothing_of_others_is_replaced_and_bad_folders_are_a_line(tmp_path, capsys):
    folder, out = write_answers(tmp_path / "answers", usual(3)), tmp_path / "out.csv"
    out.write_text("mine")
    assert main(["audit", str(folder), str(out)]) == 2 and out.read_text() == "mine"
    out.unlink()
    for _ in range(2):  # its own is replaced
        assert main(["audit", str(folder), str(out)]) == 0
    before = out.read_text()
    whole = (folder / "cuts.jsonl.gz").read_bytes()
    lines = [json.loads(line) for line in gzip.decompress(whole).splitlines()]
    old = "".join(json.dumps({**line, "custom": {}}) + "\n" for line in lines)
    (folder / "cuts.jsonl.gz").write_bytes(gzip.compress(old.encode()))
    assert main(["audit", str(folder), str(out)]) == 2 and out.read_text() == before
    (folder / "cuts.jsonl.gz").write_bytes(whole)
    capsys.readouterr()
    with folder_lock(tmp_path, "localize"):
        assert main(["audit", str(folder), str(out)]) == 2
    assert "localize" in capsys.readouterr().err
    other = tmp_path / "units.csv"  # made here, by another command
    with atomic_path(other, Record.begin(tmp_path)) as temporary:
        temporary.write_text("utterance,index\n")
    for command in (["audit", str(folder)], ["compare", str(folder), str(folder)]):
        assert main([*command, str(other)]) == 2
        assert "units.csv: in the way, it is of another command" in capsys.readouterr().err
    assert other.read_text() == "utterance,index\n"
    (tmp_path / "empty").mkdir()
    write_json(tmp_path / "damaged" / "x.json", {})
    (tmp_path / "damaged" / "cuts.jsonl.gz").write_bytes(b"\x1f\x8bnot gzip")
    for name, reason in (("empty", "has no answers"), ("damaged", "damaged"), ("none", "has no")):
        assert main(["audit", str(tmp_path / name), str(tmp_path / "new.csv")]) == 2
        error = capsys.readouterr().err
        assert reason in error and error.count("\n") == 1
    assert not (tmp_path / "new.csv").exists()
