"""The examples of use from other recipes work, and the README shows the lines of the first."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import pytest
import torch

from mlvae.fsa import best_path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
EXAMPLE = EXAMPLES / "outside_recipe.py"


@pytest.fixture
def run(capsys):
    """Runs an example; its names, and the words of each line that it prints."""

    def run(name: str) -> tuple[dict, list[list[str]]]:
        threads, state = torch.get_num_threads(), torch.get_rng_state()
        torch.set_num_threads(1)
        try:
            names = runpy.run_path(str(EXAMPLES / name))
        finally:
            torch.set_num_threads(threads)
            torch.set_rng_state(state)
        return names, [line.split() for line in capsys.readouterr().out.splitlines()]

    return run


def test_finds_the_unit_that_differs(run):
    names, lines = run("outside_recipe.py")
    assert [int(line[0]) for line in lines] == names["texts"][0].tolist()
    assert [len(line) > 3 for line in lines] == [position == 2 for position in range(6)]
    for position, (_, start, end, *_) in enumerate(lines):
        assert abs(int(start) - 5 * position) <= 1
        assert abs(int(end) - 5 * (position + 1)) <= 1
    # Nothing else is taken for a mismatch.
    paths = best_path(names["finder"].compile(names["texts"]), names["emissions"])
    assert sum(span.mispronounced for spans in paths for span in spans) == 1


def test_a_recipe_like_icefalls_finds_the_word_that_was_not_said(run):
    _, lines = run("icefall_like.py")
    assert [line[0] for line in lines] == list("badi" + "buki" + "dika")
    assert [line[4] for line in lines] == list("badi" + "kudu" + "dika")
    assert [float(line[3]) > 0.5 for line in lines] == [i in (4, 6, 7) for i in range(12)]
    for position, (_, start, end, *_) in enumerate(lines):
        assert float(start) == pytest.approx(0.06 * position, abs=0.021)
        assert float(end) == pytest.approx(0.06 * (position + 1), abs=0.021)


def test_posteriors_of_ones_own_find_the_unit_that_differs(run):
    names, (line,) = run("posteriors_of_ones_own.py")
    assert " ".join(line).startswith("o was said as a from 0.18 to 0.24 s, P = 0.9")
    assert names["flagged"](names["probabilities"], "t a t a") == []


@pytest.mark.parametrize(
    ("name", "others"),
    [("outside_recipe", []), ("icefall_like", []), ("posteriors_of_ones_own", ["numpy"])],
)
def test_imports_only_torch_and_mlvae_fsa(name, others):
    modules = set()
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 80
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module)
    assert modules == {"mlvae.fsa", "torch", *others}


def test_readme_shows_the_same_lines():
    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("README.md is not written yet")
    block = re.search(
        r"<!-- examples/outside_recipe\.py -->\s*```python\n(.*?)```", readme.read_text(), re.DOTALL
    )
    assert block, "no code block behind the marker <!-- examples/outside_recipe.py -->"
    assert block[1] == EXAMPLE.read_text()
