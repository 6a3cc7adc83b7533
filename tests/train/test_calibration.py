"""The choice of the acoustic scale, against summing over all paths by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lhotse import CutSet
from lhotse.supervision import AlignmentItem

import mlvae.train.selection
from mlvae.tiers import with_tiers
from mlvae.train import CalibrationConfig, Decoding, EStep
from mlvae.train.selection import RATES, choose_scale, replacement_loss
from tests.train.test_estep import BOUNDARY, CORRECTNESS, NUM_UNITS, GivenFeatures, stand_in
from tests.train.tiny import DEVICE, TABLE, make_cut

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

    monkeypatch.setattr(mlvae.train.selection, "EStep", Noting)
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
        DEVICE,
        seed,
    )


def own(cut) -> list[int]:
    return TABLE.ids(cut.supervisions[0].custom["units"], cut.id)


def loss_by_hand(left_alone, replaced, share: float) -> float:
    """Log loss of guessing which units were replaced, at the best rate of wrong labels."""
    losses = []
    for rate in RATES.tolist():
        by_chance = rate / (NUM_UNITS - 1)
        total = 0.0
        for values, is_replaced in ((left_alone, False), (replaced, True)):
            for p in values:
                density = (1 - by_chance) * p / rate + by_chance * (1 - p) / (1 - rate)
                guess = share * density / (share * density + 1 - share)
                total -= math.log(guess if is_replaced else 1 - guess)
        losses.append(total / (len(left_alone) + len(replaced)))
    return min(losses)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_scale_is_the_one_that_is_best_by_hand(searched, topology, seed):
    cuts = random_cuts()
    start = Decoding(0.5, competitors=3)
    decoding, losses = choose(cuts, topology, seed, start, corruption_rate=0.4)
    (corrupted,) = searched
    assert corrupted.keys() == {cut.id for cut in cuts}
    expected = {}
    for scale in (0.05, 0.4, 1.0, 2.5):
        values = [], []
        for cut in cuts:
            marks = [a != b for a, b in zip(own(cut), corrupted[cut.id])]
            for value, mark in zip(by_hand(cut, corrupted[cut.id], scale, topology), marks):
                values[mark].append(value)
        assert min(map(len, values)) > 5
        expected[str(scale)] = loss_by_hand(*values, share=0.4)
    assert losses == pytest.approx(expected, rel=1e-3)
    assert str(decoding.acoustic_scale) == min(expected, key=expected.get)
    assert decoding.competitors == 3
    assert start == Decoding(0.5, competitors=3)


def simulated(num_units: int, rate: float, count: int, strength: float, prior: float, seed: int):
    """Units of which log-ratios of likelihoods are known that are right at a scale of 1.

    Returns:
        A function from a scale to P of units left alone and replaced, under a prior of wrong
        labels, and the true Brier score before any was replaced.
    """
    rng = np.random.default_rng(seed)
    said = rng.integers(0, num_units, count)
    is_wrong = rng.random(count) < rate
    written = np.where(is_wrong, (said + rng.integers(1, num_units, count)) % num_units, said)
    marks = rng.random(count) < 0.2
    other = np.where(marks, (written + rng.integers(1, num_units, count)) % num_units, written)
    noise = rng.standard_normal(count)

    def chance(label, scale):
        sign = np.where(label == said, -1.0, 1.0)
        ratio = strength**2 / 2 * sign + strength * noise
        return 1 / (1 + np.exp(-scale * ratio - math.log(prior / (1 - prior))))

    def at(scale):
        after = torch.from_numpy(chance(other, scale))
        reference = float(np.mean((chance(written, scale) - is_wrong) ** 2))
        return after[~marks], after[marks], reference

    return at


SCALES = (0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0)


@pytest.mark.parametrize("num_units", [3, 10, 40])
@pytest.mark.parametrize("rate", [0.02, 0.2, 0.4])
@pytest.mark.parametrize("strength", [1.0, 2.5])
def test_the_right_scale_and_rate_are_found_though_many_labels_were_wrong(
    num_units, rate, strength
):
    at = simulated(num_units, rate, 50_000, strength, prior=rate, seed=1)
    found = {
        scale: replacement_loss(*at(scale)[:2], num_units, corruption_rate=0.2) for scale in SCALES
    }
    assert min(found, key=found.get) == 1.0
    assert found[1.0][1] == pytest.approx(rate, rel=0.1)


@pytest.mark.parametrize(
    ("rate", "prior"), [(0.05, 0.05), (0.2, 0.2), (0.4, 0.4), (0.2, 0.15), (0.15, 0.2)]
)
def test_in_small_samples_the_scale_is_nearly_as_good_as_with_true_labels(rate, prior):
    """Also where the model's own prior is not quite the rate."""
    chosen, least, guessed = [], [], []
    for seed in range(20):
        at = simulated(10, rate, 1000, 3.0, prior, seed)
        reference = {scale: at(scale)[2] for scale in SCALES}
        losses = {scale: replacement_loss(*at(scale)[:2], 10, 0.2)[0] for scale in SCALES}
        chosen.append(reference[min(losses, key=losses.get)])
        least.append(min(reference.values()))
        guessed.append(np.mean(list(reference.values())))
    assert np.mean(chosen) < np.mean(least) + 0.3 * (np.mean(guessed) - np.mean(least))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=5),
    st.lists(st.floats(0, 1), min_size=1, max_size=5),
    st.integers(2, 50),
    st.floats(0.01, 0.99),
)
def test_the_loss_is_bounded(left_alone, replaced, num_units, corruption_rate):
    values = torch.tensor(left_alone), torch.tensor(replaced)
    loss, rate = replacement_loss(*values, num_units, corruption_rate)
    assert 0 <= loss < 15
    assert 0.003 < rate < 0.5


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_the_starting_scale_does_not_confirm_itself(topology):
    results = [choose(random_cuts(), topology, decoding=Decoding(s)) for s in (0.01, 1.0, 9.0)]
    assert results[0] == results[1] == results[2]
    assert results[0][1]


