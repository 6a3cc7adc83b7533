"""Topologies: competitors of a unit, and one that is declared outside of mlvae.fsa."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mlvae.fsa import ColumnLayout, MlFsaCompiler, best_columns, best_path, posteriors, total_scores
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
from tests.fsa.cases import NUM_UNITS


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
        perceived=np.stack([np.full(len(every), NONE), every], axis=1).reshape(-1),
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
    compiler = MlFsaCompiler(4, GARBAGE, states_per_unit=states, silence=silence, insertions=True)
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


def _spoken(text: str, columns: int = NUM_UNITS, sure: float = 0.97, device="cpu"):
    """Log-posteriors of one utterance from a column a frame."""
    frames = [int(character) for character in text]
    rest = (1 - sure) / (columns - 1)
    probabilities = torch.full((1, len(frames), columns), rest, device=device)
    probabilities[0, range(len(frames)), frames] = sure
    return probabilities.log()


def _search(compiler, units, log_posteriors, **options):
    num_frames = torch.tensor([log_posteriors.shape[1]])
    emissions = compiler.emissions(log_posteriors, num_frames, **options)
    graphs = compiler.compile([units])
    return best_path(graphs, emissions)[0], posteriors(graphs, emissions)[0]


def test_says_what_was_heard(device):
    compiler = MlFsaCompiler(NUM_UNITS, "substitution")
    spans, found = _search(compiler, [0, 1, 2], _spoken("0003322", device=device))
    assert [(s.unit, s.perceived, s.start, s.end, s.mispronounced) for s in spans] == [
        (0, 0, 0, 3, False),
        (1, 3, 3, 5, True),
        (2, 2, 5, 7, False),
    ]
    assert found.perceived.shape == (3, NUM_UNITS)
    assert found.perceived.argmax(1).tolist() == [0, 3, 2]
    torch.testing.assert_close(found.perceived.sum(1), found.used)
    correct = found.perceived[range(3), [0, 1, 2]]
    torch.testing.assert_close(found.mispronounced, found.used - correct)


def test_competitor_has_all_its_states(device):
    """Unit 1 is spoken in place of unit 0: its three states in order."""
    compiler = MlFsaCompiler(2, "substitution", states_per_unit=3)
    log_posteriors = _spoken("33444555", columns=6, device=device)
    emissions = compiler.emissions(log_posteriors, torch.tensor([8]))
    graphs = compiler.compile([[0]])
    (span,) = best_path(graphs, emissions)[0]
    assert (span.unit, span.perceived, span.start, span.end) == (0, 1, 0, 8)
    assert best_columns(graphs, emissions).tolist() == [[3, 3, 4, 4, 4, 5, 5, 5]]


def test_only_competitors_are_heard(device):
    """Unit 3 is spoken in place of 1, which may only be taken for 2."""
    lists = [[1, 2, 3], [2], [], [0, 0]]
    compiler = MlFsaCompiler(NUM_UNITS, "substitution", competitors=lists)
    for text in ("0003322", "0001122", "0001133"):
        spans, found = _search(compiler, [0, 1, 2], _spoken(text, device=device))
        for span in spans:
            assert span.perceived == span.unit or span.perceived in lists[span.unit]
            allowed = {span.unit, *lists[span.unit]}
            never = [unit for unit in range(NUM_UNITS) if unit not in allowed]
            assert found.perceived[span.position, never].eq(0).all()
        # Unit 2 has no competitor.
        assert not spans[2].mispronounced
        assert found.mispronounced[2] == 0


def test_unit_without_competitors_is_charged_as_correct(device):
    """Scores are those of topology ml where only its correct branch is possible."""
    log_posteriors = _spoken("00112", device=device)
    rate = torch.tensor([0.7, 0.3]).log().expand(1, 5, 2).to(device)
    never = torch.tensor([math.log(0.7), -1e9]).expand(1, 5, 2).to(device)
    none = torch.full((NUM_UNITS, NUM_UNITS), -torch.inf)
    totals = []
    for compiler, correctness in [
        (MlFsaCompiler(NUM_UNITS, "substitution", competitors=none), rate),
        (MlFsaCompiler(NUM_UNITS, "substitution", competitors=[[]] * NUM_UNITS), rate),
        (MlFsaCompiler(NUM_UNITS, "ml"), never),
    ]:
        emissions = compiler.emissions(
            log_posteriors, torch.tensor([5]), log_correctness=correctness
        )
        totals.append(total_scores(compiler.compile([[0, 1, 2]]), emissions))
    torch.testing.assert_close(totals[0], totals[1])
    torch.testing.assert_close(totals[0], totals[2])


def test_a_single_unit_has_no_competitor(device):
    compiler = MlFsaCompiler(1, "substitution", deletions=True, insertions=True)
    zeros = torch.zeros(1, 4, 1, device=device)
    spans, found = _search(compiler, [0, 0], zeros)
    assert [(span.unit, span.mispronounced) for span in spans] == [(0, False), (0, False)]
    assert found.mispronounced.eq(0).all()
    assert found.perceived.shape == (2, 1)


@pytest.mark.parametrize("as_array", [torch.tensor, np.array])
def test_priors_decide_between_equals(as_array, device):
    """What was spoken sounds half like 2, half like 3; the table knows which is more likely."""
    log_posteriors = torch.tensor([0.01, 0.01, 0.49, 0.49], device=device).log().expand(1, 4, 4)
    for likely, other in ((2, 3), (3, 2)):
        table = np.full((NUM_UNITS, NUM_UNITS), -np.inf)
        table[0, likely], table[0, other] = math.log(0.8), math.log(0.2)
        compiler = MlFsaCompiler(NUM_UNITS, "substitution", competitors=as_array(table))
        spans, found = _search(compiler, [0], log_posteriors)
        assert spans[0].perceived == likely
        ratio = float(found.perceived[0, likely] / found.perceived[0, other])
        assert ratio == pytest.approx(4.0, rel=1e-3)


def test_list_is_a_table_of_equal_chances(device):
    log_posteriors = _spoken("0213", device=device)
    table = torch.zeros(NUM_UNITS, NUM_UNITS)
    table[0, [1, 2, 3]], table[1, [0, 2]], table[2, 3], table[3, 1] = 1 / 3, 1 / 2, 1.0, 1.0
    totals = []
    for competitors in ([[1, 2, 3], [0, 2], [3], [1, 1]], table.log()):
        compiler = MlFsaCompiler(NUM_UNITS, "substitution", competitors=competitors)
        emissions = compiler.emissions(log_posteriors, torch.tensor([4]))
        totals.append(total_scores(compiler.compile([[0, 1, 2, 3]]), emissions))
    torch.testing.assert_close(totals[0], totals[1])


def test_ctc_posteriors_with_blank(device):
    """Spikes between blanks, one of them of another unit than the text has."""
    compiler = MlFsaCompiler(NUM_UNITS, "substitution")
    frames, spikes, perceived = 40, [3, 11, 17, 26, 35], [0, 1, 0, 3, 1]
    blank = 2  # in the midst of the units
    columns = [0, 1, 3, 4]
    probabilities = torch.full((1, frames, NUM_UNITS + 1), 0.001, device=device)
    probabilities[..., blank] = 1 - 0.001 * NUM_UNITS
    for frame, unit in zip(spikes, perceived):
        probabilities[0, frame] = 0.01
        probabilities[0, frame, columns[unit]] = 1 - 0.01 * NUM_UNITS
    spans, found = _search(compiler, [0, 1, 2, 3, 1], probabilities.log(), blank=blank)
    assert [span.perceived for span in spans] == perceived
    assert [span.mispronounced for span in spans] == [False, False, True, False, False]
    assert all(span.start <= spike < span.end for span, spike in zip(spans, spikes))
    assert found.mispronounced[2] > 0.5
    assert found.mispronounced[[0, 1, 3, 4]].max() < 0.1
