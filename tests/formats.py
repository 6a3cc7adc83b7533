"""What docs/formats.md says of files and fields, and whether files on disk agree with it.

A heading ``## NAME`` begins the description of one kind of record or folder. Its tables have the
columns ``field``, ``file`` or ``tier``, and ``always``; the first code of a row is the name. In the
name of a field ``.`` goes into an object and ``[]`` into each record of a list, ``<word>`` stands
for any one name, and ``.*`` at the end for whatever is below. A cell of the column ``always`` is
empty, ``yes``, or ``from stage N``.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import safe_open

PAGE = Path(__file__).resolve().parents[1] / "docs" / "formats.md"


@dataclass
class Format:
    """The names that a section of the page has.

    Attributes:
        names: of files or fields, with the stage from which on they are always there, or None.
        examples: lines of JSON that the section shows.
    """

    names: dict[str, int | None] = field(default_factory=dict)
    examples: list[Any] = field(default_factory=list)


def read_page(text: str) -> dict[str, Format]:
    """The sections of the page by their headings."""
    sections: dict[str, Format] = {}
    for part in re.split(r"^## ", text, flags=re.M)[1:]:
        title, _, body = part.partition("\n")
        section = sections[title.strip()] = Format()
        kind, always = "", -1
        for line in body.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not line.startswith("|"):
                always = -1
            elif cells[0] in ("field", "file", "tier"):
                kind, always = cells[0], cells.index("always")
            elif always > 0 and not set(cells[0]) <= set("- "):
                name = re.match(r"`([^`]+)`", cells[0])
                when = re.fullmatch(r"|(yes)|from stage ([0-6])", cells[always])
                assert name and when, line
                of_tier = "supervisions[].alignment." * (kind == "tier")
                section.names[of_tier + name[1]] = 0 if when[1] else when[2] and int(when[2])
        for block in re.findall(r"^```json\n(.*?)^```", body, flags=re.M | re.S):
            section.examples.append(json.loads(block))
    return sections


def matches(pattern: str, name: str, by: str = ".") -> bool:
    """Whether a name on the page stands for a name on disk; both have parts, divided by a sign."""
    known, parts = pattern.split(by), name.split(by)
    if known[-1] == "*":
        known, parts = known[:-1], parts[: len(known) - 1]
    return len(known) == len(parts) and all(map(_stands_for, known, parts))


def _stands_for(known: str, part: str) -> bool:
    pieces = re.split(r"(<[a-z-]+>)", known)
    regex = "".join(".+" if piece.startswith("<") else re.escape(piece) for piece in pieces)
    return re.fullmatch(regex, part) is not None


def leaves(content: Any, name: str = "") -> Iterator[str]:
    """Names of the fields of a record; empty objects and lists are fields, too.

    A full stop within a key is written as a colon, as a full stop goes into an object.
    """
    if isinstance(content, dict) and content:
        for key, value in content.items():
            key = key.replace(".", ":")
            yield from leaves(value, f"{name}.{key}" if name else key)
    elif isinstance(content, list) and content and isinstance(content[0], dict):
        for value in content:
            yield from leaves(value, f"{name}[]")
    else:
        yield name


def undocumented(record: Any, section: Format) -> set[str]:
    """Fields of a record that the page lacks."""
    known = set(section.names)
    for name in section.names:  # what holds fields may be empty
        parts = name.split(".")
        known |= {".".join(parts[:n]).removesuffix("[]") for n in range(1, len(parts) + 1)}
    return {
        name for name in set(leaves(record)) if not any(matches(pattern, name) for pattern in known)
    }


def absent(record: Any, section: Format, stage: int = 6) -> set[str]:
    """Fields that the page says are always there after a stage, and are not."""
    due = [name for name, since in section.names.items() if since is not None and since <= stage]
    return {name for name in due if not _has(record, name.removesuffix(".*").split("."))}


def _has(content: Any, parts: list[str]) -> bool:
    """Whether a field is there in each object that may have it; those of any name may be none."""
    if not parts:
        return True
    if not isinstance(content, dict):
        return False
    name, rest = parts[0].removesuffix("[]"), parts[1:]
    values = [value for key, value in content.items() if _stands_for(name, key)]
    any_name = re.fullmatch("<[a-z-]+>", name)
    if parts[0].endswith("[]"):
        values = [item for value in values for item in value]
    elif not values and not any_name:
        return False
    return all(_has(value, rest) for value in values)


def records(path: Path) -> list[Any]:
    """What a JSON file holds, or the lines of a JSON Lines file."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if path.suffix == ".json":
        return [json.loads(content)]
    return [json.loads(line) for line in content.decode().splitlines()]


