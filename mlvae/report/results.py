"""What results.sh of a recipe leaves, and RESULTS.md out of it and a template; no figure is typed.

Needs jinja2 (extra ``dev``).

Example:
    >>> run = read_run("fsdd", Path("exp/results"), Path("exp/audiomnist/fsdd/small"))
    >>> text = compose(Path("recipes/audiomnist/RESULTS.md.j2"), {"fsdd": run})
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jsonargparse import ArgumentParser

from mlvae.made import Record
from mlvae.score.table import format_count
from mlvae.stage import atomic_path

PICTURE = "utterance.png"
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
        details: ``details.txt`` without its heading and explanations; empty for a corpus without
            annotators.
        detail_notes: These explanations.
        training: By folder of a system the content of its ``training.json``.
    """

    name: str
    record: dict[str, str]
    results: dict
    table: str
    notes: str
    details: str
    detail_notes: str
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
    table, notes = _read_table(folder / "table.txt")
    details, detail_notes = "", ""
    if (folder / "details.txt").exists():
        details, detail_notes = _read_table(folder / "details.txt")
        details = details.split("\n\n", 1)[-1]
    return Run(
        name,
        record,
        json.loads((folder / "results.json").read_text(encoding="utf-8")),
        table,
        notes,
        details,
        detail_notes,
        {
            path.parent.name: json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(folder.glob("*/training.json"))
        },
    )


def _read_table(path: Path) -> tuple[str, str]:
    """A table and the explanations after it."""
    table, _, notes = path.read_text(encoding="utf-8").partition(NOTES)
    return table.rstrip(), (NOTES + notes).strip()


def read_part(name: str, records: Path) -> dict | None:
    """A part that left a text, as ``record`` and ``text``, and JSON, if any, as ``content``."""
    record = read_record(records / f"{name}.txt")
    if record is None:
        return None
    text = (records / f"{name}-table.txt").read_text(encoding="utf-8").rstrip()
    path = records / f"{name}.json"
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    return {"record": record, "text": text, "content": content}


def beside_the_paper(
    run: Run, paper: Mapping[str, Mapping], mean: str = "macro"
) -> list[dict[str, str]]:
    """One row a system of the paper: what it prints, and what was measured here.

    Args:
        run: Its figures are the measured ones.
        paper: Content of ``recipes/paper.yaml``.
        mean: ``macro`` or ``pooled``: which precision, recall and F1 are shown.

    Returns:
        Keys ``system``, ``paper_params``, ``params``, ``mismatch_audiomnist``, ``l2_arctic``,
        ``paper_iou``, ``here``, ``interval`` and ``iou``, ready to be shown.
    """
    rows = []
    for name, printed in paper.items():
        row = {"system": name, "paper_params": printed.get("params", "-"), "params": "-"}
        row |= {"interval": "-", "iou": "-", "paper_iou": str(printed.get("average_iou", "-"))}
        for corpus in ("mismatch_audiomnist", "l2_arctic"):
            figures = printed.get(corpus)
            row[corpus] = " / ".join(f"{value:.2f}" for value in figures) if figures else "-"
        if run.has(name):
            found = run.results["systems"][name]
            row["params"] = format_count(found["num_params"])
            figures = [found[f"{mean}_{figure}"] for figure in ("precision", "recall", "f1")]
            row["here"] = " / ".join(percent(figure) for figure in figures)
            row["interval"] = interval(found[f"{mean}_f1_interval"])
            row["iou"] = run.figure(name, "average_iou")
        else:
            row["here"] = run.results["unavailable"].get(name, "not run")
        rows.append(row)
    return rows


def percent(fraction: float, sign: str = "") -> str:
    """A fraction in percent with one decimal."""
    return f"{100 * fraction:{sign}.1f}"


def interval(ends: Sequence[float] | None, sign: str = "") -> str:
    """Both ends of an interval in percent; ``-`` where there is none."""
    return f"[{percent(ends[0], sign)} {percent(ends[1], sign)}]" if ends else "-"


def _with_interval(estimate: float, ends: Sequence[float] | None, sign: str) -> str:
    shown = percent(estimate, sign)
    return f"{shown} {interval(ends, sign)}" if ends else shown


def description(path: Path) -> str:
    """The first comment of a configuration, which says what is particular to it."""
    first = path.read_text(encoding="utf-8").split("\n", 1)[0] if path.exists() else ""
    return first.lstrip("# ").rstrip() if first.startswith("#") else ""


def compose(template: Path, values: Mapping) -> str:
    """Fill a template, which may import what lies beside its folder.

    Raises:
        TemplateError: It asks for what is not there, or is no template.
    """
    environment = Environment(
        loader=FileSystemLoader([template.parent, template.parent.parent]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["percent"] = percent
    environment.filters["interval"] = interval
    environment.filters["count"] = format_count
    text = environment.get_template(template.name).render(values)
    # Parts that are left out leave their blank lines.
    return re.sub(r"\n{3,}", "\n\n", text)


def write_results(text: str, picture: Path, out: Path) -> None:
    """Write RESULTS.md to ``out``, and the picture of one utterance beside it.

    Raises:
        InTheWayError: there is something that was not composed, or was changed since.
        OSError: they cannot be written; names the file.
    """
    record = check_place(out)
    with atomic_path(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    with atomic_path(out.parent / PICTURE) as temporary:
        shutil.copyfile(picture, temporary)
    record.tidy()


def check_place(out: Path) -> Record:
    """Check that :func:`write_results` replaces nothing but its own; errors as there.

    Returns:
        The record of the folder.
    """
    out = Path(out)
    record = Record.begin(out.parent)
    record.check([out, out.parent / PICTURE])
    return record


def composer_parser(recipe: Path, doc: str, command: str) -> ArgumentParser:
    """The options that the compose_results.py of every recipe has.

    Args:
        recipe: Folder of the recipe.
        doc: What the program does.
        command: That which makes all, where the caller does not say how it was called.
    """
    parser = ArgumentParser(prog="compose_results.py", description=doc)
    parser.add_argument("--exp-dir", type=Path, default=Path("exp"), help="that of results.sh")
    parser.add_argument("--config", type=str, default="small", help="configuration of most parts")
    parser.add_argument("--command", type=str, default=command, help="that made all, for the text")
    parser.add_argument("--template", type=Path, default=recipe / "RESULTS.md.j2", help="to fill")
    parser.add_argument("--out", type=Path, default=recipe / "RESULTS.md", help="file to write")
    return parser
