from __future__ import annotations

import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.shell_project import PYTHON, UV, Project

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def project(tmp_path) -> Project:
    return Project(tmp_path)


SETUP = "local/setup.sh"


def test_an_active_interpreter_that_imports_everything_is_used(project):
    project.has("python3", "uv")
    result = project.run(SETUP, KNOWS="yes")
    assert (result.returncode, result.stdout) == (0, f"{project.bin}/python3\n")
    assert project.calls("uv") == []
    assert not (project.root / ".venv").exists()


def test_the_import_of_an_active_interpreter_is_tried_once(project):
    project.has("python3")
    for _ in range(3):
        project.run(SETUP, KNOWS="yes")
    assert len(project.calls("python3 -c import torch")) == 1


def test_python_can_be_named(project):
    project.has("python3", "mine")
    result = project.run(SETUP, KNOWS="yes", PYTHON="mine")
    assert result.stdout == f"{project.bin}/mine\n"
    result = project.run(SETUP, KNOWS="yes", PYTHON="/not/there")
    assert result.returncode == 1
    assert "PYTHON=/not/there does not run" in result.stderr


def test_a_bare_machine_gets_a_venv(project):
    project.has("python3", "uv")
    result = project.run(SETUP)
    assert (result.returncode, result.stdout) == (0, f"{project.venv_python}\n")
    venv, lock, package = project.calls("uv")
    assert venv.startswith("uv venv --python")
    assert "--require-hashes -r" in lock and lock.endswith("requirements.lock")
    assert "--no-deps --no-build-isolation -e" in package
    assert project.calls("python -c import torch, k2, lhotse, mlvae")


def test_dev_needs_the_test_tools_too(project):
    project.has("python3", "uv")
    project.run(SETUP, "--dev")
    assert project.calls("python3 - torch k2 lhotse mlvae pytest xdist hypothesis ruff selenium")
    assert project.run(SETUP, "--other").returncode == 1


@pytest.mark.parametrize("knows", ["yes", "no"])
def test_a_finished_setup_is_recognised_within_a_second(project, knows):
    project.has("python3", "uv")
    assert project.run(SETUP, KNOWS=knows).returncode == 0
    num_calls = len(project.calls("uv"))
    seconds = []
    for _ in range(3):
        began = time.monotonic()
        result = project.run(SETUP, KNOWS=knows)
        seconds.append(time.monotonic() - began)
        assert result.returncode == 0
        assert result.stderr == ""
    assert min(seconds) < 1.0
    assert len(project.calls("uv")) == num_calls


@pytest.mark.parametrize("name", ["requirements.lock", "pyproject.toml"])
def test_a_change_of_what_it_is_made_from_makes_it_anew(project, name):
    project.has("python3", "uv")
    project.run(SETUP)
    with open(project.root / name, "a") as file:
        file.write("\n")
    result = project.run(SETUP)
    assert result.returncode == 0
    assert "out of date" in result.stderr
    assert len(project.calls("uv venv")) == 2


def test_a_finished_venv_that_is_active_is_brought_up_to_date(project):
    project.has("python3", "uv")
    project.run(SETUP)
    (project.root / "requirements.lock").write_text("torch==2\n")
    active = f"{project.root}/.venv/bin:{project.env['PATH']}"
    assert project.run(SETUP, PATH=active, KNOWS="yes").stdout == f"{project.venv_python}\n"
    assert len(project.calls("uv venv")) == 2


def test_only_a_python_that_is_not_used_is_said_to_be_so(project):
    """The project's own .venv is used when it is named, as recipes/results.py does."""
    project.has("python3", "uv", "mine")
    project.run(SETUP)
    own = project.run(SETUP, PYTHON=f"{project.venv_python}")
    assert (own.stdout, own.stderr) == (f"{project.venv_python}\n", "")
    other = project.run(SETUP, PYTHON="mine", KNOWS="no")
    assert other.stdout == f"{project.venv_python}\n"
    assert "PYTHON=mine is not used: it must import" in other.stderr


