"""A disk that was full, or read-only, ended stages in a traceback, some of them after all the work;
safetensors, libsndfile and TensorBoard's writer raise errors of their own, which name no file.

The limit of a file's size plays the full disk: it holds for every user, root included.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mlvae import cli
from mlvae.corpora.digits.mismatch import build_mismatch_corpus
from mlvae.data.audio import write_wav
from mlvae.data.manifests import write_json, write_manifest
from mlvae.data.units import UnitTable
from mlvae.report.plots import draw_learning_curves
from mlvae.report.textgrid import write_textgrid
from mlvae.stage import stage_folder
from mlvae.train.loop import ScalarWriter, TrainingState, save_checkpoint, save_model
from tests.answering import Answering, make_cut
from tests.data.conftest import (  # noqa: F401
    corpus,
    digit_clips,
    digits,
    load_script,
    options,
)
from tests.recipes.conftest import STAGES, scripts_find_each_other  # noqa: F401
from tests.score.experiments import SYSTEMS_FILE


@contextlib.contextmanager
def full_disk(size=0):
    """Files cannot grow beyond a size in bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def checkpoint(path):
    net = torch.nn.Linear(40, 40)
    save_checkpoint(
        path, TrainingState({"net": net}, {"net": torch.optim.Adam(net.parameters())}, {})
    )


WRITERS = {
    "model.safetensors": lambda path: save_model(path, torch.nn.Linear(40, 40), {}),
    "checkpoint.safetensors": checkpoint,
    "cuts.jsonl.gz": lambda path: write_manifest(path, [make_cut("x")]),
    "corpus.json": lambda path: write_json(path, {"a": "b" * 900}),
    "tokens.txt": lambda path: UnitTable(tuple(map(str, range(300)))).save(path),
    "x.TextGrid": lambda path: write_textgrid(make_cut("x"), path, ["fa"]),
    "curves.png": lambda path: draw_learning_curves([{"loss": 1.0}], None, "", "", path),
}


@pytest.mark.parametrize("limit", [0, 200])
@pytest.mark.parametrize("name", list(WRITERS))
def test_a_file_that_cannot_be_written_is_named_and_nothing_is_left(tmp_path, name, limit):
    path = tmp_path / name
    path.write_text("of an earlier run")
    with full_disk(limit), pytest.raises(OSError) as error:
        WRITERS[name](path)
    assert str(error.value).startswith(f"{path} cannot be written: ")
    assert "File too large" in str(error.value)
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert path.read_text() == "of an earlier run"


def test_audio(tmp_path):
    with full_disk(100), pytest.raises(OSError, match="a.wav cannot be written: File too large"):
        write_wav(tmp_path / "a.wav", np.ones(8000), 8000)


def test_scalars_come_whole_or_not_at_all_without_a_traceback_of_a_thread(tmp_path, capfd):
    with ScalarWriter(tmp_path, purge_step=1) as scalars:
        scalars.add_scalar("loss", 0.5, 1)
        refused = pytest.raises(OSError, match="events.out.* cannot be written: ")
        with full_disk(scalars.path.stat().st_size + 5), refused:
            scalars.add_scalar("loss", 0.25, 2)
        scalars.add_scalar("loss", 0.125, 3)
    assert capfd.readouterr().err == ""
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(1, 0.5), (3, 0.125)]


def command(number, folder):
    words = ["--data-dir", folder / "data"]
    if number == 0:
        words += ["--corpus", "fsdd", "--corpus-dir", folder / "recordings"]
    if number >= 3:
        words += ["--exp-dir", folder / "exp"]
        words += ["--config", SYSTEMS_FILE]
    if 3 <= number <= 5:
        words += ["--device", "cpu"]
    if number in (4, 5):
        words += ["--systems", "ml-vae"]
    return [str(word) for word in words]


PROGRAMS = {number: path.split("/")[-1] for number, path in STAGES.items()}


def run(number, folder, capsys) -> str:
    """The one line that a stage says."""
    assert load_script(STAGES[number])(command(number, folder)) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{PROGRAMS[number]}: {folder}")
    return line


@pytest.fixture
def experiment(tmp_path, monkeypatch):
    """As far as stage 6 looks before it writes; the stages before look at nothing first."""
    (tmp_path / "data").mkdir()
    (tmp_path / "exp").mkdir()
    return tmp_path


