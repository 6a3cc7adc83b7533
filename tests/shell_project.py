"""A copy of the shell scripts in a folder where other scripts play the interpreters and uv."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOLS = (
    *("awk", "bash", "cat", "chmod", "cp", "cut", "date", "dirname", "env", "find", "flock"),
    *("grep", "head", "mkdir", "mktemp", "mv", "readlink", "rm", "sed", "sha256sum", "sleep"),
    *("tail", "tr", "uname"),
)

# Plays an interpreter. It notes how it was called; what it can do is said by its environment:
# KNOWS=yes, every import works; VENV and PIP=no, `-m venv` and `-m pip` fail. With NOTE=VARIABLE it
# notes the value of that variable, too.
PYTHON = """#!/usr/bin/env bash
echo "${0##*/} $*" | head -n 1 >>"$CALLS"
[[ -z ${NOTE:-} ]] || echo "$NOTE=${!NOTE:-}" >>"$CALLS"
case "$1 ${2:-}" in
  "--version "*) echo Python 3.10.0 ;;
  "-c import sys; sys.exit(sys.version_info"*) exit 0 ;;
  "-c "* | "- "*) [[ ${KNOWS:-no} == yes || $0 == */.venv/* ]] ;;
  "-m venv") [[ ${VENV:-yes} == yes ]] && mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pip")
    case "$*" in
      *config*) exit 1 ;;
      *--target*) [[ ${PIP:-yes} == yes ]] && mkdir -p "$5/bin" && cp "$FAKE_UV" "$5/bin/uv" ;;
      *) cp "$FAKE_UV" "${0%/*}/uv" ;;
    esac ;;
  */failing.py*) exit 3 ;;
esac
"""

# Plays uv: FAIL=TEXT makes the call that holds TEXT fail, HANG=TEXT makes it take SECONDS.
UV = """#!/usr/bin/env bash
if [[ $1 == --version ]]; then echo uv 1; exit; fi
echo "uv $*" >>"$CALLS"
case "$*" in
  venv*) mkdir -p "${@: -1}/bin" && cp "$FAKE_PYTHON" "${@: -1}/bin/python" &&
    cp "$FAKE_PYTHON" "${@: -1}/bin/python3" ;;
  "pip compile"*)
    while [[ $1 != --output-file ]]; do shift; done
    cp "$COMPILED" "$2" ;;
esac
[[ -z ${HANG:-} || "$*" != *"$HANG"* ]] || sleep "$SECONDS_TO_HANG"
[[ -z ${FAIL:-} || "$*" != *"$FAIL"* ]]
"""


class Project:
    """A copy of the scripts in a folder of their own, with nothing of the machine on PATH."""

    def __init__(self, folder: Path):
        self.root = folder / "the project"
        self.bin = folder / "bin"
        self.calls_file = folder / "calls"
        tools = folder / "tools"
        for path in (self.root / "local", self.bin, tools, folder / "home", folder / "fakes"):
            path.mkdir(parents=True)
        for name in TOOLS:
            found = shutil.which(name)
            if found is None:
                pytest.skip(f"there is no {name} here")
            (tools / name).symlink_to(found)
        for path in (ROOT / "local").glob("*.sh"):
            shutil.copy(path, self.root / "local")
        shutil.copy(ROOT / "run.sh", self.root)
        (self.root / "requirements.lock").write_text("torch==1\n")
        (self.root / "pyproject.toml").write_text("[project]\n")
        (self.root / "recipes").mkdir()
        shutil.copy(ROOT / "recipes" / "systems.yaml", self.root / "recipes")
        for name in ("audiomnist", "l2arctic", "own", "speechocean762"):
            recipe = self.root / "recipes" / name
            (recipe / "conf").mkdir(parents=True)
            (recipe / "prepare.py").touch()
            (recipe / "conf" / "small.yaml").touch()
            (recipe / "conf" / "paper.yaml").touch()
            shutil.copy(ROOT / "recipes" / name / "options.sh", recipe)
        self.fakes = folder / "fakes"
        self.script(self.fakes / "python", PYTHON)
        self.script(self.fakes / "uv", UV)
        self.env = {
            "PATH": f"{self.bin}:{tools}",
            "HOME": str(folder / "home"),
            "CALLS": str(self.calls_file),
            "FAKE_UV": str(self.fakes / "uv"),
            "FAKE_PYTHON": str(self.fakes / "python"),
        }

    @staticmethod
    def script(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def has(self, *names: str) -> None:
        for name in names:
            shutil.copy(self.fakes / ("uv" if name == "uv" else "python"), self.bin / name)

    def start(self, *command: str, **env: str) -> subprocess.Popen:
        return subprocess.Popen(
            ["bash", *command],
            cwd=self.root,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *command: str, **env: str) -> subprocess.CompletedProcess:
        process = self.start(*command, **env)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def calls(self, beginning: str) -> list[str]:
        if not self.calls_file.exists():
            return []
        lines = self.calls_file.read_text().splitlines()
        return [line for line in lines if line.startswith(beginning)]

    @property
    def venv_python(self) -> str:
        return f"{self.root}/.venv/bin/python"
