"""recipes/results.py: what it runs and records, and the page it composes of tiny experiments."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
from jsonargparse import ArgumentParser

from mlvae.score import experiment
from tests.score.conftest import corpus, make_reference  # noqa: F401
from tests.score.experiments import LIKE, PERCEIVED, make_experiment
from tests.score.experiments import SYSTEMS as DECLARED
from tests.score.graded import make_graded
from tests.shell_project import ROOT

SYSTEMS = "fa two-pass-fa w2v-ctc ml-vae ml-vae-rl ablation-1 ablation-2 ablation-3 ml-vae-sub"
DIGITS = ("fsdd", "seeds", "correctness", "speakers", "variants")
SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
COSTS = ("espeak", "estep", "adaptation", "competitors", "length")


@pytest.fixture
def program(monkeypatch):
    spec = importlib.util.spec_from_file_location("results", ROOT / "recipes" / "results.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "results", module)  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def results(program, tmp_path, monkeypatch):
    """Runs the program where commands only print their name; returns its status and their words.

    A command with the text ``fails`` in it fails.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    (tmp_path / "my digits").mkdir()
    machine = {"-c": "2 cores of X\n", "describe": "c0ffee\n"}

    def run(*options, fails="no command"):
        calls = []

        def play(words, stdout=None, **_):
            if words[1] in machine:
                return SimpleNamespace(returncode=0, stdout=machine[words[1]])
            # The interpreter first: that of a fresh clone lies in its folder.
            line = shlex.join(words).replace(sys.executable, "python")
            calls.append(line.replace(f"{ROOT}/", ""))
            printed = "the output\n" if stdout else None
            return SimpleNamespace(returncode=3 * (fails in calls[-1]), stdout=printed)

        fake = SimpleNamespace(run=play, PIPE=-1, CalledProcessError=subprocess.CalledProcessError)
        monkeypatch.setattr(program, "subprocess", fake)
        return program.main([*options]), calls

    return run


def records(tmp_path, part, recipe="audiomnist", exp="exp"):
    return json.loads((tmp_path / exp / "results" / recipe / f"{part}.json").read_text())


def test_every_part_is_run_and_recorded(results, tmp_path):
    _, calls = results("audiomnist", "--corpus-dir", "my digits", "--variants", "paper")
    data = "--corpus-dir 'my digits' --num-utterances 3000"
    folders = "--data-dir data --exp-dir exp"
    seeds = "exp/audiomnist/fsdd/small exp/seed-1/audiomnist/fsdd/small"
    assert calls == [
        f"run.sh --corpus fsdd {data} --config small --systems '{SYSTEMS}' --seed 0 {folders}",
        *(
            "run.sh --corpus fsdd --stage 3 --config small --systems 'ml-vae-rl ml-vae' "
            f"--exp-dir exp/seed-{seed} --seed {seed} --data-dir data"
            for seed in (1, 2)
        ),
        f"python benchmarks/seeds.py --data-dir data/fsdd --exp-dirs {seeds} "
        "exp/seed-2/audiomnist/fsdd/small --config recipes/audiomnist/conf/small.yaml "
        "--first ml-vae-rl --second ml-vae",
        "python benchmarks/correctness.py --data-dir data/fsdd --exp-dir exp/audiomnist/fsdd/small "
        "--config recipes/audiomnist/conf/small.yaml --systems ml-vae-rl ml-vae",
        *(
            f"run.sh --corpus fsdd {data} --split speaker:{name} --config small "
            f"--data-dir data/speaker-{name} --exp-dir exp/speaker-{name} "
            "--systems 'two-pass-fa ml-vae-sub' --seed 0"
            for name in SPEAKERS
        ),
        f"run.sh --corpus fsdd --stage 3 --config paper --systems ml-vae-sub --seed 0 {folders}",
        f"run.sh {folders}",
        "python benchmarks/estep.py --threads 2 --repeats 40",
        "python benchmarks/adaptation.py --data-dir data/fsdd --exp-dir exp/audiomnist/fsdd/small "
        "--config recipes/audiomnist/conf/small.yaml --seed 0",
        "python benchmarks/competitors.py --num-utterances 32 --repeats 5",
        "python benchmarks/length.py --corpus-dir 'my digits'",
    ]
    record = records(tmp_path, "speakers")[4]
    assert record.pop("seconds") >= 0
    assert record == {
        "command": "./run.sh --corpus fsdd --corpus-dir /path/to/fsdd --num-utterances 3000 "
        "--split speaker:theo --config small --data-dir data/speaker-theo "
        "--exp-dir exp/speaker-theo --systems 'two-pass-fa ml-vae-sub' --seed 0",
        "machine": "2 cores of X",
        "threads": "",
        "machine_note": "",
        "commit": "c0ffee",
        "output": "",
    }
    assert records(tmp_path, "espeak")[0]["command"] == "./run.sh"


