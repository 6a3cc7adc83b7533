"""lhotse reads a manifest without a line as None; the stage after one that lost a split broke off
with an AttributeError instead of saying so.
"""

from __future__ import annotations

from lhotse import CutSet

from mlvae.data.dataset import load_cuts
from mlvae.data.manifests import write_manifest


def test_lhotse_gives_none(tmp_path):
    write_manifest(tmp_path / "cuts.jsonl.gz", [])
    assert CutSet.from_file(tmp_path / "cuts.jsonl.gz") is None


def test_we_give_no_cuts(tmp_path):
    write_manifest(tmp_path / "cuts.jsonl.gz", [])
    cuts = load_cuts(tmp_path / "cuts.jsonl.gz")
    assert isinstance(cuts, CutSet)
    assert len(cuts) == 0
