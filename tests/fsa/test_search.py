"""The search: parts of a batch, batches that fit into memory, and the column of each frame."""

from __future__ import annotations

import logging
import math
import re
import subprocess
import sys
from pathlib import Path

import _k2
import k2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlvae.fsa import (
    MAX_CELLS,
    MlFsaCompiler,
    best_columns,
    best_path,
    plan_batches,
    posteriors,
    search,
    total_scores,
)
from tests.fsa.cases import NUM_UNITS, random_case


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
        7, topology, 2, batch=9, max_frames=14, inputs=inputs, deletions=detours, insertions=detours
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


@pytest.mark.parametrize("topology", ["single", "ml", "substitution"])
@pytest.mark.parametrize("states", [1, 2, 3])
@pytest.mark.parametrize("silence", [False, True])
@pytest.mark.parametrize("detours", [False, True])
def test_columns_spell_out_the_spans(topology, states, silence, detours, device):
    """Those of what was perceived; -1 where that cannot be said."""
    case = random_case(
        31,
        topology,
        states,
        silence,
        batch=8,
        max_frames=16,
        inputs="prior",
        deletions=detours,
        insertions=detours,
    )
    case.num_frames[2] = 0
    graphs, emissions = case.graphs(), case.emissions(device)
    columns = best_columns(graphs, emissions)
    assert columns.dtype == torch.int64
    assert columns.shape == (8, int(case.num_frames.max()))
    silence_column = case.compiler.layout.num_states
    for index, spans in enumerate(best_path(graphs, emissions)):
        end = spans[-1].end if spans else 0
        assert columns[index, end:].eq(-1).all()
        model = case.model(index)
        for span in spans:
            inside = columns[index, span.start : span.end].tolist()
            if span.kind == "silence":
                assert set(inside) == {silence_column}
            elif span.perceived == -1:
                assert set(inside) <= {-1}
            else:
                # Every state of the unit, in order, and these are the ones that score best.
                assert sorted(inside) == inside
                assert sorted(set(inside)) == [span.perceived * states + s for s in range(states)]
                if detours:
                    continue  # the score may hold that of units left out before
                score = 0.0
                if topology != "single":
                    score = model.log_pi(span.start, wrong=span.mispronounced)
                if span.mispronounced:
                    score += case.confusion[span.unit][span.perceived]
                for frame, column in enumerate(inside, start=span.start):
                    score += model.correct(frame, span.perceived, column % states)
                    score += model.log_b(frame, starts=frame == span.start)
                assert score == pytest.approx(span.score, abs=1e-4)


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
    compiler = MlFsaCompiler(NUM_UNITS, "substitution", deletions=True)
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
