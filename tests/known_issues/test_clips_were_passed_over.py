"""Clips named ``.WAV`` were neither used nor counted. AudioMNIST without a usable clip, or with a
list for its table of speakers, ended in a traceback; a 61st speaker's clips were said to lie in the
wrong folder.
"""

from __future__ import annotations

import pytest

from mlvae.corpora.digits.audiomnist import prepare_audiomnist
from mlvae.corpora.digits.fsdd import prepare_fsdd
from mlvae.stage import StageReport
from tests.corpora.digits.test_clips import write_audiomnist
from tests.data.conftest import write_digits


def test_capital_letters_in_fsdd(tmp_path):
    folder = write_digits(tmp_path / "recordings", speakers=["ann"], indexes=range(2))
    for name in ("0_ann_0", "1_ann_0"):
        (folder / f"{name}.wav").rename(folder / f"{name}.WAV")
    (folder / "1_ann_0.wav").write_bytes((folder / "1_ann_0.WAV").read_bytes())
    report = StageReport("0 prepare", tmp_path)
    pair = prepare_fsdd(folder, report)
    assert len(pair["recordings"]) == report.num_done == 20
    assert [record["source"] for record in report.skipped] == [str(folder / "1_ann_0.WAV")]
    assert pair["recordings"]["0_ann_0"].sources[0].source == str(folder / "0_ann_0.WAV")


def test_capital_letters_and_a_61st_speaker_in_audiomnist(tmp_path):
    folder = write_audiomnist(tmp_path / "AudioMNIST", ["01", "61"], indexes=[0])
    clip = folder / "data" / "01" / "0_01_0.wav"
    clip.rename(clip.with_suffix(".WAV"))
    report = StageReport("0 prepare", tmp_path)
    pair = prepare_audiomnist(folder, report)
    assert pair["recordings"]["0_01_0"].sources[0].source == str(clip.with_suffix(".WAV"))
    assert report.num_done == 10
    assert {record["reason"] for record in report.skipped} == {"no speaker of the corpus: 61"}


def test_audiomnist_without_a_usable_clip(tmp_path):
    folder = write_audiomnist(tmp_path / "AudioMNIST", ["01"], indexes=[0])
    for path in folder.glob("data/01/*.wav"):
        path.write_bytes(b"")
    report = StageReport("0 prepare", tmp_path)
    with pytest.raises(ValueError, match="no clip in .* can be used"):
        prepare_audiomnist(folder, report)
    assert len(report.skipped) == 10


@pytest.mark.parametrize("content", ["[{}]", "null", "3"])
def test_a_table_of_speakers_that_is_none(tmp_path, content):
    folder = write_audiomnist(tmp_path / "AudioMNIST", [])
    (folder / "data" / "audioMNIST_meta.txt").write_text(content)
    with pytest.raises(ValueError, match="audioMNIST_meta.txt: not a table of speakers"):
        prepare_audiomnist(folder, StageReport("0 prepare", tmp_path))
