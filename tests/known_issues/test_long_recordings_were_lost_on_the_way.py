"""In an hour of speech half of the units were placed elsewhere in the recording, in silence.

A long recording is read on by pruned searches. Where more was said otherwise than written than the
beam forgives, the best path was pruned, and another one was found and believed, from which no later
window found back.
"""

from __future__ import annotations

import random

import torch

from mlvae.fsa import MlFsaCompiler, best_path
from mlvae.fsa.pruned import SEARCH_BEAMS, pruned_path


def spoken(units: list[int], sharp: float) -> torch.Tensor:
    """Log-posteriors (1, T, 5) of units of eight frames each."""
    logits = torch.zeros(1, 8 * len(units), 5)
    for number, unit in enumerate(units):
        logits[:, 8 * number : 8 * number + 8, unit] = sharp
    return logits.log_softmax(-1)


def test_what_was_said_otherwise_does_not_lead_astray():
    """For a while it costs less to hurry through the text than to hold on to it."""
    draw = random.Random(0)
    written = [draw.randrange(5) for _ in range(150)]
    said = list(written)
    for place in range(20, 40):
        said[place] = (said[place] + draw.randrange(1, 5)) % 5
    compiler = MlFsaCompiler(5, "single", silence=False)
    posteriors = spoken(said, sharp=SEARCH_BEAMS[0] / 20)
    emissions = compiler.emissions(posteriors, torch.tensor([posteriors.shape[1]]))
    graph = compiler.compile([written])
    assert pruned_path(graph, emissions) == best_path(graph, emissions)[0]
