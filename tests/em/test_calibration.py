"""The choice of the acoustic scale, against summing over all paths by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from lhotse import CutSet
from lhotse.supervision import AlignmentItem

import mlvae.em.calibration
from mlvae.em import Decoding, EStep
from mlvae.em.calibration import CalibrationConfig, choose_scale
from mlvae.tiers import with_tiers
from tests.em.test_estep import BOUNDARY, CORRECTNESS, NUM_UNITS, GivenFeatures, stand_in
from tests.em.tiny import CPU, TABLE, make_cut

TOPOLOGIES = ("ml", "substitution")
LOG_PRIOR = torch.tensor([0.1, 0.2, 0.3, 0.4]).log()
CONFUSION = torch.tensor([[0, 0.6, 0.3, 0.1], [0.5, 0, 0.2, 0.3], [0.1, 0.1, 0, 0.8], [0.4] * 4])
CONFUSION[3] = torch.tensor([0.2, 0.2, 0.6, 0.0])


def random_cuts(count: int = 14) -> list:
    rng = np.random.default_rng(3)
    cuts = []
    for number in range(count):
        frames, length = int(rng.integers(4, 8)), int(rng.integers(1, 4))
        features = 1.5 * rng.standard_normal((frames, NUM_UNITS + 2))
        units = rng.integers(0, NUM_UNITS, length)
        features[np.arange(frames), units[np.arange(frames) * length // frames]] += 1.5
        features[:, CORRECTNESS] -= 1.0
        cuts.append(make_cut(f"x{number:02d}", features, TABLE.units(units)))
    return cuts


def model():
    result = stand_in(LOG_PRIOR)
    result.log_confusion.copy_(CONFUSION.log())
    return result


def by_hand(cut, units, scale: float, topology: str) -> list[float]:
    """P(mispronounced) of each unit: all segmentations, in each segment all that may be spoken."""
    tensor = torch.from_numpy(cut.load_features().copy()).double()
    q = tensor[:, :NUM_UNITS].softmax(1).numpy()
    prior = LOG_PRIOR.double().exp().numpy()
    start_rate = tensor[:, BOUNDARY].sigmoid().numpy()
    wrong_rate = tensor[:, CORRECTNESS].sigmoid().numpy()
    total, of_wrong = 0.0, [0.0] * len(units)
    for inner in itertools.combinations(range(1, len(q)), len(units) - 1):
        bounds = [0, *inner, len(q)]
        held = np.ones(len(q))
        held[1:] = 1 - start_rate[1:]
        held[list(inner)] = start_rate[list(inner)]
        right, wrong = [], []
        for unit, begin, end in zip(units, bounds[:-1], bounds[1:]):
            ratio = q[begin:end] / prior
            right.append((1 - wrong_rate[begin]) * np.prod(ratio[:, unit]) ** scale)
            if topology == "ml":
                other = np.prod((1 - q[begin:end, unit]) / (1 - prior[unit])) ** scale
            else:
                other = CONFUSION[unit].double().numpy() @ np.prod(ratio, axis=0) ** scale
            wrong.append(wrong_rate[begin] * other)
        either = [a + b for a, b in zip(right, wrong)]
        weight = np.prod(held) * np.prod(either)
        total += weight
        for number, (a, b) in enumerate(zip(wrong, either)):
            of_wrong[number] += weight * a / b
    return [value / total for value in of_wrong]


@pytest.fixture
def searched(monkeypatch) -> list:
    """The canonical units of every search that is set up, None for the cuts' own."""
    given = []

    class Noting(EStep):
        def __init__(self, compiler, cuts, dataset, max_frames, units=None):
            given.append(units)
            super().__init__(compiler, cuts, dataset, max_frames, units)

    monkeypatch.setattr(mlvae.em.calibration, "EStep", Noting)
    return given


def choose(cuts, topology="substitution", seed=0, decoding=None, networks=None, **settings):
    config = CalibrationConfig(**{"scales": [0.05, 0.4, 1.0, 2.5], **settings})
    return choose_scale(
        networks or model(),
        CutSet.from_cuts(cuts),
        GivenFeatures(TABLE),
        topology,
        decoding or Decoding(),
        config,
        CPU,
        seed,
    )


