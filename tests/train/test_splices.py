"""Spliced recordings: their joints are known, and so is how late boundaries are found there."""

from __future__ import annotations

import numpy as np
import pytest
from lhotse import MonoCut
from lhotse.supervision import AlignmentItem
from lhotse.utils import fastcopy

from mlvae.data.audio import memory_recording, read_cut
from mlvae.data.dataset import load_features
from mlvae.data.manifests import recording_cut
from mlvae.data.units import canonical_units
from mlvae.tiers import tier, with_tiers
from mlvae.train.splices import FARTHEST, SHORTEST, Found, Lateness, fit_lateness, spliced

RATE = 8000
UNITS = "abcd"


def tone(unit: str, size: int) -> np.ndarray:
    """Every unit has a frequency of its own, and a level."""
    place = UNITS.index(unit)
    return 0.1 * (place + 1) * np.sin(2 * np.pi * 400 * (place + 1) * np.arange(size) / RATE)


def spoken(name: str, speaker: str | None, seed: int) -> MonoCut:
    """A cut of tones with the true tier ``fa``."""
    random = np.random.default_rng(seed)
    units = [UNITS[place] for place in random.integers(0, len(UNITS), random.integers(4, 9))]
    sizes = random.integers(600, 1600, len(units))
    samples = np.concatenate([tone(unit, size) for unit, size in zip(units, sizes)])
    recording = memory_recording(name, samples.astype(np.float32), RATE)
    cut = recording_cut(recording, {"units": units}, **({"speaker": speaker} if speaker else {}))
    ends = np.cumsum(sizes) / RATE
    begins = [0.0, *ends[:-1]]
    items = [AlignmentItem(u, begin, end - begin) for u, begin, end in zip(units, begins, ends)]
    return with_tiers(cut, {"fa": items})


@pytest.fixture(scope="module")
def cuts() -> list[MonoCut]:
    return [spoken(f"c{seed:02d}", f"s{seed % 2}", seed) for seed in range(30)]


def test_units_change_at_joints_and_nowhere_near_them(cuts):
    made = list(spliced(cuts, seed=0, joints=100))
    assert 80 <= sum(len(joints) for _, joints in made) <= 130
    assert [cut.id for cut, _ in made] == [f"splice-{number}" for number in range(len(made))]
    for cut, joints in made:
        units, samples = canonical_units(cut), read_cut(cut)[0]
        assert len(load_features(cut)) == round(cut.duration * 100)
        assert joints and [place for place, _ in joints] == sorted({place for place, _ in joints})
        for place, seconds in joints:
            at = round(seconds * RATE)
            for unit, part in (
                (units[place - 1], samples[at - 100 : at - 20]),
                (units[place], samples[at + 20 : at + 100]),
            ):
                crossings = (np.diff(np.sign(part)) != 0).sum()
                expected = 2 * 400 * (UNITS.index(unit) + 1) * len(part) / RATE
                assert abs(crossings - expected) <= 1.5


def test_units_that_meet_at_a_joint_meet_in_a_text(cuts):
    pairs = {pair for cut in cuts for pair in zip(canonical_units(cut), canonical_units(cut)[1:])}
    for cut, joints in spliced(cuts, seed=0, joints=100):
        units = canonical_units(cut)
        assert {(units[place - 1], units[place]) for place, _ in joints} <= pairs


def test_what_is_spliced_depends_on_the_seed_and_the_cuts_alone(cuts):
    def made(cuts, seed):
        return [
            (canonical_units(cut), joints, read_cut(cut)[1])
            for cut, joints in spliced(cuts, seed, joints=40)
        ]

    assert made(cuts, 0) == made(cuts[::-1], 0)
    assert made(cuts, 0) != made(cuts, 1)


def test_there_are_no_more_joints_than_units(cuts):
    few = cuts[:4]
    units = sum(len(canonical_units(cut)) for cut in few)
    assert sum(len(joints) for _, joints in spliced(few, seed=0)) <= units + 8
    nobody = [spoken(f"n{seed:02d}", None, seed) for seed in range(30)]
    assert sum(len(joints) for _, joints in spliced(nobody, seed=0, joints=40)) <= 48


def test_a_recording_of_nobody_is_spliced_with_itself():
    one = spoken("a", None, 1)
    for cut, _ in spliced([one, spoken("b", None, 2)], seed=0):
        parts = {unit for unit in canonical_units(cut)}
        assert parts <= set(canonical_units(one)) or parts <= set(
            canonical_units(spoken("b", None, 2))
        )


def test_what_cannot_be_read_or_was_said_otherwise_gives_nothing(cuts):
    assert list(spliced([fastcopy(cut, recording=None) for cut in cuts], seed=0)) == []
    otherwise = [with_tiers(cut, {"fa_variant": tier(cut, "fa")}) for cut in cuts]
    assert list(spliced(otherwise, seed=0)) == []
    assert list(spliced([], seed=0)) == []
    half = [cut if place % 2 else fastcopy(cut, recording=None) for place, cut in enumerate(cuts)]
    assert list(spliced(half, seed=0))


def test_lateness_by_unit_is_found_and_what_is_far_off_is_not_heard():
    random = np.random.default_rng(0)
    before = dict(zip(UNITS, (0.005, -0.005, 0.003, -0.003)))
    after = dict(zip(UNITS, (-0.002, 0.002, 0.004, -0.004)))
    found = []
    for _ in range(4000):
        a, b = random.choice(list(UNITS), 2)
        late = 0.002 + before[a] + after[b] + random.normal(0, 0.003)
        found.append(Found(a, b, late))
    wild = [Found("a", "b", 3 * FARTHEST)] * 1000
    fitted = fit_lateness(found + wild)
    assert fitted == fit_lateness(found)
    assert fitted.joints == 4000
    for a in UNITS:
        for b in UNITS:
            true = 0.002 + before[a] + after[b]
            assert fitted.of(a, b) == pytest.approx(true, abs=0.0006)
    assert fitted.of("x", "y") == fitted.constant


@pytest.mark.parametrize("count", [0, 1, 3])
def test_few_joints_say_little(count):
    fitted = fit_lateness([Found("a", "b", 0.03)] * count)
    assert 0 <= fitted.of("a", "b") < 0.03 / 2
    assert fitted.joints == count


def test_moved_boundaries_leave_order_and_length():
    random = np.random.default_rng(0)
    late = Lateness(
        0.0,
        {u: 0.03 * random.normal() for u in UNITS},
        {u: 0.03 * random.normal() for u in UNITS},
        9,
    )
    for _ in range(200):
        lengths = random.choice([0.0, 0.004, 0.03, 0.1], 12)
        gaps = random.choice([0.0, 0.0, 0.05], 12)
        begins = np.cumsum(lengths + gaps) - lengths
        times = [(float(b), float(b + n)) for b, n in zip(begins, lengths)]
        symbols = random.choice(list(UNITS), 12).tolist()
        moved = late.corrected(symbols, times)
        assert moved[0][0] == times[0][0] and moved[-1][1] == times[-1][1]
        for place, ((begin, end), (old_begin, old_end)) in enumerate(zip(moved, times)):
            assert end - begin >= min(SHORTEST, old_end - old_begin) - 1e-9
            if place and abs(times[place - 1][1] - old_begin) > 1e-3:
                assert begin == old_begin  # after a pause nothing is shared
            elif place:
                assert abs(moved[place - 1][1] - begin) < 1e-9  # what was shared still is
