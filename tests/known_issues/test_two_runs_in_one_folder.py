"""A second run in the same folder deleted the temporary files of the first, and wrote across it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import inspect
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from mlvae.lock import LOCK, FolderInUseError, folder_lock
from mlvae.stage import atomic_path, stage_folder
from tests.data.conftest import ROOT, load_script
from tests.left_overs import of_a_harder_kill
from tests.recipes.conftest import STAGES, scripts_find_each_other  # noqa: F401
from tests.score.experiments import SYSTEMS_FILE

HOLD = """
import sys, time
from pathlib import Path
from mlvae.stage import stage_folder
with stage_folder(sys.argv[2], Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def hold(folder, stage="4 train") -> subprocess.Popen:
    """Another process that works in a folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), stage],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    return process


def end(process, how=signal.SIGKILL):
    process.send_signal(how)
    process.wait()
    process.stdout.close()


def test_the_second_run_is_told_who_runs_and_a_kill_frees_the_folder(tmp_path, capsys):
    first = hold(tmp_path)
    try:
        with pytest.raises(FolderInUseError) as error, stage_folder("4 train", tmp_path):
            pytest.fail("this is the work")
        assert f"{tmp_path} is in use (stage 4 train on {socket.gethostname()}" in str(error.value)
        assert f"process {first.pid}, since 20" in str(error.value)
    finally:
        end(first)
    assert (tmp_path / LOCK).exists()
    with stage_folder("4 train", tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_readers_that_sign_at_once_are_all_named(tmp_path, monkeypatch):
    write = os.write
    with contextlib.ExitStack() as stack:

        def write_after_another(file, content):
            monkeypatch.setattr(os, "write", write)
            stack.enter_context(folder_lock(tmp_path, "reader 2", shared=True))
            return write(file, content)

        stack.enter_context(folder_lock(tmp_path, "reader 1", shared=True))
        monkeypatch.setattr(os, "write", write_after_another)
        stack.enter_context(folder_lock(tmp_path, "reader 3", shared=True))
        with pytest.raises(FolderInUseError) as error, folder_lock(tmp_path, "4 train"):
            pytest.fail("this is the work")
        assert all(f"reader {number} on" in str(error.value) for number in (1, 2, 3))


@pytest.mark.parametrize("number", list(STAGES))
def test_every_stage_refuses_a_folder_in_use(tmp_path, capsys, monkeypatch, number):
    data, exp = tmp_path / "data", tmp_path / "exp"
    for folder in (data, exp):
        folder.mkdir()
    if number == 6:
        monkeypatch.setattr("mlvae.score.experiment.find_systems", lambda *_: [])
        (data / "corpus.json").touch()
        (data / "reference.jsonl.gz").touch()
    words = ["--data-dir", data]
    words += ["--corpus-dir", tmp_path / "x", "--corpus", "fsdd"] if number == 0 else []
    words += ["--exp-dir", exp] if number >= 3 else []
    words += ["--config", SYSTEMS_FILE] if number >= 3 else []
    words += ["--device", "cpu"] if 3 <= number <= 5 else []
    words += ["--systems", "ml-vae"] if number in (4, 5) else []
    main = load_script(STAGES[number])
    # Stages that read the corpus wait for the one that rewrites it.
    for used in [data] if number < 3 else [data, exp]:
        with folder_lock(used, "0 prepare"):
            assert main([str(word) for word in words]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        program = STAGES[number].split("/")[-1]
        assert line.startswith(f"{program}: {used} is in use (stage 0 prepare on ")


def test_what_is_being_written_stays_and_what_a_kill_left_goes(tmp_path):
    with stage_folder("first", tmp_path), atomic_path(tmp_path / "model") as temporary:
        temporary.write_text("half")
        with pytest.raises(FolderInUseError), stage_folder("second", tmp_path):
            pytest.fail("this is the work")
        assert temporary.read_text() == "half"
    assert (tmp_path / "model").read_text() == "half"
    left_over = of_a_harder_kill(tmp_path)
    mine = tmp_path / ".tmp-1-model"
    mine.write_text("mine")
    with stage_folder("third", tmp_path):
        assert not left_over.exists()
    assert mine.read_text() == "mine"


def test_many_read_what_nobody_may_write(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    with stage_folder("3 align", tmp_path / "a", reads=[data]):
        refused = pytest.raises(FolderInUseError, match="stage 3 align.*; stage 5 localize")
        both = stage_folder("5 localize", tmp_path / "b", reads=[data])
        with both, refused, stage_folder("0 prepare", data):
            pytest.fail("this is the work")
        with pytest.raises(FolderInUseError), stage_folder("0 prepare", data):
            pytest.fail("this is the work")
    with stage_folder("0 prepare", data):
        pass
    assert list(data.iterdir()) == []


def test_readers_that_come_together_wait_for_each_other_to_sign(tmp_path):
    with (tmp_path / LOCK).open("w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)  # as a reader holds it for a moment
        threading.Timer(0.2, fcntl.flock, [first, fcntl.LOCK_SH]).start()
        with folder_lock(tmp_path, "5 localize", shared=True) as held:
            assert held


def test_one_folder_for_both(tmp_path):
    with stage_folder("3 align", tmp_path, reads=[tmp_path, tmp_path / "gone"]):
        assert not (tmp_path / "gone").exists()


def test_a_reader_of_a_folder_that_cannot_be_written_needs_no_lock(tmp_path, monkeypatch):
    def read_only(path, *args):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    with monkeypatch.context() as patch:
        patch.setattr("mlvae.lock.os.open", read_only)
        with folder_lock(tmp_path, "3 align", shared=True) as held:
            assert held
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks_gives_a_warning(tmp_path, monkeypatch, capsys):
    def no_locks(file, kind):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with stage_folder("4 train", tmp_path), atomic_path(tmp_path / "model") as temporary:
        temporary.write_text("")
    left_over = of_a_harder_kill(tmp_path)
    monkeypatch.setattr("mlvae.lock.fcntl.flock", no_locks)
    with stage_folder("4 train", tmp_path):
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"{tmp_path}: this file system has no locks")
        assert left_over.exists()  # it may be somebody's who is at work


def test_of_processes_that_train_together_the_first_alone_locks(tmp_path, monkeypatch):
    main = load_script("local/train.py")
    names = inspect.unwrap(main).__globals__
    monkeypatch.setitem(names, "train_systems", lambda options, device: 0)
    words = ["--data-dir", tmp_path, "--exp-dir", tmp_path / "exp", "--config", "x.yaml"]
    words = [str(word) for word in [*words, "--device", "cpu", "--systems", "ml-vae"]]
    (tmp_path / "exp").mkdir()
    with folder_lock(tmp_path / "exp", "4 train"):
        assert main(words) == 1
        monkeypatch.setattr("mlvae.train.distributed.is_main", lambda: False)
        assert main(words) == 0
