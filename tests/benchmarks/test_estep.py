"""The benchmark of the E-step at a tiny size: that all ways agree, not how fast they are."""

from __future__ import annotations

import gc
import json
import math
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from benchmarks import estep, inputs
from benchmarks.baselines import batched_dp, compiled_dp, loop_dp
from tests.shell_project import ROOT

TINY = "--num-utterances 5 --num-frames 24 --num-units 6 --alphabet 7 --repeats 3 --loop-repeats 2"


def run(tmp_path, *options) -> tuple[int, dict]:
    path = tmp_path / "estep.json"
    num_threads = torch.get_num_threads()
    try:
        status = estep.main([*TINY.split(), "--json", str(path), *options])
    finally:
        torch.set_num_threads(num_threads)
    return status, json.loads(path.read_text())


def test_all_ways_agree_and_are_reported(tmp_path, capsys):
    pytest.importorskip("numba")
    status, report = run(tmp_path, "--vary", "0.6", "--seed", "3")
    assert status == 0
    assert report["same_paths"] is True
    assert report["settings"]["num_utterances"] == 5 and report["settings"]["seed"] == 3
    assert report["machine"]["cpu"] and report["machine"]["cores"] >= 1
    assert report["versions"]["k2"] and report["versions"]["numba"]
    runs = {name: len(seconds) for name, seconds in report["seconds"].items()}
    assert runs == {"k2": 3, "loop": 2, "batched": 3, "compiled": 3}
    assert report["ratio_to_k2"]["k2"] == 1
    for ratios in (report["ratio_to_k2"], report["fastest_ratio_to_k2"]):
        assert ratios.keys() == runs.keys()
        assert all(ratio > 0 for ratio in ratios.values())
    parts = report["k2_parts_seconds"]
    assert list(parts) == ["compile", "emissions", "intersect_dense", "read_paths", "other"]
    assert all(len(seconds) == 3 and min(seconds) > 0 for seconds in parts.values())
    for turn, whole in enumerate(report["seconds"]["k2"]):
        assert sum(seconds[turn] for seconds in parts.values()) == pytest.approx(whole)
    printed = capsys.readouterr().out
    assert "k2: read paths" in printed
    assert "times as long as the compiled DP" in printed
    assert "All ways found the same 5 paths" in printed


def test_garbage_is_collected_between_runs_and_not_inside(monkeypatch):
    """Whoever happened to be running would pay for what the others have left behind."""
    events = []
    collect = gc.collect
    monkeypatch.setattr(gc, "collect", lambda: events.append("collect") or collect())

    def way(name):
        return lambda: events.append((name, gc.isenabled()))

    ways = {"k2": way("k2"), "loop": way("loop")}
    was_enabled = gc.isenabled()
    gc.enable()
    try:
        _, runs, _ = estep.measure(ways, {"k2": 2, "loop": 1}, torch.device("cpu"))
        assert gc.isenabled()
    finally:
        if not was_enabled:
            gc.disable()
    k2, loop = ["collect", ("k2", False)], ["collect", ("loop", False)]
    assert events == k2 + k2 + loop
    assert [len(seconds) for seconds in runs.values()] == [2, 1]


def test_another_path_ends_with_status_one(tmp_path, monkeypatch, capsys):
    def wrong(given):
        first, *others = loop_dp(given)
        last = len(first.wrong) - 1
        flags = [flag != (k == last) for k, flag in enumerate(first.wrong)]
        path = first._replace(wrong=flags)
        return [path._replace(score=inputs.path_score(given, 0, path)), *others]

    monkeypatch.setattr(estep, "batched_dp", wrong)
    status, report = run(tmp_path)
    assert status == 1
    assert report["same_paths"] is False
    assert "utterance 0: batched has another path than k2" in capsys.readouterr().err


def test_without_numba_there_are_three_ways(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(estep, "compiled_dp", compiled_dp.__wrapped__)
    status, report = run(tmp_path)
    assert status == 0
    assert list(report["seconds"]) == ["k2", "loop", "batched"]
    assert capsys.readouterr().err == "numba is not installed (extra dev): no compiled DP\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--num-frames", "5"], "6 units do not fit into 5 frames"),
        (["--alphabet", "1"], "two different units"),
        (["--json", "nowhere/estep.json"], "no such folder"),
    ],
)
def test_options_that_do_not_fit(options, message, capsys):
    assert estep.main([*TINY.split(), *options]) == 1
    assert message in capsys.readouterr().err


