"""Where the folder to be made was a link (to a larger disk), all was spoken, could not be put in
its place, and was removed. And no utterances at all meant the default number of them.
"""

from __future__ import annotations

import shutil

import pytest

from mlvae.corpora.digits import espeak
from mlvae.corpora.digits.mismatch import build_mismatch_corpus
from mlvae.corpora.simulate import build as simulate
from mlvae.made import RECORD
from tests.data.conftest import digit_clips, digits, load_script, options  # noqa: F401


@pytest.fixture
def linked(tmp_path):
    """A link to a folder on what may be another disk."""
    (tmp_path / "disk" / "some").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "some")
    return tmp_path / "link"


def test_simulated_corpus(linked, monkeypatch):
    def spoken(plan, folder, seed, num_jobs):
        (folder / "ABA").mkdir()
        return {"counts": {"utterances": 1}, "skipped": []}

    monkeypatch.setattr(simulate.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(simulate, "_build", spoken)
    for seed in (0, 1):
        simulate.simulate_l2arctic(linked, 1, seed=seed)
        assert linked.is_symlink()
        assert {path.name for path in linked.iterdir()} == {"ABA", "simulated.json", RECORD}
        assert [path.name for path in linked.resolve().parent.iterdir()] == ["some"]


def test_synthetic_clips(linked, monkeypatch):
    monkeypatch.setattr(espeak.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(espeak, "_run", lambda work: None)
    for seed in (0, 1):
        espeak.synthesize_clips(linked, seed=seed, num_jobs=1)
        assert linked.is_symlink()
        assert {path.name for path in linked.iterdir()} == {"synthesis.json", RECORD}


def test_joined_clips(linked, digit_clips, tmp_path):  # noqa: F811
    (tmp_path / "data").mkdir()
    shutil.move(linked, tmp_path / "data" / "wav")
    for seed in (0, 1):
        build_mismatch_corpus(digit_clips, tmp_path / "data", options(5, seed=seed))
        assert (tmp_path / "data" / "wav").is_symlink()
        assert len(list((tmp_path / "disk" / "some").glob("*/*.wav"))) == 5


def test_no_utterances_are_not_the_default_number(tmp_path, monkeypatch, capsys):
    asked = []

    def refuse(folder, num_utterances, seed):
        asked.append(num_utterances)
        raise ValueError("so few")

    monkeypatch.setattr(simulate, "simulate_l2arctic", refuse)
    prepare = load_script("recipes/l2arctic/prepare.py")
    with pytest.raises(SystemExit):
        prepare(["--data-dir", str(tmp_path), "--num-utterances", "0"])
    assert asked == []
    assert prepare(["--data-dir", str(tmp_path)]) == 1
    assert asked == [simulate.DEFAULT_SIZE]
