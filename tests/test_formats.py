"""The page docs/formats.md: its examples, its stage 0, and the program that compares it with runs.

The comparison itself is made where whole runs are at hand, in tests/recipes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from mlvae.data.features import compute_fbank
from mlvae.made import RECORD
from mlvae.stage import StageReport
from tests.formats import (
    PAGE,
    Format,
    absent,
    check_folder,
    check_records,
    matches,
    read_page,
    undocumented,
)

ROOT = PAGE.parents[1]
TEXT = PAGE.read_text(encoding="utf-8")


def test_readers_find_the_page():
    assert "(docs/formats.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    headings = {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in read_page(TEXT)}
    links = set(re.findall(r"\]\(#([a-z0-9-]+)\)", TEXT))
    assert links and links <= headings


@pytest.mark.parametrize(
    "name", ["Cuts", "Reference", "Graded reference", "corpus.json", "training.json"]
)
def test_examples_are_what_their_tables_say(name):
    section = read_page(TEXT)[name]
    (example,) = section.examples
    assert undocumented(example, section) == absent(example, section, stage=0) == set()


def test_examples_of_lists_and_tiers():
    page = read_page(TEXT)
    for name in ("skipped.jsonl", ".mlvae-made.jsonl"):
        (example,) = page[name].examples
        assert undocumented(example, page[name]) == absent(example, page[name]) == set()
    (tiers,) = page["Tiers"].examples
    assert undocumented({"supervisions": [{"alignment": tiers}]}, page["Tiers"]) == set()


SECTION = Format(
    {"a": 0, "b.<any>.c": 0, "b.<any>.d_<e>": None, "f[].g": 0, "h.*": None, "later": 3}
)


@pytest.mark.parametrize(
    ("record", "new", "missing"),
    [
        ({"a": 1, "b": {"x": {"c": 1}}, "f": [{"g": 1}]}, set(), set()),
        ({"a": 1, "b": {}, "f": []}, set(), set()),
        ({"a": 1, "b": {}, "f": [], "h": {"i": [{"j": 0}]}}, set(), set()),
        ({"a": 1, "b": {"x": {"c": 1, "d_1": 2, "e": 3}}, "f": []}, {"b.x.e"}, set()),
        ({"a": 1, "b": {"x": {}}, "f": [{"g": 1}, {"k": 1}]}, {"f[].k"}, {"b.<any>.c", "f[].g"}),
        ({"b": {}, "f": []}, set(), {"a"}),
        ({"a": {"l": 1}, "b": {}, "f": []}, {"a.l"}, set()),
    ],
)
def test_fields_that_are_new_or_missing_are_found(record, new, missing):
    assert undocumented(record, SECTION) == new
    assert absent(record, SECTION, stage=2) == missing
    assert absent(record, SECTION, stage=3) == {*missing, "later"}


def test_files_that_are_new_or_missing_are_found(tmp_path):
    section = Format({"<system>/cuts.json": 0, "wav/*": None})
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "cuts.json").write_text('{"a": 1}\n')
    check_folder(tmp_path, section)
    assert check_records(tmp_path / "one" / "cuts.json", Format({"a": 0, "b": 3}), stage=2) == 1
    with pytest.raises(AssertionError, match="not in formats.md"):
        check_records(tmp_path / "one" / "cuts.json", Format({"b": None}))
    (tmp_path / "wav" / "a").mkdir(parents=True)
    (tmp_path / "wav" / "a" / "b.wav").touch()
    check_folder(tmp_path, section)
    (tmp_path / "one" / "more.json").touch()
    with pytest.raises(AssertionError, match="more.json"):
        check_folder(tmp_path, section)
    (tmp_path / "one" / "more.json").rename(tmp_path / "wav" / "more.json")
    (tmp_path / "one" / "cuts.json").unlink()
    with pytest.raises(AssertionError, match="has no <system>/cuts.json"):
        check_folder(tmp_path, section)
    assert not matches("<system>/cuts.json", "a/b/cuts.json", "/")


def test_the_stage_0_of_the_page_makes_a_corpus(tmp_path):
    (code,) = re.findall(r"^```python\n(.*?)^```", TEXT, flags=re.M | re.S)
    (tmp_path / "prepare.py").write_text(code, encoding="utf-8")
    for split in ("train", "valid", "test"):
        folder = tmp_path / "mine" / split
        folder.mkdir(parents=True)
        noise = np.random.RandomState(ord(split[1])).randn(8000) * 0.1
        for name in (split, f"{split}-mute"):
            soundfile.write(folder / f"{name}.wav", noise, 8000)
        (folder / f"{split}.txt").write_text("w ah n\n", encoding="utf-8")
    data = tmp_path / "data"
    command = [sys.executable, "prepare.py", "--corpus", "mine", "--seed", "0"]
    done = subprocess.run(
        [*command, "--corpus-dir", "mine", "--data-dir", data],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "6 in = 3 done + 3 skipped" in done.stdout
    page = read_page(TEXT)
    files = {path.name for path in data.rglob("*") if path.is_file()}
    cuts = {f"cuts_{split}.jsonl.gz" for split in ("train", "valid", "test")}
    assert files == {*cuts, "corpus.json", "skipped.jsonl", RECORD}
    for name in cuts:
        assert check_records(data / "manifests" / name, page["Cuts"], stage=0) == 1
    check_records(data / "skipped.jsonl", page["skipped.jsonl"])
    assert json.loads((data / "corpus.json").read_text()) == page["corpus.json"].examples[0]
    counts = compute_fbank(data, StageReport(stage="1 fbank", folder=Path(data)))
    assert counts == {"train": 1, "valid": 1, "test": 1}
