from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from lhotse import CutSet

from mlvae.fsa import UnitSpan
from mlvae.systems.localize import TrainedMlVae, perceived_symbol
from mlvae.tiers import DELETED, UNKNOWN, has_tier, tier, with_units
from mlvae.train import Decoding
from tests.train.test_estep import (
    NUM_UNITS,
    GivenFeatures,
    features_of,
    random_cuts,
    stand_in,
)
from tests.train.tiny import DEVICE, TABLE, aligned, make_cut


def run(cuts, model=None, decoding=None, topology="ml", **options):
    given = GivenFeatures(TABLE)
    system = TrainedMlVae(model or stand_in(), topology, decoding or Decoding(), given, DEVICE)
    return system.localize(CutSet.from_cuts(cuts), **options)


def times(items) -> list[tuple[float, float]]:
    return [(item.start, item.end) for item in items]


def test_two_tiers_of_equal_times_that_differ_where_a_unit_is_wrong():
    said = [0] * 4 + [3] * 4 + [2] * 4
    cut = make_cut("x", features_of(12, said, starts=[0, 4, 8]), ["a", "b", "c"], duration=0.123)
    (found,), short = run([cut])
    assert short == []
    canonical, perceived = tier(found, "mlvae"), tier(found, "mlvae_perceived")
    assert [item.symbol for item in canonical] == ["a", "b", "c"]
    assert [item.symbol for item in perceived] == ["a", UNKNOWN, "c"]
    assert times(canonical) == times(perceived)
    expected = [(0.0, 0.04), (0.04, 0.08), (0.08, 0.123)]  # the last one ends with the cut
    assert times(canonical) == [pytest.approx(pair) for pair in expected]
    chances = [item.score for item in canonical]
    assert chances == [item.score for item in perceived]
    assert chances[1] > 0.95 > 0.05 > max(chances[0], chances[2])


def test_the_score_is_the_probability_over_all_paths():
    """One unit: every path starts at frame 0, so that the two branches can be summed by hand."""
    features = features_of(2, sure=0.7)
    features[:, :NUM_UNITS] = [[0.3, -0.2, 0.5, 0.1], [1.0, 0.2, -0.3, 0.0]]
    (found,), _ = run([make_cut("x", features, ["c"])])
    q = torch.from_numpy(features[:, :NUM_UNITS]).softmax(1)[:, 2].tolist()
    wrong_rate = 1 / (1 + math.exp(0.7))
    right = (1 - wrong_rate) * math.prod(p / 0.25 for p in q)
    wrong = wrong_rate * math.prod((1 - p) / 0.75 for p in q)
    assert tier(found, "mlvae")[0].score == pytest.approx(wrong / (right + wrong), rel=1e-4)


def test_order_and_other_tiers_are_kept_and_batches_do_not_matter():
    cuts = random_cuts()
    cuts[3] = aligned(cuts[3], [0, *range(1, len(cuts[3].supervisions[0].custom["units"])), 6])
    together, _ = run(cuts)
    one_by_one, _ = run(cuts, max_frames=1)
    assert [cut.id for cut in together] == [cut.id for cut in cuts]
    assert [has_tier(cut, "fa") for cut in together] == [cut is cuts[3] for cut in cuts]
    assert not any(has_tier(cut, "mlvae") for cut in cuts)
    for cut, other in zip(together, one_by_one):
        for name in ("mlvae", "mlvae_perceived"):
            items, others = tier(cut, name), tier(other, name)
            assert times(items) == times(others)
            assert [i.symbol for i in items] == [i.symbol for i in others]
            assert [i.score for i in items] == pytest.approx([i.score for i in others], abs=1e-4)
        units = cut.supervisions[0].custom["units"]
        assert [item.symbol for item in tier(cut, "mlvae")] == units
        assert all(0 <= item.score <= 1 for item in tier(cut, "mlvae"))
        edges = [0.0, *(item.end for item in tier(cut, "mlvae"))]
        assert edges[:-1] == pytest.approx([item.start for item in tier(cut, "mlvae")])
        assert edges[-1] == pytest.approx(cut.duration)


