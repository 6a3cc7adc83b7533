"""k2 wants a batch sorted by length, longest first. Callers need not know.

The sort inside is stable, and answers come in the caller's order.
"""

from __future__ import annotations

import k2
import pytest
import torch

from mlvae.fsa import MlFsaCompiler, best_path, posteriors, total_scores

LENGTHS = [2, 7, 4, 7, 1, 4]


def test_k2_refuses_it(device):
    segments = torch.tensor([[0, 0, 2], [1, 0, 5]], dtype=torch.int32)
    with pytest.raises(Exception):  # noqa: B017 - which one differs between versions
        dense = k2.DenseFsaVec(torch.zeros(2, 5, 2, device=device), segments)
        k2.intersect_dense(k2.linear_fsa([[1], [1]]).to(device), dense, output_beam=10)


def test_answers_come_in_the_callers_order(device):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(6, 7, 6, generator=generator).log_softmax(-1).to(device)
    compiler = MlFsaCompiler(6)
    emissions = compiler.emissions(scores, torch.tensor(LENGTHS))
    assert emissions.order.tolist() == [1, 3, 2, 5, 0, 4]
    graphs = compiler.compile([[unit] for unit in range(6)])
    for index, (spans, found, score) in enumerate(
        zip(
            best_path(graphs, emissions),
            posteriors(graphs, emissions, frames=True),
            total_scores(graphs, emissions),
        )
    ):
        assert [(span.unit, span.start, span.end) for span in spans] == [(index, 0, LENGTHS[index])]
        assert found.unit.tolist() == [index]
        assert found.occupancy.shape == (LENGTHS[index], 1)
        alone = compiler.emissions(scores[index : index + 1], torch.tensor([LENGTHS[index]]))
        torch.testing.assert_close(
            score, total_scores(compiler.compile([[index]]), alone)[0], atol=1e-5, rtol=0
        )


def test_sort_is_stable(device):
    """Utterances of equal lengths keep their order, so that a batch repeats exactly."""
    compiler = MlFsaCompiler(2)
    lengths = torch.tensor([2, 3] * 2000)
    scores = torch.zeros(4000, 3, 2, device=device).log_softmax(-1)
    order = compiler.emissions(scores, lengths).order
    assert torch.equal(order, torch.cat([torch.arange(1, 4000, 2), torch.arange(0, 4000, 2)]))


def test_lengths_may_be_on_any_device_and_of_any_integer_type(device):
    compiler = MlFsaCompiler(2)
    scores = torch.zeros(2, 4, 2, device=device).log_softmax(-1)
    expected = compiler.emissions(scores, torch.tensor([2, 4])).order
    for lengths in (
        torch.tensor([2, 4], dtype=torch.int32, device=device),
        torch.tensor([2, 4], dtype=torch.uint8),
        [2, 4],
    ):
        assert torch.equal(compiler.emissions(scores, lengths).order, expected)
