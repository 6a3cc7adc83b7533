"""Probabilities of words and mean edges, against enumerating all paths."""

from __future__ import annotations

import math

import pytest
import torch

from mlvae.fsa import MlFsaCompiler, expected_boundaries, posteriors, too_short, word_posteriors
from tests.fsa import brute_force
from tests.fsa.cases import INPUTS, NUM_UNITS, random_case

KINDS = {
    "ml": {},
    "substitution": {"topology": "substitution"},
    "two states": {"topology": "substitution", "states": 2},
    "silence": {"silence": True},
    "deletions": {"topology": "substitution", "deletions": True},
    "all": {"topology": "substitution", "silence": True, "deletions": True, "insertions": True},
    "pronunciations": {"alternatives": True},
    "pronunciations, deletions": {"alternatives": True, "deletions": True, "silence": True},
}
WIDE = 1e3


def cases(kind: str):
    for seed in range(6):
        inputs = list(INPUTS)[seed % len(INPUTS)]
        yield random_case(seed, inputs=inputs, **KINDS[kind])


def shares(case, index: int) -> list[tuple[float, brute_force.Hypothesis]]:
    hypotheses = case.hypotheses(index)
    total = brute_force.log_sum([hypothesis.score for hypothesis in hypotheses])
    return [(math.exp(hypothesis.score - total), hypothesis) for hypothesis in hypotheses]


def of_words(case, index: int, word_of: list[int]) -> list[float]:
    """P(word wrong) by enumeration; ``word_of`` each slot."""
    wrong = [0.0] * (max(word_of) + 1)
    for probability, hypothesis in shares(case, index):
        units = [segment for segment in hypothesis.segments if segment.kind == "unit"]
        for word in {word_of[s.slot] for s in units if s.wrong or s.deleted}:
            wrong[word] += probability
    return wrong


def slots_of(case, index: int) -> list[int]:
    """The word of each slot, as compiled."""
    distinct = [{tuple(units): None for units in word} for word in case.words[index]]
    return [number for number, word in enumerate(distinct) for units in word for _ in units]


@pytest.mark.parametrize("kind", KINDS)
def test_words_against_enumeration(kind, device):
    compared = 0
    for case in cases(kind):
        graphs, emissions = case.graphs(), case.emissions(device)
        found = word_posteriors(graphs, emissions, output_beam=WIDE)
        short = set(too_short(graphs, emissions))
        for index, values in enumerate(found):
            if index in short:
                assert values.shape == (0,)
                continue
            expected = of_words(case, index, slots_of(case, index))
            assert values.tolist() == pytest.approx(expected, abs=1e-5)
            compared += len(values)
    assert compared > 10


@pytest.mark.parametrize("kind", ["ml", "deletions", "all"])
def test_units_may_be_grouped_to_words(kind, device):
    """Words of several units: not what multiplying their probabilities gives."""
    product_is_wrong = 0
    for case in cases(kind):
        graphs, emissions = case.graphs(), case.emissions(device)
        short = set(too_short(graphs, emissions))
        words = [[slot // 2 for slot in range(len(units))] for units in case.utterances]
        found = word_posteriors(graphs, emissions, words, output_beam=WIDE)
        units = posteriors(graphs, emissions, output_beam=WIDE)
        for index in set(range(len(words))) - short:
            expected = of_words(case, index, words[index])
            assert found[index].tolist() == pytest.approx(expected, abs=1e-5)
            wrong = units[index].mispronounced + units[index].deleted
            for word, value in enumerate(found[index].tolist()):
                mine = wrong[[slot for slot, of in enumerate(words[index]) if of == word]]
                assert float(mine.max()) - 1e-5 <= value <= float(mine.sum()) + 1e-5
                product = 1 - float((1 - mine).prod())
                product_is_wrong += abs(product - value) > 1e-3
    assert product_is_wrong > 2


def test_a_word_that_is_surely_right_or_wrong(device):
    """Probabilities near 0 keep their digits, and nothing leaves 0 to 1."""
    compiler = MlFsaCompiler(NUM_UNITS, "substitution")
    said = [0, 0, 1, 1, 3, 3]
    probabilities = torch.full((1, 6, NUM_UNITS), 0.005, device=device)
    probabilities[0, range(6), said] = 0.985
    emissions = compiler.emissions(probabilities.log(), torch.tensor([6]))
    (found,) = word_posteriors(compiler.compile([[0, 1, 2]]), emissions, [[0, 0, 1]])
    assert 0 < found[0] < 1e-3
    assert 1 - 1e-3 < found[1] <= 1


def test_words_that_do_not_fit_are_refused(device):
    compiler = MlFsaCompiler(NUM_UNITS)
    graphs = compiler.compile([[0, 1, 2]])
    scores = torch.zeros(1, 5, NUM_UNITS, device=device).log_softmax(-1)
    emissions = compiler.emissions(scores, torch.tensor([5]))
    for words, reason in (
        ([[0, 1]], "utterance 0: words of 2 slots, but it has 3"),
        ([[0, 2, 2]], "utterance 0: words must be 0, 1, 2, ... without a gap"),
        ([[0, 0, 1], [0]], "words of 2 utterances for 1 graphs"),
    ):
        with pytest.raises(ValueError, match=reason):
            word_posteriors(graphs, emissions, words)


@pytest.mark.parametrize("kind", KINDS)
def test_edges_against_enumeration(kind, device):
    compared = 0
    for case in cases(kind):
        graphs, emissions = case.graphs(), case.emissions(device)
        short = set(too_short(graphs, emissions))
        for index, edges in enumerate(expected_boundaries(graphs, emissions, output_beam=WIDE)):
            if index in short:
                assert edges.shape == (0, 2)
                continue
            sums = torch.zeros(case.num_slots(index), 3, dtype=torch.float64)
            for probability, hypothesis in shares(case, index):
                for segment in hypothesis.segments:
                    if segment.kind == "unit" and not segment.deleted:
                        row = torch.tensor([1.0, segment.start, segment.end])
                        sums[segment.slot] += probability * row
            expected = sums[:, 1:] / sums[:, :1]
            torch.testing.assert_close(edges, expected, atol=2e-4, rtol=0, equal_nan=True)
            compared += len(edges)
    assert compared > 10


def test_units_that_follow_each_other_on_every_path_tile(device):
    for case in cases("two states"):
        emissions = case.emissions(device)
        for frames, edges in zip(case.num_frames, expected_boundaries(case.graphs(), emissions)):
            if len(edges):
                torch.testing.assert_close(edges[1:, 0], edges[:-1, 1])
                assert edges[0, 0] == pytest.approx(0.0, abs=1e-6)
                assert edges[-1, 1] == pytest.approx(float(frames), abs=1e-5)
                assert (edges[:, 1] > edges[:, 0]).all()