def test_decoding_is_followed():
    """A weak acoustic hint against q(pi): who wins depends on the options."""
    features = features_of(8, [1] * 8, wrong=[0], sure=1.5)
    features[:, :NUM_UNITS] *= 0.2
    cut = make_cut("x", features, ["b"])

    def flagged(**options) -> bool:
        (found,), _ = run([cut], decoding=Decoding(**options))
        return tier(found, "mlvae_perceived")[0].symbol == UNKNOWN

    assert not flagged()
    assert flagged(acoustic_scale=0.2)


@pytest.mark.filterwarnings("ignore:.*too few frames.*")
def test_cuts_that_are_too_short_are_named():
    cuts = random_cuts(4)
    short = make_cut("short", np.zeros((1, NUM_UNITS + 2)), ["a", "b"])
    found, names = run([cuts[0], short, *cuts[1:]])
    assert names == ["short"]
    expected, _ = run(cuts)
    assert [cut.id for cut in found] == [cut.id for cut in cuts]
    for cut, other in zip(found, expected):
        assert tier(cut, "mlvae") == tier(other, "mlvae")
    nothing, names = run([short])
    assert (len(nothing), names) == (0, ["short"])


def test_what_was_perceived_instead_is_said_where_the_topology_can():
    said = [0] * 4 + [3] * 4 + [2] * 4
    cut = make_cut("x", features_of(12, said, starts=[0, 4, 8]), ["a", "b", "c"])
    (found,), short = run([cut], topology="substitution")
    assert short == []
    assert [item.symbol for item in tier(found, "mlvae")] == ["a", "b", "c"]
    assert [item.symbol for item in tier(found, "mlvae_perceived")] == ["a", "d", "c"]
    assert times(tier(found, "mlvae")) == times(tier(found, "mlvae_perceived"))
    chances = [item.score for item in tier(found, "mlvae")]
    assert chances[1] > 0.95 > 0.05 > max(chances[0], chances[2])


def test_the_confusion_table_weighs_competitors():
    """Two of them sound alike: the table decides."""
    features = features_of(6, wrong=[0])
    features[:, :NUM_UNITS] = [-3.0, -3.0, 2.0, 2.0]
    cut = make_cut("x", features, ["a"])
    for likely in (2, 3):
        model = stand_in()
        row = torch.tensor([0.0, 0.1, 0.1, 0.1])
        row[likely] = 0.8
        model.log_confusion[0] = row.log()
        (found,), _ = run([cut], model, topology="substitution")
        assert [item.symbol for item in tier(found, "mlvae_perceived")] == [TABLE.symbols[likely]]


def test_the_symbol_of_what_was_perceived():
    correct = UnitSpan(0, 1, 2, 6, "unit", False, 1, 0.0, 0, 0)
    assert perceived_symbol(correct, TABLE) == "b"
    assert perceived_symbol(correct._replace(perceived=3, mispronounced=True), TABLE) == "d"
    assert perceived_symbol(correct._replace(perceived=-1, mispronounced=True), TABLE) == UNKNOWN
    deleted = correct._replace(end=2, perceived=-1, mispronounced=True)
    assert perceived_symbol(deleted, TABLE) == DELETED
    assert not {UNKNOWN, DELETED} & set(TABLE.symbols)


def test_other_units_leave_the_cut_as_it_was():
    cut = aligned(make_cut("x", np.zeros((9, 3)), ["a", "b"]), [0, 4, 9])
    custom = {"units": ["a", "b"], "words": ["A", "B"], "sources": ["1", "2"], "room": "5"}
    cut.supervisions[0].custom = dict(custom)
    other = with_units(cut, ["c"])
    # What is said of each unit is not true of other units.
    assert other.supervisions[0].custom == {"units": ["c"], "room": "5"}
    assert not has_tier(other, "fa")
    assert cut.supervisions[0].custom == custom
    assert has_tier(cut, "fa")
    assert (other.id, other.num_frames) == (cut.id, cut.num_frames)
