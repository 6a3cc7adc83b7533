"""k2 gives an utterance with too few frames an empty path, without an error.

Whoever then cuts the flat labels by expected lengths reads the next utterance's. The utterance must
be reported as too short, its neighbours must keep their answers and the order must be kept.
"""

from __future__ import annotations

import logging

import k2
import pytest
import torch

from mlvae.fsa import MlFsaCompiler, best_path, posteriors, too_short, total_scores

UNITS = [[0, 1], [2, 0, 1, 2], [1], [2, 1], [0]]
FRAMES = [6, 3, 1, 0, 0]
SHORT = [1, 3, 4]


@pytest.fixture
def batch(device):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(5, 6, 3, generator=generator).log_softmax(-1).to(device)
    compiler = MlFsaCompiler(3)
    return compiler, scores


def test_k2_says_nothing(device):
    dense = k2.DenseFsaVec(
        torch.zeros(2, 3, 4, device=device), torch.tensor([[0, 0, 3], [1, 0, 2]], dtype=torch.int32)
    )
    graphs = k2.linear_fsa([[1, 2, 3, 1], [1, 2]]).to(device)
    paths = k2.shortest_path(k2.intersect_dense(graphs, dense, output_beam=10), True)
    assert paths[0].num_arcs == 0
    assert paths.labels.tolist() == [1, 2, -1], "the first labels are the second utterance's"


def test_reported_and_the_others_unharmed(batch, caplog):
    compiler, scores = batch
    graphs = compiler.compile(UNITS)
    names = [f"cut-{index}" for index in range(5)]
    emissions = compiler.emissions(scores, torch.tensor(FRAMES), names=names)
    assert too_short(graphs, emissions) == SHORT
    with caplog.at_level(logging.WARNING):
        paths = best_path(graphs, emissions)
    assert [record.getMessage() for record in caplog.records] == [
        "cut-1 is too short: 3 frames",
        "cut-3 is too short: 0 frames",
        "cut-4 is too short: 0 frames",
    ]
    totals = total_scores(graphs, emissions)
    bests = total_scores(graphs, emissions, log_semiring=False)
    probabilities = posteriors(graphs, emissions, frames=True)
    for index in range(5):
        if index in SHORT:
            assert paths[index] == []
            assert totals[index] == bests[index] == -torch.inf
            assert len(probabilities[index].unit) == len(probabilities[index].used) == 0
            assert probabilities[index].occupancy.shape == (FRAMES[index], 0)
            continue
        graph = compiler.compile([UNITS[index]])
        alone = compiler.emissions(
            scores[index : index + 1], torch.tensor(FRAMES[index : index + 1])
        )
        assert paths[index] == best_path(graph, alone)[0]
        torch.testing.assert_close(totals[index], total_scores(graph, alone)[0])


def test_a_batch_of_nothing_but_short_ones(batch):
    compiler, scores = batch
    graphs = compiler.compile([UNITS[index] for index in SHORT])
    emissions = compiler.emissions(scores[:3], torch.tensor([FRAMES[index] for index in SHORT]))
    assert best_path(graphs, emissions) == [[], [], []]
    assert total_scores(graphs, emissions).isneginf().all()
    assert [len(found.used) for found in posteriors(graphs, emissions)] == [0, 0, 0]


def test_states_count_as_frames(device):
    """Three states a unit need three frames each; a mispronounced unit needs one."""
    log_posteriors = torch.zeros(2, 6, 6, device=device).log_softmax(-1)
    for topology, short in (("single", [1]), ("ml", [])):
        compiler = MlFsaCompiler(2, topology, states_per_unit=3)
        emissions = compiler.emissions(log_posteriors, torch.tensor([6, 5]))
        graphs = compiler.compile([[0, 1], [0, 1]])
        assert too_short(graphs, emissions) == short
        assert [not spans for spans in best_path(graphs, emissions)] == [
            1 in short and i == 1 for i in range(2)
        ]
