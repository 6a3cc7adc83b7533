"""Boundaries by the single-path acceptor, then correctness a segment (Ablation 3, appendix B)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from lhotse import CutSet

from mlvae.tiers import tier
from mlvae.train import Decoding, EStep
from mlvae.train.estep import search_compiler
from mlvae.train.stretches import Wanted
from tests.systems.test_localize import run
from tests.train.test_estep import (
    BOUNDARY,
    CORRECTNESS,
    NUM_UNITS,
    GivenFeatures,
    edges,
    features_of,
    stand_in,
)
from tests.train.tiny import DEVICE, TABLE, make_cut

UNITS = [0, 2, 1]


def random_features(seed: int, frames: int = 9) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=1.5, size=(frames, NUM_UNITS + 2))


def by_hand(features: np.ndarray, prior: np.ndarray, scale: float):
    """Edges, flags and P(mispronounced), by the appendix's two steps."""
    tensor = torch.from_numpy(features).double()
    q = tensor[:, :NUM_UNITS].softmax(1).numpy()
    start = np.log(tensor[:, BOUNDARY].sigmoid().numpy())
    hold = np.log(1 - tensor[:, BOUNDARY].sigmoid().numpy())
    wrong = tensor[:, CORRECTNESS].sigmoid().numpy()
    right = scale * np.log(q / prior)
    other = scale * np.log((1 - q) / (1 - prior))

    def score(bounds) -> float:
        total = hold[1:].sum() + sum(start[t] - hold[t] for t in bounds[1:-1])
        spans = zip(UNITS, bounds, bounds[1:])
        return total + sum(right[begin:end, unit].sum() for unit, begin, end in spans)

    best = max(
        ([0, *inner, len(q)] for inner in itertools.combinations(range(1, len(q)), 2)), key=score
    )
    rates = []
    for unit, begin, end in zip(UNITS, best, best[1:]):
        correct = np.log(1 - wrong[begin]) + right[begin:end, unit].sum()
        mismatch = np.log(wrong[begin]) + other[begin:end, unit].sum()
        rates.append(1 / (1 + np.exp(correct - mismatch)))
    return list(zip(best, best[1:])), [rate > 0.5 for rate in rates], rates


@pytest.mark.parametrize("scale", [1.0, 0.3])
@pytest.mark.parametrize("seed", range(6))
def test_against_the_equations_of_the_appendix(seed, scale):
    prior = np.array([0.1, 0.2, 0.3, 0.4])
    model = stand_in(torch.from_numpy(prior).log().float())
    features = random_features(seed)
    cut = make_cut("x", features, TABLE.units(UNITS))
    estep = EStep(
        search_compiler(model, "separate"), CutSet.from_cuts([cut]), GivenFeatures(TABLE), 1000
    )
    expected_edges, flags, rates = by_hand(features, prior, scale)
    decoding = Decoding(acoustic_scale=scale)
    spans = estep.run(model, decoding, DEVICE).spans["x"]
    assert edges(spans) == expected_edges
    assert [span.mispronounced for span in spans] == flags
    ((name, answer),) = estep.answers(model, decoding, DEVICE, Wanted(posteriors=True))
    assert edges(answer.spans) == expected_edges
    assert answer.posteriors.mispronounced.tolist() == pytest.approx(rates, rel=1e-3, abs=1e-4)


def test_the_cases_tell_the_two_systems_apart():
    """Somewhere the joint search has other boundaries; or the test above would say little."""
    model, differ, flagged = stand_in(), 0, 0
    for seed in range(6):
        cut = make_cut("x", random_features(seed), TABLE.units(UNITS))
        spans = [
            EStep(
                search_compiler(model, topology), CutSet.from_cuts([cut]), GivenFeatures(TABLE), 99
            )
            .run(model, Decoding(), DEVICE)
            .spans["x"]
            for topology in ("separate", "ml")
        ]
        differ += edges(spans[0]) != edges(spans[1])
        flagged += sum(span.mispronounced for span in spans[0])
    assert differ > 0
    assert 0 < flagged < 18


def test_a_batch_gives_what_each_cut_gives_alone_and_short_cuts_are_omitted():
    model = stand_in()
    cuts = [make_cut(f"x{n}", random_features(n, 5 + n), TABLE.units(UNITS)) for n in range(4)]
    short = make_cut("short", random_features(9, 2), TABLE.units(UNITS))
    data = GivenFeatures(TABLE)

    def run(some):
        estep = EStep(search_compiler(model, "separate"), CutSet.from_cuts(some), data, 1000)
        return estep.run(model, Decoding(), DEVICE).spans

    together = run([*cuts, short])
    assert together.keys() == {cut.id for cut in cuts}
    for cut in cuts:
        alone = run([cut])[cut.id]
        assert edges(alone) == edges(together[cut.id])
        assert [s.mispronounced for s in alone] == [s.mispronounced for s in together[cut.id]]


def test_it_is_localised_through_the_same_tiers():
    said = [0] * 4 + [3] * 4 + [2] * 4
    cut = make_cut("x", features_of(12, said, starts=[0, 4, 8]), ["a", "b", "c"])
    (found,), short = run([cut], topology="separate")
    assert short == []
    assert [item.symbol for item in tier(found, "mlvae_perceived")] == ["a", "*", "c"]
    assert [item.start for item in tier(found, "mlvae")] == pytest.approx([0, 0.04, 0.08])
    assert [item.score > 0.5 for item in tier(found, "mlvae")] == [False, True, False]
