from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from mlvae.config import load_config
from tests.shell_project import PYTHON, Project

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def project(tmp_path) -> Project:
    return Project(tmp_path)


def run(project: Project, *options: str) -> subprocess.CompletedProcess:
    """Run run.sh; every stage is played by the interpreter."""
    project.has("python3")
    return project.run("run.sh", *options, KNOWS="yes")


def stages(project: Project) -> list[str]:
    calls = [call for call in project.calls("python3 ") if ".py" in call]
    return [call for call in calls if "local/check.py" not in call]


def test_run_calls_all_stages_in_order(project):
    result = run(project)
    assert result.returncode == 0, result.stderr
    data, exp = "data/espeak", "exp/audiomnist/espeak/small"
    conf = "recipes/audiomnist/conf/small.yaml"
    model = f"--data-dir {data} --exp-dir {exp} --config ./{conf} --device auto"
    model += " --seed 0 --cache-mb 1000"
    assert [call.replace("python3 run.sh", "") for call in stages(project)] == [
        "python3 ./recipes/audiomnist/prepare.py --corpus espeak --data-dir data/espeak --seed 0",
        f"python3 ./local/fbank.py --data-dir {data}",
        f"python3 ./local/units.py --data-dir {data}",
        f"python3 ./local/align.py {model}",
        f"python3 ./local/train.py --num-processes 1 {model} --systems ml-vae ml-vae-sub",
        f"python3 ./local/localize.py {model} --systems ml-vae ml-vae-sub",
        f"python3 ./local/score.py --data-dir {data} --exp-dir {exp} --config ./{conf} --seed 0",
    ]
    # Names are checked before any stage.
    first = project.calls("python3 ./")[0]
    assert first == f"python3 ./local/check.py --config ./{conf} --systems ml-vae ml-vae-sub"
    lines = result.stdout.splitlines()
    assert len(lines) == 14
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d stage 1 fbank: start", lines[2])
    assert re.fullmatch(r"[-\d]+ [:\d]+ stage 1 fbank: end, \d+ s", lines[3])


@pytest.mark.parametrize(
    ("variable", "value", "other"),
    [
        ("MALLOC_TRIM_THRESHOLD_", str(2**30), "5"),
        ("GOMP_SPINCOUNT", "1000", "7"),
        ("PYTHONUTF8", "1", "0"),
    ],
)
def test_stages_have_settings_of_the_process_unless_the_user_has_others(
    project, variable, value, other
):
    """Freed memory is kept, threads that wait soon sleep, and text is UTF-8."""
    project.has("python3")
    for given, used in (({}, value), ({variable: other}, other)):
        given = {"KNOWS": "yes", "NOTE": variable, **given}
        result = project.run("run.sh", "--stage", "3", "--stop-stage", "3", **given)
        assert result.returncode == 0, result.stderr
        assert project.calls(f"{variable}=")[-1] == f"{variable}={used}"


def test_run_hands_the_options_on(project):
    (project.root / "digits here").mkdir()
    result = run(
        project,
        *("--corpus", "fsdd", "--corpus-dir", "digits here", "--num-utterances=30"),
        *(
            "--split",
            "speaker",
            "--seed",
            "7",
            "--device",
            "cpu",
            "--config",
            "paper",
            "--cache-mb",
            "50",
        ),
        *("--data-dir", "d", "--exp-dir=e", "--stage", "0", "--stop-stage", "3"),
    )
    assert result.returncode == 0, result.stderr
    calls = stages(project)
    assert len(calls) == 4
    assert calls[0].endswith(
        "prepare.py --corpus fsdd --data-dir d/fsdd --seed 7 "
        "--corpus-dir digits here --split speaker --num-utterances 30"
    )
    assert calls[3].endswith(
        "--data-dir d/fsdd --exp-dir e/audiomnist/fsdd/paper "
        "--config ./recipes/audiomnist/conf/paper.yaml --device cpu --seed 7 --cache-mb 50"
    )


def test_run_hands_the_utterance_of_the_picture_to_stage_6(project):
    assert run(project, "--utterance", "theo-test-003", "--stage", "5").returncode == 0
    localize, score = stages(project)
    assert "--utterance" not in localize
    assert score.endswith("--seed 0 --utterance theo-test-003")
    assert run(project, "--report", "false", "--stage", "6").returncode == 0
    assert stages(project)[-1].endswith("--seed 0 --report false")


