"""k2 routes paths round a NaN in silence, and a frame of -inf only empties the path.

Both are refused before k2 sees them, with the utterance and the frame in the message.
"""

from __future__ import annotations

import math

import pytest
import torch

from mlvae.fsa import MlFsaCompiler, best_path


def _good(device):
    compiler = MlFsaCompiler(3)
    generator = torch.Generator().manual_seed(0)
    log_posteriors = torch.randn(2, 5, 3, generator=generator).log_softmax(-1).to(device)
    two = torch.full((2, 5, 2), 0.5, device=device).log()
    return compiler, {"log_posteriors": log_posteriors, "log_boundary": two, "log_correctness": two}


@pytest.mark.parametrize("name", ["log_posteriors", "log_boundary", "log_correctness"])
@pytest.mark.parametrize(
    ("value", "columns", "reason"),
    [
        (math.nan, slice(0, 1), "is NaN"),
        (math.nan, slice(None), "is NaN"),
        (-math.inf, slice(None), "is -inf in all columns"),
        (math.inf, slice(1, 2), r"is \+inf"),
    ],
)
def test_refused_with_utterance_and_frame(name, value, columns, reason, device):
    compiler, inputs = _good(device)
    bad = inputs[name].clone()
    bad[1, 2, columns] = value
    inputs[name] = bad
    with pytest.raises(ValueError, match=f"^utterance 1: {name} {reason} at frame 2$"):
        compiler.emissions(num_frames=torch.tensor([5, 4]), **inputs)
    with pytest.raises(ValueError, match=f"^fish: {name} {reason} at frame 2$"):
        compiler.emissions(num_frames=torch.tensor([5, 4]), names=["cut", "fish"], **inputs)
    # Beyond the utterance's frames it is padding, which is not read.
    emissions = compiler.emissions(num_frames=torch.tensor([5, 2]), **inputs)
    assert all(best_path(compiler.compile([[0], [1, 2]]), emissions))


def test_single_topology_is_checked_too(device):
    compiler = MlFsaCompiler(3, "single")
    log_posteriors = torch.zeros(1, 5, 3, device=device).log_softmax(-1)
    log_posteriors[0, 4, 1] = math.nan
    with pytest.raises(ValueError, match="utterance 0: log_posteriors is NaN at frame 4"):
        compiler.emissions(log_posteriors, torch.tensor([5]))


def test_minus_infinity_in_some_columns_is_allowed(device):
    """A probability of zero is a probability."""
    compiler, inputs = _good(device)
    log_posteriors = inputs["log_posteriors"].clone()
    log_posteriors[0, :, 1] = -math.inf
    inputs["log_posteriors"] = log_posteriors
    emissions = compiler.emissions(num_frames=torch.tensor([5, 5]), **inputs)
    spans, _ = best_path(compiler.compile([[1], [1]]), emissions)
    assert [span.mispronounced for span in spans] == [True]