@pytest.mark.parametrize("recipe", ["audiomnist", "l2arctic", "speechocean762"])
def test_benchmarks_take_the_options_of_their_part(results, monkeypatch, recipe):
    _, calls = results(recipe, "--corpus-dir", "my digits")
    ours = [shlex.split(call)[1:] for call in calls if call.startswith("python benchmarks/")]
    assert ours
    parse = ArgumentParser.parse_args

    class Parsed(Exception):
        pass

    def parse_only(parser, *args, **options):
        parse(parser, *args, **options)
        raise Parsed

    monkeypatch.setattr(ArgumentParser, "parse_args", parse_only)
    for program_file, *options in ours:
        with pytest.raises(Parsed):
            runpy.run_path(str(ROOT / program_file))["main"](options)


@pytest.mark.parametrize("real", [False, True])
def test_every_part_of_l2arctic(results, tmp_path, real):
    _, calls = results("l2arctic", *(["--corpus-dir", "my digits"] if real else []))
    start = "run.sh --recipe l2arctic" + (" --corpus-dir 'my digits'" if real else "")
    others = "--systems 'two-pass-fa ml-vae ml-vae-sub' --config small --seed 0"
    folders = "--data-dir data --exp-dir exp"
    name = "l2arctic" if real else "simulate"
    full = f"{start} --num-utterances 3599 --data-dir data/full --exp-dir exp/full {others}"
    assert calls == [
        f"{start} --systems '{SYSTEMS}' --config small --seed 0 {folders}",
        *([] if real else [full]),  # it has its full size anyway
        f"{start} --protocol annotation {others} {folders}",
        f"{start} --unit bpe {others} {folders}",
        *(
            f"python benchmarks/{program}.py --data-dir data/{name} --exp-dir "
            f"exp/l2arctic/{name}/small --config recipes/l2arctic/conf/small.yaml --seed 0"
            for program in ("judge", "adaptation")
        ),
        f"python benchmarks/boundaries.py --data-dir data/{name} --exp-dir "
        f"exp/l2arctic/{name}/small --config recipes/l2arctic/conf/small.yaml",
        *(
            f"{start} --stage 3 --systems 'two-pass-fa ml-vae-sub' --config small "
            f"--exp-dir exp/seed-{seed} --seed {seed} --data-dir data"
            for seed in (1, 2)
        ),
    ]


def test_every_part_of_speechocean762(results):
    options = ("--corpus-dir", "my digits", "--split", "speakers", "--systems", "ml-vae ml-vae-sub")
    _, calls = results("speechocean762", *options)
    start = "run.sh --recipe speechocean762 --corpus-dir 'my digits' --split speakers"
    start += " --digit-strings true"
    folders = "--data-dir data --exp-dir exp"
    assert calls == [
        f"{start} --systems 'ml-vae ml-vae-sub' --config small --seed 0 {folders}",
        *(
            f"python benchmarks/{program}.py --data-dir data/speechocean762-speakers-digits "
            "--exp-dir exp/speechocean762/speechocean762-speakers-digits/small "
            "--config recipes/speechocean762/conf/small.yaml --seed 0"
            for program in ("judge", "adaptation")
        ),
        *(
            f"{start} --stage 3 --systems ml-vae-sub --config small --exp-dir exp/seed-{seed} "
            f"--seed {seed} --data-dir data"
            for seed in (1, 2)
        ),
        f"{start} --protocol text --systems ml-vae-sub --config small --seed 0 {folders}",
    ]


def test_what_was_done_is_not_done_again_unless_it_is_asked_for_otherwise(results, capsys):
    options = ["audiomnist", "--parts", "estep length seeds"]
    assert len(results(*options)[1]) == 5
    capsys.readouterr()
    assert results(*options)[1] == []
    assert capsys.readouterr().out.count("done before") == 5
    _, calls = results(*options, "--seeds", "1 3")
    assert len(calls) == 2 and "--seed 3" in calls[0] and "seeds.py" in calls[1]


