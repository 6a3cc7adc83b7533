"""A skipped file whose name is not UTF-8, or holds a line separator of Unicode, broke off the
stage at its very end, or the next stage of the folder when that read ``skipped.jsonl``.
"""

from __future__ import annotations

import json

import pytest

from mlvae.stage import StageReport


@pytest.mark.parametrize(
    "name", ["caf\udce9.wav", "a\u2028b.wav", "a\x85b.wav", "\u0142\u00f3d\u017a.wav"]
)
def test_any_name_of_a_file_can_be_skipped(tmp_path, name):
    first = StageReport("0 prepare", tmp_path)
    first.done()
    first.skip(name, "not readable as audio", place=f"wav/{name}")
    assert first.finish() == 0
    for _ in range(2):
        second = StageReport("1 fbank", tmp_path)
        second.done()
        second.skip("utt2", "too short")
        assert second.finish() == 0
    lines = (tmp_path / "skipped.jsonl").read_text(encoding="utf-8").split("\n")
    assert [json.loads(line)["id"] for line in lines if line] == [name, "utt2"]
