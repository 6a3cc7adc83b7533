#!/usr/bin/env python3
"""RESULTS.md out of its template and of what the parts of results.sh left; no figure is typed."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from jinja2 import Environment, StrictUndefined, TemplateError
from jsonargparse import ArgumentParser

from mlvae.score.table import format_count
from mlvae.stage import atomic_path, log

HERE = Path(__file__).resolve().parent
PICTURE = "utterance.png"
COMMAND = "recipes/audiomnist/results.sh --corpus-dir /path/to/fsdd"
# Where the explanation of the columns begins in a table.txt.
NOTES = "\n\nFigures are in percent"


@dataclass(frozen=True)
class Run:
    """One part that ran run.sh.

    Attributes:
        name: Name of the part.
        record: What results.sh wrote about it: ``command``, ``seconds``, ``machine``, ``commit``.
        results: Content of ``results.json``.
        table: ``table.txt`` up to its explanations.
        notes: The explanations.
        training: By folder of a system the content of its ``training.json``.
    """

    name: str
    record: dict[str, str]
    results: dict
    table: str
    notes: str
    training: dict[str, dict]

    def figure(self, system: str, figure: str) -> str:
        """A figure of a system in percent with its interval."""
        row = self.results["systems"][system]
        return _with_interval(row[figure], row[f"{figure}_interval"], "")

    def difference(self, first: str, second: str, figure: str = "pooled_f1") -> str:
        """The difference of two systems in percent with its interval."""
        row = self.results["differences"][f"{first} minus {second}"]
        return _with_interval(row[figure], row[f"{figure}_interval"], "+")

    def excludes_zero(self, first: str, second: str, figure: str = "pooled_f1") -> bool:
        """Whether the interval of a difference excludes 0."""
        return self.results["differences"][f"{first} minus {second}"][f"{figure}_excludes_zero"]

    def criterion(self, folder: str) -> float:
        """F1 on units corrupted at random, of the iteration that a system kept."""
        training = self.training[folder]
        return training["history"][training["best_iteration"] - 1]["corrupted_f1"]

    def has(self, *systems: str) -> bool:
        """Whether all of some systems have figures."""
        return set(systems) <= set(self.results["systems"])


def read_record(path: Path) -> dict[str, str] | None:
    """What results.sh wrote about a part, ``key: value`` a line; None where it was not done."""
    if not path.exists():
        return None
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines)


def read_run(name: str, records: Path, folder: Path) -> Run | None:
    """A part and its experiment folder; None where it was not done.

    Raises:
        FileNotFoundError: It was done, but its folder has no results.
    """
    record = read_record(records / f"{name}.txt")
    if record is None:
        return None
    table, _, notes = (folder / "table.txt").read_text(encoding="utf-8").partition(NOTES)
    return Run(
        name,
        record,
        json.loads((folder / "results.json").read_text(encoding="utf-8")),
        table.rstrip(),
        (NOTES + notes).strip(),
        {
            path.parent.name: json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(folder.glob("*/training.json"))
        },
    )


def read_part(name: str, records: Path) -> dict | None:
    """A part that left a text, as ``record`` and ``text``, and JSON, if any, as ``content``."""
    record = read_record(records / f"{name}.txt")
    if record is None:
        return None
    text = (records / f"{name}-table.txt").read_text(encoding="utf-8").rstrip()
    path = records / f"{name}.json"
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    return {"record": record, "text": text, "content": content}


def beside_the_paper(run: Run, paper: Mapping[str, Mapping]) -> list[dict[str, str]]:
    """One row a system of the paper: what it prints, and what was measured here."""
    rows = []
    for name, printed in paper.items():
        row = {"system": name, "paper_params": printed.get("params", "-"), "params": "-"}
        for corpus in ("mismatch_audiomnist", "l2_arctic"):
            figures = printed.get(corpus)
            row[corpus] = " / ".join(f"{value:.2f}" for value in figures) if figures else "-"
        if run.has(name):
            found = run.results["systems"][name]
            row["params"] = format_count(found["num_params"])
            names = ("macro_precision", "macro_recall", "macro_f1")
            row["here"] = " / ".join(percent(found[figure]) for figure in names)
            row["interval"] = _interval(found["macro_f1_interval"], "")
        else:
            row["here"] = run.results["unavailable"].get(name, "not run")
            row["interval"] = "-"
        rows.append(row)
    return rows


def percent(fraction: float, sign: str = "") -> str:
    """A fraction in percent with one decimal."""
    return f"{100 * fraction:{sign}.1f}"


def _interval(ends: Sequence[float] | None, sign: str) -> str:
    return f"[{percent(ends[0], sign)} {percent(ends[1], sign)}]" if ends else "-"


def _with_interval(estimate: float, ends: Sequence[float] | None, sign: str) -> str:
    shown = percent(estimate, sign)
    return f"{shown} {_interval(ends, sign)}" if ends else shown


def description(config: str) -> str:
    """The first comment of a configuration, which says what is particular to it."""
    path = HERE / "conf" / f"{config}.yaml"
    first = path.read_text(encoding="utf-8").split("\n", 1)[0] if path.exists() else ""
    return first.lstrip("# ").rstrip() if first.startswith("#") else ""


def compose(template: Path, values: Mapping) -> str:
    """Fill the template.

    Raises:
        TemplateError: It asks for what is not there, or is no template.
    """
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["percent"] = percent
    environment.filters["interval"] = _interval
    environment.filters["count"] = format_count
    text = environment.from_string(template.read_text(encoding="utf-8")).render(values)
    # Parts that are left out leave their blank lines.
    return re.sub(r"\n{3,}", "\n\n", text)


def make_parser() -> ArgumentParser:
    """The options."""
    parser = ArgumentParser(prog="compose_results.py", description=__doc__)
    parser.add_argument("--exp-dir", type=Path, default=Path("exp"), help="that of results.sh")
    parser.add_argument("--config", type=str, default="small", help="configuration of most parts")
    parser.add_argument("--speaker", type=str, default="theo", help="of the part speaker")
    parser.add_argument("--seeds", type=str, default="0 1 2", help="of the part seeds")
    parser.add_argument("--variants", type=str, default="", help="of the part variants")
    parser.add_argument("--command", type=str, default=COMMAND, help="that made all, for the text")
    parser.add_argument("--template", type=Path, default=HERE / "RESULTS.md.j2", help="to fill")
    parser.add_argument("--out", type=Path, default=HERE / "RESULTS.md", help="file to write")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Write RESULTS.md and the picture of one utterance beside it; returns the exit status."""
    options = make_parser().parse_args(argv)
    exp, records = options.exp_dir, options.exp_dir / "results"
    fsdd, here = Path("audiomnist/fsdd"), exp / "audiomnist/fsdd" / options.config
    try:
        runs = {
            "fsdd": read_run("fsdd", records, here),
            "speaker": read_run(
                "speaker", records, exp / f"speaker-{options.speaker}" / fsdd / options.config
            ),
            "espeak": read_run("espeak", records, exp / "audiomnist/espeak/small"),
        }
        variants = {
            name: read_run(f"variant-{name}", records, exp / fsdd / name)
            for name in options.variants.split()
        }
        parts = {name: read_part(name, records) for name in ("seeds", "estep", "competitors")}
        further_seeds = [
            read_record(records / f"seed-{seed}.txt") for seed in options.seeds.split()
        ]
        if runs["fsdd"] is None:
            raise FileNotFoundError(f"{records / 'fsdd.txt'} is missing; results.sh makes it")
        paper = yaml.safe_load((HERE / "paper.yaml").read_text(encoding="utf-8"))
        values = {
            **runs,
            **parts,
            "variants": {name: run for name, run in variants.items() if run is not None},
            "description": {name: description(name) for name in variants},
            "beside_the_paper": beside_the_paper(runs["fsdd"], paper),
            "held_out": options.speaker,
            "seed_names": options.seeds.split(),
            "further_seeds": [record for record in further_seeds if record is not None],
            "config": options.config,
            "whole": options.command,
        }
        text = compose(options.template, values)
    except (OSError, ValueError, KeyError, TemplateError) as error:
        print(f"compose_results.py: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    with atomic_path(options.out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    picture = options.out.parent / PICTURE
    with atomic_path(picture) as temporary:
        shutil.copyfile(here / PICTURE, temporary)
    absent = [name for name, part in {**runs, **variants, **parts}.items() if part is None]
    note = f"; without {', '.join(absent)}, which were not done" if absent else ""
    log(f"results compose: wrote {options.out} and {picture}{note}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
