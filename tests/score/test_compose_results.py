"""RESULTS.md from experiment folders of a tiny corpus: every figure is that of a file."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from benchmarks import seeds
from mlvae.score import experiment
from tests.score.experiments import HEARD, LIKE, SYSTEMS, SYSTEMS_FILE, make_experiment
from tests.shell_project import ROOT

pytest.importorskip("jinja2")
PARTS = ("seeds", "correctness", "estep", "competitors", "length")
RUNS = ("fsdd", "speaker", "espeak", "variant-paper")


@pytest.fixture
def composer(monkeypatch):
    return load_composer("audiomnist", monkeypatch)


def load_composer(recipe, monkeypatch):
    """The program of a recipe as a module."""
    script = ROOT / "recipes" / recipe / "compose_results.py"
    spec = importlib.util.spec_from_file_location("compose_results", script)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "compose_results", module)  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def exp(corpus, tmp_path, monkeypatch):
    """What all parts of results.sh leave; every run has the same answers."""
    # Pictures take time and are not looked at here.
    monkeypatch.setattr(experiment, "draw_reliability", lambda *_: None)
    monkeypatch.setattr(experiment, "draw_example", lambda *args: args[5].write_bytes(b"a picture"))
    monkeypatch.setattr(experiment, "write_learning_curves", lambda _: False)
    data, cuts = corpus
    content = json.loads((data / "corpus.json").read_text())
    (data / "corpus.json").write_text(json.dumps(content | {"num_utterances": 1234}))
    exp = tmp_path / "all"
    first = exp / "audiomnist" / "fsdd" / "small"
    make_experiment(first, cuts, [*HEARD, *LIKE])
    training = {"num_params": 7_000_000, "training_seconds": 78.0}
    training |= {"iterations": 12, "best_iteration": 9}
    (first / "ml-vae-rl" / "training.json").write_text(json.dumps(training))
    path = first / "ml-vae-sub" / "training.json"
    history = [{"corrupted_f1": value} for value in (0.25, 0.4567, 0.75)]
    sub = json.loads(path.read_text()) | {"best_iteration": 2, "iterations": 3}
    path.write_text(json.dumps(sub | {"history": history}))
    (first / "w2v-ctc" / "training.json").write_text('{"unavailable": "no weights at hand"}')
    experiment.score_experiment(data, first, SYSTEMS, num_resamples=20)
    others = ["speaker-theo/audiomnist/fsdd/small", "audiomnist/espeak/small"]
    for folder in (*others, "audiomnist/fsdd/paper"):
        shutil.copytree(first, exp / folder)
    records = exp / "results"
    records.mkdir()
    for name in (*RUNS, "seed-1", *PARTS):
        (records / f"{name}.txt").write_text(
            f"command: ./make {name}\nseconds: 77\n"
            "machine: 2 cores of X: Y, no GPU\ncommit: c0ffee\n"
        )
    for name in PARTS:
        (records / f"{name}-table.txt").write_text(f"the table of {name}\n")
    said = dict.fromkeys(("rate_right", "rate_wrong", "area_rate", "area_gain"), 0.5)
    systems = {"ml-vae-rl": said | {"gain_right": 6.5, "gain_wrong": 6.25}}
    (records / "correctness.json").write_text(json.dumps(systems))
    options = ["--data-dir", str(data), "--exp-dirs", str(first), str(first)]
    options += ["--config", str(SYSTEMS_FILE)]
    seeds.main([*options, "--num-resamples", "5", "--json", str(records / "seeds.json")])
    return exp


def run(composer, exp: Path, *options: str) -> tuple[int, str]:
    out = exp / "out" / "RESULTS.md"
    status = composer.main(["--exp-dir", str(exp), "--out", str(out), *options])
    return status, out.read_text() if out.exists() else ""


def test_everything_that_was_made_is_there(composer, exp):
    status, text = run(composer, exp, "--variants", "paper", "--seeds", "0 1")
    assert status == 0
    for name in (*RUNS, "seed-1", *PARTS):
        assert f"\n./make {name}\n" in text
    for name in PARTS:
        assert f"```\nthe table of {name}\n```" in text
    folder = exp / "audiomnist" / "fsdd" / "small"
    figures, notes = (folder / "table.txt").read_text().split("\n\nFigures are in percent")
    assert text.count(figures) == 3
    assert text.count(notes.rstrip()) == 1  # the explanations once are enough
    assert "1,234 utterances" in text and "commit `c0ffee`" in text
    assert "2 cores of X: Y, no GPU" in text
    picture = exp / "out" / "utterance.png"
    assert picture.read_bytes() == (folder / "utterance.png").read_bytes()
    assert "| `paper` | 45.7 |" in text  # the criterion of the iteration that was kept
    assert "{{" not in text and "{%" not in text
    assert "\n\n\n" not in text
    assert str(exp) not in text


def test_rows_beside_the_paper(composer, exp):
    _, text = run(composer, exp)
    row = json.loads((exp / "audiomnist/fsdd/small/results.json").read_text())["systems"]["ML-VAE"]
    here = " / ".join(
        f"{100 * row[f'macro_{figure}']:.1f}" for figure in ("precision", "recall", "f1")
    )
    (line,) = re.findall(r"\| ML-VAE \| 24 M .*", text)
    low, high = (f"{100 * end:.1f}" for end in row["macro_f1_interval"])
    assert line == (
        f"| ML-VAE | 24 M | 1.5 M | 28.42 / 27.60 / 27.67 | {here} | [{low} {high}] "
        "| 6.46 / 11.97 / 8.39 |"
    )
    assert re.search(r"\| w2v-CTC \| 352.5 M \| - \|.*\| no weights at hand \| - \|", text)
    assert re.search(r"\| Ablation 3 \| - \| 1.5 M \| - \|.* 7.31 / 10.85 / 8.73 \|", text)
    assert "| ML-VAE-RL | 7.0 M | 78 |" in text
    assert "ml-vae-rl keeps iteration 9 of 12;" in text


def test_sentences_follow_the_figures(composer, exp):
    results = exp / "audiomnist" / "fsdd" / "small" / "results.json"
    content = json.loads(results.read_text())
    difference = content["differences"]["ML-VAE-RL minus ML-VAE"]
    for low, high, verb in ((0.01, 0.05, "excludes"), (-0.01, 0.05, "includes")):
        difference |= {"pooled_f1": 0.02, "pooled_f1_interval": [low, high]}
        difference["pooled_f1_excludes_zero"] = verb == "excludes"
        results.write_text(json.dumps(content))
        _, text = run(composer, exp)
        sentence = f"is +2.0 [{100 * low:+.1f} +5.0] points of pooled F1, an interval that {verb} 0"
        assert f"ML-VAE-RL minus ML-VAE {sentence}." in text
    records = exp / "results" / "seeds.json"
    content = json.loads(records.read_text())
    for low, high, words in ((0.01, 0.03, "is better"), (-0.03, -0.01, "is worse")):
        content["figures"]["pooled_f1"]["mean"] |= {"low": low, "high": high}
        records.write_text(json.dumps(content))
        assert f"ML-VAE-RL {words} than ML-VAE here" in run(composer, exp)[1]
    content["figures"]["pooled_f1"]["mean"] |= {"low": -0.01, "high": 0.03}
    records.write_text(json.dumps(content))
    assert "2 seeds do not tell ML-VAE-RL from ML-VAE here" in run(composer, exp)[1]


def test_the_reward_is_explained_by_its_figures(composer, exp):
    _, text = run(composer, exp)
    assert "ml-vae-rl: π = 1 gains 6.50 in right and 6.25 in wrong units" in text
    assert "so a reward does not tell them apart" in text and "REINFORCE raises q(π = 1)" in text
    path = exp / "results" / "correctness.json"
    figures = json.loads(path.read_text())
    figures["ml-vae-rl"] |= {"gain_right": -1.0, "area_gain": 0.9}
    path.write_text(json.dumps(figures))
    _, text = run(composer, exp)
    assert "so a reward tells them apart" in text and "REINFORCE raises" not in text


def test_parts_that_were_not_done_are_left_out_and_named(composer, exp, capsys):
    for name in ("speaker", "espeak", *PARTS):
        (exp / "results" / f"{name}.txt").unlink()
    status, text = run(composer, exp)
    assert status == 0
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Mismatch-tiny, 1,234 utterances",
        "## Columns",
    ]
    log = capsys.readouterr().out
    assert (
        "without speaker, espeak, seeds, correctness, estep, competitors, length, which were "
        "not done" in log
    )


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("results/fsdd.txt", "fsdd.txt is missing; results.sh makes it"),
        ("audiomnist/fsdd/small/table.txt", "table.txt"),
    ],
)
def test_without_the_main_part_there_is_no_file(composer, exp, capsys, missing, message):
    (exp / missing).unlink()
    assert run(composer, exp) == (1, "")
    err = capsys.readouterr().err
    assert err.startswith("compose_results.py: ") and message in err and err.count("\n") == 1


def test_a_template_that_asks_for_what_is_not_there(composer, exp, tmp_path, capsys):
    template = tmp_path / "a.j2"
    template.write_text("{{ fsdd.no_such_figure }}")
    assert run(composer, exp, "--template", str(template)) == (1, "")
    assert "no_such_figure" in capsys.readouterr().err


@pytest.fixture
def l2arctic_exp(exp):
    """What results.sh of l2arctic leaves; every run has the answers of those above."""
    first = exp / "audiomnist" / "fsdd" / "small"
    (first / "details.txt").write_text("a heading\n\nby type 45.6\n\nFigures are in percent, so.\n")
    for name in ("simulate", "simulate-annotation", "simulate-bpe"):
        shutil.copytree(first, exp / "l2arctic" / name / "small")
    shutil.copytree(first, exp / "full" / "l2arctic" / "simulate" / "small")
    for name in ("corpus", "annotation", "bpe", "full"):
        text = (exp / "results" / "fsdd.txt").read_text()
        (exp / "results" / f"{name}.txt").write_text(text.replace("fsdd", name))
    return exp


def test_l2arctic_has_details_and_figures_beside_the_paper(l2arctic_exp, monkeypatch):
    status, text = run(load_composer("l2arctic", monkeypatch), l2arctic_exp)
    assert status == 0
    for name in ("corpus", "annotation", "bpe", "full"):
        assert f"\n./make {name}\n" in text
    assert text.count("```\nby type 45.6\n```") == 2  # of all systems, and at full size
    assert text.count("Figures are in percent, so.") == 1 and "a heading" not in text
    assert "**The speech is simulated**" in text
    path = l2arctic_exp / "l2arctic" / "simulate" / "small" / "results.json"
    row = json.loads(path.read_text())["systems"]["ML-VAE"]
    here = " / ".join(
        f"{100 * row[f'pooled_{figure}']:.1f}" for figure in ("precision", "recall", "f1")
    )
    (line,) = re.findall(r"\| ML-VAE \| 24 M .*", text)
    assert line.startswith(
        f"| ML-VAE | 24 M | 1.5 M | 6.46 / 11.97 / 8.39 | {here} | {here} | {here} | 44.27 | "
    )
    assert "{{" not in text and "\n\n\n" not in text


def test_l2arctic_without_some_parts(l2arctic_exp, monkeypatch, capsys):
    for name in ("annotation", "bpe", "full"):
        (l2arctic_exp / "results" / f"{name}.txt").unlink()
    status, text = run(load_composer("l2arctic", monkeypatch), l2arctic_exp)
    assert status == 0
    assert "without annotation, bpe, full, which were not done" in capsys.readouterr().out
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Mismatch-tiny, 1,234 utterances",
        "## Beside the paper",
        "## Columns",
    ]
    (line,) = re.findall(r"\| ML-VAE \| 24 M .*", text)
    assert line.count("|") == 8
