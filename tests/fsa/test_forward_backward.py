"""Sums without a lattice are those over all paths, or are left to the lattice."""

from __future__ import annotations

import math

import pytest
import torch

from mlvae.fsa import MlFsaCompiler, posteriors
from mlvae.fsa.forward_backward import ForwardBackward
from mlvae.fsa.search import arc_row_splits
from tests.fsa.cases import random_case

SUMS = ("used", "mispronounced", "deleted", "perceived")


def assert_equal(found, expected) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        for name in SUMS:
            torch.testing.assert_close(getattr(one, name), getattr(other, name), atol=1e-6, rtol=0)


@pytest.mark.parametrize("detours", [False, True], ids=["", "detours"])
@pytest.mark.parametrize("alternatives", [False, True], ids=["units", "words"])
@pytest.mark.parametrize("states", [1, 3])
@pytest.mark.parametrize("topology", ["single", "ml", "substitution"])
def test_as_from_the_lattice_of_all_paths(topology, states, alternatives, detours):
    """Utterances of many lengths, some of them too short and one without a path."""
    case = random_case(
        7 + states,
        topology,
        states,
        silence=detours,
        alternatives=alternatives,
        inputs="everything",
        batch=8,
        max_frames=15,
        deletions=detours,
        insertions=detours,
    )
    graphs, emissions = case.graphs(), case.emissions()
    scores = graphs.scores.clone()
    scores[: arc_row_splits(graphs)[1]] = -torch.inf
    graphs.scores = scores
    assert_equal(
        posteriors(graphs, emissions), posteriors(graphs, emissions, frames=True, output_beam=1e4)
    )


def test_a_path_beyond_double_precision_is_left_to_the_lattice(monkeypatch):
    """The best path is 870 worse than another one half way, and better in the end."""
    compiler = MlFsaCompiler(3, "single")
    log_posteriors = torch.empty(2, 60, 3)
    log_posteriors[:, :30] = torch.tensor([-30.0, -0.5, -1.0])
    log_posteriors[:, 30:] = torch.tensor([-0.5, -40.0, -40.5])
    graphs = compiler.compile([[[[0, 1], [0, 2]]], [[[0, 1]]]])
    emissions = compiler.emissions(log_posteriors, torch.tensor([60, 20]))
    known = []
    algorithm = ForwardBackward.occupancies

    def spied(self, scores, chosen):
        found = algorithm(self, scores, chosen)
        known.extend(found[1].tolist())
        return found

    monkeypatch.setattr(ForwardBackward, "occupancies", spied)
    found = posteriors(graphs, emissions)
    assert known == [False, True]
    odds = 1 / (1 + math.exp(-0.5))  # all but the last frame is of the unit that both begin with
    assert found[0].used.tolist() == pytest.approx([odds, odds, 1 - odds, 1 - odds])
    assert_equal(found, posteriors(graphs, emissions, frames=True))


def test_paths_that_are_all_beyond_double_precision_are_left_to_the_lattice():
    """The only path says in each frame what the model is all but sure is not said."""
    compiler = MlFsaCompiler(2, "single")
    log_posteriors = torch.tensor([[[-400.0, 0.0], [0.0, -400.0], [-400.0, 0.0]]])
    emissions = compiler.emissions(log_posteriors, torch.tensor([3]))
    (found,) = posteriors(compiler.compile([[0, 1, 0]]), emissions)
    assert found.used.tolist() == pytest.approx([1.0, 1.0, 1.0])
