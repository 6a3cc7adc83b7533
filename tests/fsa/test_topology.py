"""A topology is one object: one that is declared outside of mlvae.fsa is searched as well."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mlvae.fsa import ColumnLayout, MlFsaCompiler, best_path, posteriors
from mlvae.fsa.topology import (
    NONE,
    TOPOLOGIES,
    Columns,
    Term,
    Topology,
    UnitBranches,
    find_topology,
    log_sum_of_all,
)


def _garbage_branches(layout, competitors) -> UnitBranches:
    """The unit, or garbage of one state that is the same for all units."""
    every = np.arange(layout.num_units)
    hold = np.full((2 * len(every), layout.states_per_unit), NONE)
    hold[::2, 0] = layout.column(0, 1)
    hold[1::2] = layout.holds(every)
    start = np.stack([np.full(len(every), layout.column(0, 0)), layout.start(every)], axis=1)
    return UnitBranches(
        begin=2 * every,
        count=np.full(len(every), 2),
        heard=np.stack([np.full(len(every), NONE), every], axis=1).reshape(-1),
        mispronounced=np.tile([True, False], len(every)),
        num_states=np.tile([1, layout.states_per_unit], len(every)),
        score=np.zeros(2 * len(every), dtype=np.float32),
        start=start.reshape(-1),
        hold=hold,
    )


GARBAGE = Topology(
    "garbage",
    _garbage_branches,
    starts=(Term.START_CORRECT,),
    columns=(Columns(log_sum_of_all, (Term.START_MISPRONOUNCED, Term.HOLD), per_unit=False),),
)


@pytest.mark.parametrize("silence", [False, True])
@pytest.mark.parametrize("states", [1, 2])
def test_a_topology_of_ones_own_is_searched(states, silence, device):
    """Garbage, which all units share, takes the frames that are least like the canonical unit."""
    compiler = MlFsaCompiler(4, GARBAGE, states_per_unit=states, silence=silence, filler=True)
    layout = compiler.layout
    assert layout.num_columns == 1 + 4 * states + 4 + 2 + 2
    frames = [1, 1, 1, 3, 3, 0, 0]
    probability = torch.full((1, len(frames), layout.num_posteriors), 0.01)
    for frame, unit in enumerate(frames):
        probability[0, frame, unit * states : (unit + 1) * states] = 1 / states
    log_posteriors = (probability / probability.sum(-1, keepdim=True)).log().to(device)
    graphs = compiler.compile([[1, 2, 0]])
    emissions = compiler.emissions(log_posteriors, [len(frames)])
    (spans,) = best_path(graphs, emissions)
    assert [(span.unit, span.start, span.end, span.mispronounced) for span in spans] == [
        (1, 0, 3, False),
        (2, 3, 5, True),
        (0, 5, 7, False),
    ]
    (found,) = posteriors(graphs, emissions)
    assert found.mispronounced.argmax() == 1


def test_one_unit_is_scored_by_its_own_columns(device):
    """One frame of garbage scores log(sum of q / sum of p) = 0, and q(b) and q(pi) of its start."""
    compiler = MlFsaCompiler(2, GARBAGE)
    log_posteriors = torch.tensor([[[0.001, 0.999]]], device=device).log()
    emissions = compiler.emissions(log_posteriors, [1])
    (spans,) = best_path(compiler.compile([[0]]), emissions)
    assert spans[0].mispronounced
    assert spans[0].score == pytest.approx(math.log(0.15), abs=1e-5)


def test_declared_topologies_are_found_by_name():
    assert list(TOPOLOGIES) == ["single", "ml", "substitution"]
    for name, topology in TOPOLOGIES.items():
        assert ColumnLayout(3, 1, name, False) == ColumnLayout(3, 1, topology, False)
        assert find_topology(topology) is find_topology(name) is topology
    assert [topology.has_mismatch for topology in TOPOLOGIES.values()] == [False, True, True]
    with pytest.raises(ValueError, match="'circle' is not available; there are: single, ml"):
        find_topology("circle")
