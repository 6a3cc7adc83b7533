"""Stage 0 deleted folders by their place and name: recordings that lay in ``data/fsdd/wav`` were
removed, all of them, to make room for those of the corpus, and the exit status was 0. What was in
``clips``, in a folder for downloads or behind a link went the same way.
"""

from __future__ import annotations

import shutil

import pytest

from mlvae.corpora.digits import espeak, fsdd
from mlvae.corpora.digits.mismatch import build_mismatch_corpus
from mlvae.made import check_apart
from tests.data.conftest import digit_clips, digits, load_script, options  # noqa: F401

prepare = load_script("recipes/audiomnist/prepare.py")


def content(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*.wav"))}


def run(corpus_dir, data_dir) -> int:
    command = ["--corpus", "fsdd", "--corpus-dir", corpus_dir, "--data-dir", data_dir]
    return prepare([*map(str, command), "--num-utterances", "10"])


@pytest.mark.parametrize("source", ["data/wav", "data", "", "data/wav/recordings"])
@pytest.mark.parametrize("through_a_link", [False, True])
def test_recordings_where_something_is_to_be_written(
    digits,  # noqa: F811
    tmp_path,
    capsys,
    source,
    through_a_link,
):
    corpus, data = tmp_path / "own" / source, tmp_path / "own" / "data"
    shutil.copytree(digits, corpus)
    if through_a_link:
        (tmp_path / "link").symlink_to(corpus)
        corpus = tmp_path / "link"
    before = content(tmp_path)
    assert run(corpus, data) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"prepare.py: the recordings in {corpus} and what is to be written to")
    assert content(tmp_path) == before


@pytest.mark.parametrize("link", [False, True])
def test_somebodys_files_in_the_place_of_what_is_made(digits, tmp_path, capsys, link):  # noqa: F811
    data, precious = tmp_path / "data", tmp_path / "precious"
    (precious / "tapes").mkdir(parents=True)
    (precious / "tapes" / "mine.wav").write_bytes(b"mine")
    data.mkdir()
    if link:
        (data / "wav").symlink_to(precious)
    else:
        shutil.copytree(precious, data / "wav")
    assert run(digits, data) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert str(data / "wav" / "tapes" / "mine.wav") in line and "in the way" in line
    assert (data / "wav" / "tapes" / "mine.wav").read_bytes() == b"mine"
    assert (precious / "tapes" / "mine.wav").read_bytes() == b"mine"
    assert sorted(path.name for path in data.iterdir()) == ["wav"]


@pytest.mark.parametrize("change", ["another file", "another content", "a link"])
def test_what_was_changed_in_a_corpus_is_not_replaced(digit_clips, tmp_path, change):  # noqa: F811
    data = tmp_path / "data"
    build_mismatch_corpus(digit_clips, data, options(5))
    theirs = sorted((data / "wav").glob("*/*.wav"))[0]
    if change == "another file":
        theirs = theirs.with_name("take2.wav")
    if change == "a link":
        (tmp_path / "elsewhere.wav").write_bytes(b"mine")
        theirs.unlink()
        theirs.symlink_to(tmp_path / "elsewhere.wav")
    else:
        theirs.write_bytes(b"mine")
    before = content(data)
    with pytest.raises(ValueError, match=f"{theirs.name}: in the way"):
        build_mismatch_corpus(digit_clips, data, options(6))
    assert content(data) == before
    theirs.unlink()
    build_mismatch_corpus(digit_clips, data, options(6))
    assert len(content(data)) == 6


def test_a_link_within_the_folder_is_not_followed(digit_clips, tmp_path):  # noqa: F811
    build_mismatch_corpus(digit_clips, tmp_path / "data", options(5))
    shutil.move(tmp_path / "data" / "wav" / "ann", tmp_path / "moved")
    (tmp_path / "data" / "wav" / "ann").symlink_to(tmp_path / "moved")
    before = content(tmp_path / "moved")
    with pytest.raises(ValueError, match="ann: in the way"):
        build_mismatch_corpus(digit_clips, tmp_path / "data", options(6))
    assert content(tmp_path / "moved") == before != {}


def test_own_files_among_synthetic_clips_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(espeak.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(espeak, "_run", lambda work: None)
    clips = tmp_path / "clips"
    espeak.synthesize_clips(clips, seed=0, num_jobs=1)
    (clips / "mine.wav").write_bytes(b"mine")
    with pytest.raises(ValueError, match="mine.wav: in the way"):
        espeak.synthesize_clips(clips, seed=1, num_jobs=1)
    assert (clips / "mine.wav").read_bytes() == b"mine"


def test_an_archive_that_somebody_has_downloaded_stays(tmp_path, monkeypatch):
    mine = tmp_path / "free-spoken-digit-dataset.tar.gz"
    mine.write_bytes(b"mine")
    monkeypatch.setattr(fsdd, "FSDD_URL", (tmp_path / "gone.tar.gz").as_uri())
    with pytest.raises(OSError, match="failed"):
        fsdd.download_fsdd(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [mine.name]
    assert mine.read_bytes() == b"mine"


def test_folders_beside_each_other_are_apart(tmp_path):
    check_apart(tmp_path / "speech", tmp_path / "speech2", tmp_path / "data")
    check_apart(tmp_path / "data" / "download", tmp_path / "data" / "wav")
