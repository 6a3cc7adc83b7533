"""A manifest that was cut off, or had a line that is no cut, ended in an error of gzip, json or
lhotse that named neither the file nor the line.
"""

from __future__ import annotations

import gzip

import pytest

from mlvae.data.dataset import load_cuts
from tests.data.conftest import load_script
from tests.data.small import small_cuts, write_corpus

fbank = load_script("local/fbank.py")


def cut_off(path):
    path.write_bytes(path.read_bytes()[:-30])


def no_gzip(path):
    path.write_bytes(b"rubbish" * 100)


def with_line(content: bytes):
    def change(path):
        lines = gzip.decompress(path.read_bytes()).splitlines()
        path.write_bytes(gzip.compress(b"\n".join([lines[0], content, *lines[1:]])))

    return change


BROKEN = [
    (cut_off, "cuts_valid.jsonl.gz is damaged or cannot be read"),
    (no_gzip, "cuts_valid.jsonl.gz is damaged: it is no gzip file"),
    (with_line(b'{"id": "a", '), "cuts_valid.jsonl.gz, line 2: not JSON"),
    (with_line(b'"a"'), "line 2: a JSON object is expected, not str"),
    (with_line(b"[" * 100000), "line 2: not JSON"),
    (with_line('{"id": "ä"}'.encode("latin-1")), "line 2: not JSON in UTF-8"),
    (with_line(b'{"id": "a", "sources": []}'), "line 2: not a cut of lhotse"),
    (with_line(b'{"id": "a", "type": "Song"}'), "line 2: not a cut of lhotse"),
]


@pytest.mark.parametrize(("damage", "message"), BROKEN)
def test_file_and_line_are_named_in_one_line(tmp_path, capsys, damage, message):
    corpus = write_corpus(tmp_path / "corpus", small_cuts(tmp_path / "wav"))
    path = corpus / "manifests" / "cuts_valid.jsonl.gz"
    damage(path)
    assert fbank(["--data-dir", str(corpus)]) == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert message in error and str(corpus) in error
    with pytest.raises(ValueError, match="cuts_valid.jsonl.gz"):
        load_cuts(path)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"sampling_rate": "16k"}'])
def test_a_corpus_without_a_rate_is_named(tmp_path, capsys, content):
    corpus = write_corpus(tmp_path / "corpus", small_cuts(tmp_path / "wav"))
    (corpus / "corpus.json").write_text(content)
    assert fbank(["--data-dir", str(corpus)]) == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert "corpus.json" in error and "sampling_rate" in error
