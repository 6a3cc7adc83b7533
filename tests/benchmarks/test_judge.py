"""Variants of a judge: each differs from the shipped one in what it says, and is scored alike."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.experiment import METRICS, metrics
from benchmarks.judge import TRUSTED, VARIANTS, judged
from mlvae.systems.judge import HeldOut, JudgeConfig
from mlvae.train.evidence import heard_otherwise, rates_of_units
from mlvae.train.rates import unit_sequences

NUM_UNITS = 6


def sequences_of(seed: int, utterances: int = 60, length: int = 12):
    units = np.random.default_rng(seed).integers(0, NUM_UNITS, (utterances, length)).tolist()
    words = [[place // 3 for place in range(length)]] * utterances
    speakers = [f"s{index % 6}" for index in range(utterances)]
    return unit_sequences(units, words, speakers)


@pytest.fixture(scope="module")
def made():
    random = np.random.default_rng(0)
    clean, corrupted, test = map(sequences_of, (1, 2, 3))
    replaced = random.random(len(corrupted.unit)) < 0.1
    wrong, already = random.random((2, len(test.unit))) < 0.1
    size = len(test.unit), 7
    right, more = np.array([-3.0] + [0, -1.5] * 3), np.array([5.0] + [2.5] * 6)
    held_out = HeldOut(
        random.normal(right + more * already[:, None], size=size),
        clean,
        random.normal(right + more * replaced[:, None], size=size),
        corrupted,
        replaced,
    )
    setup = SimpleNamespace(settings=SimpleNamespace(judge=JudgeConfig()), table=range(NUM_UNITS))
    return held_out, random.normal(right + more * wrong[:, None], size=size), test, setup, wrong


@pytest.mark.parametrize("variant", VARIANTS + TRUSTED, ids=lambda one: one.name)
def test_every_variant_finds_what_is_wrong(made, variant):
    held_out, measures, test, setup, wrong = made
    relative = {
        column: rates_of_units(
            heard_otherwise(held_out.measures[:, column]), held_out.sequences.unit, NUM_UNITS
        )
        for column in (4, 6)
    }
    found, replaced = judged(variant, held_out, measures, test, setup, relative)
    assert 0.6 < replaced <= 1
    assert found.shape == wrong.shape and 0 <= found.min() <= found.max() <= 1
    precision, area, correlation, skill, _, hard = metrics(found, wrong, None)
    assert correlation is None and len(METRICS) == 6
    assert precision > 0.6 and area > 0.9 and skill > 0 and hard > 0.2
