"""Scripts did other things where a shell had variables, options or names that they did not expect.

With ``CDPATH`` set, ``cd`` prints the folder, so that a finished ``.venv`` was not seen and 4 GB
were installed into a folder with a line break in its name. ``run.sh`` called through a symbolic
link, by ``sh run.sh``, or by bash 4.2, to which empty arrays are unbound variables, failed at once.
``BASH_ENV``, ``noclobber``, ``PYTHONHOME`` and the like are put aside by local/environment.sh.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.shell_project import PYTHON, ROOT, Project
from tests.test_run import stages

SETUP = "local/setup.sh"
SCRIPTS = sorted(
    path
    for folder in (".", "local", "recipes")
    for path in (ROOT / folder).glob("*.sh" if folder != "recipes" else "*/*.sh")
)


@pytest.fixture
def project(tmp_path) -> Project:
    project = Project(tmp_path)
    project.has("python3", "uv")
    return project


def call(project: Project, *command: str, **env: str) -> subprocess.CompletedProcess:
    """A command in the folder above the project; the caller names the shell, or none."""
    return subprocess.run(
        command,
        cwd=project.root.parent,
        env={**project.env, "KNOWS": "yes", **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_cdpath_hides_no_finished_setup(project):
    cdpath = f"{project.root}:{project.root.parent}"
    for _ in range(2):
        for command in (("local/setup.sh",), ("setup.sh",)):
            folder = project.root if len(command[0]) > 8 else project.root / "local"
            done = subprocess.run(
                ["bash", *command],
                cwd=folder,
                env={**project.env, "CDPATH": cdpath},
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert (done.returncode, done.stdout) == (0, f"{project.venv_python}\n"), done.stderr
    assert len(project.calls("uv venv")) == 1
    assert not [path for path in project.root.parent.rglob("*") if "\n" in path.name]


def test_through_a_symbolic_link_and_from_another_folder(project):
    (project.bin / "run").symlink_to("a link")
    (project.bin / "a link").symlink_to(project.root / "run.sh")
    done = call(project, "run", "--stage", "1", "--stop-stage", "1")
    assert done.returncode == 0, done.stderr
    assert stages(project)[-1].startswith(f"python3 {project.root}/local/fbank.py ")
    done = call(project, "bash", "the project/run.sh", "--stage", "1", "--stop-stage", "1")
    assert done.returncode == 0, done.stderr
    assert stages(project)[-1].startswith("python3 the project/local/fbank.py ")


def test_by_sh_it_goes_on_in_bash(project):
    shell = shutil.which("dash") or shutil.which("sh")
    assert shell is not None
    for name in ("sh", "dash"):
        (project.bin / name).symlink_to(shell)
    for name in ("sh", "dash"):
        done = call(project, name, "the project/run.sh", "--stage", "6", "--split", "a b")
        assert done.returncode == 0, done.stderr
        done = call(project, name, "the project/local/setup.sh", KNOWS="yes")
        assert done.stdout == f"{project.bin}/python3\n"


def test_without_the_right_to_execute(project):
    """As from an archive, or on a file system that has no such right."""
    for path in project.root.rglob("*.sh"):
        path.chmod(0o644)
    assert call(project, "bash", "the project/run.sh", "--stage", "6").returncode == 0


@pytest.mark.parametrize(
    "env",
    [
        {"POSIXLY_CORRECT": "1"},
        {"SHELLOPTS": "noclobber:noglob"},
        {"BASHOPTS": "failglob:nullglob:nocasematch"},
        {"BASH_ENV": "{root}/talks.sh"},
        {"IFS": "/"},
        {"GREP_OPTIONS": "--color=always"},
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
        {"BASH_FUNC_cd%%": '() { builtin cd "$@"; echo moved; }'},
    ],
    ids=lambda env: next(iter(env)),
)
def test_settings_of_a_shell_change_nothing(project, env):
    (project.root / "talks.sh").write_text("echo welcome\n")
    env = {
        name: value.format(root=project.root) if "{root}" in value else value
        for name, value in env.items()
    }
    for _ in range(2):
        done = call(
            project, "bash", "the project/run.sh", "--recipe", "l2arctic", **env, KNOWS="no"
        )
        assert done.returncode == 0, done.stderr
    assert len(project.calls("uv venv")) == 1
    assert len([call for call in project.calls("python ") if ".py" in call]) == 16
    assert not re.search("unbound|cannot overwrite|not found", done.stderr)


@pytest.mark.parametrize("name", ["PYTHONHOME", "PYTHONSAFEPATH", "PYTHONINSPECT", "CDPATH"])
def test_settings_for_another_python_are_put_aside(project, name):
    done = call(project, "bash", "the project/run.sh", "--stage", "6", **{name: "/x"}, NOTE=name)
    assert done.returncode == 0, done.stderr
    assert {line.partition("=")[2] for line in project.calls(f"{name}=")} == {""}


def test_a_pythonpath_that_hides_what_is_installed_is_named(project, tmp_path):
    assert project.run(SETUP).returncode == 0
    found = 'echo "$0 3.10.0"; echo "numpy $SHOWN/numpy/__init__.py 123"'
    text = PYTHON.replace('  "-c "* | "- "*)', f'  "- "*) {found} ;;\n  "-c "*)')
    project.script(Path(project.venv_python), text)
    for shown, status in (("/other py", 1), (str(project.root / ".venv" / "lib"), 0)):
        result = project.run(SETUP, PYTHONPATH="/other py", SHOWN=shown)
        assert result.returncode == status
        said = "PYTHONPATH holds another numpy than .venv (/other py/numpy/__init__.py)"
        assert (said in result.stderr) == bool(status)
    assert project.run(SETUP, SHOWN="/other py").returncode == 0


def unguarded(text: str) -> list[str]:
    """Arrays that are expanded though nothing says that they hold something.

    An array counts as filled where it is given with a word that is more than an expansion which
    may come to nothing.
    """
    code = re.sub(r"(?m)(^|\s)#.*$", "", text)
    filled = set()
    for name, content in re.findall(r"(?ms)^\s*(\w+)=\((.*?)\)\s*$", code):
        if re.search(r'[\w"-]', re.sub(r'"\$\{\w+\[@\]\}"|\$\{[^}]*\}', "", content)):
            filled.add(name)
    used = re.findall(r'(?<!\+)"\$\{(\w+)\[@\]\}"', code)
    return [name for name in used if name not in filled]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_arrays_that_may_be_empty_are_guarded(path):
    """To bash before 4.4 an empty array is an unbound variable: ${a[@]+"${a[@]}"}."""
    assert unguarded(path.read_text(encoding="utf-8")) == []


def test_the_search_for_arrays_finds_some():
    assert len(SCRIPTS) >= 8
    text = 'a=()\nb=(${c:+-d "$c"})\ne=(--f "$g")\nh=("${a[@]}")\ni=("$g")\n'
    uses = ': ${a[@]+"${a[@]}"} "${b[@]}" "${e[@]}" "${h[@]}" "${i[@]}"\n'
    assert unguarded(text + uses) == ["a", "b", "h"]
