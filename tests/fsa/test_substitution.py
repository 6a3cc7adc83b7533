"""Topology substitution: what was spoken instead, and out of which competitors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mlvae.fsa import MlFsaCompiler, best_columns, best_path, posteriors, total_scores
from tests.fsa.cases import NUM_UNITS


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
    assert [(s.unit, s.heard, s.start, s.end, s.mispronounced) for s in spans] == [
        (0, 0, 0, 3, False),
        (1, 3, 3, 5, True),
        (2, 2, 5, 7, False),
    ]
    assert found.heard.shape == (3, NUM_UNITS)
    assert found.heard.argmax(1).tolist() == [0, 3, 2]
    torch.testing.assert_close(found.heard.sum(1), found.used)
    correct = found.heard[range(3), [0, 1, 2]]
    torch.testing.assert_close(found.mispronounced, found.used - correct)


def test_competitor_has_all_its_states(device):
    """Unit 1 is spoken in place of unit 0: its three states in order."""
    compiler = MlFsaCompiler(2, "substitution", states_per_unit=3)
    log_posteriors = _spoken("33444555", columns=6, device=device)
    emissions = compiler.emissions(log_posteriors, torch.tensor([8]))
    graphs = compiler.compile([[0]])
    (span,) = best_path(graphs, emissions)[0]
    assert (span.unit, span.heard, span.start, span.end) == (0, 1, 0, 8)
    assert best_columns(graphs, emissions).tolist() == [[3, 3, 4, 4, 4, 5, 5, 5]]


def test_only_competitors_are_heard(device):
    """Unit 3 is spoken in place of 1, which may only be taken for 2."""
    lists = [[1, 2, 3], [2], [], [0, 0]]
    compiler = MlFsaCompiler(NUM_UNITS, "substitution", competitors=lists)
    for text in ("0003322", "0001122", "0001133"):
        spans, found = _search(compiler, [0, 1, 2], _spoken(text, device=device))
        for span in spans:
            assert span.heard == span.unit or span.heard in lists[span.unit]
            allowed = {span.unit, *lists[span.unit]}
            never = [unit for unit in range(NUM_UNITS) if unit not in allowed]
            assert found.heard[span.position, never].eq(0).all()
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
    compiler = MlFsaCompiler(1, "substitution", skip=True, filler=True)
    zeros = torch.zeros(1, 4, 1, device=device)
    spans, found = _search(compiler, [0, 0], zeros)
    assert [(span.unit, span.mispronounced) for span in spans] == [(0, False), (0, False)]
    assert found.mispronounced.eq(0).all()
    assert found.heard.shape == (2, 1)


@pytest.mark.parametrize("as_array", [torch.tensor, np.array])
def test_priors_decide_between_equals(as_array, device):
    """What was spoken sounds half like 2, half like 3; the table knows which is more likely."""
    log_posteriors = torch.tensor([0.01, 0.01, 0.49, 0.49], device=device).log().expand(1, 4, 4)
    for likely, other in ((2, 3), (3, 2)):
        table = np.full((NUM_UNITS, NUM_UNITS), -np.inf)
        table[0, likely], table[0, other] = math.log(0.8), math.log(0.2)
        compiler = MlFsaCompiler(NUM_UNITS, "substitution", competitors=as_array(table))
        spans, found = _search(compiler, [0], log_posteriors)
        assert spans[0].heard == likely
        ratio = float(found.heard[0, likely] / found.heard[0, other])
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
    frames, spikes, heard = 40, [3, 11, 17, 26, 35], [0, 1, 0, 3, 1]
    blank = 2  # in the midst of the units
    columns = [0, 1, 3, 4]
    probabilities = torch.full((1, frames, NUM_UNITS + 1), 0.001, device=device)
    probabilities[..., blank] = 1 - 0.001 * NUM_UNITS
    for frame, unit in zip(spikes, heard):
        probabilities[0, frame] = 0.01
        probabilities[0, frame, columns[unit]] = 1 - 0.01 * NUM_UNITS
    spans, found = _search(compiler, [0, 1, 2, 3, 1], probabilities.log(), blank=blank)
    assert [span.heard for span in spans] == heard
    assert [span.mispronounced for span in spans] == [False, False, True, False, False]
    assert all(span.start <= spike < span.end for span, spike in zip(spans, spikes))
    assert found.mispronounced[2] > 0.5
    assert found.mispronounced[[0, 1, 3, 4]].max() < 0.1
