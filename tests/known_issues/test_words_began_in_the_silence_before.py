"""A word whose first unit was left out beside a silence began at the end of the word before, in the
tier of words but not in the scores, which had a definition of their own.
"""

from __future__ import annotations

import pytest
import torch
from lhotse import MonoCut, SupervisionSegment
from lhotse.supervision import AlignmentItem

from mlvae.score.words import word_hypothesis
from mlvae.systems.localize import _with_words
from mlvae.tiers import DELETED, tier, with_tiers, word_spans

# Two words of two units, a silence from 0.2 to 0.5 s, and a third word of two units.
WORD_OF = [0, 0, 1, 1, 2, 2]
WHOLE = [(0.0, 0.1), (0.1, 0.1), (0.5, 0.1), (0.6, 0.2), (0.8, 0.1), (0.9, 0.1)]


def items(places, deleted=()):
    return [
        AlignmentItem("abcdef"[i], start, 0.0 if i in deleted else duration, 0.1)
        for i, (start, duration) in enumerate(places)
    ]


def at(places, deleted):
    """Places in which what is left out lies at the end of the unit before it."""
    found = list(places)
    for i in sorted(deleted):
        found[i] = (sum(found[i - 1]) if i else 0.0, 0.0)
    return found


@pytest.mark.parametrize(
    ("deleted", "expected"),
    [
        ([], [(0.0, 0.2), (0.5, 0.3), (0.8, 0.2)]),
        ([2], [(0.0, 0.2), (0.6, 0.2), (0.8, 0.2)]),  # not from 0.2 s
        ([0], [(0.1, 0.1), (0.5, 0.3), (0.8, 0.2)]),
        ([5], [(0.0, 0.2), (0.5, 0.3), (0.8, 0.1)]),
        ([2, 3], [(0.0, 0.2), (0.2, 0.0), (0.8, 0.2)]),  # no length, where its first unit is
    ],
)
def test_a_word_lies_from_its_first_to_its_last_unit_with_a_length(deleted, expected):
    units = items(at(WHOLE, deleted), deleted)
    assert [pytest.approx(span) for span in word_spans(units, WORD_OF)] == expected
    # The last unit's place, too, does not count.
    assert word_spans(items([(0.0, 0.1), (0.9, 0.0)], [1]), [0, 0]) == [(0.0, 0.1)]

    custom = {"units": list("abcdef"), "words": ["AB", "CD", "EF"], "word_of_unit": WORD_OF}
    text = SupervisionSegment("u", "u", 0.0, 1.0, custom=custom)
    perceived = [
        item._replace(symbol=DELETED if i in deleted else item.symbol)
        for i, item in enumerate(units)
    ]
    cut = with_tiers(
        MonoCut("u", 0.0, 1.0, 0, supervisions=[text]),
        {"fa": units, "mlvae": units, "mlvae_perceived": perceived},
    )
    cut = _with_words(cut, WORD_OF, torch.full((3,), 0.5))
    scored = word_hypothesis(cut, "mlvae", "mlvae_perceived")
    for own, name in ((cut, "mlvae_word"), (scored, "mlvae"), (scored, "fa")):
        found = [(item.start, item.duration) for item in tier(own, name)]
        assert [pytest.approx(span) for span in found] == expected, name