def own(cut) -> list[int]:
    return TABLE.ids(cut.supervisions[0].custom["units"], cut.id)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_scale_is_the_one_that_is_best_by_hand(searched, topology, seed):
    cuts = random_cuts()
    start = Decoding(0.5, True)
    decoding, losses = choose(cuts, topology, seed, start, corruption_rate=0.4)
    plain, corrupted = searched
    assert plain is None
    assert corrupted.keys() == {cut.id for cut in cuts}
    expected, num_replaced, num_distrusted = {}, 0, 0
    for scale in (0.05, 0.4, 1.0, 2.5):
        values = []
        for cut in cuts:
            trusted = [value < 0.5 for value in by_hand(cut, own(cut), 0.5, topology)]
            marks = [a != b for a, b in zip(own(cut), corrupted[cut.id])]
            found = by_hand(cut, corrupted[cut.id], scale, topology)
            num_replaced += sum(marks)
            num_distrusted += len(trusted) - sum(trusted)
            for value, mark, is_trusted in zip(found, marks, trusted):
                assert is_trusted or not mark
                if is_trusted:
                    values.append(-math.log(value if mark else 1 - value))
        expected[str(scale)] = sum(values) / len(values)
    assert num_replaced > 0 and num_distrusted > 0
    assert losses == pytest.approx(expected, rel=1e-3)
    assert str(decoding.acoustic_scale) == min(expected, key=expected.get)
    assert decoding.use_correctness
    assert start == Decoding(0.5, True)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_every_trusted_unit_and_no_other_may_be_replaced(searched, topology):
    cuts = random_cuts()
    choose(cuts, topology, corruption_rate=1.0)
    trusted = {cut.id: [p < 0.5 for p in by_hand(cut, own(cut), 1.0, topology)] for cut in cuts}
    marks = {cut.id: [a != b for a, b in zip(own(cut), searched[1][cut.id])] for cut in cuts}
    assert marks == trusted
    assert {unit for units in searched[1].values() for unit in units} == set(range(NUM_UNITS))


def test_the_same_seed_chooses_the_same_and_another_one_corrupts_others(searched):
    first = choose(random_cuts(), seed=4)
    torch.manual_seed(5)
    assert choose(random_cuts(), seed=4) == first
    assert searched[1] == searched[3]
    assert choose(random_cuts(), seed=5)[1] != first[1]


def test_what_else_a_cut_says_does_not_matter():
    """Least of all the truth, if it were there."""
    cuts = random_cuts()
    told = []
    for cut in random_cuts():
        said = [AlignmentItem("d", 0.0, cut.duration, 1.0)]
        cut = with_tiers(cut, {"perceived": said, "mlvae": said, "canonical": said})
        cut.supervisions[0].custom["said"] = ["d"] * len(own(cut))
        cut.supervisions[0].text = "d"
        told.append(cut)
    assert choose(told) == choose(cuts)


def test_no_more_cuts_than_allowed_are_looked_at(searched):
    choose(random_cuts(), max_cuts=5)
    assert len(searched[1]) == 5


def test_without_candidates_the_scale_stays(searched):
    decoding = Decoding(0.7, False)
    assert choose(random_cuts(), decoding=decoding, scales=[]) == (decoding, {})
    assert searched == []


def test_without_a_trusted_unit_the_scale_stays():
    """Nothing was replaced, so that nothing is known of any scale."""
    networks = model()
    networks.generator.correctness_logits = lambda features, *_: torch.full(
        features.shape[:2], 30.0
    )
    decoding = Decoding(0.7, True)
    assert choose(random_cuts(), decoding=decoding, networks=networks) == (decoding, {})


@pytest.mark.filterwarnings("ignore:.*too few frames.*")
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_cuts_that_are_too_short_do_not_count(topology):
    short = make_cut("short", np.zeros((1, NUM_UNITS + 2)), ["a", "b"])
    one = choose([*random_cuts(6), short], topology, seed=2)
    assert math.isfinite(max(one[1].values()))
    assert choose([short], topology) == (Decoding(), {})


def sounds(count: int, repeated: bool, strength: float) -> list:
    """Units of six frames. ``repeated``: all frames of a unit are the same draw, and the networks
    take them for six independent ones; otherwise they are.
    """
    rng = np.random.default_rng(0)
    cuts = []
    for number in range(count):
        units = rng.integers(0, NUM_UNITS, 3)
        features = np.zeros((18, NUM_UNITS + 2))
        for place, unit in enumerate(units):
            heard = rng.standard_normal((1 if repeated else 6, NUM_UNITS))
            heard[:, unit] += strength
            features[6 * place : 6 * place + 6, :NUM_UNITS] = strength * heard
        features[:, BOUNDARY] = -6.0
        features[[0, 6, 12], BOUNDARY] = 6.0
        features[:, CORRECTNESS] = math.log(0.2 / 0.8)
        cuts.append(make_cut(f"x{number:03d}", features, TABLE.units(units)))
    return cuts


def test_a_model_that_is_too_sure_gets_a_small_scale_and_one_that_is_right_keeps_its_own():
    """Six equal frames are worth one: a sixth. Which units are trusted is decided by a small scale;
    by a large one, those on which the model is wrong would not be.
    """
    scales = [0.05, 0.17, 0.4, 1.0, 2.5]
    for repeated, strength, expected in ((True, 1.3, 0.17), (False, 0.8, 1.0)):
        cuts = sounds(80, repeated, strength)
        start = Decoding(min(scales))
        decoding, losses = choose(cuts, networks=stand_in(), decoding=start, scales=scales)
        assert decoding.acoustic_scale == expected, losses
