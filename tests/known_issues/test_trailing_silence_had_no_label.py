"""Silence is in no tier. What lies before the first unit and between units was labelled as silence,
what lies after the last unit was not, and was left out of the estimator's loss.
"""

from __future__ import annotations

import torch

from mlvae.train.targets import frame_targets
from tests.train.tiny import unit_spans


def test_silence_after_the_last_unit():
    spans = [unit_spans([2], [1, 3]), unit_spans([0], [0, 5])]
    found = frame_targets(spans, torch.tensor([6, 5]), 4, silence=True)
    assert found.column.tolist() == [[4, 2, 2, 4, 4, 4], [0, 0, 0, 0, 0, -100]]
