"""results.sh with run.sh and the interpreter played by scripts that note how they are called."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.shell_project import ROOT

RUN = """#!/usr/bin/env bash
[[ -z ${FAIL:-} || "$*" != *"$FAIL"* ]] || exit 3
echo "run.sh $*" >>"$CALLS"
"""
PYTHON = """#!/usr/bin/env bash
if [[ "$*" == "-c import jinja2" ]]; then exit "${LACKS:-0}"; fi
if [[ $1 == -c ]]; then echo "2 cores of X"; exit; fi
echo "${*//$ROOT/.}" >>"$CALLS"
echo "printed by ${1##*/}"
"""
SETUP = """#!/usr/bin/env bash
[[ $1 == --dev ]] && echo "$FAKE_PYTHON"
"""


@pytest.fixture
def results(tmp_path):
    """Runs audiomnist's results.sh of a copy; returns the process and the calls it made."""
    return make_results(tmp_path, "audiomnist")


@pytest.fixture
def l2arctic_results(tmp_path):
    """The same of l2arctic."""
    return make_results(tmp_path, "l2arctic")


def make_results(tmp_path, recipe_name):
    root = tmp_path / "the project"
    recipe = root / "recipes" / recipe_name
    recipe.mkdir(parents=True)
    (root / "local").mkdir()
    for name in ("environment.sh", "parse_options.sh", "results.sh"):
        shutil.copy(ROOT / "local" / name, root / "local")
    shutil.copy(ROOT / "recipes" / recipe_name / "results.sh", recipe)
    python = tmp_path / "python"
    for path, text in (
        (root / "run.sh", RUN),
        (root / "local" / "setup.sh", SETUP),
        (python, PYTHON),
    ):
        path.write_text(text)
        path.chmod(0o755)
    (tmp_path / "my digits").mkdir()
    calls = tmp_path / "calls"

    def run(*options, **more):
        calls.write_text("")
        environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
        done = subprocess.run(
            ["bash", str(recipe / "results.sh"), *options],
            cwd=tmp_path,
            env={**environment, "CALLS": str(calls), "FAKE_PYTHON": str(python), "ROOT": str(root)}
            | more,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done, calls.read_text().splitlines()

    run.records = tmp_path / "exp" / "results"
    return run


def record(results, part):
    return (results.records / f"{part}.txt").read_text().splitlines()


def test_every_part_is_run_and_recorded(results):
    done, calls = results("--corpus-dir", "my digits", "--variants", "paper")
    assert done.returncode == 0, done.stderr
    data = "--corpus-dir my digits --num-utterances 3000"
    folders = "--data-dir data --exp-dir exp"
    assert calls == [
        f"run.sh --corpus fsdd {data} --config small {folders} --systems fa two-pass-fa w2v-ctc "
        "ml-vae ml-vae-rl ablation-1 ablation-2 ablation-3 ml-vae-sub --seed 0 --device auto",
        *(
            f"run.sh --corpus fsdd --config small {folders}/seed-{seed} "
            f"--systems ml-vae-rl ml-vae --stage 3 --seed {seed} --device auto"
            for seed in (1, 2)
        ),
        "./benchmarks/seeds.py --data-dir data/fsdd "
        "--config ./recipes/audiomnist/conf/small.yaml --exp-dirs exp/audiomnist/fsdd/small "
        "exp/seed-1/audiomnist/fsdd/small exp/seed-2/audiomnist/fsdd/small "
        "--first ml-vae-rl --second ml-vae --json exp/results/seeds.json",
        "./benchmarks/correctness.py --data-dir data/fsdd --exp-dir exp/audiomnist/fsdd/small "
        "--config ./recipes/audiomnist/conf/small.yaml --systems ml-vae-rl ml-vae "
        "--json exp/results/correctness.json",
        f"run.sh --corpus fsdd {data} --split speaker:theo --config small "
        "--data-dir data/speaker-theo --exp-dir exp/speaker-theo "
        "--systems ml-vae ml-vae-rl ml-vae-sub --seed 0 --device auto",
        f"run.sh --corpus fsdd --config paper {folders} --systems ml-vae-sub --stage 3 --seed 0 "
        "--device auto",
        f"run.sh {folders} --device auto",
        "./benchmarks/estep.py --threads 2 --repeats 40",
        "./benchmarks/competitors.py --num-utterances 32 --repeats 5",
        "./benchmarks/length.py --corpus-dir my digits",
        "./recipes/audiomnist/compose_results.py --exp-dir exp --config small --speaker theo "
        "--seeds 0 1 2 --variants paper --out ./recipes/audiomnist/RESULTS.md --command "
        "recipes/audiomnist/results.sh --corpus-dir /path/to/fsdd --variants paper",
    ]
    command, seconds, machine, commit = record(results, "speaker")
    assert command == (
        "command: ./run.sh --corpus fsdd --corpus-dir /path/to/fsdd --num-utterances 3000 "
        "--split speaker:theo --config small --data-dir data/speaker-theo "
        '--exp-dir exp/speaker-theo --systems "ml-vae ml-vae-rl ml-vae-sub" --seed 0'
    )
    assert machine == "machine: 2 cores of X"
    assert seconds.startswith("seconds: ") and commit.startswith("commit: ")
    assert record(results, "espeak")[0] == "command: ./run.sh"
    assert (results.records / "estep-table.txt").read_text() == "printed by estep.py\n"


def test_what_was_done_is_not_done_again_unless_it_is_asked_for_otherwise(results):
    options = ["--parts", "fsdd speaker"]
    assert len(results(*options)[1]) == 2
    done, calls = results(*options)
    assert calls == [] and done.stdout.count("done before") == 2
    _, calls = results(*options, "--speaker", "lucas")
    assert len(calls) == 1 and "speaker:lucas" in calls[0]


def test_a_part_that_fails_stops_and_leaves_no_record(results):
    done, calls = results(FAIL="speaker:theo")
    assert done.returncode == 3
    assert len(calls) == 5  # all before it, nothing after
    assert not (results.records / "speaker.txt").exists()
    _, calls = results()
    assert "speaker:theo" in calls[0] and len(calls) == 6


def test_threads_and_company_are_recorded(results):
    options = ["--parts", "estep compose", "--company", "beside a training run"]
    _, calls = results(*options, OMP_NUM_THREADS="1")
    machine = "machine: 2 cores of X; OMP_NUM_THREADS=1; beside a training run"
    assert record(results, "estep")[2] == machine
    assert "beside" not in calls[-1]


def test_what_compose_needs_is_looked_for_first(results):
    done, calls = results(LACKS="1")
    assert (done.returncode, calls) == (1, [])
    assert "has no jinja2, which part compose needs" in done.stderr
    assert len(results("--parts", "estep", LACKS="1")[1]) == 1


def test_folders_elsewhere_are_not_shown(results, tmp_path):
    folders = ["--data-dir", str(tmp_path / "d"), f"--exp-dir={tmp_path}/e", "--device", "cpu"]
    done, calls = results(*folders)
    assert done.returncode == 0, done.stderr
    assert f"--exp-dir {tmp_path}/e/seed-1 " in calls[1]
    for path in sorted((tmp_path / "e" / "results").glob("*.txt")):
        assert str(tmp_path) not in path.read_text()
    command = (tmp_path / "e" / "results" / "seed-1.txt").read_text().splitlines()[0]
    assert "--exp-dir exp/seed-1 " in command and "--data-dir" not in command
    assert calls[-1].endswith("--command recipes/audiomnist/results.sh --device cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--parts", "fsdd dance"], "there is no part 'dance' (there are: fsdd seeds "),
        (["--corpus-dir", "nowhere"], "--corpus-dir nowhere is not a folder"),
        (["--seeds", "one"], "--seeds must be whole numbers"),
        (["--seed-systems", "ml-vae"], "--seed-systems must name two, not 'ml-vae'"),
        (["--exp-dir="], "must not be empty"),
        (["--nonsense", "1"], "unknown option --nonsense"),
    ],
)
def test_a_wrong_option_stops_before_any_work(results, options, message):
    done, calls = results(*options)
    assert done.returncode == 2 and calls == []
    assert message in done.stderr and done.stderr.count("\n") == 1


