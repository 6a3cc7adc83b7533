"""Several pronunciations of a word, any of them correct, and one item a canonical unit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlvae.fsa import UnitSpan
from mlvae.tiers import has_tier, tier, with_tiers, with_units
from mlvae.train.pronunciations import (
    by_position,
    canonical_spans,
    cut_pronunciations,
    positions_of_slots,
    variant_differs,
)
from mlvae.train.targets import variant_spans
from tests.systems.test_localize import run
from tests.train.test_estep import BOUNDARY, CORRECTNESS, NUM_UNITS
from tests.train.tiny import TABLE, make_cut

FRAMES = 5  # a unit


def cut_of(said: str, canonical: str, words: list[str], alternatives: dict[int, list[str]]):
    """Features that say letters clearly; words are strings of canonical letters."""
    features = np.full((FRAMES * len(said), NUM_UNITS + 2), -4.0)
    for place, letter in enumerate(said):
        mine = slice(FRAMES * place, FRAMES * (place + 1))
        features[mine, TABLE.ids([letter], "x")[0]] = 4.0
        features[FRAMES * place, BOUNDARY] = 4.0
    features[:, CORRECTNESS] = -2.0
    cut = make_cut("x", features.astype(np.float32), list(canonical))
    cut.supervisions[0].custom.update(
        words=words,
        word_of_unit=[place for place, word in enumerate(words) for _ in word],
        pronunciations=[
            [list(word), *map(list, alternatives.get(place, []))]
            for place, word in enumerate(words)
        ],
    )
    return cut


def test_a_cut_without_words_has_one_for_each_unit():
    plain = make_cut("x", np.zeros((9, 3)), ["a", "b"])
    worded = cut_of("ab", "ab", ["a", "b"], {})
    assert cut_pronunciations(plain, TABLE) == cut_pronunciations(worded, TABLE) == [[[0]], [[1]]]
    assert positions_of_slots(worded, TABLE) is None


def test_words_have_their_pronunciations():
    cut = cut_of("abc", "abc", ["ab", "c"], {0: ["ab", "b", "db"], 1: ["zz"]})
    assert cut_pronunciations(cut, TABLE) == [[[0, 1], [1], [3, 1]], [[2]]]
    assert cut_pronunciations(cut, TABLE, [3, 3, 3]) == [[[3, 3]], [[3]]]
    assert positions_of_slots(cut, TABLE) == [0, 1, 1, 0, 1, 2]


def test_pronunciations_of_other_words_are_refused():
    cut = cut_of("ab", "ab", ["ab"], {})
    cut.supervisions[0].custom["pronunciations"] = []
    assert cut_pronunciations(cut, TABLE) == [[[0, 1]]]
    cut.supervisions[0].custom["pronunciations"] = [[["a"]], [["b"]]]
    with pytest.raises(ValueError, match="x: pronunciations of 2 words, but it has 1"):
        cut_pronunciations(cut, TABLE)


def span(slot: int, unit: int, start: int, end: int, perceived: int | None = None) -> UnitSpan:
    perceived = unit if perceived is None else perceived
    return UnitSpan(0, unit, start, end, "unit", perceived != unit, perceived, 0.0, 0, slot)


def test_a_path_is_brought_to_the_canonical_units():
    # "abc", or "dc": the a goes, the b is a d.
    places, units = [0, 1, 2, 1, 2], [0, 1, 2]
    as_written = [span(0, 0, 0, 3), span(1, 1, 3, 5, perceived=3), span(2, 2, 5, 9)]
    assert canonical_spans(as_written, places, units) == [
        s._replace(position=i) for i, s in enumerate(as_written)
    ]
    assert not variant_differs(as_written, places, units)
    other = [span(3, 3, 2, 5), span(4, 2, 5, 9, perceived=0)]
    assert variant_differs(other, places, units)
    found = canonical_spans(other, places, units)
    assert [(s.unit, s.start, s.end, s.mispronounced, s.perceived) for s in found] == [
        (0, 2, 2, False, 0),
        (1, 2, 5, False, 1),
        (2, 5, 9, True, 0),
    ]
    assert [s.slot for s in found] == [s.position for s in found] == [0, 1, 2]
    # The canonical unit perceived in the place of another pronunciation's is no error.
    right = canonical_spans([span(3, 3, 2, 5, perceived=1), other[1]], places, units)
    assert not right[1].mispronounced
    deleted = span(4, 2, 5, 5, perceived=-1)
    assert canonical_spans([other[0], deleted], places, units)[2].mispronounced


def test_probabilities_are_added_up_over_pronunciations():
    values = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5])
    assert by_position(values, [0, 1, 1, -1, 0], 3).tolist() == pytest.approx([0.6, 0.5, 0.0])


@pytest.mark.parametrize("topology", ["ml", "substitution"])
def test_another_pronunciation_is_as_right_as_the_first(topology):
    def located(said: str, alternatives: dict[int, list[str]]):
        cut = cut_of(said, "abc", ["ab", "c"], alternatives)
        (found,), short = run([cut], topology=topology)
        assert not short
        assert [item.symbol for item in tier(found, "mlvae")] == ["a", "b", "c"]
        flagged = [
            item.symbol != said.symbol
            for item, said in zip(tier(found, "mlvae"), tier(found, "mlvae_perceived"))
        ]
        return found, flagged

    wrong, flagged = located("adc", {})
    assert flagged == [False, True, False]
    right, flagged = located("adc", {0: ["ad"]})
    assert flagged == [False, False, False]
    for name in ("mlvae", "mlvae_word"):
        assert max(item.score for item in tier(wrong, name)) > 0.9
        assert max(item.score for item in tier(right, name)) < 0.1
    assert [item.start for item in tier(right, "mlvae")] == pytest.approx([0, 0.05, 0.1])
    assert not has_tier(wrong, "mlvae_variant")
    assert [item.symbol for item in tier(right, "mlvae_variant")] == ["a", "d", "c"]

    longer, flagged = located("adbc", {0: ["adb"]})
    assert flagged == [False, False, False]
    assert [(i.start, i.duration) for i in tier(longer, "mlvae")] == [
        pytest.approx(times) for times in [(0, 0.05), (0.1, 0.05), (0.15, 0.05)]
    ]
    assert [item.symbol for item in tier(longer, "mlvae_variant")] == ["a", "d", "b", "c"]

    shorter, flagged = located("ac", {0: ["a"]})
    assert flagged == [False, False, False]
    times = [(i.start, i.duration) for i in tier(shorter, "mlvae")]
    assert times == [pytest.approx(t) for t in [(0, 0.05), (0.05, 0), (0.05, 0.05)]]


def test_training_learns_what_the_alignment_found_to_be_spoken():
    (found,), _ = run([cut_of("adbc", "abc", ["ab", "c"], {0: ["adb"]})])
    cut = with_tiers(
        found, {"fa": tier(found, "mlvae"), "fa_variant": tier(found, "mlvae_variant")}
    )
    assert [span.unit for span in variant_spans(cut, TABLE)] == [0, 3, 1, 2]
    cut.supervisions[0].alignment.pop("fa_variant")
    assert [span.unit for span in variant_spans(cut, TABLE)] == [0, 1, 2]


def test_other_units_may_keep_their_words():
    cut = cut_of("abc", "abc", ["ab", "c"], {0: ["b"]})
    for units, word_of, words in (
        (["a", "d", "d"], [0, 0, 1], [[[0, 3]], [[3]]]),
        (["d", "d"], [1, 1], [[[3, 3]]]),
        (["d", "d"], None, [[[3]], [[3]]]),
    ):
        assert cut_pronunciations(with_units(cut, units, word_of), TABLE) == words
