"""Goodness of pronunciation against its definition, frame by frame."""

from __future__ import annotations

import math

import pytest
import torch

from mlvae.train.goodness import LOG_ZERO, compare_units, mean_log_probs, unit_log_probs


def listed(log_probs, start, end, unit):
    """GOP, ratio and the best other unit of one unit, frame by frame."""
    means = [
        sum(max(float(log_probs[t, q]), LOG_ZERO) for t in range(start, end)) / (end - start)
        for q in range(log_probs.shape[1])
    ]
    others = {q: mean for q, mean in enumerate(means) if q != unit}
    best = max(others, key=others.get)
    return means[unit], means[unit] - others[best], best


def goodness(log_probs, starts, ends, units):
    return compare_units(mean_log_probs(log_probs, starts, ends), units)


@pytest.mark.parametrize("seed", range(3))
def test_against_adding_up_frame_by_frame(seed):
    generator = torch.Generator().manual_seed(seed)
    log_probs = (4 * torch.randn(50, 6, generator=generator)).log_softmax(1)[:, :5]  # and silence
    log_probs[7, 2] = -math.inf
    starts = torch.randint(0, 45, (20,), generator=generator)
    ends = starts + torch.randint(1, 6, (20,), generator=generator)
    units = torch.randint(0, 5, (20,), generator=generator)
    found = goodness(log_probs, starts, ends, units)
    expected = [
        listed(log_probs, *row) for row in zip(*(x.tolist() for x in (starts, ends, units)))
    ]
    gop, ratio, best = zip(*expected)
    assert found.gop.dtype == torch.float64 and found.best_other.dtype == torch.int64
    assert found.gop.tolist() == pytest.approx(gop)
    assert found.ratio.tolist() == pytest.approx(ratio)
    assert found.best_other.tolist() == list(best)


def test_a_unit_without_frames_and_one_without_others():
    log_probs = torch.full((4, 3), 0.25).log()
    found = goodness(log_probs, *torch.tensor([[0, 2], [2, 2], [1, 1]]))
    assert found.gop[0] == pytest.approx(math.log(0.25)) and found.ratio[0] == 0
    assert found.gop.isnan().tolist() == found.ratio.isnan().tolist() == [False, True]
    assert found.best_other[1] == -1
    alone = goodness(log_probs[:, :1], *torch.tensor([[0], [2], [0]]))
    assert alone.ratio[0] == math.inf


def test_an_hour_does_not_cost_precision():
    """Sums over all frames are differences of large numbers."""
    log_probs = torch.full((360_000, 2), -30.0)
    log_probs[-3:] = torch.tensor([-0.001, -0.5])
    found = goodness(log_probs, *torch.tensor([[359_997], [360_000], [0]]))
    assert found.gop[0] == pytest.approx(-0.001, rel=1e-5)


def test_posteriors_of_states_are_added_up():
    log_probs = torch.randn(3, 7, 2 * 4 + 1).log_softmax(2)
    found = unit_log_probs(log_probs, 4, 2).exp()
    expected = log_probs.exp()[..., :-1:2] + log_probs.exp()[..., 1::2]
    assert torch.allclose(found, expected)