def test_help_lists_the_options(results):
    done, _ = results("--help")
    assert done.returncode == 0
    for name in ("corpus-dir", "parts", "w2v-checkpoint", "seed-systems", "variants", "out"):
        assert f"\n  --{name} " in done.stdout


SYSTEMS = "fa two-pass-fa w2v-ctc ml-vae ml-vae-rl ablation-1 ablation-2 ablation-3 ml-vae-sub"
OTHER_SYSTEMS = "two-pass-fa ml-vae ml-vae-sub"
END = "--config small --device auto --seed 0"


def test_every_part_of_l2arctic_is_run_and_recorded(l2arctic_results):
    done, calls = l2arctic_results()
    assert done.returncode == 0, done.stderr
    start = "run.sh --recipe l2arctic"
    folders = "--data-dir data --exp-dir exp"
    assert calls == [
        f"{start} {folders} --systems {SYSTEMS} {END}",
        f"{start} {folders} --systems {OTHER_SYSTEMS} --protocol annotation {END}",
        f"{start} {folders} --systems {OTHER_SYSTEMS} --unit bpe {END}",
        f"{start} --num-utterances 3599 --data-dir data/full --exp-dir exp/full "
        f"--systems {OTHER_SYSTEMS} {END}",
        "./recipes/l2arctic/compose_results.py --exp-dir exp --corpus simulate --config small "
        "--out ./recipes/l2arctic/RESULTS.md --command recipes/l2arctic/results.sh",
    ]
    assert record(l2arctic_results, "bpe")[0] == (
        f'command: ./run.sh --recipe l2arctic --systems "{OTHER_SYSTEMS}" --unit bpe '
        "--config small --seed 0"
    )
    assert sorted(path.stem for path in l2arctic_results.records.iterdir()) == [
        "annotation",
        "bpe",
        "corpus",
        "full",
    ]


def test_the_real_corpus_drops_in_with_one_option(l2arctic_results):
    done, calls = l2arctic_results("--corpus-dir", "my digits")
    assert done.returncode == 0, done.stderr
    assert len(calls) == 4  # it has its full size anyway
    assert all("--recipe l2arctic --corpus-dir my digits " in call for call in calls[:-1])
    assert "--corpus l2arctic " in calls[-1]
    assert calls[-1].endswith(
        "--command recipes/l2arctic/results.sh --corpus-dir /path/to/l2arctic_release_v5.0"
    )


def test_a_part_that_l2arctic_lacks(l2arctic_results):
    done, calls = l2arctic_results("--parts", "fsdd")
    assert (done.returncode, calls) == (2, [])
    assert "there is no part 'fsdd' (there are: corpus annotation bpe full" in done.stderr
