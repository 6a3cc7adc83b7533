"""mlvae.fsa stands alone: it imports nothing else of the project and can be lifted out whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "mlvae" / "fsa"


def _python(code: str, path: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=path, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_imports_nothing_else_of_the_project():
    names = _python(
        "import sys, mlvae.fsa, mlvae.fsa.draw\n"
        "print(*sorted(name for name in sys.modules if name.split('.')[0] == 'mlvae'))",
        FOLDER.parents[1],
    ).split()
    assert "mlvae.fsa.compiler" in names
    assert [name for name in names if not name.startswith("mlvae.fsa")] == ["mlvae"]


def test_folder_works_under_another_name(tmp_path):
    shutil.copytree(
        FOLDER, tmp_path / "lifted" / "acceptor", ignore=shutil.ignore_patterns("__pycache__")
    )
    (tmp_path / "lifted" / "__init__.py").touch()
    answer = _python(
        "import sys, torch\n"
        "from lifted.acceptor import MlFsaCompiler, best_path\n"
        "import lifted.acceptor.draw\n"
        "compiler = MlFsaCompiler(3)\n"
        "scores = compiler.emissions(torch.zeros(1, 6, 3).log_softmax(-1), torch.tensor([6]))\n"
        "(spans,) = best_path(compiler.compile([[0, 1]]), scores)\n"
        "print([span.unit for span in spans], 'mlvae' in sys.modules)",
        tmp_path,
    )
    assert answer == "[0, 1] False"
