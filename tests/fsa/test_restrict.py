"""Restricted graphs have the paths that agree with the decisions, and no other."""

from __future__ import annotations

import random

import pytest
import torch

from mlvae.fsa import MlFsaCompiler, best_path, restrict, search
from mlvae.fsa.search import prepared
from tests.fsa.cases import random_case


def agree(hypothesis, decided) -> bool:
    """Whether what a hypothesis says of the units it has is what was decided."""
    return all(
        decided[segment.slot] is None or decided[segment.slot] == (segment.wrong or segment.deleted)
        for segment in hypothesis.segments
        if segment.kind == "unit"
    )


@pytest.mark.parametrize("deletions", [False, True], ids=["", "deletions"])
@pytest.mark.parametrize("alternatives", [False, True], ids=["units", "words"])
@pytest.mark.parametrize("topology", ["ml", "substitution"])
def test_best_path_under_decisions(topology, alternatives, deletions, device):
    draw = random.Random(f"{topology} {alternatives} {deletions}")
    case = random_case(
        draw.randrange(1000),
        topology,
        states=2,
        alternatives=alternatives,
        batch=8,
        num_units=3,
        max_frames=5,
        deletions=deletions,
    )
    decided = [
        [draw.choice([True, False, None]) for _ in range(case.num_slots(index))]
        for index in range(len(case.utterances))
    ]
    graphs, emissions = case.graphs(device), case.emissions(device)
    before = graphs.scores.clone()
    paths = best_path(restrict(graphs, decided), emissions)
    assert torch.equal(graphs.scores, before)  # a copy was restricted
    checked = 0
    for index, path in enumerate(paths):
        left = [one for one in case.hypotheses(index) if agree(one, decided[index])]
        assert bool(path) == bool(left)
        if left:
            best = max(one.score for one in left)
            assert sum(span.score for span in path) == pytest.approx(best, abs=2e-4)
            for span in path:
                if span.kind == "unit" and decided[index][span.slot] is not None:
                    assert span.mispronounced == decided[index][span.slot] or span.is_deletion
            checked += len(left) < len(case.hypotheses(index))
    assert checked  # some decision ruled something out


def test_wrong_sizes_and_values_are_named():
    case = random_case(0, batch=2)
    graphs = case.graphs()
    with pytest.raises(ValueError, match="decisions on 1 utterances for 2 graphs"):
        restrict(graphs, [[None] * case.num_slots(0)])
    for value in (1, 2, "yes", 0.5):
        with pytest.raises(ValueError, match="utterance 0: a decision is .*, not a bool"):
            restrict(graphs, [[value] * case.num_slots(0), [None] * case.num_slots(1)])
    with pytest.raises(ValueError, match="utterance 1: decisions on 0 slots"):
        restrict(graphs, [[None] * case.num_slots(0), []])


@pytest.mark.parametrize("topology", ["ml", "substitution"])
def test_what_cannot_be_reached_is_not_searched(topology, device):
    """Where all is decided to be right, arcs are as many as without mispronunciations."""
    options = dict(num_units=5, states_per_unit=3, silence=True)
    units = [[[[0, 3, 1]], [[2], [4, 4]]], [[[1]]]]
    compiler = MlFsaCompiler(topology=topology, **options)
    num_frames = torch.tensor([20, 7])
    emissions = compiler.emissions(torch.zeros(2, 20, 16).log_softmax(-1), num_frames)
    graphs = restrict(compiler.compile(units, device), [[False] * 6, [False]])
    _, bare, _ = prepared(graphs, emissions)
    single = MlFsaCompiler(topology="single", **options).compile(units)
    assert bare.num_arcs == single.num_arcs
    assert bare.arcs.shape().tot_size(1) == single.arcs.shape().tot_size(1)


def test_a_long_dead_end_is_left_in_one_walk(monkeypatch):
    """Where the first unit can be neither right nor wrong, each arc behind it is looked at once."""
    graphs = MlFsaCompiler(num_units=3, topology="ml").compile([[0, 1, 2] * 40])
    graphs.scores = graphs.scores.masked_fill(graphs.unit_pos == 0, -torch.inf)
    looked_at, ragged = [], search.ragged

    def watched(counts):
        looked_at.append(int(counts.sum()))
        return ragged(counts)

    monkeypatch.setattr(search, "ragged", watched)
    bare, graph_arc = search.without_dead_ends(graphs.arcs)
    assert (bare.arcs.shape().tot_size(1), len(graph_arc)) == (
        2,
        0,
    )  # the start and the final state
    assert sum(looked_at) == graphs.num_arcs - 2  # those that leave the start were impossible
    scores = torch.zeros(1, 150, 3).log_softmax(-1)
    emissions = MlFsaCompiler(num_units=3, topology="ml").emissions(scores, [150])
    assert best_path(graphs, emissions) == [[]]
