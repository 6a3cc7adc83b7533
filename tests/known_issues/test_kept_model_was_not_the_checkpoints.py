"""A run that was killed between model and checkpoint, and whose iteration was not the best again
when it was repeated (on another device, say), kept the killed iteration's model and called it
another's. And a run whose model was deleted said, of the stage that was running: run the stage that
trains it.
"""

from __future__ import annotations

import pytest

import mlvae.em.trainer
from mlvae.em.checkpoint import read_metadata
from tests.em.tiny import spoken_cuts
from tests.em.trainers import Kill, kill_at, make_trainer, values


def make_cuts():
    return spoken_cuts(12)[0], spoken_cuts(4, seed=1)[0]


def test_the_model_is_of_the_iteration_that_is_named(tmp_path, monkeypatch):
    cuts = make_cuts()
    # The second iteration is worse when it is done again.
    monkeypatch.setattr(mlvae.em.trainer, "corrupted_f1", values(0.1, 0.2, 0.05))
    with monkeypatch.context() as patch, pytest.raises(Kill):
        kill_at(patch, mlvae.em.trainer, "save_checkpoint", 2)
        make_trainer(cuts, tmp_path).fit()
    training = make_trainer(cuts, tmp_path).fit()
    kept = read_metadata(tmp_path / "model.safetensors")["iteration"]
    assert kept == training["best_iteration"] == 2


def test_a_run_whose_model_is_gone_says_what_to_do(tmp_path):
    cuts = make_cuts()
    make_trainer(cuts, tmp_path).fit()
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="checkpoint.safetensors is there without model.safeten"):
        make_trainer(cuts, tmp_path).fit()
    (tmp_path / "checkpoint.safetensors").unlink()
    make_trainer(cuts, tmp_path).fit()
