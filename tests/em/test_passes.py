"""Runs that are killed anywhere within an iteration, and go on from a checkpoint in its midst."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mlvae.em import Decoding, passes
from mlvae.em.checkpoint import read_tensors
from mlvae.em.passes import Passes
from mlvae.em.settings import CrossFitConfig
from tests.em.test_crossfit import with_origin
from tests.em.tiny import spoken_cuts
from tests.em.trainers import CONFIG, Kill, assert_same_files, figures, make_trainer

SMALL = replace(CONFIG, max_frames=150)
SUB = replace(
    SMALL,
    topology="substitution",
    states_per_unit=2,
    relabel_after=2,
    decoding=Decoding(acoustic_scale=0.5),
)
CONFIGS = {
    "alternating": replace(SMALL, estimator_epochs=2, selection="path_score"),
    "found boundaries": replace(SMALL, boundary_target="found"),
    "reinforce": replace(SMALL, algorithm="reinforce"),
    "joint": replace(SMALL, algorithm="joint", final_learning_rate=1e-3),
    "relabelling": replace(
        SUB, estimate_after=1, decoding=Decoding(acoustic_scale=0.5, competitors=2, skip=True)
    ),
    "cross-fitting": replace(SUB, crossfit=CrossFitConfig(3)),
}


@pytest.fixture(scope="module")
def cuts():
    return with_origin(spoken_cuts(14)[0]), spoken_cuts(5, seed=1)[0]


@pytest.fixture(autouse=True)
def small_searches(monkeypatch):
    """Several batches a search."""
    monkeypatch.setattr("mlvae.em.algorithm.Algorithm.search_frames", lambda self: 100)


class Killer:
    """Writes a checkpoint after every ``every``-th batch, and kills at the given ones."""

    def __init__(self, monkeypatch, every: int, kills: tuple[int, ...] = ()) -> None:
        self.count, self.every, self.kills = 0, every, kills
        self.tick = Passes._tick
        monkeypatch.setattr(Passes, "_tick", lambda *args: self(monkeypatch, *args))

    def __call__(self, monkeypatch, *args) -> None:
        self.count += 1
        due = self.every and self.count % self.every == 0
        monkeypatch.setattr(passes, "INTERVAL", -1.0 if due else 1e9)
        self.tick(*args)
        if self.count in self.kills:
            raise Kill


def fit(cuts, folder, config) -> dict:
    """Train, started again after each kill as a new process."""
    while True:
        torch.manual_seed(99)
        try:
            return make_trainer(cuts, folder, config).fit()
        except Kill:
            checkpoint = folder / "checkpoint.safetensors"
            assert any(name.startswith("pass.") for name in read_tensors(checkpoint)[0])


@pytest.mark.parametrize("name", CONFIGS)
def test_a_run_that_is_killed_again_and_again_goes_on_to_the_same_weights(
    cuts, tmp_path, monkeypatch, name
):
    """It has a checkpoint after every third batch, and is killed in all parts of an iteration."""
    config = CONFIGS[name]
    with monkeypatch.context() as patch:
        whole = Killer(patch, every=0)
        expected = fit(cuts, tmp_path / "whole", config)
    with monkeypatch.context() as patch:
        killer = Killer(patch, every=3, kills=tuple(range(4, 2 * whole.count, 7)))
        found = fit(cuts, tmp_path / "killed", config)
    # Of the seven batches from kill to kill one or two are done once more.
    assert whole.count < killer.count < 1.5 * whole.count
    assert figures(found) == figures(expected)
    assert_same_files(tmp_path / "killed", tmp_path / "whole")


@pytest.mark.parametrize("kill", range(1, 12))
def test_a_kill_right_behind_a_checkpoint_repeats_no_batch(cuts, tmp_path, monkeypatch, kill):
    with monkeypatch.context() as patch:
        whole = Killer(patch, every=0)
        fit(cuts, tmp_path / "whole", replace(SMALL, iterations=1))
    killer = Killer(monkeypatch, every=1, kills=(kill,))
    fit(cuts, tmp_path / "killed", replace(SMALL, iterations=1))
    assert killer.count == whole.count > kill
    assert_same_files(tmp_path / "killed", tmp_path / "whole")
