"""Evidence of units: what deviations mean is learned from replaced units."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest

from mlvae.score.ranking import average_precision
from mlvae.train.evidence import (
    LARGEST_MEDIAN,
    Evidence,
    fit_evidence,
    fit_ratio,
    fit_to_answers,
    heard_otherwise,
    rates_of_units,
    replace_units,
)
from mlvae.train.rates import Rates, RatesConfig, fit_rates, unit_sequences

NUM_UNITS = 4
ALIKE = np.ones(NUM_UNITS)


def sequences_of(size: int, seed: int):
    random = np.random.default_rng(seed)
    units = random.integers(0, NUM_UNITS, (5, size // 5)).tolist()  # five long recordings
    return unit_sequences(units, [None] * 5, [None] * 5)


@pytest.mark.parametrize("contamination", [0.0, 0.15])
def test_the_ratio_of_normal_distributions_is_found(contamination):
    """N(0, 1) and N(2, 1) have the log-likelihood ratio 2 z - 2."""
    random = np.random.default_rng(0)
    replaced = random.random(20_000) < 0.1
    wrong = replaced | (random.random(20_000) < contamination)
    bias, weight, rate = fit_ratio(random.normal(2.0 * wrong, 1.0), replaced, 0.05)
    assert weight == pytest.approx(2.0, abs=0.35)
    assert bias == pytest.approx(-2.0, abs=0.4)
    assert rate == pytest.approx(max(contamination, 0.003), abs=0.05)


def test_measures_that_know_nothing_flag_nothing():
    random = np.random.default_rng(0)
    clean, corrupted = sequences_of(5000, 1), sequences_of(5000, 2)
    replaced = random.random(len(corrupted.unit)) < 0.1
    measures = random.normal(size=(2, 5000, 3))
    evidence = fit_evidence(measures[0], clean, measures[1], corrupted, replaced, NUM_UNITS, 0.05)
    ratio = evidence.log_ratio(measures[0], clean)
    assert np.abs(ratio).max() < 2.0
    rates = fit_rates(clean, ratio, NUM_UNITS, RatesConfig())
    assert (rates.correctness(clean, ratio).mispronounced > 0.5).mean() <= 0.05


def test_measures_correct_which_units_a_model_finds_and_not_how_many():
    random = np.random.default_rng(0)
    sequences = sequences_of(5000, 1)
    wrong = random.random(5000) < 0.15
    own = random.normal(5.0 * wrong - 3.0, 2.0)  # log-odds
    others = random.normal(2.0 * wrong[:, None], 1.0, (5000, 2))
    evidence, of_units = fit_to_answers(np.column_stack([own, others]), sequences, ALIKE)
    assert evidence.weights == (0.5, 0.0, 0.5)  # none for the mean log posterior
    answers = 1 / (1 + np.exp(-own))
    rate = evidence.rate
    assert rate == pytest.approx(answers.mean())
    assert of_units == pytest.approx(np.full(NUM_UNITS, rate))
    rates = Rates.independent(rate, of_units, RatesConfig())
    ratio = evidence.log_ratio(np.column_stack([own, others]), sequences)
    found = rates.correctness(sequences, ratio).mispronounced
    assert found.mean() == pytest.approx(rate, abs=0.01)
    odds = np.log(rate / (1 - rate)) + ratio  # nothing but the evidence counts
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-odds)), atol=1e-6)
    assert average_precision(found, wrong) > average_precision(answers, wrong) + 0.02
    other, of_units = fit_to_answers(np.column_stack([own, others]), sequences, ALIKE, rate=0.3)
    # Known from elsewhere: as many units are wrong, and the same come first.
    assert other.rate == 0.3
    rates = Rates.independent(other.rate, of_units, RatesConfig())
    ratio = other.log_ratio(np.column_stack([own, others]), sequences)
    assert rates.correctness(sequences, ratio).mispronounced.mean() == pytest.approx(0.3, abs=1e-6)
    assert (other.weight, other.median) == (evidence.weight, evidence.median)
    again, _ = fit_to_answers(own[:, None], sequences, ALIKE)
    assert again.weights == (1.0,) and again.weight > 0


@pytest.mark.parametrize("given", [None, 0.0, 0.2, 1.0])
@pytest.mark.parametrize("odds", [-40.0, 40.0])
def test_a_model_that_is_sure_of_all_units_gives_finite_evidence(odds, given):
    sequences = sequences_of(100, 1)
    relative = np.array([0.01, 1.0, 1.0, 100.0])
    evidence, of_units = fit_to_answers(np.full((100, 2), odds), sequences, relative, rate=given)
    ratio = evidence.log_ratio(np.full((100, 2), odds), sequences)
    assert np.isfinite(ratio).all() and (of_units > 0).all() and (of_units < 1).all()


def test_a_unit_that_many_say_otherwise_is_found_by_what_is_heard_of_it():
    """Half of its tokens are wrong, and the model has learned from the text that they are right."""
    random = np.random.default_rng(0)
    sequences = sequences_of(20_000, 1)
    rate = np.array([0.5, 0.05, 0.05, 0.05])[sequences.unit]
    wrong = random.random(len(rate)) < rate
    own = random.normal(4.0 * wrong - 4.0 - (sequences.unit == 0), 3.0)  # log-odds
    ratios = random.normal(2.0 * wrong - 1.0, 1.0)
    measures = np.column_stack([own, own, ratios])
    relative = rates_of_units(heard_otherwise(ratios), sequences.unit, NUM_UNITS)
    assert relative[0] > 1.5 and (relative[1:] < 0.9).all()

    def found(relative: np.ndarray) -> np.ndarray:
        evidence, of_units = fit_to_answers(measures, sequences, relative, rate=wrong.mean())
        rates = Rates.independent(evidence.rate, of_units, RatesConfig())
        ratio = evidence.log_ratio(measures, sequences)
        return rates.correctness(sequences, ratio).mispronounced

    told, untold = found(relative), found(ALIKE)
    for answer in (told, untold):
        assert answer.mean() == pytest.approx(wrong.mean(), abs=1e-6)  # the rate of all is given
    assert ((told > 0.5) != wrong).sum() < 0.9 * ((untold > 0.5) != wrong).sum()
    assert average_precision(told, wrong) > average_precision(untold, wrong) + 0.03


def test_a_unit_of_few_tokens_has_nearly_the_rate_of_all():
    units = np.array([0] * 200 + [1] * 2)
    for heard in (np.zeros(202, dtype=bool), np.ones(202, dtype=bool)):
        relative = rates_of_units(heard, units, 3)
        assert (relative > 0).all() and relative[2] == 1.0
        assert abs(relative[1] - 1) < abs(relative[0] - 1)
    nothing = rates_of_units(np.zeros(0, dtype=bool), np.zeros(0, dtype=np.int64), 3)
    assert nothing.tolist() == [1.0, 1.0, 1.0]


def test_what_is_usual_for_a_unit_and_its_recording_is_little_evidence():
    random = np.random.default_rng(0)
    clean, corrupted = sequences_of(5000, 1), sequences_of(5000, 2)
    replaced = random.random(len(corrupted.unit)) < 0.1
    hard = np.array([0.0, 5.0, -3.0, 1.0])  # units differ in how well the model knows them

    def measures(sequences, wrong):
        return hard[sequences.unit][:, None] + random.normal(2.0 * wrong[:, None], 1.0, (5000, 2))

    own = measures(clean, np.zeros(5000))
    evidence = fit_evidence(
        own, clean, measures(corrupted, replaced), corrupted, replaced, NUM_UNITS, 0.05
    )
    ratio = evidence.log_ratio(own, clean)
    by_unit = [ratio[clean.unit == unit].mean() for unit in range(NUM_UNITS)]
    assert np.ptp(by_unit) < 0.05 * np.ptp(hard) * evidence.weight  # the rest of a prior
    of_one = clean.utterance == 0
    for shift, most in ((0.5, math.inf), (3.0, LARGEST_MEDIAN), (30.0, LARGEST_MEDIAN)):
        change = evidence.log_ratio(own + shift * of_one[:, None], clean) - ratio
        assert np.abs(change[~of_one]).max() < 1e-9
        whole = (shift / np.array(evidence.spreads)).mean()
        taken = whole - change[of_one].mean() / evidence.weight
        # Half of it is the recording's, but a text that is wrong as a whole is off by more.
        assert taken == pytest.approx(min(0.5 * whole, most), rel=0.1)


def test_units_without_frames_say_nothing():
    evidence = Evidence(((0.0,) * NUM_UNITS,) * 2, (1.0, 1.0), (0.5, 0.5), 0.0, 2.0, -1.0, 0.05)
    sequences = unit_sequences([[0, 1, 2]], [None], [None])
    measures = np.array([[np.nan, np.nan], [0.0, 0.0], [4.0, np.nan]])
    ratio = evidence.log_ratio(measures, sequences)
    assert ratio[0] == ratio[1]
    assert ratio[2] == pytest.approx(ratio[1] + 4.0)  # half of the weight is on what is not known
    assert Evidence.from_dict(json.loads(json.dumps(asdict(evidence)))) == evidence


def test_nothing_to_learn_from_is_said():
    clean = sequences_of(50, 1)
    measures = np.zeros((50, 1))
    for replaced in (np.zeros(50, dtype=bool), np.ones(50, dtype=bool)):
        with pytest.raises(ValueError, match="nothing to learn from"):
            fit_evidence(measures, clean, measures, clean, replaced, NUM_UNITS, 0.05)


def test_a_unit_is_replaced_by_one_that_may_be_heard_as_it():
    confusion = np.log(
        np.array(
            [  # rows: written; columns: heard
                [1e-9, 0.8, 0.1, 0.1],
                [0.1, 1e-9, 0.8, 0.1],
                [0.1, 0.8, 1e-9, 0.1],
                [0.1, 0.1, 0.8, 1e-9],
            ]
        )
    )
    units = {"a": [0, 1, 2, 3] * 50, "b": [0, 0]}
    corrupted, replaced = replace_units(units, confusion, 0.5, seed=3)
    assert (corrupted, replaced) == replace_units(units, confusion, 0.5, seed=3)
    assert corrupted["b"] == [0, 0] and not any(replaced["b"])  # nothing is heard as 0
    written = {1: {0, 2}, 2: {1, 3}, 0: set(), 3: set()}
    seen: dict[int, set[int]] = {unit: set() for unit in range(4)}
    for old, new, mark in zip(units["a"], corrupted["a"], replaced["a"]):
        assert mark == (old != new)
        if mark:
            seen[old].add(new)
    assert seen == written
    alone, _ = replace_units({"a": units["a"]}, confusion, 0.5, seed=3)
    assert alone["a"] == corrupted["a"]  # a cut's draw does not depend on other cuts
