"""lhotse reads a manifest without a line as None; the stage after one that lost a split broke off
with an AttributeError instead of saying so, and scoring with a TypeError where a system had no
answer at all.
"""

from __future__ import annotations

import pytest
from lhotse import CutSet

from mlvae.config import System
from mlvae.data.dataset import load_cuts
from mlvae.data.manifests import write_manifest
from mlvae.score.experiment import cuts_path, read_cuts
from mlvae.score.reference import read_reference


def test_lhotse_gives_none(tmp_path):
    write_manifest(tmp_path / "cuts.jsonl.gz", [])
    assert CutSet.from_file(tmp_path / "cuts.jsonl.gz") is None


def test_we_give_no_cuts(tmp_path):
    write_manifest(tmp_path / "cuts.jsonl.gz", [])
    cuts = load_cuts(tmp_path / "cuts.jsonl.gz")
    assert isinstance(cuts, CutSet)
    assert len(cuts) == 0


def test_a_system_without_answers_has_no_cuts(tmp_path):
    system = System("fa", "align", label="FA")
    write_manifest(cuts_path(system, tmp_path), [])
    assert read_cuts([system], tmp_path) == {"FA": []}


def test_a_reference_without_utterances_is_named(tmp_path):
    write_manifest(tmp_path / "reference.jsonl.gz", [])
    with pytest.raises(ValueError, match="no utterance of the split 'test'"):
        read_reference(tmp_path / "reference.jsonl.gz")