def test_a_command_that_fails_stops_and_leaves_no_record(results, tmp_path):
    status, calls = results("audiomnist", fails="--seed 2")
    assert status == 3
    assert len(calls) == 3  # all before it, nothing after
    assert len(records(tmp_path, "seeds")) == 1
    assert not (tmp_path / "exp" / "results" / "audiomnist" / "RESULTS.md").exists()
    assert "--seed 2" in results("audiomnist")[1][0]


def test_threads_and_company_are_recorded(results, tmp_path, monkeypatch):
    options = ["audiomnist", "--parts", "estep", "--machine-note", "a training run"]
    with monkeypatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        # No other run is there yet: the page is of this part alone.
        assert results(*options)[0] == 0
    text = (tmp_path / "exp" / "results" / "audiomnist" / "RESULTS.md").read_text()
    assert "\n2 cores of X; OMP_NUM_THREADS=1; a training run; 0 s; commit `c0ffee`.\n" in text
    assert "```\nthe output\n```" in text
    assert (
        f"not run: {', '.join(n for n in (*DIGITS, *COSTS) if n not in ('variants', 'estep'))}."
        in text
    )


def test_folders_elsewhere_are_not_shown(results, tmp_path):
    folders = ["--data-dir", str(tmp_path / "d"), "--exp-dir", str(tmp_path / "e")]
    weights = ["--w2v-checkpoint", str(tmp_path / "w")]
    _, calls = results("audiomnist", *folders, *weights, "--device", "cpu")
    assert f"--w2v-checkpoint {tmp_path}/w " in calls[0]
    assert f"--exp-dir {tmp_path}/e/seed-1 " in calls[1]
    paths = sorted((tmp_path / "e" / "results" / "audiomnist").glob("*.json"))
    assert len(paths) == 9 and not any(str(tmp_path) in path.read_text() for path in paths)
    command = records(tmp_path, "seeds", exp="e")[0]["command"]
    assert "--exp-dir exp/seed-1 " in command and "--data-dir" not in command
    assert command.endswith(" --device cpu")


@pytest.mark.parametrize("name", ["estep.json", "RESULTS.md", "utterance.png"])
def test_what_lies_in_the_way_stays_and_nothing_is_run(results, tmp_path, capsys, name):
    folder = tmp_path / "exp" / "results" / "audiomnist"
    options = ["audiomnist", "--parts", "estep"]
    assert results(*options)[0] == 0
    (folder / name).write_text("mine")
    (folder / "estep.json").unlink(missing_ok=name != "estep.json")
    (folder / name).write_text("mine")
    assert results(*options) == (1, [])
    assert f"{name}: in the way" in capsys.readouterr().err
    assert (folder / name).read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["audiomnist", "--parts", "fsdd dance"], "no part 'dance' (there are: fsdd seeds "),
        (
            ["l2arctic", "--parts", "fsdd"],
            "no part 'fsdd' (there are: corpus full annotation bpe judge adaptation boundaries "
            "seeds)",
        ),
        (["audiomnist", "--corpus-dir", "nowhere"], "--corpus-dir nowhere is not a folder"),
        (["audiomnist", "--seeds", "one"], "--seeds must be whole numbers"),
        (["audiomnist", "--seed-systems", "ml-vae"], "--seed-systems must name two, not 'ml-vae'"),
        (["l2arctic", "--exp-dir="], "must not be empty"),
        (["l2arctic", "--nonsense", "1"], "unrecognized arguments: --nonsense"),
    ],
)
def test_a_wrong_option_stops_before_any_work(results, tmp_path, capsys, options, message):
    with pytest.raises(SystemExit, match="2"):
        results(*options)
    assert message in capsys.readouterr().err
    assert not (tmp_path / "exp").exists()


def test_nothing_to_compose(results, capsys):
    assert results("l2arctic", "--parts", "") == (1, [])
    err = capsys.readouterr().err
    assert err.startswith("results.py: nothing to compose") and err.count("\n") == 1


