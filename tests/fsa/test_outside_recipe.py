"""The example of use from another recipe works, and the README shows the same lines."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import pytest
import torch

from mlvae.fsa import best_path

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "outside_recipe.py"


def test_finds_the_unit_that_differs(capsys):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        names = runpy.run_path(str(EXAMPLE))
    finally:
        torch.set_num_threads(threads)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [int(line[0]) for line in lines] == names["texts"][0].tolist()
    assert [len(line) > 3 for line in lines] == [position == 2 for position in range(6)]
    for position, (_, start, end, *_) in enumerate(lines):
        assert abs(int(start) - 5 * position) <= 1
        assert abs(int(end) - 5 * (position + 1)) <= 1
    # Nothing else is taken for a mismatch.
    paths = best_path(names["finder"].compile(names["texts"]), names["emissions"])
    assert sum(span.mispronounced for spans in paths for span in spans) == 1


def test_imports_only_torch_and_mlvae_fsa():
    modules = []
    for node in ast.walk(ast.parse(EXAMPLE.read_text())):
        if isinstance(node, ast.Import):
            modules += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules.append(node.module)
    assert sorted(modules) == ["mlvae.fsa", "torch"]


def test_readme_shows_the_same_lines():
    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("README.md is not written yet")
    block = re.search(
        r"<!-- examples/outside_recipe\.py -->\s*```python\n(.*?)```", readme.read_text(), re.DOTALL
    )
    assert block, "no code block behind the marker <!-- examples/outside_recipe.py -->"
    assert block[1] == EXAMPLE.read_text()
