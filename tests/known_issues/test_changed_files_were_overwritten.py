"""Files that a person had changed were overwritten, or deleted, by the next run of their stage: a
unit table, a list of unknown words that had become a lexicon, a picture beside RESULTS.md (for that
see tests/recipes/test_results.py).
"""

from __future__ import annotations

import contextlib
import hashlib

import pytest

from mlvae.corpora.l2arctic import prepare as l2arctic
from mlvae.data.text import list_unknown_words
from mlvae.made import InTheWayError, Record, remove_made
from mlvae.stage import atomic_path, stage_folder
from tests.data.conftest import corpus, digit_clips, digits, load_script  # noqa: F401


def test_a_unit_table_that_was_changed(corpus, capsys):  # noqa: F811
    for path in ("local/fbank.py", "local/units.py"):
        assert load_script(path)(["--data-dir", str(corpus)]) == 0
    table = corpus / "units" / "tokens.txt"
    table.write_text("mine 0\n")
    capsys.readouterr()
    assert load_script("local/units.py")(["--data-dir", str(corpus)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"units.py: {table}: in the way")
    assert table.read_text() == "mine 0\n"
    table.unlink()
    assert load_script("local/units.py")(["--data-dir", str(corpus)]) == 0


def test_unknown_words_that_became_a_lexicon(tmp_path):
    Record.begin(tmp_path)
    said = ["zebu", "yak"], tmp_path, False, "transcripts", "utterances"
    assert "(also in " in list_unknown_words(*said)
    path = tmp_path / "unknown_words.txt"
    path.write_text("yak y ae k\nzebu z iy b uw\n")
    assert "also in" not in list_unknown_words(*said)
    l2arctic._write(tmp_path, l2arctic._Corpus(), l2arctic.CorpusOptions(title="x"), {})
    assert path.read_text() == "yak y ae k\nzebu z iy b uw\n"


def write(path, text):
    with atomic_path(path) as temporary:
        temporary.write_text(text)


@pytest.mark.parametrize("kind", ["file", "link", "link to nothing", "folder"])
def test_whatever_lies_in_the_place_of_a_file_stays(tmp_path, kind):
    with stage_folder("test", tmp_path / "exp"):
        write(tmp_path / "exp" / "other", "made")
    place, mine = tmp_path / "exp" / "table.txt", tmp_path / "mine.txt"
    mine.write_text("mine")
    if kind == "file":
        place.write_text("mine")
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to(mine if kind == "link" else tmp_path / "gone")
    for replace in (lambda: write(place, "new"), lambda: remove_made(place)):
        with pytest.raises(InTheWayError, match="table.txt: in the way"):
            replace()
    with pytest.raises(InTheWayError), stage_folder("test", tmp_path / "exp", [place]):
        pytest.fail("this is the work")
    assert mine.read_text() == "mine"
    assert {path.name for path in (tmp_path / "exp").glob("[!.]*")} == {"other", "table.txt"}


def test_a_kill_at_any_moment_leaves_what_is_known_as_ours(tmp_path, monkeypatch):
    """Between the line of the record and the file: whichever is there, old or new, is ours."""
    path = tmp_path / "table.txt"
    with stage_folder("test", tmp_path):
        write(path, "old")

        def dies(source, target):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            patch.setattr("mlvae.made.os.replace", dies)
            write(path, "new")
        assert path.read_text() == "old"
        assert Record(tmp_path).is_ours(path)
        with open(tmp_path / ".mlvae-made.jsonl", "a") as file:
            file.write('{"path": "half')
        write(path, "newer")
        write(tmp_path / "another.txt", "new")
    record = Record(tmp_path)
    assert record.is_ours(path) and record.is_ours(tmp_path / "another.txt")


def test_a_record_says_nothing_about_other_folders(tmp_path):
    (tmp_path / "mine").write_text("")
    folder = tmp_path / "exp"
    record = Record.begin(folder)
    empty = f'"size": 0, "sha256": "{hashlib.sha256().hexdigest()}"'
    lines = [f'{{"path": "../mine", {empty}}}', f'{{"path": "{tmp_path}/mine", {empty}}}']
    record.path.write_text("\n".join([*lines, '{"scratch": "../mine"}', ""]))
    record = Record(folder)
    assert record.names() == []
    record.remove_left_overs()
    assert (tmp_path / "mine").exists()