@pytest.fixture
def first(corpus, tmp_path, monkeypatch):  # noqa: F811
    """An experiment with all systems of the paper; its folder has scores."""
    # Pictures take time and are not looked at here.
    monkeypatch.setattr(experiment, "draw_reliability", lambda *_: None)
    monkeypatch.setattr(experiment, "draw_example", lambda *args: args[5].write_bytes(b"a picture"))
    monkeypatch.setattr(experiment, "write_learning_curves", lambda _: False)
    data, cuts = corpus
    content = json.loads((data / "corpus.json").read_text())
    (data / "corpus.json").write_text(json.dumps(content | {"num_utterances": 1234}))
    first = tmp_path / "exp" / "audiomnist" / "fsdd" / "small"
    make_experiment(first, cuts, [*PERCEIVED, *LIKE])
    training = {"num_params": 7_000_000, "training_seconds": 78.0}
    training |= {"iterations": 12, "best_iteration": 9}
    (first / "ml-vae-rl" / "training.json").write_text(json.dumps(training))
    path = first / "ml-vae-sub" / "training.json"
    history = [{"corrupted_f1": value} for value in (0.25, 0.4567, 0.75)]
    sub = json.loads(path.read_text()) | {"best_iteration": 2, "iterations": 3}
    path.write_text(json.dumps(sub | {"history": history}))
    (first / "w2v-ctc" / "training.json").write_text('{"unavailable": "no weights at hand"}')
    experiment.score_experiment(data, first, DECLARED, num_resamples=20)
    return first


@pytest.fixture
def digits(first, results, tmp_path):
    """Composes the page of digits, of which every run has the same results."""
    speakers = [f"speaker-{name}/audiomnist/fsdd/small" for name in SPEAKERS]
    for folder in (*speakers, "audiomnist/espeak/small"):
        shutil.copytree(first, tmp_path / "exp" / folder)
    shutil.copytree(first, tmp_path / "exp" / "audiomnist" / "fsdd" / "paper")

    def compose(*options):
        status, _ = results("audiomnist", *options)
        page = tmp_path / "exp" / "results" / "audiomnist" / "RESULTS.md"
        return status, page.read_text() if page.exists() else ""

    return compose


def test_everything_that_was_made_is_there(digits, first, tmp_path):
    status, text = digits("--variants", "paper", "--corpus-dir", "my digits")
    assert status == 0
    for name in (*DIGITS, *COSTS):
        shown = "\n".join(record["command"] for record in records(tmp_path, name))
        assert f"```bash\n{shown}\n```" in text
    assert (
        "```bash\npython recipes/results.py audiomnist --corpus-dir /path/to/fsdd "
        "--variants paper\n```"
    ) in text
    assert text.count("```\nthe output\n```") == 6
    assert text.count("| ML-VAE | hard F1 |") == 1
    metrics, notes = (first / "table.txt").read_text().split("\n\nMetrics are in percent")
    assert text.count(metrics) == 2
    assert text.count(notes.rstrip()) == 1  # the explanations once are enough
    assert "## Mismatch-tiny, 1,234 utterances: synthetic\n" in text
    picture = tmp_path / "exp" / "results" / "audiomnist" / "utterance.png"
    assert picture.read_bytes() == (first / "utterance.png").read_bytes()
    assert "not run" not in text and "\n\n\n" not in text and str(tmp_path) not in text


def test_figures_are_those_of_the_runs(digits, first):
    _, text = digits("--variants", "paper")
    row = json.loads((first / "results.json").read_text())["systems"]["ML-VAE"]
    here = " / ".join(f"{100 * row[f'macro_{name}']:.1f}" for name in ("precision", "recall", "f1"))
    low, high = (f"{100 * end:.1f}" for end in row["macro_f1_interval"])
    (line,) = re.findall(r"\| ML-VAE \| 24 M .*", text)
    assert line.startswith(
        f"| ML-VAE | 24 M | 1.5 M | 28.42 / 27.60 / 27.67 | 6.46 / 11.97 / 8.39 | {here} "
        f"[{low} {high}] | 44.27 | "
    )
    assert re.search(r"\| w2v-CTC \| 352.5 M \| - \|.*\| no weights at hand \| 5.73 \| - \|", text)
    assert re.search(r"\| Ablation 3 \| - \| 1.5 M \| - \| 7.31 / 10.85 / 8.73 \|", text)
    assert "| ml-vae-rl | 7.0 M | 78 | 9 of 12 |" in text
    assert "| fa | 20 k | 2 | - |" in text
    assert "| w2v-ctc | - | no weights at hand | - |" in text
    rows = [line for line in text.splitlines() if line.startswith(("| `small` |", "| `paper` |"))]
    assert [line.split("|")[2] for line in rows] == [" 45.7 "] * 2  # of the iteration kept


