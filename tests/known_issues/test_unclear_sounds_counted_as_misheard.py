"""Annotators write ``err`` where a sound is none of the phones. No system can name it, and one that
flagged such a unit and named a phone counted as wrong about what was perceived.
"""

from __future__ import annotations

import pytest

from mlvae.score.hypotheses import outcomes, perceived_accuracy, tier_hypothesis
from mlvae.score.metrics import score
from mlvae.score.reference import reference_of
from mlvae.score.tables import by_error
from tests.corpora.l2arctic.test_reference import mapped, utterance
from tests.corpora.l2arctic.tree import dog
from tests.score.test_hypotheses import make_cut

WORDS = dog(SH="SH,S,s", IY="IY1,err,s", HH="HH,spn,s", G="G,K,s")


def hypothesis_of(reference, **perceived):
    """All four errors are flagged, by what is given or as ``d``."""
    items = [
        (unit, start, end)
        for unit, start, end in zip(reference.canonical, reference.starts, reference.ends)
    ]
    said = {"sh": "s", "iy": "d", "hh": "d", "g": "k", **perceived}
    tiers = [(said.get(unit, unit), start, end) for unit, start, end in items]
    cut = make_cut(reference.utterances[0], mlvae=items, mlvae_perceived=tiers)
    return tier_hypothesis("x", reference, [cut], "mlvae", "mlvae_perceived")


@pytest.fixture
def reference():
    return reference_of([mapped(WORDS).supervision(utterance(WORDS), "test")])


def test_units_annotated_err_do_not_count_for_the_perceived_accuracy(reference):
    assert reference.perceived[:3] == ["s", "err", "err"]
    found = perceived_accuracy(reference, hypothesis_of(reference))
    assert (found.fraction, found.num_named) == (1.0, 2)
    found = perceived_accuracy(reference, hypothesis_of(reference, g="d"))
    assert (found.fraction, found.num_named) == (0.5, 2)


def test_they_are_errors_all_the_same(reference):
    hypothesis = hypothesis_of(reference)
    assert by_error(reference, hypothesis)["num_substituted"] == 4
    assert score(outcomes(reference, hypothesis)).hard_f1 == 1.0


def test_a_system_that_says_err_of_a_phone_is_wrong(reference):
    found = perceived_accuracy(reference, hypothesis_of(reference, sh="err", iy="err"))
    assert (found.fraction, found.num_named) == (0.5, 2)
