from __future__ import annotations

from benchmarks.report import repeat
from mlvae.data.manifests import manifest_lines
from tests.report.conftest import answered, write_answers


def test_answers_are_repeated_under_new_ids(tmp_path):
    cuts = [answered(tmp_path, name) for name in ("one", "two")]
    answers = write_answers(tmp_path / "answers" / "cuts.jsonl.gz", cuts)
    folder = repeat(answers, tmp_path / "more", 5)
    lines = [line for _, line in manifest_lines(folder / "cuts.jsonl.gz")]
    assert [line["id"] for line in lines] == ["one-000", "two-000", "one-001", "two-001", "one-002"]
    assert lines[4] | {"id": "one"} == lines[0] | {"id": "one"}