def test_parts_that_were_not_run_are_omitted_and_named(digits, capsys):
    status, text = digits("--parts", "fsdd")
    assert status == 0
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Mismatch-tiny, 1,234 utterances",
        "## Columns",
    ]
    absent = "seeds, correctness, speakers, espeak, estep, adaptation, competitors, length"
    assert f"Parts that were not run: {absent}." in text
    assert f"without {absent}, which were not run" in capsys.readouterr().out
    # Nor are those of another command shown as if they were of this one.
    assert digits("--parts", "", "--seed", "4") == (1, text)


@pytest.mark.parametrize("name", ["table.txt", "results.json", "utterance.png"])
def test_runs_that_lack_something(digits, first, capsys, name):
    if name == "results.json":
        content = json.loads((first / name).read_text())
        del content["versions"]
        (first / name).write_text(json.dumps(content))
    else:
        (first / name).unlink()
    assert digits("--parts", "fsdd")[0] == 1
    err = capsys.readouterr().err
    message = "they lack 'versions'" if name == "results.json" else name
    assert err.startswith("results.py: ") and message in err and err.count("\n") == 1


def test_l2arctic_has_details_and_figures_beside_the_paper(first, results, tmp_path):
    (first / "details.txt").write_text("a heading\n\nby type 45.6\n\nMetrics are in percent, so.\n")
    for name in ("simulate", "simulate-annotation", "simulate-bpe"):
        shutil.copytree(first, tmp_path / "exp" / "l2arctic" / name / "small")
    for other in ("full", "seed-1", "seed-2"):
        shutil.copytree(first, tmp_path / "exp" / other / "l2arctic" / "simulate" / "small")
    page = tmp_path / "notes" / "learners.md"
    assert results("l2arctic", "--out", str(page))[0] == 0
    text = page.read_text()
    assert (page.parent / "utterance.png").read_bytes() == b"a picture"
    for name in ("corpus", "full", "annotation", "bpe", "judge", "adaptation", "boundaries"):
        (record,) = records(tmp_path, name, "l2arctic")
        assert f"```bash\n{record['command']}\n```" in text
    assert text.count("```\nby type 45.6\n```") == 4
    assert text.count("Metrics are in percent, so.") == 1 and "a heading" not in text
    assert "**The speech is simulated**" in text and "\n\n\n" not in text
    assert len(records(tmp_path, "seeds", "l2arctic")) == 2
    for seed in (0, 1, 2):
        assert text.count(f"\n| ML-VAE-sub | {seed} | ") == 1
    row = json.loads((first / "results.json").read_text())["systems"]["ML-VAE"]
    here = " / ".join(f"{100 * row[f'pooled_{m}']:.1f}" for m in ("precision", "recall", "f1"))
    (line,) = re.findall(r"\| ML-VAE \| 24 M .*", text)
    assert line.startswith("| ML-VAE | 24 M | 1.5 M | 6.46 / 11.97 / 8.39 | ")
    assert line.count(f"| {here} [") == 3 and "| 44.27 | " in line


def test_the_page_of_scores_has_their_tables_and_plot(results, tmp_path):
    data = tmp_path / "data" / "speechocean762-digits"
    folder = "speechocean762/speechocean762-digits/small"
    first = tmp_path / "exp" / folder
    make_graded(data, first)
    assert experiment.score_experiment(data, first, DECLARED, num_resamples=20) == 0
    for seed in (1, 2):
        shutil.copytree(first, tmp_path / "exp" / f"seed-{seed}" / folder)
    options = ("--corpus-dir", "my digits", "--parts", "corpus seeds")
    assert results("speechocean762", *options)[0] == 0
    page = tmp_path / "exp" / "results" / "speechocean762"
    text = (page / "RESULTS.md").read_text()
    table, notes = (first / "table.txt").read_text().split("\n\nMetrics are ")
    assert text.count(table) == 1 and text.count(notes.rstrip()) == 1
    assert "## Tiny, 1,234 utterances\n" in text and "intervals over 4 speakers" in text
    picture = (page / "reliability.png").read_bytes()
    assert picture == (first / "reliability.png").read_bytes()
    row = json.loads((first / "results.json").read_text())["systems"]["ML-VAE-sub"]
    ap = row["below"]["0.5"]["average_precision"]
    assert [
        line.startswith(f"| ML-VAE-sub | {seed} | {ap:.3f} |")
        for seed, line in enumerate(re.findall(r"^\| ML-VAE-sub .*", text, re.M))
    ] == [True] * 3
    assert "Parts that were not run: judge, adaptation, text." in text
