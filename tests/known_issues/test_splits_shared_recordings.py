"""Train, valid and test were never compared: a recording in two of them, under two names even, went
through, and what was learned by heart was scored.
"""

from __future__ import annotations

import shutil

import pytest
from lhotse.utils import fastcopy

from tests.data.conftest import load_script
from tests.data.small import noise_cut, small_cuts, stage_1, write_corpus

fbank = load_script("local/fbank.py")


def corpus_with(tmp_path, cut):
    """A corpus whose training part has one cut more."""
    cuts = small_cuts(tmp_path / "wav")
    cuts["train"].append(cut)
    return write_corpus(tmp_path / "corpus", cuts)


def linked(tmp_path):
    cut = noise_cut(tmp_path / "wav", "test0")
    (tmp_path / "wav" / "other.wav").symlink_to(tmp_path / "wav" / "test0.wav")
    cut.recording.sources[0].source = str(tmp_path / "wav" / "other.wav")
    return fastcopy(cut, id="other")


def copied(tmp_path):
    cut = noise_cut(tmp_path / "wav", "other")
    noise_cut(tmp_path / "wav", "test0")
    shutil.copy(tmp_path / "wav" / "test0.wav", tmp_path / "wav" / "other.wav")
    return cut


@pytest.mark.parametrize(
    ("make", "what"), [(linked, "recordings"), (copied, "cuts with the same audio")]
)
def test_a_shared_recording_stops_the_stage_unless_it_is_allowed(tmp_path, capsys, make, what):
    corpus = corpus_with(tmp_path, make(tmp_path))
    assert fbank(["--data-dir", str(corpus)]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"fbank.py: {what} in several of train, valid and test")
    assert "other (train) and test0 (test)" in error and "--allow-shared-recordings" in error
    assert list((corpus / "fbank").glob("*")) == []
    assert fbank(["--data-dir", str(corpus), "--allow-shared-recordings", "true"]) == 0
    assert "7 in = 7 done + 0 skipped" in capsys.readouterr().out


def test_shared_speakers_are_one_line_of_warning(tmp_path, capsys):
    cuts = small_cuts(tmp_path / "wav", speaker="ann")
    cuts["train"].append(noise_cut(tmp_path / "wav", "more", speaker="bob"))
    counts, _ = stage_1(write_corpus(tmp_path / "corpus", cuts))
    assert counts == {"train": 3, "valid": 2, "test": 2}
    said = capsys.readouterr().out.splitlines()
    (warning,) = [line for line in said if "warning" in line]
    assert "speakers in several of train, valid and test: ann (train, valid, test)" in warning


def test_cuts_of_one_recording_within_a_split_are_no_fault(tmp_path):
    cut = noise_cut(tmp_path / "wav", "train0")
    counts, _ = stage_1(corpus_with(tmp_path, fastcopy(cut, id="again")))
    assert counts["train"] == 3