def check_folder(folder: Path, section: Format) -> None:
    """Compare the files of a folder with the page."""
    files = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    known = section.names
    unknown = [file for file in files if not any(matches(name, file, "/") for name in known)]
    assert files and not unknown, f"not in {PAGE.name}: {unknown}"
    for name, since in known.items():
        if since is not None:
            assert any(matches(name, file, "/") for file in files), f"{folder} has no {name}"


def check_records(path: Path, *sections: Format, stage: int = 6) -> int:
    """Compare the records of a file with the page.

    Args:
        path: the file.
        sections: that describe it.
        stage: that wrote it: what comes from a later one is not there.

    Returns:
        The number of records.
    """
    section = Format()
    for one in sections:
        section.names.update({n: s for n, s in one.names.items() if s is None or s <= stage})
    found = records(path)
    for record in found:
        assert undocumented(record, section) == set(), f"{path}: not in {PAGE.name}"
        missing = absent(record, section, stage)
        assert missing == set(), f"{path}: {PAGE.name} says that it is there"
    return len(found)


def check_run(data: Path, exp: Path) -> None:
    """Compare what stages 0 to 6 left with the page; see there."""
    page = read_page(PAGE.read_text(encoding="utf-8"))
    about = json.loads((data / "corpus.json").read_text())
    scored = about.get("reference") is not False
    graded = scored and "scores" in records(data / "reference.jsonl.gz")[0]["custom"]
    result = "results.json" if scored else "overview.json"
    check_folder(data, page["Data folder"])
    check_folder(exp, page["Experiment folder"])
    cuts, tiers = page["Cuts"], page["Tiers"]
    del cuts.names["supervisions[].alignment.*"]  # the tiers tell
    if about.get("unit") == "bpe":
        cuts.names["supervisions[].custom.units"] = 2
    for split in ("train", "valid", "test"):
        name = f"cuts_{split}.jsonl.gz"
        assert check_records(data / "manifests" / name, cuts, stage=0)
        assert check_records(data / "fbank" / name, cuts, stage=2)
        assert check_records(exp / "fa" / name, cuts, tiers, stage=3)
    for path in exp.glob("*/cuts_test.jsonl.gz"):
        if path.parent.name != "fa":
            assert check_records(path, cuts, tiers, stage=5)
    for folder, names in (
        (data, ("corpus.json", "skipped.jsonl", ".mlvae-made.jsonl")),
        (exp, (result, "skipped.jsonl", ".mlvae-made.jsonl")),
    ):
        for name in names:
            section = "Graded results" if graded and name == "results.json" else name
            check_records(folder / name, page[section])
    for name in ("annotation.json", "repairs.jsonl"):
        if (data / name).exists():
            check_records(data / name, page[name])
    if scored:
        section = "Graded reference" if graded else "Reference"
        assert check_records(data / "reference.jsonl.gz", page[section])
    for path in exp.glob("*/training.json"):
        check_records(path, page["training.json"])
    for path in exp.glob("*/judge.json"):
        check_records(path, page["judge.json"])
    for path in exp.glob("*/model.safetensors"):
        with safe_open(path, framework="pt") as file:
            metadata = json.loads(file.metadata()["json"])
        assert undocumented(metadata, page["Models"]) == absent(metadata, page["Models"]) == set()
