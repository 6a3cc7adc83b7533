"""Boundaries from elsewhere, and how they are measured."""

from __future__ import annotations

import numpy as np
import pytest
from lhotse.supervision import AlignmentItem

from benchmarks.boundaries import VARIANTS, measured
from mlvae.score.reference import Reference
from mlvae.systems.localize import TrainedMlVae
from mlvae.tiers import with_tiers
from mlvae.train.splices import Lateness
from tests.train.tiny import CPU, dataset, spoken_cuts

TRUE = [(0.0, 0.1), (0.1, 0.1), (0.1, 0.3)]  # the second one was left out


def reference_of(names: list[str]) -> Reference:
    size = len(TRUE) * len(names)
    starts, ends = (np.array([time[end] for time in TRUE] * len(names)) for end in (0, 1))
    first = np.arange(len(names) + 1) * len(TRUE)
    units = ["a"] * size
    return Reference(names, names, first, units, units, starts, ends, units)


def found_cut(cut, times):
    items = [AlignmentItem("a", begin, end - begin) for begin, end in times]
    return with_tiers(cut, {"mlvae": items})


def test_times_are_compared_with_those_of_the_reference():
    cuts = list(spoken_cuts(3)[0])
    names = [cut.id for cut in cuts[:2]]
    reference = reference_of(names)
    same = [found_cut(cut, TRUE) for cut in cuts]
    # The cut that the reference does not know does not count, and nothing has IoU 0 with nothing.
    assert measured(same, reference) == pytest.approx([100 * 2 / 3, 0.0, 100.0])
    late = [found_cut(cut, [(0.0, 0.12), (0.12, 0.12), (0.12, 0.3)]) for cut in cuts]
    iou, start, close = measured([same[0], *late[1:]], reference)
    assert iou == pytest.approx(100 * (2 + 0.1 / 0.12 + 0.18 / 0.2) / 6)
    assert start == pytest.approx(0.0) and close == 100.0  # 0, 0, 0 and 20 ms
    (_, start, close) = measured(
        [found_cut(cut, [(0.0, 0.13)] * 2 + [(0.13, 0.3)]) for cut in cuts], reference
    )
    assert (start, close) == (pytest.approx(15.0), 50.0)


def test_variants_differ_in_where_boundaries_come_from():
    late = {"aligner": Lateness(0.001, {}, {}, 9)}
    aligner = object()
    system = TrainedMlVae(None, "substitution", None, dataset(), CPU, False, aligner, True, late)
    made = {(one.name, one.in_time): one.of(system) for one in VARIANTS}
    assert len(made) == len(VARIANTS) == 6
    assert made["the path", True] is made["both", True] is None  # it was not measured
    assert made["the path", False].boundary_aligner is None and made["the path", False].late == {}
    for in_time in (False, True):
        one = made["the aligner", in_time]
        assert one.boundary_aligner is aligner and not one.only_left_out
        assert one.late == (late if in_time else {})
    assert made["both", False].only_left_out and made["both", False].boundary_aligner is aligner
