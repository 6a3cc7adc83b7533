"""Two equal neighbouring units (K K) merge if a path is read by its labels alone.

Spans are cut by start flags: each of the two keeps its own times and its own answer.
"""

from __future__ import annotations

import math

import pytest
import torch

from mlvae.fsa import MlFsaCompiler, best_path, posteriors


@pytest.mark.parametrize("topology", ["single", "ml"])
@pytest.mark.parametrize("states", [1, 2])
def test_three_equal_units(topology, states, device):
    compiler = MlFsaCompiler(2, topology, states_per_unit=states)
    frames = 12
    log_posteriors = torch.full((1, frames, 2 * states), -math.log(2 * states), device=device)
    rate = torch.full((1, frames), 0.05, device=device)
    rate[0, [4, 9]] = 0.95
    boundary = torch.stack([1 - rate, rate], dim=-1).log()
    emissions = compiler.emissions(log_posteriors, torch.tensor([frames]), log_boundary=boundary)
    (spans,) = best_path(compiler.compile([[1, 1, 1]]), emissions)
    assert [(span.start, span.end) for span in spans] == [(0, 4), (4, 9), (9, 12)]
    assert [(span.unit, span.position, span.slot) for span in spans] == [
        (1, i, i) for i in range(3)
    ]


def test_only_the_second_is_wrong(device):
    compiler = MlFsaCompiler(3, "ml")
    perceived = torch.tensor([1, 1, 1, 0, 0, 0, 1, 1])
    scores = 6.0 * torch.nn.functional.one_hot(perceived, 3)
    emissions = compiler.emissions(scores.log_softmax(-1)[None].to(device), torch.tensor([8]))
    graphs = compiler.compile([[1, 1, 1]])
    (spans,) = best_path(graphs, emissions)
    assert [(span.start, span.end, span.mispronounced) for span in spans] == [
        (0, 3, False),
        (3, 6, True),
        (6, 8, False),
    ]
    (found,) = posteriors(graphs, emissions)
    assert [round(value) for value in found.mispronounced.tolist()] == [0, 1, 0]


def test_both_wrong_stay_two(device):
    compiler = MlFsaCompiler(3, "ml")
    perceived = torch.tensor([0, 0, 2, 2])
    scores = 6.0 * torch.nn.functional.one_hot(perceived, 3)
    emissions = compiler.emissions(scores.log_softmax(-1)[None].to(device), torch.tensor([4]))
    (spans,) = best_path(compiler.compile([[1, 1]]), emissions)
    assert [span.mispronounced for span in spans] == [True, True]
    assert spans[0].end == spans[1].start
