"""In a folder ``dä``, programs ended with a traceback after all their work.

``PYTHONIOENCODING=ascii`` let no umlaut be printed; with ``LC_ALL=C`` and ``PYTHONUTF8=0``, or in a
Latin-1 locale, files without a stated encoding were read and written as something else than UTF-8,
lhotse's manifests among them.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys

import pytest

from mlvae.program import SPINS
from tests.shell_project import ROOT

PROGRAM = """
import os, sys
from pathlib import Path
from mlvae.program import start_program
from mlvae.stage import log

def main(folder):
    Path(folder).mkdir()
    with open(f"{folder}/text", "w") as file:  # as another library does
        file.write("größer")
    log(f"wrote {folder}/text")
    return 0

if __name__ == "__main__":
    start_program()
    sys.exit(main(*sys.argv[1:]))
"""
FOLDERS = ("local", "recipes", "benchmarks", "examples", "mlvae")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
#: Without a program's start: they are copied into projects of others, and print numbers.
STANDALONE = {"outside_recipe.py", "icefall_like.py", "posteriors_of_ones_own.py", "voice.py"}


@pytest.mark.parametrize(
    "env",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONIOENCODING": "latin-1"},
        {},
    ],
    ids=lambda env: " ".join(f"{name}={value}" for name, value in env.items()) or "as it is",
)
def test_a_program_does_its_work_in_any_locale(tmp_path, env):
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "program.py", "dä€"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "dä€" / "text").read_bytes() == "größer".encode()
    assert done.stdout.startswith(b"20") and b"wrote d" in done.stdout


def test_a_library_is_left_alone():
    """What a program does first is not done where mlvae is imported."""
    code = "import os, mlvae.cli; print(os.environ.get('GOMP_SPINCOUNT'))"
    env = without_openmp()
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, check=True, timeout=60)
    assert done.stdout.strip() == b"None"


def without_openmp() -> dict[str, str]:
    """The environment without settings of OpenMP."""
    names = [name for name in os.environ if not name.startswith(("OMP_", "GOMP_"))]
    return {name: os.environ[name] for name in names}


@pytest.mark.parametrize(
    ("given", "used"),
    [({}, SPINS), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")],
)
def test_threads_of_the_command_soon_sleep_while_they_wait(given, used):
    code = "import os, sys; from mlvae.program import start_program; start_program(); "
    code += "print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)"
    env = without_openmp() | given
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, check=True, timeout=60)
    assert done.stdout.decode().split() == [used, "False"]


def calls_without_encoding(tree: ast.AST) -> list[str]:
    """Calls that open text in the encoding of the locale, by line and name."""
    found = []
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        names = {word.arg: word.value for word in call.keywords}
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        modes = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
        binary = ast.unparse(call.func) in ("os.open", "tarfile.open") or any(
            isinstance(mode, str) and re.fullmatch(r"[rwax+]+b[+]?", mode) for mode in modes
        )
        opens = name in ("read_text", "write_text", "fdopen") or (name == "open" and not binary)
        texts = getattr(names.get("text"), "value", None) is True
        if (opens or texts) and "encoding" not in names:
            found.append(f"{call.lineno} {name}")
    return found


def test_every_text_is_utf8():
    found = {}
    for path in SOURCES:
        calls = calls_without_encoding(ast.parse(path.read_text(encoding="utf-8")))
        found |= {f"{path.relative_to(ROOT)}": calls} if calls else {}
    assert len(SOURCES) > 100 and found == {}


def test_the_search_for_encodings_finds_some():
    text = "open(a)\nopen(a, 'a+b')\np.write_text(a)\nrun(b, text=True)\n"
    text += "open(a, encoding='utf-8')\nos.open(a, os.O_RDWR)\n"
    assert calls_without_encoding(ast.parse(text)) == ["1 open", "3 write_text", "4 run"]


def test_every_program_begins_with_it():
    programs = [path for path in SOURCES if '__name__ == "__main__"' in path.read_text("utf-8")]
    assert len(programs) >= 15
    for path in programs:
        if path.name not in STANDALONE and path.name != "cli.py":
            start = path.read_text(encoding="utf-8").partition('if __name__ == "__main__":\n')[2]
            assert start.lstrip().startswith("start_program()"), path
