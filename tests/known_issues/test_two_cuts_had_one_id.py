"""Two cuts of one id, from files of one name in two speakers' folders: the features and the
alignment of one were given to the other ("4 done"), in one split or across splits.
"""

from __future__ import annotations

import pytest
from lhotse.utils import fastcopy

from mlvae.data.dataset import load_cuts
from mlvae.data.manifests import write_manifest
from tests.data.small import noise_cut, small_cuts, stage_1, write_corpus


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_the_second_cut_is_skipped_and_both_recordings_are_named(tmp_path, split):
    cuts = small_cuts(tmp_path / "ann")
    cuts[split].append(noise_cut(tmp_path / "bob", "train0"))
    corpus = write_corpus(tmp_path / "corpus", cuts)
    counts, skipped = stage_1(corpus)
    assert counts == {"train": 2, "valid": 2, "test": 2}
    record = skipped["train0"]
    assert record["source"].endswith(f"cuts_{split}.jsonl.gz, line 3")
    for named in (f"{tmp_path}/ann/train0.wav", f"{tmp_path}/bob/train0.wav", "line 1"):
        assert named in record["reason"]
    first = load_cuts(corpus / "fbank" / "cuts_train.jsonl.gz")[0]
    assert first.recording.sources[0].source == f"{tmp_path}/ann/train0.wav"


def test_later_stages_refuse_such_manifests(tmp_path):
    cut = noise_cut(tmp_path, "a")
    path = tmp_path / "cuts.jsonl.gz"
    write_manifest(path, [cut, fastcopy(cut, id="b"), cut])
    with pytest.raises(ValueError, match="cuts.jsonl.gz, line 3: the cut of line 1 has the id 'a'"):
        load_cuts(path)
