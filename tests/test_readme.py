"""README.md: its links lead somewhere, its figures are those of RESULTS.md, its options exist."""

from __future__ import annotations

import re

import pytest

from tests.shell_project import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
RECIPES = ("audiomnist", "l2arctic", "speechocean762")
RESULTS = [ROOT / "recipes" / name / "RESULTS.md" for name in RECIPES]


def test_links_lead_somewhere():
    targets = re.findall(r"\]\(([^)\s]+)\)", README)
    anchors = {
        re.sub(r"\W+", "-", line.lower()) for line in re.findall(r"^##+ (.*)$", README, re.M)
    }
    assert len(targets) > 10
    for target in targets:
        if target.startswith("#"):
            assert target[1:] in anchors, target
        elif "://" not in target:
            assert (ROOT / target).exists(), target


def test_tables_are_lines_of_the_results():
    results = {line for path in RESULTS for line in path.read_text(encoding="utf-8").splitlines()}
    blocks = re.findall(r"```\n(system .*?)```", README, re.S)
    assert len(blocks) == len(RECIPES)
    for line in "".join(blocks).splitlines():
        assert line in results, line


@pytest.mark.parametrize("option", sorted(set(re.findall(r"`(--[a-z0-9-]+)[ `]", README))))
def test_options_exist(option):
    scripts = [ROOT / "run.sh", ROOT / "mlvae" / "cli.py", *ROOT.glob("**/*options.sh")]
    text = "".join(path.read_text(encoding="utf-8") for path in scripts)
    name = option[2:]
    assert option in text or re.search(rf"^{name.replace('-', '_')}=", text, re.M), option