def test_scores_that_do_not_fit_their_path_and_ties_are_told_apart():
    given = inputs.random_inputs(2, 12, 3, 4)
    paths = loop_dp(given)
    assert inputs.disagreements(given, {"a": paths, "b": paths}, reference="a") == ([], 0)
    off = [paths[0], paths[1]._replace(score=paths[1].score + 0.01)]
    (message,), _ = inputs.disagreements(given, {"a": paths, "b": off}, reference="a")
    assert message.startswith("utterance 1: b says")
    nothing = inputs.random_inputs(1, 3, 1, 2)
    both = torch.full_like(nothing.log_correctness, math.log(0.5))
    even = torch.full_like(nothing.log_posteriors, math.log(0.5))
    nothing = replace(nothing, log_correctness=both, log_posteriors=even, log_prior=even[0, 0])
    (path,) = loop_dp(nothing)
    other = path._replace(wrong=[not path.wrong[0]])
    assert inputs.disagreements(nothing, {"a": [path], "b": [other]}, "a") == ([], 1)


@pytest.mark.parametrize("shape", [(1, 1, 1, 2), (3, 9, 9, 3), (4, 30, 2, 5)])
def test_the_baselines_agree_at_the_edges(shape):
    pytest.importorskip("numba")
    given = inputs.random_inputs(*shape, seed=1)
    answers = {"k2": estep.paths_of(estep.k2_e_step(given)), "loop": loop_dp(given)}
    answers |= {"batched": batched_dp(given), "compiled": compiled_dp()(given)}
    assert inputs.disagreements(given, answers, "k2") == ([], 0)


def test_the_table_has_the_cpu_and_the_gpu(tmp_path, capsys):
    pytest.importorskip("numba")
    _, report = run(tmp_path)
    report["settings"]["device"] = "cuda"
    report["seconds"]["compiled"], report["seconds"]["k2"] = [0.25], [0.5]
    report["device_megabytes"]["k2"] = 12.5
    (tmp_path / "cuda.json").write_text(json.dumps(report))
    capsys.readouterr()
    assert estep.main(["--table", f"{tmp_path}/cuda.json", f"{tmp_path}/estep.json"]) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    assert rows[0].split()[-5:] == ["cuda", "5", "2", "2", "12.5"]
    assert ["cuda" in row for row in rows] == [True] * 2 + [False] * 4


def gpu(tmp_path, python, *options) -> subprocess.CompletedProcess:
    """benchmarks/gpu.sh with an interpreter."""
    command = ["bash", ROOT / "benchmarks" / "gpu.sh", "--out-dir", tmp_path / "out", *options]
    environment = {**os.environ, "PYTHON": str(python)}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("broken", ["", "pytest", "256"])
def test_the_script_for_a_gpu_goes_on_after_a_failure_and_tells_of_it(broken, tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/bash\necho "$*"; [[ -z $BROKEN || " $* " != *" $BROKEN "* ]]\n')
    python.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BROKEN", broken)
        done = gpu(tmp_path, python, "--repeats", "7")
    assert done.returncode == bool(broken), done.stderr
    folder = tmp_path / "out"
    expected = ["-m pytest -q --device cuda tests/fsa tests/train"]
    names = [(place, size) for size in (32, 256) for place in ("cuda", "cpu")]
    for place, size in names:
        options = f"--device {place} --num-utterances {size} --repeats 7 --loop-repeats 1"
        json_file = f"{folder}/estep-{place}-{size}.json"
        expected.append(f"benchmarks/estep.py {options} --json {json_file}")
    files = " ".join(f"{folder}/estep-{place}-{size}.json" for place, size in names)
    expected.append(f"benchmarks/estep.py --table {files}")
    check, *calls = [line for line in done.stdout.splitlines() if line]
    assert (check, calls[:-1]) == ("- cuda", expected)
    assert calls[-1] == ("gpu.sh: " + ("something failed, see above" if broken else "all passed"))
    assert (folder / "log").read_text() == done.stdout.partition("\n")[2]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_is_said_in_a_line(tmp_path):
    done = gpu(tmp_path, sys.executable)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("gpu.sh: torch finds no CUDA device")
    assert done.stderr.count("\n") == 1 and not (tmp_path / "out").exists()
