"""k2 numbers all states of a batch for each frame of its longest utterance, in 32 bits.

One long recording among short ones was "Problem size is too large for this algorithm", although
each by itself is small: what was checked was the sum of arcs x frames. Now a batch is searched in
parts that k2 can number.
"""

from __future__ import annotations

import torch

from mlvae.fsa import MlFsaCompiler, search, total_scores
from tests.fsa.cases import random_case


def test_one_long_recording_among_many_short_ones_is_searched():
    """Frame t says unit t % 2, as the short ones have it; the long one has unit 0 alone."""
    compiler = MlFsaCompiler(2, "single")
    frames = torch.tensor([[0.99, 0.01], [0.01, 0.99]]).log().repeat(30_000, 1)
    num_frames = torch.tensor([60_000] + [410] * 100)
    graphs = compiler.compile([[0]] + [[0, 1] * 200] * 100)
    assert 60_002 * graphs.arcs.shape().tot_size(1) > 2**31
    emissions = compiler.emissions(frames.expand(101, -1, -1), num_frames)
    found = total_scores(graphs, emissions, output_beam=0.5)
    assert bool((found > -torch.inf).all())
    assert torch.equal(found[1:], found[1].expand(100))


def test_batches_of_mixed_lengths_come_in_parts_that_k2_can_number():
    case = random_case(3, "ml", batch=4, max_frames=9)
    case.num_frames[:] = torch.tensor([3, 9, 8, 7])
    case.utterances[:] = [[0, 1], [2], [1], [3, 0, 2]]
    graphs, emissions = case.graphs(), case.emissions()
    _, bare, _ = search.prepared(graphs, emissions)
    _, states = search.num_arcs_and_states(bare)
    rows = emissions.num_frames[emissions.order].numpy() + 1
    limit = int((states * (rows + 1)).max()) + 1  # each alone just fits
    parts = list(search.stretches(bare, emissions, [0, 1, 2, 3], most=limit))
    assert sum(parts, []) == [0, 1, 2, 3]
    assert len(parts) > 1
    for part in parts:
        assert (rows[part[0]] + 1) * states[part].sum() + 1 <= limit