@pytest.mark.parametrize("number", ["1", "3", "5"])
def test_run_hands_a_shard_to_its_stage(project, number):
    options = ("--stage", number, "--stop-stage", number, "--shard", "3/8")
    assert run(project, *options).returncode == 0
    (stage,) = stages(project)
    assert stage.endswith(" --shard 3/8")


def test_run_hands_the_weights_of_wav2vec_to_stage_4(project):
    (project.root / "w2v.pth").touch()
    options = ("--w2v-checkpoint", "w2v.pth", "--stage", "4")
    assert run(project, *options).returncode == 0
    train, *others = stages(project)
    assert train.endswith("--systems ml-vae ml-vae-sub --w2v-checkpoint w2v.pth")
    assert not any("--w2v-checkpoint" in call for call in others)


def test_run_hands_to_stage_1_what_is_allowed(project):
    allowed = ("--allow-commands", "true", "--allow-shared-recordings", "true")
    assert run(project, *allowed).returncode == 0
    fbank = stages(project)[1]
    assert fbank.endswith("--allow-commands true --allow-shared-recordings true")
    assert sum("allow" in call for call in stages(project)) == 1


def test_run_does_the_asked_stages_only(project):
    assert run(project, "--stage", "4", "--stop-stage", "5").returncode == 0
    assert [re.search(r"(\w+)\.py", call).group(1) for call in stages(project)] == [
        "train",
        "localize",
    ]


def test_run_starts_four_stages_in_several_processes(project):
    assert run(project, "--num-processes", "2").returncode == 0
    together = {}
    for call in stages(project):
        name = re.search(r"(\w+)\.py", call).group(1)
        together[name] = " --nproc_per_node 2 " in call and call.startswith(
            "python3 -m torch.distributed.run "
        )
    several = [name for name, is_several in together.items() if is_several]
    assert several == ["fbank", "align", "train", "localize"]
    assert len(together) == 7 and "train.py --num-processes 2 --data-dir" in stages(project)[4]


@pytest.mark.parametrize(
    "systems", ["ml-vae", "ml-vae-sub ml-vae", "fa ablation-1 ml-vae-rl ablation-3 ablation-2"]
)
def test_run_hands_the_systems_to_the_stages_that_have_them(project, systems):
    """As one word, whichever way it is written; the program of a stage notes its words."""
    project.has("python3")
    shown = PYTHON.replace("$*", "$# words: $*")
    project.script(project.bin / "python3", shown)
    for options in (["--systems", systems], [f"--systems={systems}"]):
        result = project.run("run.sh", *options, "--stage", "3", KNOWS="yes")
        assert result.returncode == 0, result.stderr
    calls = stages(project)
    assert len(calls) == 8
    for call in calls:
        if "/train.py" in call or "/localize.py" in call:
            assert call.startswith(f"python3 {17 if '/train.py' in call else 15} words:")
            assert call.endswith(f" --cache-mb 1000 --systems {systems}")
        else:
            assert "--systems" not in call


def test_run_does_no_stage_where_the_systems_are_not_known(project):
    text = PYTHON.replace("*/failing.py*)", "*/check.py*)")
    project.has("python3")
    project.script(project.bin / "python3", text)
    result = project.run("run.sh", KNOWS="yes")
    assert result.returncode == 3
    assert stages(project) == [] and result.stdout == ""


def test_default_systems_are_declared():
    (default,) = re.findall(r'(?m)^systems="(.*?)"', (ROOT / "run.sh").read_text())
    for path in sorted((ROOT / "recipes").glob("*/conf/*.yaml")):
        load_config(path, default.split())


def test_run_stops_with_the_status_of_a_failed_stage(project):
    text = PYTHON.replace("*/failing.py*)", "*/units.py*)")
    project.has("python3")
    project.script(project.bin / "python3", text)
    result = project.run("run.sh", KNOWS="yes")
    assert result.returncode == 3
    assert re.search(r"stage 2 units: failed after \d+ s \(exit status 3\)", result.stderr)
    assert "units" in stages(project)[-1]


