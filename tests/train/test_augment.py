from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mlvae.train.augment import random_factors, warp_frequencies
from tests.train.tiny import spoken_cuts
from tests.train.trainers import CONFIG, make_trainer


def test_a_formant_moves_by_the_factor():
    bins = torch.arange(40.0)
    peak = (-((bins - 20) ** 2) / 20).exp().expand(3, 5, 40)
    factors = torch.tensor([1.0, 0.8, 1.25])
    warped = warp_frequencies(peak, factors)
    assert torch.equal(warped[0], peak[0])
    assert warped.argmax(2)[:, 0].tolist() == [20, 25, 16]
    # Another recording in the batch changes nothing.
    assert torch.equal(warped[1:], warp_frequencies(peak[1:], factors[1:]))


def test_deltas_are_warped_as_the_bins_that_they_are_of():
    features = torch.randn(2, 6, 30)
    factors = torch.tensor([0.9, 1.1])
    warped = warp_frequencies(features, factors, num_parts=3)
    for part, expected in zip(warped.split(10, dim=2), features.split(10, dim=2)):
        assert torch.equal(part, warp_frequencies(expected, factors))


def test_padding_stays_zero_and_nothing_exceeds_what_was_there():
    features = torch.randn(2, 6, 40)
    features[1, 4:] = 0
    warped = warp_frequencies(features, torch.tensor([0.7, 1.3]))
    assert torch.equal(warped[1, 4:], features[1, 4:])
    assert float(warped.max()) <= float(features.max())
    assert torch.equal(warped[:, :, 0], features[:, :, 0])


def test_factors_lie_around_one():
    torch.manual_seed(0)
    factors = random_factors(2000, 0.1, torch.device("cpu"))
    assert 0.9 <= float(factors.min()) < 0.91 < 1.09 < float(factors.max()) <= 1.1
    assert float(factors.mean()) == pytest.approx(1.0, abs=0.01)


def test_only_learning_of_the_estimator_sees_warped_features(tmp_path, monkeypatch):
    cuts = spoken_cuts(6)[0], spoken_cuts(3, seed=1)[0]
    trainer = make_trainer(cuts, tmp_path, replace(CONFIG, iterations=1, frequency_warp=0.2))
    seen: dict[bool, list[torch.Tensor]] = {True: [], False: []}
    estimator = trainer.model.estimator
    forward = estimator.forward
    monkeypatch.setattr(
        estimator,
        "forward",
        lambda features, lengths: (
            seen[estimator.training].append(features),
            forward(features, lengths),
        )[1],
    )
    batches: list[torch.Tensor] = []
    epoch = trainer.algorithm.batches.epoch

    def watched(*args):
        for batch in epoch(*args):
            batches.append(batch.features)
            yield batch

    monkeypatch.setattr(trainer.algorithm.batches, "epoch", watched)
    trainer.fit()
    assert seen[True] and seen[False]
    plain = {tuple(batch.flatten().tolist()) for batch in batches}
    assert not any(tuple(one.flatten().tolist()) in plain for one in seen[True])
    assert any(tuple(one.flatten().tolist()) in plain for one in seen[False])


def test_a_joint_training_refuses_it():
    with pytest.raises(ValueError, match="frequency_warp is 0"):
        replace(CONFIG, algorithm="joint", frequency_warp=0.1)
