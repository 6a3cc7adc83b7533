from __future__ import annotations

import csv
import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from benchmarks import audit as benchmark


def test_exchanged_texts_are_others():
    texts = {f"u{n}": f"text {n // 2}" for n in range(100)}  # each twice
    other = benchmark.exchanged(texts, 0.2, seed=1)
    assert len(other) == 20 and set(other) == set(other.values())
    assert all(texts[name] != texts[given] for name, given in other.items())
    assert other == benchmark.exchanged(texts, 0.2, 1) != benchmark.exchanged(texts, 0.2, 2)


def recordings(folder: Path, count: int = 10) -> Path:
    folder.mkdir()
    for n in range(count):
        soundfile.write(folder / f"u{n}.flac", np.full(1000, 0.5), 8000)
        (folder / f"u{n}.txt").write_text(" ".join(f"{letter}{n}" for letter in "abcde"))
    return folder


def test_errors_are_made_and_what_is_right_stays(tmp_path):
    args = Namespace(corpus_dir=recordings(tmp_path / "in"), rate=0.5, seed=3)
    args.errors = ",".join(benchmark.ERRORS)
    wrong = benchmark.make_own(args, tmp_path / "out")
    assert sorted(wrong.values()) == sorted(benchmark.ERRORS)
    for n in range(10):
        name = f"u{n}"
        text = (tmp_path / "out" / f"{name}.txt").read_text().split()
        samples, _ = soundfile.read(tmp_path / "out" / f"{name}.wav")
        own = (tmp_path / "in" / f"{name}.txt").read_text().split()
        kind = wrong.get(name)
        assert len(samples) == (600 if kind == "cut" else 1000)
        assert (np.abs(samples).max() < 0.1) == (kind == "silence")
        if kind == "exchanged":
            assert len(text) == 5 and not set(text) & set(own)
        elif kind == "added":
            assert text[:5] == own and len(text) == 7
        else:
            assert text == (own[:3] if kind == "missing" else own)


def test_the_first_n_are_counted_by_kind(tmp_path):
    with (tmp_path / "audit.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["rank", "utterance"])
        writer.writerows([[rank, f"u{rank}"] for rank in range(1, 11)])
    wrong = {"u1": "cut", "u3": "cut", "u9": "exchanged"}
    assert benchmark.measure(tmp_path / "audit.csv", wrong) == [
        "of 10 utterances 3 are wrong; among the first 3 are",
        "all: 2 of 3 (66.7 %)",
        "cut: 2 of 2 (100.0 %)",
        "exchanged: 0 of 1 (0.0 %)",
        "ranks of the others: 9",
    ]


def test_a_whole_benchmark_with_a_model_that_answers_at_once(tmp_path, monkeypatch, capsys):
    """Of what it gives to whom; models are trained elsewhere."""
    asked = []

    def answer(arguments):
        asked.append(arguments)
        if arguments[0] == "audit":
            ids = [f"u{n}" for n in range(10)]
            lines = [f"{rank},{name}" for rank, name in enumerate(ids, 1)]
            Path(arguments[2]).write_text("\n".join(["rank,utterance", *lines]))
        return 0

    monkeypatch.setattr(benchmark, "mlvae", answer)
    work = tmp_path / "work"
    command = ["own", "--corpus-dir", str(recordings(tmp_path / "in")), "--work", str(work)]
    assert benchmark.main([*command, "--model", "m", "--rate", "0.2"]) == 0
    (kind, model, folder, answers, *_), (last, read, table) = asked
    assert (kind, model, last, read) == ("localize", "m", "audit", answers)
    assert Path(folder) == work / "recordings" and Path(table) == work / "audit.csv"
    wrong = json.loads((work / "wrong.json").read_text())["wrong"]
    assert set(wrong.values()) == {"exchanged"} and len(wrong) == 2
    assert "of 10 utterances 2 are wrong" in capsys.readouterr().out
    assert benchmark.main(command) == 1 and "goes with --model" in capsys.readouterr().err
    assert benchmark.main([*command, "--model", "m"]) == 1
    assert "is not empty" in capsys.readouterr().err


def test_unknown_errors_are_refused(tmp_path):
    args = Namespace(corpus_dir=recordings(tmp_path / "in"), rate=0.5, seed=3, errors="cut,none")
    with pytest.raises(ValueError, match="none: none of exchanged"):
        benchmark.make_own(args, tmp_path / "out")