def before_any_work(monkeypatch, number):
    """Stage 6 reads first which systems there are."""
    if number == 6:
        monkeypatch.setattr("mlvae.score.experiment.find_systems", lambda *_: [])
        monkeypatch.setattr("mlvae.score.experiment.Path.exists", lambda path: True)


@pytest.mark.parametrize("number", list(STAGES))
def test_every_stage_says_before_the_work_that_the_disk_is_full(
    experiment, capsys, monkeypatch, number
):
    before_any_work(monkeypatch, number)
    with full_disk():
        line = run(number, experiment, capsys)
    assert line.endswith("cannot be written: File too large")
    assert list(experiment.rglob("*.*")) == []


@pytest.mark.parametrize("number", list(STAGES))
def test_every_stage_says_before_the_work_that_the_folder_is_read_only(
    experiment, capsys, monkeypatch, number
):
    before_any_work(monkeypatch, number)
    open_file = os.open

    def read_only(path, flags, *mode, **options):
        if flags & os.O_CREAT and str(path).startswith(str(experiment)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return open_file(path, flags, *mode, **options)

    monkeypatch.setattr("mlvae.lock.os.open", read_only)
    assert run(number, experiment, capsys).endswith("cannot be written: Read-only file system")


@pytest.mark.parametrize(
    ("disk", "reason"),
    [
        ({"f_bavail": 0, "f_bfree": 0}, os.strerror(errno.ENOSPC)),
        ({"f_ffree": 0}, os.strerror(errno.ENOSPC)),
    ],
)
def test_no_space_at_all_is_known_at_the_start(tmp_path, monkeypatch, disk, reason):
    room = {"f_blocks": 9, "f_bfree": 9, "f_bavail": 9, "f_files": 9, "f_ffree": 9, **disk}
    monkeypatch.setattr("mlvae.stage.os.statvfs", lambda path: SimpleNamespace(**room))
    refused = pytest.raises(OSError, match=f"exp cannot be written: {reason}")
    with refused, stage_folder("test", tmp_path / "exp"):
        pytest.fail("this is the work")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_a_folder(tmp_path):
    (tmp_path / "exp").write_text("mine")
    for folder, outputs in (("exp", []), ("exp/fa", []), ("", [tmp_path / "exp" / "cuts.txt"])):
        refused = pytest.raises(OSError, match=r"exp.* cannot be written: .*exp is not a folder")
        with refused, stage_folder("test", tmp_path / folder, outputs):
            pytest.fail("this is the work")
    assert [path.name for path in tmp_path.iterdir()] == ["exp"]


@pytest.mark.parametrize("number", [0, 1])
def test_a_disk_that_is_full_in_the_middle_of_the_work(
    digits,  # noqa: F811
    digit_clips,  # noqa: F811
    tmp_path,
    capsys,
    number,
):
    (tmp_path / "recordings").symlink_to(digits)
    if number:
        build_mismatch_corpus(digit_clips, tmp_path / "data", options(5))
    with full_disk(9000):
        assert (
            load_script(STAGES[number])(
                [*command(number, tmp_path), *(["--num-utterances", "10"] if number == 0 else [])]
            )
            == 1
        )
    (*_, line) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{PROGRAMS[number]}: {tmp_path / 'data'}")
    assert line.endswith("cannot be written: File too large")
    made = "feats_*" if number else "*.wav"
    assert list(tmp_path.glob(f"data/**/{made}")) == []
    assert not list(tmp_path.rglob(".mlvae-tmp-*"))


def test_stage_5_in_the_middle_of_the_work(tmp_path, capsys):
    stage = Answering(tmp_path, ["test00", "test01"])
    with contextlib.ExitStack() as stack:
        stage.meanwhile = lambda: stack.enter_context(full_disk(500))
        assert stage() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"localize.py: {stage.exp}") and "File too large" in line
    assert not list(stage.exp.rglob("*.TextGrid"))
    stage.meanwhile = lambda: None
    assert stage() == 0


def test_the_command_that_draws(tmp_path, capsys):
    pytest.importorskip("pygraphviz", reason="pygraphviz is not installed")
    svg = tmp_path / "graph.svg"
    with full_disk(200):
        assert cli.main(["graph", "--units", "n aa t", "--svg", str(svg)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"mlvae: error: {svg} cannot be written")
    assert list(tmp_path.iterdir()) == []
