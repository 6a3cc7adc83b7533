"""Without the right to read it, one recording ended stage 1, one folder in the root of L2-ARCTIC
(``lost+found``) stage 0, and a speaker's folder of AudioMNIST was passed over in silence.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mlvae.corpora.digits.audiomnist import prepare_audiomnist
from mlvae.corpora.l2arctic.files import list_corpus
from mlvae.data import audio
from mlvae.data.features import compute_fbank
from mlvae.stage import StageReport
from tests.corpora.digits.test_clips import write_audiomnist
from tests.corpora.l2arctic.tree import write_tidy
from tests.data.conftest import corpus, digit_clips, digits  # noqa: F401


@pytest.fixture
def forbid(monkeypatch):
    """Whoever lists or opens what lies in (or is) a given path gets a PermissionError.

    Tests may be run by root, whom no mode keeps out.
    """
    forbidden: list[Path] = []

    def guarded(function):
        def call(path, *args, **kwargs):
            if any(one == Path(path) or one in Path(path).parents for one in forbidden):
                raise PermissionError(13, "Permission denied", str(path))
            return function(path, *args, **kwargs)

        return call

    for name in ("iterdir", "open"):
        monkeypatch.setattr(Path, name, guarded(getattr(Path, name)))
    is_dir = Path.is_dir
    monkeypatch.setattr(  # only of what lies inside
        Path, "is_dir", lambda path: is_dir(path) if path in forbidden else guarded(is_dir)(path)
    )
    return forbidden.append


def test_a_recording(corpus, forbid):  # noqa: F811
    forbid(next(corpus.glob("wav/*/*.wav")))
    report = StageReport("1 fbank", corpus)
    compute_fbank(corpus, report)
    assert report.num_done == 59
    assert [record["reason"] for record in report.skipped] == ["cannot be read: Permission denied"]


def test_the_reason_does_not_repeat_the_file(tmp_path, forbid):
    path = tmp_path / "some.wav"
    audio.write_wav(path, audio.np.ones(100), 8000)
    forbid(path)
    with pytest.raises(audio.AudioError, match="^cannot be read: Permission denied$"):
        audio.audio_info(path)


@pytest.mark.parametrize("name", ["lost+found", "HJK", "suitcase_corpus"])
def test_a_folder_of_l2arctic(tmp_path, forbid, name):
    root = write_tidy(tmp_path / "l2arctic")
    (root / name).mkdir(exist_ok=True)
    forbid(root / name)
    report = StageReport("0 prepare", tmp_path)
    utterances = list_corpus(root, report).utterances
    assert {files.speaker for files in utterances} == {"ABA", "HJK", "NJS"} - {name}
    assert [(record["id"], record["source"]) for record in report.skipped] == [
        (name, str(root / name))
    ]


def test_a_folder_of_audiomnist(tmp_path, forbid):
    folder = write_audiomnist(tmp_path / "AudioMNIST", ["01", "12"])
    forbid(folder / "data" / "12")
    report = StageReport("0 prepare", tmp_path)
    assert len(prepare_audiomnist(folder, report)["recordings"]) == 20
    assert [record["id"] for record in report.skipped] == ["12"]
