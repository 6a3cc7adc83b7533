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


def test_figures_of_unseen_speakers_are_means_of_the_results():
    said = re.search(
        r"has (\S+) pooled and (\S+) hard F1 \(mean of six speakers, each left out in turn\), "
        r"Two-Pass-FA (\S+) and (\S+)\.",
        " ".join(README.split()),
    )
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in RESULTS[0].read_text(encoding="utf-8").splitlines()
        if line.startswith(("| ML-VAE-sub | ", "| Two-Pass-FA | ")) and "F1" in line
    ]
    means = {(row[0], row[1]): row[-1] for row in rows if len(row) == 2 + 6 + 1}
    names = [
        (name, f"{kind} F1")
        for name in ("ML-VAE-sub", "Two-Pass-FA")
        for kind in ("pooled", "hard")
    ]
    assert [means[name] for name in names] == list(said.groups())


@pytest.mark.parametrize("option", sorted(set(re.findall(r"`(--[a-z0-9-]+)[ `]", README))))
def test_options_exist(option):
    scripts = [ROOT / "run.sh", ROOT / "mlvae" / "cli.py", *ROOT.glob("**/*options.sh")]
    text = "".join(path.read_text(encoding="utf-8") for path in scripts)
    name = option[2:]
    assert option in text or re.search(rf"^{name.replace('-', '_')}=", text, re.M), option
