"""Half or double precision emissions, and lengths beyond T, are bare assertion errors in k2.

Other precisions are converted, and gradients come back in the caller's; lengths are checked.
"""

from __future__ import annotations

import k2
import pytest
import torch

from mlvae.fsa import MlFsaCompiler, best_path, posteriors, total_scores


def test_k2_asserts(device):
    segments = torch.tensor([[0, 0, 3]], dtype=torch.int32)
    with pytest.raises(AssertionError):
        k2.DenseFsaVec(torch.zeros(1, 3, 2, dtype=torch.float64, device=device), segments)
    with pytest.raises(AssertionError):
        k2.DenseFsaVec(torch.zeros(1, 2, 2, device=device), segments)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_are_converted(dtype, device):
    compiler = MlFsaCompiler(3)
    generator = torch.Generator().manual_seed(0)
    graphs = compiler.compile([[0, 1], [2]])
    inputs = {
        "log_posteriors": torch.randn(2, 6, 3, generator=generator).log_softmax(-1),
        "log_boundary": torch.randn(2, 6, 2, generator=generator).log_softmax(-1),
        "log_correctness": torch.randn(2, 6, 2, generator=generator).log_softmax(-1),
        "log_prior": torch.randn(3, generator=generator).log_softmax(-1),
    }
    inputs = {name: value.to(device, dtype) for name, value in inputs.items()}
    in_single = {name: value.float() for name, value in inputs.items()}
    leaf = inputs["log_posteriors"].requires_grad_()
    lengths = torch.tensor([6, 4])
    emissions = compiler.emissions(num_frames=lengths, **inputs)
    expected = compiler.emissions(num_frames=lengths, **in_single)
    assert best_path(graphs, emissions) == best_path(graphs, expected)
    scores = total_scores(graphs, emissions)
    assert scores.dtype == torch.float32
    assert torch.equal(scores, total_scores(graphs, expected))
    for found, other in zip(posteriors(graphs, emissions), posteriors(graphs, expected)):
        assert torch.equal(found.mispronounced, other.mispronounced)
    scores.sum().backward()
    assert leaf.grad.dtype == dtype
    assert torch.isfinite(leaf.grad).all()


@pytest.mark.parametrize(
    ("lengths", "message"), [([4, 2], "utterance 0 has 4"), ([3, -2], "1 has -2")]
)
def test_lengths_beyond_the_frames_are_refused(lengths, message, device):
    compiler = MlFsaCompiler(2)
    log_posteriors = torch.zeros(2, 3, 2, device=device).log_softmax(-1)
    with pytest.raises(ValueError, match=message):
        compiler.emissions(log_posteriors, torch.tensor(lengths))


def test_views_that_are_not_contiguous(device):
    """Posteriors often come as (T, B, C) transposed, or as a slice."""
    compiler = MlFsaCompiler(2)
    generator = torch.Generator().manual_seed(1)
    turned = torch.randn(5, 2, 4, generator=generator).to(device)[..., 1:3].log_softmax(-1)
    view = turned.transpose(0, 1)
    graphs = compiler.compile([[0, 1], [1]])
    lengths = torch.tensor([4, 5])
    assert best_path(graphs, compiler.emissions(view, lengths)) == best_path(
        graphs, compiler.emissions(view.contiguous(), lengths)
    )
