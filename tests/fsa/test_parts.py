"""A batch is searched in parts, with scores made part by part, and the answers are those of one."""

from __future__ import annotations

import logging
import math

import _k2
import k2
import pytest
import torch

from mlvae.fsa import best_columns, best_path, posteriors, search, total_scores
from tests.fsa.cases import random_case


def searches(monkeypatch) -> list[tuple[list[int], float]]:
    """Positions and beam of every search from now on."""
    found, searched = [], search.searched

    def watched(bare, emissions, positions, beam):
        found.append((positions, beam))
        return searched(bare, emissions, positions, beam)

    monkeypatch.setattr(search, "searched", watched)
    return found


@pytest.mark.parametrize("topology", ["single", "ml", "substitution"])
@pytest.mark.parametrize("inputs", ["posteriors alone", "everything"])
@pytest.mark.parametrize("detours", [False, True])
def test_parts_and_all_at_once_give_the_same(topology, inputs, detours, monkeypatch):
    case = random_case(
        7, topology, 2, batch=9, max_frames=14, inputs=inputs, skip=detours, filler=detours
    )
    case.num_frames[[2, 5]] = torch.tensor([0, 14])  # one of them is too short
    graphs = case.graphs()
    answers = []
    third = 4 * graphs.arcs.shape().tot_size(1)  # states, times part of the frames
    for size in (1, third, 10**9):
        monkeypatch.setattr(search, "PART_SIZE", size)
        with monkeypatch.context() as patch:
            found = searches(patch)
            answers.append((best_path(graphs, case.emissions()), len(found)))
        columns = best_columns(graphs, case.emissions())
        answers[-1] += (columns.tolist(),)
    spans, numbers, columns = zip(*answers)
    assert spans[0] == spans[1] == spans[2]
    assert columns[0] == columns[1] == columns[2]
    assert numbers[0] > numbers[1] > numbers[2] == 1


def test_parts_are_equal_stretches_of_what_is_searched():
    case = random_case(3, "ml", batch=12, max_frames=10)
    case.num_frames[:] = 10
    case.utterances[:] = [[0, 1, 2]] * 12
    graphs, emissions = case.graphs(), case.emissions()
    size = graphs.arcs.shape().tot_size(1) // 12 * 11
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "PART_SIZE", 4 * size)
        _, bare, _ = search.prepared(graphs, emissions)
        every = list(range(12))
        parts = list(search.parts(bare, emissions, every))
        assert parts == [every[:4], every[4:8], every[8:]]
        without = every[:5] + every[6:]
        parts = list(search.parts(bare, emissions, without))
        assert sum(parts, []) == without and sorted(map(len, parts)) == [3, 4, 4]


def without_arcs(lattice):
    """A lattice of one utterance as rounding leaves it where a beam is too narrow."""
    nothing = k2.RaggedShape("[ [ ] ]").compose(k2.RaggedShape("[ ]"))
    return search.Lattice(_k2.RaggedArc(nothing, lattice.arcs.values()[:0]), lattice.graph_arc[:0])


def test_only_what_came_out_empty_is_searched_again(monkeypatch):
    """Two of seven are lost to a beam that is too narrow, and found with a wider one."""
    case = random_case(11, "ml", batch=7, max_frames=12)
    case.num_frames[:] = torch.tensor([12, 12, 11, 10, 9, 8, 7])
    case.utterances[:] = [[0, 1]] * 7
    graphs = case.graphs()
    expected = best_path(graphs, case.emissions())
    monkeypatch.setattr(search, "PART_SIZE", 1)
    searched = search.searched

    def lossy(bare, emissions, positions, beam):
        lost = beam == search.BEST_PATH_BEAM and positions[0] in (1, 4)
        lattice = searched(bare, emissions, positions, beam)
        return without_arcs(lattice) if lost else lattice

    monkeypatch.setattr(search, "searched", lossy)
    found = searches(monkeypatch)
    assert best_path(graphs, case.emissions()) == expected
    first, wider = search.BEST_PATH_BEAM, search.WIDER_BEAMS[0]
    assert found == [([i], first) for i in range(7)] + [([1], wider), ([4], wider)]