def test_run_sets_up_first_and_uses_what_it_made(project):
    project.has("python3", "uv")
    result = project.run("run.sh", "--stage", "6")
    assert result.returncode == 0, result.stderr
    assert len(project.calls("uv")) == 3
    assert project.calls("python ./local/score.py")


def test_run_does_no_stage_where_the_setup_fails(project):
    project.has("python3", "uv")
    assert project.run("run.sh", FAIL="--require-hashes").returncode == 1
    assert project.calls("python ./") == []


def test_help_lists_every_option(project):
    result = run(project, "--help")
    assert result.returncode == 0
    block = (ROOT / "run.sh").read_text().split("# begin options\n")[1].split("# end options")[0]
    names = re.findall(r"(?m)^([a-z][a-z0-9_]*)=", block)
    assert len(names) == len(block.splitlines()) > 10
    for name in names:
        assert f"\n  --{name.replace('_', '-')} " in result.stdout
    assert "(default: audiomnist)" in result.stdout
    for system in load_config(ROOT / "recipes" / "systems.yaml").systems.values():
        assert f"\n  {system.name}: {system.note}\n" in result.stdout
    assert (
        "\nRecipes: audiomnist, l2arctic, own, speechocean762. Each may have options of its own"
        in result.stdout
    )
    assert "run.sh --recipe l2arctic --help" in result.stdout
    assert project.calls("python3") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--nonsense", "1"], "unknown option --nonsense"),
        (["--nonsense"], "unknown option --nonsense"),
        (["--PATH=x"], "unknown option --PATH"),
        (["--root", "x"], "unknown option --root"),
        (["--stage"], "--stage needs a value"),
        (["--split", "--seed", "1"], "--split needs a value"),
        (["fsdd"], "unexpected argument fsdd"),
        (["--stage", "7"], "--stage must be a number from 0 to 6"),
        (["--stage", "two"], "--stage must be a number from 0 to 6"),
        (["--stop-stage=-1"], "--stop-stage must be a number from 0 to 6"),
        (["--stage", "4", "--stop-stage", "3"], "--stage 4 is after --stop-stage 3"),
        (
            ["--recipe", "timit"],
            "there is no recipe 'timit' (found: audiomnist, l2arctic, own, speechocean762)",
        ),
        (["--recipe", "../recipes/audiomnist"], "there is no recipe"),
        (["--config", "huge"], "there is no config 'huge' (found: paper, small)"),
        (["--corpus", "a/b"], "--corpus 'a/b' is no name for a folder"),
        (["--corpus-dir", "run.sh"], "--corpus-dir run.sh is not a folder"),
        (["--corpus-dir", "local"], "--corpus-dir needs --corpus: fsdd or audiomnist"),
        (["--num-utterances", "0"], "--num-utterances must be a positive number"),
        (["--device", "gpu"], "--device must be auto, cpu or cuda"),
        (["--w2v-checkpoint", "none.pth"], "--w2v-checkpoint none.pth is not a file"),
        (["--allow-commands", "yes"], "--allow-commands must be true or false, not 'yes'"),
        (["--allow-shared-recordings="], "--allow-shared-recordings must be true or false"),
        (["--shard", "1"], "--shard must be i/n, as in 3/8, not '1'"),
        (["--shard", "1/2", "--stop-stage", "1"], "--shard goes with stage 1, 3 or 5 alone"),
        (["--cache-mb", "1.5"], "--cache-mb must be a whole number"),
        (["--num-processes", "0"], "--num-processes must be a positive number"),
        (["--num-processes", "1000"], "--num-processes must be a positive number"),
        (["--num-utterances", "1" + 9 * "0"], "--num-utterances must be a positive number"),
        (["--seed", "x"], "--seed must be a whole number"),
        (["--seed", "-1"], "--seed must be a whole number"),
        (["--seed", "18446744073709551616"], "--seed must be a whole number of at most 18 digits"),
        (["--seed", "010"], "--seed must be a whole number"),
        (["--exp-dir", ""], "must not be empty"),
    ],
)
def test_a_wrong_option_stops_before_any_work(project, options, message):
    result = run(project, *options)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert project.calls("python3") == []
