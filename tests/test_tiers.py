import copy

import numpy as np
import pytest
import torch
from lhotse import CutSet, MonoCut, SupervisionSegment
from lhotse.supervision import AlignmentItem

from mlvae.tiers import has_tier, tier, with_tiers


def make_cut(alignment=None, num_supervisions=1) -> MonoCut:
    supervisions = [
        SupervisionSegment(f"utt{i}", "rec", 0.0, 1.0, alignment=alignment)
        for i in range(num_supervisions)
    ]
    return MonoCut("utt", 0.0, 1.0, 0, supervisions=supervisions)


FA = [AlignmentItem("3", 0.0, 0.4, 0.9), AlignmentItem("5", 0.4, 0.6, 0.8)]
OURS = [AlignmentItem("3", 0.0, 0.5, 0.1), AlignmentItem("5", 0.5, 0.5, 0.7)]


@pytest.mark.parametrize("before", [None, {}, {"fa": FA}])
def test_with_tiers_leaves_the_original_alone(before):
    cut = make_cut(copy.deepcopy(before))
    new = with_tiers(cut, {"mlvae": OURS})
    assert cut.supervisions[0].alignment == before
    assert tier(new, "mlvae") == OURS
    assert has_tier(new, "fa") == bool(before)
    assert new.id == cut.id and new.supervisions[0].id == cut.supervisions[0].id


def test_with_tiers_replaces_in_the_copy_only():
    cut = make_cut({"fa": list(FA)})
    new = with_tiers(cut, {"fa": OURS})
    assert tier(new, "fa") == OURS and tier(cut, "fa") == FA


def test_tier_gives_a_list_of_its_own():
    cut = make_cut({"fa": list(FA)})
    tier(cut, "fa").clear()
    assert tier(cut, "fa") == FA


def test_scores_and_library_numbers_survive_a_manifest(tmp_path):
    items = [AlignmentItem("3", np.float32(0.5), torch.tensor(0.25), np.float64(0.125))]
    new = with_tiers(make_cut(), {"mlvae": items, "mlvae_perceived": [AlignmentItem("*", 0, 1)]})
    path = tmp_path / "cuts.jsonl.gz"
    CutSet.from_cuts([new]).to_file(path)
    (read,) = CutSet.from_file(path)
    assert tier(read, "mlvae") == [AlignmentItem("3", 0.5, 0.25, 0.125)]
    assert tier(read, "mlvae_perceived") == [AlignmentItem("*", 0.0, 1.0, None)]


def test_errors_name_what_is_wrong():
    with pytest.raises(KeyError, match=r"cut utt has no tier 'mlvae' \(tiers that exist: fa\)"):
        tier(make_cut({"fa": FA}), "mlvae")
    with pytest.raises(KeyError, match="exist: none"):
        tier(make_cut(), "fa")
    for count in (0, 2):
        with pytest.raises(ValueError, match=f"cut utt has {count} supervisions"):
            tier(make_cut(num_supervisions=count), "fa")
    with pytest.raises(ValueError, match="cut utt, tier 'fa': '3' lasts -0.1 s"):
        with_tiers(make_cut(), {"fa": [AlignmentItem("3", 0.5, -0.1)]})
