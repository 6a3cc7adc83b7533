"""Tiers of words and of what was left out, and edges that are posterior means."""

from __future__ import annotations

import numpy as np
import pytest
from lhotse import CutSet

from mlvae.fsa import MlFsaCompiler, posteriors, word_posteriors
from mlvae.tiers import DELETED, has_tier, tier, units_of_words
from mlvae.train import Decoding, EStep
from mlvae.train.estep import search_compiler
from tests.systems.test_localize import run as located
from tests.train.test_estep import NUM_UNITS, GivenFeatures, random_cuts, stand_in
from tests.train.tiny import CPU, TABLE, make_cut


def run(cuts, topology="substitution", decoding=None):
    return located(cuts, decoding=decoding, topology=topology)


def scores(cuts, compiler):
    """Graphs and emissions of each batch."""
    model = stand_in()
    search = EStep(compiler, CutSet.from_cuts(cuts), GivenFeatures(TABLE), 8000)
    for batch in search.batches:
        yield batch.graphs, search._scores(batch.cuts, model, Decoding(), CPU)[0]


def with_words(cut, words, word_of=None):
    cut.supervisions[0].custom["words"] = words
    if word_of is not None:
        cut.supervisions[0].custom["word_of_unit"] = word_of
    return cut


def worded_cuts() -> list:
    """Units two by two in words; the first cut has no words."""
    cuts = random_cuts()
    for cut in cuts[1:]:
        count = len(cut.supervisions[0].custom["units"])
        word_of = [place // 2 for place in range(count)]
        with_words(cut, [f"w{word}" for word in range(word_of[-1] + 1)], word_of)
    assert max(len(cut.supervisions[0].custom["units"]) for cut in cuts) > 2
    return cuts


@pytest.mark.parametrize("topology", ["ml", "substitution"])
def test_words_have_a_tier_with_their_own_probability(topology):
    cuts = worded_cuts()
    expected = {}
    for graphs, emissions in scores(cuts, search_compiler(stand_in(), topology)):
        lengths = {cut.id: len(cut.supervisions[0].custom["units"]) for cut in cuts}
        groups = [[place // 2 for place in range(lengths[name])] for name in emissions.names]
        expected.update(zip(emissions.names, word_posteriors(graphs, emissions, groups)))
    found, _ = run(cuts, topology)
    assert not has_tier(found[0], "mlvae_word")
    for cut in list(found)[1:]:
        items, units = tier(cut, "mlvae_word"), tier(cut, "mlvae")
        assert [item.symbol for item in items] == cut.supervisions[0].custom["words"]
        chances = [item.score for item in items]
        assert chances == pytest.approx(expected[cut.id].tolist(), abs=1e-6)
        for place, item in enumerate(items):
            mine = units[2 * place : 2 * place + 2]
            assert item.start == mine[0].start
            assert item.end == pytest.approx(mine[-1].end)
            assert max(u.score for u in mine) - 1e-4 <= item.score
            assert item.score <= sum(u.score for u in mine) + 1e-4


def test_a_word_of_one_unit_is_as_likely_mispronounced_as_its_unit():
    cuts = random_cuts(5)
    for cut in cuts:
        with_words(cut, [unit.upper() for unit in cut.supervisions[0].custom["units"]])
    for cut in run(cuts)[0]:
        words, units = tier(cut, "mlvae_word"), tier(cut, "mlvae")
        assert [item.symbol for item in words] == [item.symbol.upper() for item in units]
        assert [(i.start, i.score) for i in words] == [(i.start, i.score) for i in units]
        assert [i.duration for i in words] == pytest.approx([i.duration for i in units])


def test_which_units_are_a_words():
    cut = make_cut("x", np.zeros((5, 3)), ["a", "b", "c"])
    assert units_of_words(cut) is None
    assert units_of_words(with_words(cut, ["A", "BC"])) is None  # nothing tells
    assert units_of_words(with_words(cut, ["A", "B", "C"])) == [0, 1, 2]
    assert units_of_words(with_words(cut, ["A", "BC"], [0, 1, 1])) == [0, 1, 1]
    for wrong in ([0, 0, 0], [0, 1], [1, 1, 2], [0, 1, 0], [0, 2, 2], []):
        with pytest.raises(ValueError, match="x: word_of_unit"):
            units_of_words(with_words(cut, ["A", "BC"], wrong))


@pytest.mark.filterwarnings("ignore:.*too few frames.*")
@pytest.mark.parametrize("word_of", [None, [0, 0]])
def test_a_cut_that_is_too_short_does_not_disturb_the_words_of_others(word_of):
    short = make_cut("short", np.zeros((1, NUM_UNITS + 2)), ["a", "b"])
    if word_of is not None:
        with_words(short, ["AB"], word_of)
    cuts = worded_cuts()[:4]
    found, names = run([*cuts[:2], short, *cuts[2:]])
    assert names == ["short"]
    for cut, other in zip(found, run(cuts)[0]):
        assert has_tier(cut, "mlvae_word") == has_tier(other, "mlvae_word")
        for name in cut.supervisions[0].alignment:
            a, b = tier(cut, name), tier(other, name)
            assert [i.score for i in a] == pytest.approx([i.score for i in b], abs=1e-4)


def test_what_was_deleted_has_a_tier_where_it_can_be():
    cuts = random_cuts()
    assert not any(has_tier(cut, "mlvae_deleted") for cut in run(cuts)[0])
    num_deleted = 0
    found, _ = run(cuts, decoding=Decoding(deletions=True, deletion_rate=0.9))
    compiler = MlFsaCompiler(NUM_UNITS, "substitution", deletions=True, deletion_rate=0.9)
    expected = {
        name: unit
        for graphs, emissions in scores(cuts, compiler)
        for name, unit in zip(emissions.names, posteriors(graphs, emissions))
    }
    for cut in found:
        units, deleted = tier(cut, "mlvae"), tier(cut, "mlvae_deleted")
        assert [(i.symbol, i.start, i.duration) for i in deleted] == [
            (i.symbol, i.start, i.duration) for i in units
        ]
        assert [i.score for i in deleted] == pytest.approx(expected[cut.id].deleted.tolist())
        assert all(a.score <= b.score + 1e-6 for a, b in zip(deleted, units))
        num_deleted += sum(item.symbol == DELETED for item in tier(cut, "mlvae_perceived"))
    assert num_deleted > 0