def test_utterances_too_short_within_a_part_are_left_out(monkeypatch, caplog):
    case = random_case(5, "ml", batch=5, max_frames=9)
    case.num_frames[:] = torch.tensor([9, 8, 7, 6, 5])
    case.utterances[:] = [[0, 1], [2], [3] * 8, [1, 2], [0]]
    graphs = case.graphs()
    found = searches(monkeypatch)
    with caplog.at_level(logging.WARNING):
        found_spans = best_path(graphs, case.emissions())
    assert found == [([0, 1, 3, 4], search.BEST_PATH_BEAM)]
    assert [bool(spans) for spans in found_spans] == [True, True, False, True, True]
    for index in (0, 1, 3, 4):
        alone = case.compiler.emissions(
            case.log_posteriors[index : index + 1], case.num_frames[index : index + 1]
        )
        graph = case.compiler.compile([case.utterances[index]])
        assert best_path(graph, alone) == [found_spans[index]]


@pytest.mark.parametrize("topology", ["single", "ml", "substitution"])
def test_a_part_has_the_rows_of_the_whole(topology, device):
    case = random_case(2, topology, 2, silence=True, batch=6, max_frames=8, inputs="everything")
    case.num_frames[:] = torch.tensor([3, 8, 0, 5, 8, 1])
    emissions = case.emissions(device)
    assert emissions.order.tolist() == [1, 4, 3, 0, 5, 2]
    whole = emissions.dense.scores
    splits = [0, 9, 18, 24, 28, 30, 32]  # one row more than frames; and one stands in for none
    assert len(whole) == splits[-1]
    for begin, end in ((0, 6), (0, 1), (2, 5), (5, 6)):
        part = emissions.part(begin, end)
        assert torch.equal(part.scores, whole[splits[begin] : splits[end]])
        sizes = part.dense_fsa_vec.shape().row_splits(1).tolist()
        assert sizes == [row - splits[begin] for row in splits[begin : end + 1]]


def test_gradients_reach_the_posteriors_after_a_search_without_them(device):
    """The matrix is kept, and who asked for it first wanted no gradient."""
    case = random_case(4, "ml", batch=3, max_frames=6)
    case.log_posteriors = case.log_posteriors.to(device).requires_grad_()
    graphs, emissions = case.graphs(), case.emissions(device)
    with torch.no_grad():
        best_path(graphs, emissions)
        posteriors(graphs, emissions)
    found = total_scores(graphs, emissions)
    found[found > -math.inf].sum().backward()
    gradient = case.log_posteriors.grad
    fresh = case.log_posteriors.detach().clone().requires_grad_()
    case.log_posteriors = fresh
    again = total_scores(graphs, case.emissions(device))
    again[again > -math.inf].sum().backward()
    assert gradient.abs().sum() > 0
    assert torch.equal(gradient, fresh.grad)


def test_only_paths_from_end_to_end_are_read_from_lattices():
    """Rounding may leave a lattice in pieces that has as many arcs as a path."""
    linear = [[0, 1, 7, 0], [1, 2, 8, 0], [2, 3, -1, 0]]
    pieces = [[0, 1, 7, 0], [0, 1, 8, 0], [2, 3, -1, 0]]
    choice = [[0, 1, 7, 0], [0, 1, 8, 0], [1, 2, 9, 0], [2, 3, -1, 0]]
    shape = k2.RaggedShape("[ [ x x x x ] [ x x x x ] [ x x x x ] [ ] ]").compose(
        k2.RaggedShape("[ [ x ] [ x ] [ x ] [ ] [ x x ] [ ] [ x ] [ ] [ x x ] [ x ] [ x ] [ ] ]")
    )
    arcs = torch.tensor(linear + pieces + choice, dtype=torch.int32)
    lattice = search.Lattice(_k2.RaggedArc(shape, arcs), torch.arange(10, dtype=torch.int32))
    assert lattice.num_arcs.tolist() == [3, 3, 4, 0]
    fits, found = search.straight([lattice], torch.tensor([3, 3, 3, 3]))
    assert fits.tolist() == [True, False, False, False]
    assert found.num_arcs.tolist() == [3]
    assert (found.label.tolist(), found.graph_arc.tolist()) == ([7, 8, -1], [0, 1, 2])
    assert (found.row.tolist(), found.frame.tolist()) == ([0, 0, 0], [0, 1, 2])
