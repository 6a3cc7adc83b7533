"""The learning rate that falls by equal factors to its last value."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlvae.train import Trainer
from mlvae.train.algorithms import Alternating, Learner
from mlvae.train.loop import read_metadata
from tests.train.tiny import spoken_cuts
from tests.train.trainers import (
    CONFIG,
    MODULES,
    Kill,
    assert_same_files,
    figures,
    kill_at,
    make_trainer,
)


@pytest.fixture(scope="module")
def cuts():
    return spoken_cuts(12)[0], spoken_cuts(4, seed=1)[0]


def rates(trainer: Trainer, monkeypatch) -> dict[str, list[float]]:
    """Train without steps; the rate of each iteration by module."""
    seen = {name: [] for name in MODULES}

    def step(self, loss):
        (name,) = (n for n, learner in trainer.algorithm.learners.items() if learner is self)
        (group,) = self.optimizer.param_groups
        if seen[name][-1:] != [group["lr"]]:
            seen[name].append(group["lr"])

    monkeypatch.setattr(Learner, "step", step)
    trainer.fit()
    return seen


@pytest.mark.parametrize(
    ("final", "expected"),
    [(0.0, [1e-2]), (1e-4, [1e-2, 1e-3, 1e-4]), (1e-2, [1e-2])],
)
def test_it_falls_by_equal_factors(cuts, tmp_path, monkeypatch, final, expected):
    config = replace(CONFIG, iterations=3, learning_rate=1e-2, final_learning_rate=final)
    found = rates(make_trainer(cuts, tmp_path, config), monkeypatch)
    assert found == {name: pytest.approx(expected) for name in MODULES}


def test_a_single_iteration_has_the_first_rate(cuts, tmp_path, monkeypatch):
    config = replace(CONFIG, iterations=1, learning_rate=1e-2, final_learning_rate=1e-4)
    found = rates(make_trainer(cuts, tmp_path, config), monkeypatch)
    assert found == {name: pytest.approx([1e-2]) for name in MODULES}


def test_a_killed_run_goes_on_with_the_rate_of_its_iteration(cuts, tmp_path, monkeypatch):
    config = replace(CONFIG, iterations=3, final_learning_rate=1e-5)
    expected = make_trainer(cuts, tmp_path / "undisturbed", config).fit()
    with monkeypatch.context() as patch, pytest.raises(Kill):
        kill_at(patch, Alternating, "train_boundary", 2)
        make_trainer(cuts, tmp_path / "killed", config).fit()
    assert read_metadata(tmp_path / "killed" / "checkpoint.safetensors")["iteration"] == 1
    found = make_trainer(cuts, tmp_path / "killed", config).fit()
    assert figures(found) == figures(expected)
    assert_same_files(tmp_path / "killed", tmp_path / "undisturbed")


def test_with_more_iterations_it_is_another_run(cuts, tmp_path):
    """Every iteration then has another rate; with a constant one, a run may be prolonged."""

    def identity(**change) -> str:
        return make_trainer(cuts, tmp_path, replace(CONFIG, **change)).identity

    assert identity(iterations=3) == identity(iterations=4)
    falling = identity(iterations=3, final_learning_rate=1e-4)
    assert falling != identity(iterations=4, final_learning_rate=1e-4)
    assert falling != identity(iterations=3)
