"""A skipped file whose name is no UTF-8 ended the stage when it wrote ``skipped.jsonl``, and one
whose name holds a line separator ended every later stage when it read that file.
"""

from __future__ import annotations

import json
import os

import pytest

from mlvae.stage import StageReport


@pytest.mark.parametrize("name", [os.fsdecode(b"notes\xe9.txt"), "a\u2028b.txt", "a\x85b.txt"])
def test_any_name_of_a_file_can_be_skipped(tmp_path, name):
    for stage in ("0 prepare", "1 fbank", "1 fbank"):
        report = StageReport(stage=stage, folder=tmp_path)
        report.done()
        report.skip(name, "no file of an utterance", place=f"wav/{name}")
        assert report.finish() == 0
    lines = (tmp_path / "skipped.jsonl").read_bytes().decode("utf-8").split("\n")
    records = [json.loads(line) for line in lines if line]
    assert [(record["stage"], record["id"]) for record in records] == [
        ("0 prepare", name),
        ("1 fbank", name),
    ]