def test_the_same_seed_chooses_the_same_and_another_one_corrupts_others(searched):
    first = choose(random_cuts(), seed=4)
    torch.manual_seed(5)
    assert choose(random_cuts(), seed=4) == first
    assert searched[0] == searched[1]
    assert choose(random_cuts(), seed=5)[1] != first[1]


def test_what_else_a_cut_says_does_not_matter():
    """Least of all the reference, if it were there."""
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
    assert len(searched[0]) == 5


def test_without_candidates_the_scale_stays(searched):
    decoding = Decoding(0.7, False)
    assert choose(random_cuts(), decoding=decoding, scales=[]) == (decoding, {})
    assert searched == []


def test_where_no_unit_or_every_unit_was_replaced_the_scale_stays():
    decoding = Decoding(0.7, True)
    for rate in (1e-9, 1 - 1e-9):
        assert choose(random_cuts(), decoding=decoding, corruption_rate=rate) == (decoding, {})


@pytest.mark.filterwarnings("ignore:.*too few frames.*")
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_cuts_that_are_too_short_do_not_count(topology):
    short = make_cut("short", np.zeros((1, NUM_UNITS + 2)), ["a", "b"])
    one = choose([*random_cuts(6), short], topology, seed=2)
    assert math.isfinite(max(one[1].values()))
    assert choose([short], topology) == (Decoding(), {})


def sounds(count: int, repeated: bool, strength: float, wrong_rate: float) -> list:
    """Units of six frames. ``repeated``: all frames of a unit are the same draw, and the networks
    take them for six independent ones; otherwise they are. Some units are written as others.
    """
    rng = np.random.default_rng(0)
    cuts = []
    for number in range(count):
        said = rng.integers(0, NUM_UNITS, 3)
        features = np.zeros((18, NUM_UNITS + 2))
        for place, unit in enumerate(said):
            perceived = rng.standard_normal((1 if repeated else 6, NUM_UNITS))
            perceived[:, unit] += strength
            features[6 * place : 6 * place + 6, :NUM_UNITS] = strength * perceived
        features[:, BOUNDARY] = -6.0
        features[[0, 6, 12], BOUNDARY] = 6.0
        features[:, CORRECTNESS] = math.log(0.2 / 0.8)
        shift = np.where(rng.random(3) < wrong_rate, rng.integers(1, NUM_UNITS, 3), 0)
        cuts.append(make_cut(f"x{number:03d}", features, TABLE.units((said + shift) % NUM_UNITS)))
    return cuts


@pytest.mark.parametrize("start", [0.05, 2.5])
@pytest.mark.parametrize(
    ("repeated", "strength", "expected"), [(True, 1.3, 0.17), (False, 0.8, 1.0)]
)
def test_a_model_that_is_too_sure_gets_a_small_scale_and_one_that_is_right_keeps_its_own(
    start, repeated, strength, expected
):
    """Six equal frames are worth one: a sixth. A fifth of the labels is wrong."""
    networks = stand_in()
    cuts = sounds(200, repeated, strength, wrong_rate=0.2)
    scales = [0.05, 0.17, 0.4, 1.0, 2.5]
    decoding, losses = choose(cuts, networks=networks, decoding=Decoding(start), scales=scales)
    assert decoding.acoustic_scale == expected, losses
