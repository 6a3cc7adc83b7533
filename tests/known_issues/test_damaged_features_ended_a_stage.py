"""Features that were damaged on the disk ended the stage that read them with an error that named no
cut, or were taken for others.
"""

from __future__ import annotations

import pytest

from mlvae.data.audio import write_wav
from mlvae.data.dataset import FeaturesError, UnitDataset, load_cuts, load_features, usable_cuts
from mlvae.data.units import UnitTable
from mlvae.stage import StageReport
from tests.data.small import RATE, noise, small_cuts, stage_1, write_corpus

TABLE = UnitTable(("a", "b"))


@pytest.fixture
def corpus(tmp_path):
    folder = write_corpus(tmp_path / "corpus", small_cuts(tmp_path / "wav", count=3))
    stage_1(folder)
    return folder


def cuts_of(corpus):
    return load_cuts(corpus / "fbank" / "cuts_train.jsonl.gz")


def usable(corpus):
    report = StageReport("3 align", corpus)
    kept = usable_cuts(cuts_of(corpus), TABLE, report)
    return [cut.id for cut in kept], {record["id"]: record["reason"] for record in report.skipped}


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-20])


def changed(path):
    content = bytearray(path.read_bytes())
    content[-5] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [cut_short, changed])
def test_they_are_skipped_by_name_and_the_rest_goes_on(corpus, damage):
    assert usable(corpus) == (["train0", "train1", "train2"], {})
    damage(corpus / "fbank" / "feats_train.lca")
    kept, skipped = usable(corpus)
    assert kept == ["train0", "train1"]
    assert "stage 1" in skipped["train2"] and "train2: its features" in skipped["train2"]
    with pytest.raises(FeaturesError, match="train2: its features .* stage 1"):
        UnitDataset(TABLE)[list(cuts_of(corpus))[2:]]


def test_a_file_that_is_gone_is_named_with_each_cut(corpus):
    (corpus / "fbank" / "feats_train.lca").unlink()
    kept, skipped = usable(corpus)
    assert kept == [] and len(skipped) == 3
    assert "they cannot be read" in skipped["train0"] and "stage 1" in skipped["train0"]


def test_features_of_another_run_of_stage_1_are_not_taken_for_those_of_the_manifest(
    corpus, tmp_path
):
    before = list(cuts_of(corpus))
    # As many frames at the same place of the file.
    write_wav(tmp_path / "wav" / "train0.wav", noise("another"), RATE)
    stage_1(corpus)
    after = list(cuts_of(corpus))
    assert before[0].custom["audio_digest"] != after[0].custom["audio_digest"]
    with pytest.raises(FeaturesError, match="train0: its features .*run the stages from stage 1"):
        load_features(before[0])
    load_features(after[0])


def test_stage_1_makes_them_again(corpus):
    path = corpus / "fbank" / "feats_train.lca"
    whole = path.read_bytes()
    cut_short(path)
    stage_1(corpus)
    assert path.read_bytes() == whole
    assert usable(corpus)[1] == {}