@pytest.mark.parametrize("step", ["venv", "--require-hashes", "--no-deps"])
def test_a_failed_setup_says_so_and_is_repaired_by_running_again(project, step):
    project.has("python3", "uv")
    result = project.run(SETUP, FAIL=step)
    assert result.returncode == 1
    assert result.stdout == ""
    assert "error: uv could not" in result.stderr
    result = project.run(SETUP)
    assert (result.returncode, result.stdout) == (0, f"{project.venv_python}\n")
    assert len(project.calls("uv venv")) == 2


@pytest.mark.parametrize("step", ["venv", "--require-hashes", "--no-deps"])
def test_a_killed_setup_is_repaired_by_running_again(project, step):
    project.has("python3", "uv")
    process = project.start(SETUP, HANG=step, SECONDS_TO_HANG="30")
    deadline = time.monotonic() + 20
    while not any(step in call for call in project.calls("uv")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    result = project.run(SETUP)
    assert (result.returncode, result.stdout) == (0, f"{project.venv_python}\n")
    assert len(project.calls("uv venv")) == 2
    assert project.run(SETUP).stderr == ""


def test_what_a_killed_setup_left_running_is_waited_for(project):
    project.has("python3", "uv")
    process = project.start(SETUP, HANG="--require-hashes", SECONDS_TO_HANG="2")
    deadline = time.monotonic() + 20
    while len(project.calls("uv")) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)  # and not the uv that it started
    result = project.run(SETUP)
    assert (result.returncode, result.stdout) == (0, f"{project.venv_python}\n")
    assert "waiting for another set-up" in result.stderr
    process.communicate()


def test_two_setups_at_once_make_one_venv(project):
    project.has("python3", "uv")
    both = [project.start(SETUP, HANG="-r", SECONDS_TO_HANG="1") for _ in range(2)]
    results = [process.communicate(timeout=60) for process in both]
    assert [out for out, _ in results] == [f"{project.venv_python}\n"] * 2
    assert sum("waiting for another set-up" in err for _, err in results) == 1
    assert len(project.calls("uv venv")) == 1


def test_a_venv_of_the_users_own_is_kept(project):
    project.has("python3", "uv")
    (project.root / ".venv").mkdir()
    (project.root / ".venv" / "precious").touch()
    result = project.run(SETUP)
    assert result.returncode == 0
    assert "moving it" in result.stderr
    assert list((project.root / ".setup").glob("venv-*/precious"))


def test_uv_is_brought_where_there_is_none(project):
    project.has("python3")
    result = project.run(SETUP)
    assert result.returncode == 0
    assert project.calls("python3 -m venv") and project.calls("python -m pip install uv")
    assert len(project.calls("uv")) == 3


def test_uv_is_brought_without_a_working_venv_module(project):
    project.has("python3")
    assert project.run(SETUP, VENV="no").returncode == 0
    assert project.calls("python3 -m pip install --target")
    assert len(project.calls("uv")) == 3


def test_it_says_what_is_missing_where_uv_cannot_be_brought(project):
    project.has("python3")
    result = project.run(SETUP, VENV="no", PIP="no")
    assert result.returncode == 1
    assert "install uv, or python3-venv" in result.stderr
    (project.bin / "python3").unlink()
    result = project.run(SETUP)
    assert result.returncode == 1
    assert "no python3" in result.stderr


