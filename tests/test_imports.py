"""Imports point one way: what is general knows nothing of a corpus, and nothing knows recipes."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "mlvae").rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Dotted names of the modules, and of what is taken from them, that a file imports anywhere."""
    names = set()
    package = path.relative_to(ROOT).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            home = [*package[: -node.level]] if node.level else []
            module = ".".join([*home, *filter(None, [node.module])])
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def users(of: str, among: list[Path]) -> dict[str, set[str]]:
    """By file what it imports of a package."""
    found = {}
    for path in among:
        names = {name for name in imported(path) if f"{name}.".startswith(f"{of}.")}
        if names:
            found[str(path.relative_to(ROOT))] = names
    return found


def below(*folders: str) -> list[Path]:
    return [path for path in FILES if path.relative_to(ROOT / "mlvae").parts[0] in folders]


def test_nothing_general_imports_a_corpus():
    assert users("mlvae.corpora", below("corpora"))  # they import each other
    assert users("mlvae.corpora", [path for path in FILES if path not in below("corpora")]) == {}


def test_the_package_imports_no_recipe_and_no_stage():
    for folder in ("recipes", "local", "examples", "benchmarks", "tests"):
        assert users(folder, FILES) == {}


def test_the_graphs_import_nothing_else_of_the_project():
    found = users("mlvae", below("fsa"))
    assert {name for names in found.values() for name in names if "mlvae.fsa." not in name} == set()


@pytest.mark.parametrize("folder", ["l2arctic", "simulate", "digits", "speechocean762"])
def test_a_corpus_imports_no_other(folder):
    files = [path for path in below("corpora") if folder in path.parts]
    others = {"l2arctic", "simulate", "digits", "speechocean762", "own"} - {folder}
    for other in others:
        assert users(f"mlvae.corpora.{other}", files) == {}


@pytest.mark.parametrize(
    ("folders", "unknown"),
    [
        (["nn"], "corpora data report score stage systems train"),
        (["data", "corpora"], "fsa nn report score systems train"),
        (["train"], "corpora report score systems"),
        (["systems"], "corpora report score"),
    ],
)
def test_what_is_below_does_not_know_what_is_above(folders, unknown):
    for name in unknown.split():
        assert users(f"mlvae.{name}", below(*folders)) == {}


@pytest.mark.parametrize("arguments", [["--help"], ["localize", "--help"], ["--version"]])
def test_the_package_and_its_help_begin_without_what_takes_long_to_import(arguments):
    """They take a tenth of a second then, and torch alone several."""
    code = """if True:
        import sys, mlvae, mlvae.cli
        try:
            mlvae.cli.main(sys.argv[1:])
        finally:
            heavy = {"torch", "k2", "lhotse", "numpy", "scipy", "matplotlib"}
            print(*sorted(heavy.intersection(sys.modules)), file=sys.stderr)"""
    command = [sys.executable, "-c", code, *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (result.returncode, result.stderr.strip()) == (0, "")
    assert "mlvae" in result.stdout
