"""The chain over correctness: brute force, what holds its rates, and what it finds."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from mlvae.score.ranking import average_precision
from mlvae.train import rates as rates_module
from mlvae.train.rates import Rates, RatesConfig, fit_rates, unit_sequences

NUM_UNITS = 5


def sigmoid(value: float) -> float:
    return 1 / (1 + np.exp(-value))


def simulated(seed: int = 0, utterances: int = 400, length: int = 20):
    """Utterances of 20 speakers who err at different rates, errors side by side in words of 4."""
    random = np.random.default_rng(seed)
    of_speaker = random.normal(0, 1, 20)
    wrong = []
    for index in range(utterances):
        own: list[int] = []
        for place in range(length):
            odds = -3.0 + of_speaker[index % 20]
            odds += 2.0 * (place % 4 > 0 and own[-1])
            own.append(int(random.random() < sigmoid(odds)))
        wrong += own
    units = random.integers(0, NUM_UNITS, (utterances, length)).tolist()
    words = [[place // 4 for place in range(length)]] * utterances
    positive = np.array(wrong, dtype=bool)
    # Two normal distributions, whose log-likelihood ratio is linear.
    heard = random.normal(1.2 * positive, 1.0)
    names = [f"speaker {index % 20}" for index in range(utterances)]
    return unit_sequences(units, words, names), positive, 1.2 * heard - 0.72


def test_posteriors_are_those_of_all_sequences():
    sequences = unit_sequences([[0, 1, 2, 3], [4, 0]], [[0, 0, 1, 1], None], [None, None])
    ratio = np.array([0.5, -1.0, 2.0, 0.3, -0.4, 1.5])
    config = RatesConfig(speaker_std=1e-3)  # speakers play no part
    rates = Rates(config, -1.0, 1.5, 0.7, (0.1, -0.2, 0.3, 0.0, 0.2), 0.1)
    found = rates.correctness(sequences, ratio)
    for first, units, within in ((0, [0, 1, 2, 3], [0, 1, 0, 1]), (4, [4, 0], [0, 0])):
        size = len(units)
        total, wrong = 0.0, np.zeros(size)
        for states in itertools.product([0, 1], repeat=size):
            weight = 1.0
            for place, state in enumerate(states):
                odds = -1.0 + rates.of_units[units[place]]
                if place and states[place - 1]:
                    odds += 1.5 if within[place] else 0.7
                weight *= sigmoid(odds) * np.exp(ratio[first + place]) if state else sigmoid(-odds)
            total += weight
            wrong += weight * np.array(states)
        assert found.mispronounced[first : first + size] == pytest.approx(wrong / total, abs=1e-4)


def test_the_product_of_what_stays_right_is_the_probability_that_all_is_right():
    sequences = unit_sequences([[0, 1, 2]], [[0, 0, 0]], [None])
    ratio = np.array([1.0, -0.5, 0.8])
    rates = Rates(RatesConfig(speaker_std=1e-3), -1.0, 1.5, 0.0, (0.0,) * NUM_UNITS, 0.1)
    weights = {}
    for states in itertools.product([0, 1], repeat=3):
        odds = [-1.0 + 1.5 * (place > 0 and states[place - 1]) for place in range(3)]
        weights[states] = np.prod(
            [sigmoid(o) * np.exp(r) if s else sigmoid(-o) for o, r, s in zip(odds, ratio, states)]
        )
    right = weights[0, 0, 0] / sum(weights.values())
    assert np.prod(rates.correctness(sequences, ratio).stays_right) == pytest.approx(right, 1e-3)


def test_clusters_are_found_and_help():
    sequences, positive, ratio = simulated()
    rates = fit_rates(sequences, ratio, NUM_UNITS, RatesConfig())
    found = rates.correctness(sequences, ratio).mispronounced
    assert average_precision(found, positive) > 1.2 * average_precision(ratio, positive)
    assert rates.within_word > rates.across_words + 0.5
    assert abs(rates.mean - positive.mean()) < 0.03
    brier = np.mean((found - positive) ** 2)
    assert brier < 0.85 * positive.mean() * (1 - positive.mean())


@pytest.mark.parametrize("rounds", [1, 30, 300])
def test_acoustics_that_know_nothing_leave_the_prior(rounds, monkeypatch):
    monkeypatch.setattr(rates_module, "FIT_ROUNDS", rounds)
    sequences, _, _ = simulated()
    noise = np.random.default_rng(1).normal(0, 0.01, len(sequences.unit))
    rates = fit_rates(sequences, noise, NUM_UNITS, RatesConfig(expected=0.05))
    found = rates.correctness(sequences, noise).mispronounced
    assert rates.mean == pytest.approx(0.05, abs=0.01)
    assert (found > 0.5).mean() <= 0.05


def test_a_stronger_prior_holds_the_rate():
    sequences, positive, ratio = simulated()
    means = [
        fit_rates(sequences, ratio, NUM_UNITS, RatesConfig(expected=0.02, strength=strength)).mean
        for strength in (1.0, 1e3, 1e6)
    ]
    assert means[0] > means[1] > means[2]


def test_the_order_of_utterances_does_not_matter_and_speakers_are_apart():
    units, words = [[0, 1], [2, 3, 4], [1]], [[0, 0], [0, 1, 1], [0]]
    names = ["a", None, "a"]
    ratio = [[3.0, 2.0], [-1.0, 0.5, 1.0], [0.2]]
    rates = Rates(RatesConfig(), -2.0, 1.0, 0.5, (0.0,) * NUM_UNITS, 0.1)

    def found(order):
        picked = [[values[i] for i in order] for values in (units, words, names, ratio)]
        sequences = unit_sequences(*picked[:3])
        flat = np.array([value for own in picked[3] for value in own])
        sizes = np.cumsum([len(own) for own in picked[3]])[:-1]
        return dict(zip(order, np.split(rates.correctness(sequences, flat).mispronounced, sizes)))

    one, other, without = found([0, 1, 2]), found([1, 2, 0]), found([0, 2])
    for index in range(3):
        assert one[index] == pytest.approx(other[index], abs=1e-12)
    for index in (0, 2):  # what others say plays no part
        assert one[index] == pytest.approx(without[index], abs=1e-12)
    assert found([2])[2] < one[2]  # the speaker's other recording made an error likelier


def test_json_gives_the_same_back():
    sequences, _, ratio = simulated(utterances=20)
    rates = fit_rates(sequences, ratio, NUM_UNITS, RatesConfig())
    assert Rates.from_dict(json.loads(json.dumps(asdict(rates)))) == rates
    assert replace(rates, mean=0.5) != rates


def test_no_utterance_is_no_error():
    sequences = unit_sequences([], [], [])
    rates = fit_rates(sequences, np.zeros(0), NUM_UNITS, RatesConfig())
    assert rates.mean == RatesConfig().expected
    assert len(rates.correctness(sequences, np.zeros(0)).mispronounced) == 0
