"""Joint optimisation of all modules (Ablation 2)."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from mlvae.train.estep import EStep
from tests.train.tiny import spoken_cuts
from tests.train.trainers import CONFIG, MODULES, make_trainer

JOINT = replace(CONFIG, algorithm="joint", learning_rate=0.02)


@pytest.fixture(scope="module")
def cuts():
    return spoken_cuts(24)[0], spoken_cuts(6, seed=1)[0]


@pytest.fixture
def algorithm(cuts, tmp_path):
    return make_trainer(cuts, tmp_path, JOINT).algorithm


def first_batch(algorithm):
    return next(iter(algorithm.batches.epoch(0, algorithm.aligned, "")))


def test_every_module_moves_at_every_step_and_nothing_is_searched(algorithm, monkeypatch):
    monkeypatch.setattr(EStep, "run", lambda *_: pytest.fail("searched"))
    steps = []
    for name, learner in algorithm.learners.items():
        original = learner.update
        learner.update = lambda name=name, original=original: (steps.append(name), original())
    before = {
        name: [value.detach().clone() for value in getattr(algorithm.model, name).parameters()]
        for name in MODULES
    }
    algorithm.iterate(0)
    batches = len(list(algorithm.batches.epoch(0, algorithm.aligned, "")))
    assert batches > 2
    assert steps == list(MODULES) * batches
    for name, values in before.items():
        after = getattr(algorithm.model, name).parameters()
        assert any(not torch.equal(a, b) for a, b in zip(values, after)), name


@pytest.mark.parametrize(("part", "modules"), [("kl", MODULES), ("reconstruction", MODULES[2:])])
def test_what_a_part_of_the_elbo_teaches(algorithm, part, modules):
    """The KL to the components depends on q(y) and, through q(pi), on b."""
    _, parts = algorithm.loss(first_batch(algorithm))
    parts[part].backward()
    learned = tuple(
        name
        for name in MODULES
        if any(
            value.grad is not None and bool(value.grad.abs().sum() > 0)
            for value in getattr(algorithm.model, name).parameters()
        )
    )
    assert learned == modules


def test_the_loss_is_the_sum_of_its_parts_and_each_is_what_it_says(algorithm):
    batch, model = first_batch(algorithm), algorithm.model
    model.eval()
    algorithm.config = replace(JOINT, generator_kl_weight=0.5)
    loss, parts = algorithm.loss(batch)
    weighted = sum(value.item() for value in parts.values()) - 0.5 * parts["kl"].item()
    assert loss.item() == pytest.approx(weighted, rel=1e-5)

    log_probs = model.estimator(batch.features, batch.num_frames)[batch.mask]
    prior = model.log_prior.expand_as(log_probs)
    expected = torch.nn.functional.kl_div(prior, log_probs, reduction="sum", log_target=True)
    torch.testing.assert_close(parts["kl_unit"], expected / len(log_probs))
    with torch.no_grad():  # q(pi) is 0.6 everywhere
        model.generator.correctness[-1].weight.zero_()
        model.generator.correctness[-1].bias.fill_(math.log(0.6 / 0.4))
    _, parts = algorithm.loss(batch)
    expected = 0.6 * math.log(0.6 / 0.15) + 0.4 * math.log(0.4 / 0.85)
    assert float(parts["kl_correctness"]) == pytest.approx(expected, rel=1e-4)
    with torch.no_grad():  # q(eta) is p(eta)
        for output, value in zip(
            (model.boundary.alpha, model.boundary.beta), algorithm.boundary_prior
        ):
            output.weight.zero_()
            output.bias.fill_(math.log(math.expm1(value - model.boundary.MIN_CONCENTRATION)))
    _, parts = algorithm.loss(batch)
    assert float(parts["kl_boundary"]) == pytest.approx(0.0, abs=1e-4)


def test_padding_does_not_matter(algorithm):
    batch = first_batch(algorithm)
    algorithm.model.eval()
    torch.manual_seed(0)
    before = algorithm.loss(batch)[1]
    features = batch.features.masked_fill(~batch.mask.unsqueeze(2), 7.0)
    torch.manual_seed(0)
    after = algorithm.loss(replace(batch, features=features))[1]
    for name in before:
        torch.testing.assert_close(after[name], before[name])


def test_it_learns_the_pseudo_labels(cuts, tmp_path):
    config = replace(JOINT, iterations=20, learning_rate=0.03)
    history = make_trainer(cuts, tmp_path, config).fit()["history"]
    for name in ("estimator", "boundary", "kl_boundary", "kl_correctness"):
        assert history[-1][f"loss/{name}"] < 0.8 * history[0][f"loss/{name}"], name
    assert "flag_rate/train" not in history[0]
    assert all(0 <= scalars["corrupted_f1"] <= 1 for scalars in history)
