"""Edges moved to where a forced alignment of what was perceived has them."""

from __future__ import annotations

import numpy as np
import pytest
from lhotse import CutSet
from lhotse.supervision import AlignmentItem

from mlvae.systems.align import Aligner
from mlvae.systems.localize import in_time, refine_boundaries
from mlvae.tiers import DELETED, UNKNOWN, tier, with_tiers, with_units
from mlvae.train.splices import Lateness
from tests.systems.test_align import make_aligner
from tests.train.tiny import NUM_FEATURES, TABLE, dataset, make_cut, spoken_cut

TIERS = ("mlvae", "mlvae_perceived")


def said_and_written(count: int, seed: int):
    """Sequences without equal neighbours; in one unit of five another one is written."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        said = rng.permutation(len(TABLE))[: rng.integers(2, 5)]
        shift = np.where(rng.random(len(said)) < 0.2, rng.integers(1, len(TABLE), len(said)), 0)
        yield said.tolist(), ((said + shift) % len(TABLE)).tolist()


@pytest.fixture(scope="module")
def edges() -> Aligner:
    aligner = make_aligner()
    cuts = [
        spoken_cut(f"train{i}", said, said, seed=i)
        for i, (said, _) in enumerate(said_and_written(50, seed=0))
    ]
    aligner.train(CutSet.from_cuts(cuts), dataset(), seed=0)
    return aligner


def found_cuts(count: int = 20) -> list:
    """With the tiers of a system that hears well, but puts edges two frames off."""
    rng = np.random.default_rng(2)
    cuts = []
    for number, (said, written) in enumerate(said_and_written(count, seed=1)):
        cut = spoken_cut(f"x{number}", said, written, seed=500 + number)
        true = tier(cut, "fa")
        inner = [item.start + rng.choice([-0.02, 0.02]) for item in true[1:]]
        places = [0.0, *inner, cut.duration]
        tiers = {
            name: [
                AlignmentItem(symbol, begin, end - begin, score)
                for symbol, begin, end, score in zip(
                    TABLE.units(units), places[:-1], places[1:], rng.random(len(units))
                )
            ]
            for name, units in zip(TIERS, (written, said))
        }
        cuts.append(with_tiers(cut, tiers))
    return cuts


def starts(cut, name: str) -> list[float]:
    return [item.start for item in tier(cut, name)]


def test_edges_move_to_the_sounds_and_nothing_else_changes(edges):
    cuts = found_cuts()
    refined = refine_boundaries(cuts, dataset(), edges)
    assert [cut.id for cut in refined] == [cut.id for cut in cuts]
    errors_before, errors_after, num_substituted = [], [], 0
    for cut, other in zip(cuts, refined):
        assert tier(other, "fa") == tier(cut, "fa")
        assert other.supervisions[0].custom == cut.supervisions[0].custom
        assert set(other.supervisions[0].alignment) == {"fa", *TIERS}
        for name in TIERS:
            before, after = tier(cut, name), tier(other, name)
            assert [(i.symbol, i.score) for i in after] == [(i.symbol, i.score) for i in before]
            ends = [0.0, *(item.end for item in after)]
            assert ends[:-1] == pytest.approx([item.start for item in after], abs=1e-5)
            assert ends[-1] == pytest.approx(cut.duration)
            assert all(item.duration > 0 for item in after)
        assert starts(other, "mlvae") == starts(other, "mlvae_perceived")
        num_substituted += sum(
            a.symbol != b.symbol for a, b in zip(tier(cut, "mlvae"), tier(cut, "mlvae_perceived"))
        )
        true = starts(cut, "fa")[1:]
        errors_before += [abs(a - b) for a, b in zip(starts(cut, "mlvae")[1:], true)]
        errors_after += [abs(a - b) for a, b in zip(starts(other, "mlvae")[1:], true)]
    assert num_substituted > 5
    assert min(errors_before) > 0.015
    # All were two frames off; now none is off by more than one, and most are right.
    assert max(errors_after) < 0.015
    assert np.mean(errors_after) < 0.006


def test_they_are_those_of_the_aligner_for_what_was_perceived(edges):
    cuts = found_cuts()
    perceived = [with_units(cut, [i.symbol for i in tier(cut, "mlvae_perceived")]) for cut in cuts]
    expected, _ = edges.align(CutSet.from_cuts(perceived), dataset())
    for cut, aligned in zip(refine_boundaries(cuts, dataset(), edges), expected):
        assert [(i.start, i.duration) for i in tier(cut, "mlvae")] == [
            (i.start, i.duration) for i in tier(aligned, "fa")
        ]


def test_boundaries_that_are_late_are_moved_in_all_tiers_alike(edges):
    """How late they are depends on the unit that ends and on the one that begins."""
    cuts = found_cuts()
    late = Lateness(0.004, {"a": 0.002}, {"b": -0.003}, 100)
    refined = refine_boundaries(cuts, dataset(), edges)
    for before, moved in (
        (cuts, in_time(cuts, late)),
        (refined, refine_boundaries(cuts, dataset(), edges, late=late)),
    ):
        for cut, other in zip(before, moved):
            said = [item.symbol for item in tier(cut, "mlvae_perceived")]
            expected = [
                start - late.of(*pair)
                for start, pair in zip(starts(cut, "mlvae")[1:], zip(said, said[1:]))
            ]
            for name in TIERS:
                assert starts(other, name) == pytest.approx([0.0, *expected], abs=2e-6)
                items = tier(other, name)
                assert [i.symbol for i in items] == [i.symbol for i in tier(cut, name)]
                assert items[-1].end == pytest.approx(tier(cut, name)[-1].end)
                assert [i.end for i in items[:-1]] == pytest.approx([0, *expected][1:], abs=2e-6)


def test_only_boundaries_beside_what_was_left_out_may_move(edges):
    cuts = [with_deleted(cut, 1) if n >= 6 else cut for n, cut in enumerate(found_cuts(12))]
    aligned = refine_boundaries(cuts, dataset(), edges)
    both = refine_boundaries(cuts, dataset(), edges, left_out=True)
    for number, (before, other, cut) in enumerate(zip(cuts, aligned, both)):
        for name in TIERS:
            was, items, found = (tier(some, name) for some in (before, other, cut))
            expected = [item.start for item in was]
            if number >= 6:  # the deleted unit, and the one behind it
                expected[1:3] = [item.start for item in items[1:3]]
            assert [item.start for item in found] == pytest.approx(expected, abs=1e-5)
            ends = [0.0, *(item.end for item in found)]
            assert ends[:-1] == pytest.approx([item.start for item in found], abs=1e-5)
            assert ends[-1] == pytest.approx(cut.duration)
            assert [(i.symbol, i.score) for i in found] == [(i.symbol, i.score) for i in items]


def test_times_that_do_not_go_together_are_all_of_the_alignment(edges):
    """The unit before one that was left out lies behind where the alignment has its end."""
    (cut,) = found_cuts(1)
    cut = with_deleted(cut, 1)
    late = {name: tier(cut, name) for name in TIERS}
    for items in late.values():
        items[0] = items[0]._replace(start=items[0].end - 0.001, duration=0.001)
    cut = with_tiers(cut, late)
    (aligned,) = refine_boundaries([cut], dataset(), edges)
    (both,) = refine_boundaries([cut], dataset(), edges, left_out=True)
    assert [tier(both, name) for name in TIERS] == [tier(aligned, name) for name in TIERS]


def with_perceived(cut, symbols: dict[int, str]):
    items = [
        item._replace(symbol=symbols.get(number, item.symbol))
        for number, item in enumerate(tier(cut, "mlvae_perceived"))
    ]
    return with_tiers(cut, {"mlvae_perceived": items})


def with_deleted(cut, place: int):
    """Nothing was perceived of a unit, whose time goes to the one before it."""
    items = {name: tier(cut, name) for name in TIERS}
    for name in TIERS:
        before, unit = items[name][place - 1 : place + 1]
        items[name][place - 1] = before._replace(duration=unit.end - before.start)
        items[name][place] = unit._replace(start=unit.end, duration=0.0)
    return with_perceived(with_tiers(cut, items), {place: DELETED})


@pytest.mark.filterwarnings("ignore:.*too few frames.*")
def test_cuts_with_nothing_to_align_stay_as_they_are(edges):
    """Whatever lies beside them."""
    cuts = found_cuts(6)
    cuts[0] = with_perceived(cuts[0], {0: UNKNOWN})
    cuts[2] = with_deleted(cuts[2], 1)
    short = make_cut("short", np.zeros((3, NUM_FEATURES)), ["a", "b"])
    items = [AlignmentItem("a", 0.0, 0.01, 0.1), AlignmentItem("b", 0.01, 0.02, 0.2)]
    cuts[4] = with_tiers(short, dict.fromkeys(TIERS, items))
    refined = refine_boundaries(cuts, dataset(), edges)
    assert [cut.id for cut in refined] == [cut.id for cut in cuts]
    for number, (cut, other) in enumerate(zip(cuts, refined)):
        same = all(tier(cut, name) == tier(other, name) for name in TIERS)
        assert same is (number in (0, 4)), number


def test_what_was_deleted_is_where_the_text_would_have_it(edges):
    """It is aligned as the canonical unit, and has at least the frames of its states."""
    cuts = [with_deleted(cut, 1) for cut in found_cuts()]
    as_text = []
    for cut in cuts:
        units = [item.symbol for item in tier(cut, "mlvae_perceived")]
        units[1] = tier(cut, "mlvae")[1].symbol
        as_text.append(with_units(cut, units))
    expected, _ = edges.align(CutSet.from_cuts(as_text), dataset())
    for cut, other, aligned in zip(cuts, refine_boundaries(cuts, dataset(), edges), expected):
        times = [(item.start, item.duration) for item in tier(aligned, "fa")]
        for name in TIERS:
            assert [(item.start, item.duration) for item in tier(other, name)] == times
            assert [i.symbol for i in tier(other, name)] == [i.symbol for i in tier(cut, name)]
        assert tier(other, "mlvae")[1].duration >= 0.02


def spoken_in_another_way(cut):
    """The first unit has no counterpart in what was spoken, and the second was left out."""
    units, perceived = (tier(cut, name) for name in TIERS)
    end = units[2].end
    first = [AlignmentItem(item.symbol, 0.0, 0.0, item.score) for item in units[:2]]
    third = AlignmentItem(units[2].symbol, 0.0, end, units[2].score)
    sounds = [
        AlignmentItem(perceived[0].symbol, 0.0, end / 2, None),
        AlignmentItem(perceived[2].symbol, end / 2, end / 2, None),
        *perceived[3:],
    ]
    third = third._replace(start=end / 2, duration=end / 2)
    tiers = {
        "mlvae": [*first, third, *units[3:]],
        "mlvae_perceived": [
            first[0],
            first[1]._replace(symbol=DELETED, start=end / 2),
            third._replace(symbol=perceived[2].symbol),
            *perceived[3:],
        ],
        "mlvae_variant": sounds,
    }
    tiers["mlvae"][1] = first[1]._replace(start=end / 2)
    return with_tiers(cut, tiers)


def units_of_sounds(cuts):
    """A sound of no unit, the second unit, which was left out, and then unit by unit."""
    return {cut.id: [None, *range(1, len(tier(cut, "mlvae")))] for cut in cuts}


def test_other_pronunciations_move_with_their_units(edges):
    cuts = [spoken_in_another_way(cut) for cut in found_cuts() if len(tier(cut, "mlvae")) > 2]
    assert len(cuts) > 5
    for cut, other in zip(cuts, refine_boundaries(cuts, dataset(), edges, units_of_sounds(cuts))):
        units, sounds = tier(other, "mlvae"), tier(other, "mlvae_variant")
        # A sound of no unit, what was left out, and then units that were spoken.
        first, deleted, *spoken = units
        assert (first.start, first.duration) == (0.0, 0.0)
        assert deleted.start == pytest.approx(sounds[0].end)
        assert deleted.duration >= 0.02
        assert deleted.end == pytest.approx(sounds[1].start)
        assert [(i.start, i.duration) for i in spoken] == [
            (i.start, i.duration) for i in sounds[1:]
        ]
        assert sounds[-1].end == pytest.approx(cut.duration)


def test_sounds_go_with_units_by_their_place_and_not_by_their_times(edges):
    """Times of the two tiers may differ in the last digit."""
    cuts = [spoken_in_another_way(cut) for cut in found_cuts() if len(tier(cut, "mlvae")) > 2]
    shifted = [
        with_tiers(
            cut,
            {
                "mlvae_variant": [
                    item._replace(start=item.start + 1e-6) for item in tier(cut, "mlvae_variant")
                ]
            },
        )
        for cut in cuts
    ]
    places = units_of_sounds(cuts)
    expected = refine_boundaries(cuts, dataset(), edges, places)
    for cut, other in zip(expected, refine_boundaries(shifted, dataset(), edges, places)):
        assert tier(cut, "mlvae") == tier(other, "mlvae")


def test_sounds_that_do_not_fit_their_units_are_named(edges):
    cut = spoken_in_another_way(next(c for c in found_cuts() if len(tier(c, "mlvae")) > 2))
    with pytest.raises(ValueError, match=f"{cut.id}: .* sounds in mlvae_variant"):
        refine_boundaries([cut], dataset(), edges, {cut.id: [0, 1]})


@pytest.mark.filterwarnings("ignore:.*too few frames.*")
def test_nothing_at_all_to_align(edges):
    unknown = [with_perceived(cut, {0: UNKNOWN}) for cut in found_cuts(3)]
    assert refine_boundaries(unknown, dataset(), edges) == unknown
    short = make_cut("short", np.zeros((1, NUM_FEATURES)), ["a"])
    short = with_tiers(short, dict.fromkeys(TIERS, [AlignmentItem("a", 0.0, 0.01, 0.1)]))
    (other,) = refine_boundaries([short], dataset(), edges)
    assert tier(other, "mlvae") == tier(short, "mlvae")
    assert refine_boundaries([], dataset(), edges) == []
