"""Batches that fit into memory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import k2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlvae.fsa import MAX_CELLS, MlFsaCompiler, best_path, plan_batches
from tests.fsa.cases import NUM_UNITS


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20))),
    more=st.integers(0, 3000),
)
def test_every_utterance_is_in_one_batch_below_the_cap(sizes, more):
    cells = [(frames + 1) * arcs for frames, arcs in sizes]
    cap = max(cells, default=1) + more
    frames = [size[0] for size in sizes]
    batches = plan_batches(frames, [size[1] for size in sizes], cap)
    assert sorted(index for batch in batches for index in batch) == list(range(len(sizes)))
    order = [frames[index] for batch in batches for index in batch]
    assert order == sorted(order, reverse=True)
    for batch, following in zip(batches, [*batches[1:], None]):
        total = sum(cells[index] for index in batch)
        assert batch
        assert total <= cap
        if following is not None:
            states = sum(sizes[index][1] // 2 for index in [*batch, following[0]])
            numbered = (frames[batch[0]] + 1) * states
            assert max(total + cells[following[0]], numbered) > cap, "room for one more"
        # What k2 numbers is as large as if all were as long as the longest.
        assert (frames[batch[0]] + 1) * sum(sizes[index][1] // 2 for index in batch) <= cap


def test_batches_of_mixed_lengths_are_planned_for_what_k2_numbers():
    """One of 3000 frames and 1000 of 30 with large graphs: few cells, and k2 numbers 3000 x all."""
    compiler = MlFsaCompiler(NUM_UNITS, "substitution", states_per_unit=3)
    graphs = compiler.compile([[0, 1, 2]] + [[3, 1] * 10] * 1000)
    frames = [3000] + [30] * 1000
    states = np.diff(graphs.arcs.shape().row_splits(1).numpy())
    cells = graphs.num_arcs * 31 + (3000 - 30) * graphs[0].num_arcs
    cap = 40_000_000
    assert cells < cap < 3001 * states.sum(), "in one batch by cells alone"
    batches = plan_batches(frames, graphs, cap)
    assert sorted(sum(batches, [])) == list(range(1001))
    for batch in batches:
        longest = max(frames[index] for index in batch)
        assert (longest + 1) * states[batch].sum() <= cap
    assert len(batches) < 10


def test_messages_call_utterances_by_their_names():
    names = ["anna-1", "anna-2"]
    with pytest.raises(ValueError, match="anna-2 is too large: 6 arcs x 10 frames are 60 cells"):
        plan_batches([3, 9], [6, 6], 59, names=names)
    with pytest.raises(ValueError, match="anna-1 has -1 frames and 6 arcs"):
        plan_batches([-1, 9], [6, 6], names=names)
    with pytest.raises(ValueError, match="2 names for 1 utterances"):
        plan_batches([3], [6], names=names)


def test_tensors_and_graphs_are_taken_too():
    compiler = MlFsaCompiler(NUM_UNITS)
    graphs = compiler.compile([[0, 1], [2], [3, 1, 0]])
    arcs = [graphs[index].num_arcs for index in range(3)]
    frames = torch.tensor([9, 30, 20])
    cap = 31 * arcs[1] + 21 * arcs[2]
    for form in (arcs, torch.tensor(arcs), graphs):
        assert plan_batches(frames, form, cap) == [[1, 2], [0]]
    assert plan_batches(frames, graphs) == [[1, 2, 0]]
    assert plan_batches([], []) == []


def test_refusals():
    with pytest.raises(
        ValueError,
        match=r"utterance 1 is too large: 6 arcs x 10 frames are 60 cells, and at most 59 are",
    ):
        plan_batches([3, 9, 2], [6, 6, 6], 59)
    assert plan_batches([3, 9, 2], [6, 6, 6], 60) == [[1], [0, 2]]
    with pytest.raises(ValueError, match="3 numbers of frames, but 2 of arcs"):
        plan_batches([3, 9, 2], [6, 6])
    with pytest.raises(ValueError, match="utterance 0 has -1 frames and 6 arcs"):
        plan_batches([-1, 2], [6, 6])
    for cap in (0, -5, 2**31):
        with pytest.raises(ValueError, match=f"max_cells must be 1 to 2147483647, not {cap}"):
            plan_batches([1], [1], cap)
    with pytest.raises(ValueError, match="must be an FsaVec"):
        plan_batches([1], MlFsaCompiler(NUM_UNITS).compile([[0]])[0])


def test_answers_do_not_depend_on_the_batches():
    generator = torch.Generator().manual_seed(0)
    num_frames = torch.randint(5, 30, (12,), generator=generator)
    log_posteriors = torch.randn(12, 30, NUM_UNITS, generator=generator).log_softmax(-1)
    compiler = MlFsaCompiler(NUM_UNITS, "substitution", skip=True)
    graphs = compiler.compile([[index % NUM_UNITS, 1, 3] for index in range(12)])
    expected = best_path(graphs, compiler.emissions(log_posteriors, num_frames))
    batches = plan_batches(num_frames, graphs, max_cells=4000)
    assert 3 < len(batches) < 12
    for batch in batches:
        emissions = compiler.emissions(log_posteriors[batch], num_frames[batch])
        some = k2.index_fsa(graphs, torch.tensor(batch, dtype=torch.int32))
        assert best_path(some, emissions) == [expected[index] for index in batch]


def test_memory_is_what_the_cap_promises():
    """A twelfth of the default cap, with nothing pruned; peak memory in a process of its own."""
    if sys.platform != "linux":
        pytest.skip("the unit of ru_maxrss differs between systems")
    code = """
import resource, torch
from mlvae.fsa import MlFsaCompiler, posteriors
torch.set_num_threads(1)
compiler = MlFsaCompiler(12, "substitution", states_per_unit=2)
def search(frames, units):
    graphs = compiler.compile([[unit % 12 for unit in range(units)]] * 2)
    log_posteriors = torch.zeros(2, frames, 24).log_softmax(-1)
    emissions = compiler.emissions(log_posteriors, torch.tensor([frames, frames]))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    posteriors(graphs, emissions, frames=True, output_beam=1e6)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (after - before) * 1024, graphs.num_arcs * (frames + 1)
search(10, 2)
print(*search(500, 20))
"""
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    found, cells = map(int, re.findall(r"\d+", result.stdout))
    assert MAX_CELLS / 14 < cells < MAX_CELLS / 10
    assert found / cells * MAX_CELLS < 2.2e9
