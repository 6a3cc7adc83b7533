"""CTC segmentation against every path of a small matrix."""

from __future__ import annotations

from itertools import groupby, product

import pytest
import torch

from mlvae.systems.w2v_ctc import ctc_spans, fewest_frames, greedy_spans, segment_times


def collapsed(path: tuple[int, ...]) -> list[int]:
    return [column - 1 for column, _ in groupby(path) if column]


def spans_of(path: tuple[int, ...]) -> list[tuple[int, int]]:
    spans, frame = [], 0
    for column, run in groupby(path):
        length = len(list(run))
        if column:
            spans.append((frame, frame + length))
        frame += length
    return spans


@pytest.mark.parametrize("units", [[0], [1, 0], [0, 0], [1, 1, 0], [0, 1, 0]])
@pytest.mark.parametrize("seed", [0, 1])
def test_spans_are_those_of_the_best_of_all_paths(units, seed):
    torch.manual_seed(seed)
    log_probs = (2 * torch.randn(6, 3)).log_softmax(1)
    paths = [path for path in product(range(3), repeat=6) if collapsed(path) == units]
    best = max(paths, key=lambda path: float(log_probs[range(6), path].sum()))
    assert ctc_spans(log_probs, units) == spans_of(best)


def test_the_greedy_path_is_the_best_path_of_what_it_says():
    torch.manual_seed(3)
    for _ in range(5):
        log_probs = (3 * torch.randn(30, 5)).log_softmax(1)
        path = tuple(log_probs.argmax(1).tolist())
        assert greedy_spans(log_probs) == (collapsed(path), spans_of(path))


def test_nothing_recognised_has_no_spans():
    log_probs = torch.tensor([[0.9, 0.1]] * 4).log()
    assert greedy_spans(log_probs) == ([], [])


def test_equal_neighbours_take_a_blank():
    assert fewest_frames([0, 1, 2]) == 3
    assert fewest_frames([0, 0, 0, 1]) == 6
    log_probs = torch.zeros(3, 3).log_softmax(1)
    assert ctc_spans(log_probs, [1, 1]) == [(0, 1), (2, 3)]
    with pytest.raises(ValueError, match="2 frames for units that take at least 3"):
        ctc_spans(log_probs[:2], [1, 1])
    with pytest.raises(ValueError, match=r"units must be 0 to 1, not \[2\]"):
        ctc_spans(log_probs, [2])


def test_units_that_are_impossible_have_no_path():
    log_probs = torch.tensor([[0.5, 0.5, 0.0]] * 4).log()
    with pytest.raises(ValueError, match="no path to the units"):
        ctc_spans(log_probs, [1])


def test_neighbours_share_the_blanks_between_them():
    found = segment_times([(2, 4), (8, 9)], num_frames=10, duration=1.0, margin=10.0)
    assert found == [pytest.approx((0.0, 0.6)), pytest.approx((0.6, 1.0))]


def test_segments_do_not_reach_beyond_the_margin():
    found = segment_times([(20, 40), (80, 90)], num_frames=100, duration=1.0, margin=0.05)
    assert found == [pytest.approx((0.15, 0.45)), pytest.approx((0.75, 0.95))]
