"""A run that was killed between model and checkpoint, and whose iteration was not the best again
when it was repeated (on another device, say), kept the killed iteration's model and called it
another's. And a run whose model was deleted said, of the stage that was running: run the stage that
trains it. The training of w2v-CTC did both after the Trainer had been mended.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import mlvae.train.loop
import mlvae.train.trainer
from mlvae.systems import w2v_ctc
from mlvae.train.loop import read_metadata
from tests.systems.sounds import tone_cuts, write_checkpoint
from tests.systems.test_w2v_ctc import CONFIG, train
from tests.train.tiny import spoken_cuts
from tests.train.trainers import Kill, kill_at, make_trainer, values


def make_cuts():
    return spoken_cuts(12)[0], spoken_cuts(4, seed=1)[0]


def test_the_model_is_of_the_iteration_that_is_named(tmp_path, monkeypatch):
    cuts = make_cuts()
    # The second iteration is worse when it is done again.
    monkeypatch.setattr(mlvae.train.trainer, "corrupted_f1", values(0.1, 0.2, 0.05))
    with monkeypatch.context() as patch, pytest.raises(Kill):
        kill_at(patch, mlvae.train.loop, "save_checkpoint", 2)
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


@pytest.fixture
def tones(tmp_path):
    write_checkpoint(tmp_path / "tiny.pth")
    return tone_cuts(tmp_path / "wav", 2), tone_cuts(tmp_path / "wav", 1, seed=1)


def test_the_model_of_w2v_is_of_the_epoch_that_is_named(tmp_path, tones, monkeypatch):
    config, folder = replace(CONFIG, epochs=2), tmp_path / "run"
    # The second epoch is worse when it is done again.
    monkeypatch.setattr(w2v_ctc.FineTuner, "_valid_loss", values(3.0, 2.0, 4.0))
    with monkeypatch.context() as patch, pytest.raises(Kill):
        kill_at(patch, mlvae.train.loop, "save_checkpoint", 2)
        train(config, tones, folder, tmp_path)
    assert read_metadata(folder / "model.safetensors")["iteration"] == 2
    training = train(config, tones, folder, tmp_path)
    assert (
        read_metadata(folder / "model.safetensors")["iteration"] == training["best_iteration"] == 2
    )


def test_a_training_of_w2v_whose_model_is_gone_says_what_to_do(tmp_path, tones):
    config, folder = replace(CONFIG, epochs=1), tmp_path / "run"
    train(config, tones, folder, tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="checkpoint.safetensors is there without model.safeten"):
        train(config, tones, folder, tmp_path)
