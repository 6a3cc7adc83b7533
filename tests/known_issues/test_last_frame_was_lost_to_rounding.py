"""A cut of 124.5 frames of 10 ms has 125; Python rounds the end of its last unit to 124.

Python rounds halves to even numbers and lhotse rounds them up. The last frame of such a cut had no
label in training.
"""

from __future__ import annotations

import numpy as np
import pytest

from mlvae.tiers import tier, with_tiers
from mlvae.train.targets import items_of_spans, spans_of_tier
from tests.train.tiny import make_cut, unit_spans


@pytest.mark.parametrize("num_frames", [3, 5, 7, 9, 125, 127])
def test_the_last_unit_ends_with_the_cut(num_frames):
    duration = (80 * num_frames - 40) / 8000
    cut = make_cut("x", np.zeros((num_frames, 2)), ["a", "b"], duration)
    assert cut.num_frames == num_frames
    spans = unit_spans([0, 1], [0, 2, num_frames])
    cut = with_tiers(cut, {"fa": items_of_spans(cut, spans, ["a", "b"], [0.0, 0.0])})
    assert tier(cut, "fa")[-1].end == pytest.approx(duration)
    assert spans_of_tier(cut, "fa", [0, 1]) == spans


def test_some_of_them_are_rounded_down():
    assert round((80 * 3 - 40) / 8000 / 0.01) == 2