def test_python310_is_looked_for_in_pyenv(project):
    project.has("python3", "uv")
    # This one is no 3.10, and the python3.10 of pyenv on PATH only says that it is not installed.
    text = PYTHON.replace('version_info"*) exit 0', 'version_info"*) exit 1')
    project.script(project.bin / "python3", text)
    project.script(project.bin / "python3.10", "#!/usr/bin/env bash\nexit 127\n")
    assert project.run(SETUP).returncode == 0
    assert project.calls("uv venv --python 3.10 ")
    shutil.rmtree(project.root / ".venv")
    assert "no Python 3.10 is on PATH" in project.run(SETUP, FAIL="venv").stderr
    folder = project.root.parent / "pyenv" / "versions" / "3.10.9" / "bin"
    folder.mkdir(parents=True)
    shutil.copy(project.fakes / "python", folder / "python3.10")
    shutil.rmtree(project.root / ".venv")
    assert project.run(SETUP, PYENV_ROOT=str(project.root.parent / "pyenv")).returncode == 0
    assert project.calls(f"uv venv --python {folder}/python3.10 ")


def test_settings_of_pip_are_handed_to_uv(project):
    project.has("python3", "uv")
    shown = UV.replace("uv $*", "uv $* [${UV_DEFAULT_INDEX:-} ${UV_FIND_LINKS:-}]")
    project.script(project.bin / "uv", shown)
    env = {"PIP_INDEX_URL": "file:///index", "PIP_FIND_LINKS": f"/not/there {project.bin}"}
    assert project.run(SETUP, **env).returncode == 0
    assert project.calls("uv venv")[0].endswith(f"[file:///index {project.bin}]")
    shutil.rmtree(project.root / ".venv")
    assert project.run(SETUP, UV_DEFAULT_INDEX="file:///own", **env).returncode == 0
    assert project.calls("uv venv")[1].endswith(f"[file:///own {project.bin}]")


def test_lock_keeps_only_the_k2_file_that_is_named(project, tmp_path):
    project.has("python3", "uv")
    compiled = tmp_path / "compiled"
    text = "a==1 \\\n    --hash=sha256:{a}\nk2==1.23.4 \\\n{k2}    # via mlvae\nz==1 \\\n"
    name = re.search(r"sha256:\w+", (ROOT / "requirements.in").read_text()).group()
    others = [f"    --hash=sha256:{digit * 64}" for digit in "12"]
    k2 = f"{others[0]} \\\n    --hash={name} \\\n{others[1]}\n"
    compiled.write_text(text.format(a="a" * 64, k2=k2))
    shutil.copy(ROOT / "requirements.in", project.root)
    assert project.run("local/lock.sh", COMPILED=str(compiled)).returncode == 0
    lines = (project.root / "requirements.lock").read_text().splitlines(keepends=True)
    assert lines[0].startswith("# ")
    assert "".join(lines[1:]) == text.format(a="a" * 64, k2=f"    --hash={name}\n")

    compiled.write_text(text.format(a="a" * 64, k2=others[0] + "\n"))
    result = project.run("local/lock.sh", COMPILED=str(compiled))
    assert result.returncode == 1
    assert "not on the index" in result.stderr
    assert (project.root / "requirements.lock").read_text() == "".join(lines)
    assert not list(project.root.glob("requirements.lock.*"))


def test_the_lock_file_is_complete_and_names_no_address():
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text and "index" not in text
    packages = re.split(r"\n(?=\S)", re.sub(r"(?m)^\s*#.*\n?", "", text).strip())
    assert all("--hash=sha256:" in package for package in packages)
    (k2,) = [package for package in packages if package.startswith("k2==")]
    assert re.findall(r"sha256:\w+", k2) == re.findall(
        r"(?m)^k2==.*(sha256:\w+)", (ROOT / "requirements.in").read_text()
    )
    names = {package.split("==")[0] for package in packages}
    project_text = (ROOT / "pyproject.toml").read_text()
    # The lock is of Python 3.10.
    project_text = re.sub(r"(?m)^.*python_version >= .*$", "", project_text)
    asked = set(re.findall(r'"([a-z0-9-]+)(?:\[\w+\])?>=', project_text)) - {"setuptools"}
    assert len(asked) > 15
    assert asked - names == set()
