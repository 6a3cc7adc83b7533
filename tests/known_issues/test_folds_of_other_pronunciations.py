"""Folds had a group for each canonical unit and a length for each unit that was spoken: training
with folds broke off where a cut was aligned in another pronunciation with more or fewer units.
"""

from __future__ import annotations

import numpy as np
import pytest
from lhotse.supervision import AlignmentItem

from mlvae.em.crossfit import folds_of_frames
from mlvae.em.settings import CrossFitConfig
from mlvae.em.targets import spoken_spans
from mlvae.tiers import with_tiers
from tests.em.tiny import TABLE, aligned, make_cut

SPOKEN = [AlignmentItem("a", 0.0, 0.03), AlignmentItem("c", 0.03, 0.03)]


def spoken_otherwise(name, sources=None):
    cut = aligned(make_cut(name, np.zeros((10, 3)), ["a", "b"]), [0, 5, 10])
    cut.supervisions[0].speaker = name
    if sources is not None:
        cut.supervisions[0].custom["sources"] = sources
    return with_tiers(cut, {"fa_spoken": [*SPOKEN, AlignmentItem("b", 0.06, 0.04)]})


@pytest.mark.parametrize("by", ["recording", "speaker"])
def test_all_frames_of_a_recording_are_in_its_fold(by):
    cuts = [spoken_otherwise(f"x{number}") for number in range(4)]
    spans = {cut.id: spoken_spans(cut, "fa", TABLE) for cut in cuts}
    assert all(len(own) == 3 for own in spans.values())
    found = folds_of_frames(cuts, spans, CrossFitConfig(2, by), seed=0)
    folds = [set(found[cut.id].tolist()) for cut in cuts]
    assert all(len(found[cut.id]) == 10 for cut in cuts)
    assert sorted(map(tuple, folds)) == [(0,), (0,), (1,), (1,)]


def test_sounds_of_an_unknown_source_are_refused():
    cuts = [spoken_otherwise(f"x{number}", ["r1", "r2"]) for number in range(2)]
    spans = {cut.id: spoken_spans(cut, "fa", TABLE) for cut in cuts}
    with pytest.raises(ValueError, match="x0: 3 units spoken, but sources of 2"):
        folds_of_frames(cuts, spans, CrossFitConfig(2), seed=0)
