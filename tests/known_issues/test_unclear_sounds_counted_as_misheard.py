"""Annotators write ``err`` where a sound is none of the phones. No system can name it, and one that
flagged such a unit and named a phone counted as wrong about what was heard.
"""

from __future__ import annotations

import pytest

from mlvae.score.answers import heard_accuracy, outcomes, tier_answer
from mlvae.score.details import by_error
from mlvae.score.metrics import score
from mlvae.score.truth import truth_of
from tests.corpora.l2arctic.test_truth import mapped, utterance
from tests.corpora.l2arctic.tree import dog
from tests.score.test_answers import make_cut

WORDS = dog(SH="SH,S,s", IY="IY1,err,s", HH="HH,spn,s", G="G,K,s")


def answer_of(truth, **heard):
    """All four errors are flagged, by what is given or as ``d``."""
    items = [
        (unit, start, end) for unit, start, end in zip(truth.canonical, truth.starts, truth.ends)
    ]
    said = {"sh": "s", "iy": "d", "hh": "d", "g": "k", **heard}
    tiers = [(said.get(unit, unit), start, end) for unit, start, end in items]
    cut = make_cut(truth.utterances[0], mlvae=items, mlvae_heard=tiers)
    return tier_answer("x", truth, [cut], "mlvae", "mlvae_heard")


@pytest.fixture
def truth():
    return truth_of([mapped(WORDS).supervision(utterance(WORDS), "test")])


def test_units_annotated_err_are_left_out_of_what_was_heard_right(truth):
    assert truth.perceived[:3] == ["s", "err", "err"]
    found = heard_accuracy(truth, answer_of(truth))
    assert (found.share, found.num_named) == (1.0, 2)
    found = heard_accuracy(truth, answer_of(truth, g="d"))
    assert (found.share, found.num_named) == (0.5, 2)


def test_they_are_errors_all_the_same(truth):
    answer = answer_of(truth)
    assert by_error(truth, answer)["num_substituted"] == 4
    assert score(outcomes(truth, answer)).hard_f1 == 1.0


def test_a_system_that_says_err_of_a_phone_is_wrong(truth):
    found = heard_accuracy(truth, answer_of(truth, sh="err", iy="err"))
    assert (found.share, found.num_named) == (0.5, 2)
