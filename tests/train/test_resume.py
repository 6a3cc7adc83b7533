from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
import torch
from lhotse import CutSet
from safetensors.torch import load_file

import mlvae.train.algorithms
import mlvae.train.loop
import mlvae.train.trainer
from mlvae.train import Trainer
from mlvae.train.estep import EStep
from mlvae.train.loop import read_metadata
from tests.train.tiny import spoken_cuts
from tests.train.trainers import (
    CONFIG,
    Kill,
    Killer,
    assert_same_files,
    figures,
    kill_at,
    make_trainer,
    until_done,
    values,
)


@pytest.mark.parametrize(
    ("target", "name", "call"), [(EStep, "run", 3), (mlvae.train.loop, "save_checkpoint", 2)]
)
def test_a_run_that_is_killed_between_passes_goes_on_as_if_nothing_had_happened(
    cuts, tmp_path, monkeypatch, undisturbed, target, name, call
):
    """In the second iteration, of two searches each."""
    folder, expected = undisturbed
    with monkeypatch.context() as patch, pytest.raises(Kill):
        kill_at(patch, target, name, call)
        make_trainer(cuts, tmp_path).fit()
    assert read_metadata(tmp_path / "checkpoint.safetensors")["iteration"] == 1
    torch.manual_seed(99)  # a new process
    found = make_trainer(cuts, tmp_path).fit()
    assert figures(found) == figures(expected)
    assert_same_files(tmp_path, folder)


def test_a_run_from_a_trained_model_keeps_that_until_another_is_better(
    cuts, tmp_path, monkeypatch, undisturbed
):
    init, config = undisturbed[0] / "model.safetensors", replace(CONFIG, iterations=4)
    whole = make_trainer(cuts, tmp_path / "whole", config, init=init).fit()
    assert whole["iterations"] == 2
    scores = [whole["before_adaptation"], *whole["history"]]
    scores = [scalars["corrupted_f1"] for scalars in scores]
    assert whole["best_iteration"] == scores.index(max(scores))

    with monkeypatch.context() as patch:
        Killer(patch, 5, (7, 31))
        found = until_done(lambda: make_trainer(cuts, tmp_path / "killed", config, init=init).fit())
    assert figures(found) == figures(whole)
    assert_same_files(tmp_path / "killed", tmp_path / "whole")

    monkeypatch.setattr(mlvae.train.trainer, "corrupted_f1", values(0.3, 0.2, 0.1))
    worse = make_trainer(cuts, tmp_path / "worse", config, init=init).fit()
    assert worse["best_iteration"] == 0
    kept, before = load_file(tmp_path / "worse" / "model.safetensors"), load_file(init)
    assert kept.keys() == before.keys()
    assert all(torch.equal(kept[name], before[name]) for name in kept)


def test_a_run_that_is_killed_between_model_and_checkpoint(cuts, tmp_path, monkeypatch):
    """The model on disk is then ahead of the checkpoint."""
    monkeypatch.setattr(mlvae.train.trainer, "corrupted_f1", values(0.1, 0.2))
    make_trainer(cuts, tmp_path / "undisturbed").fit()
    monkeypatch.setattr(mlvae.train.trainer, "corrupted_f1", values(0.1, 0.2, 0.2))
    with monkeypatch.context() as patch, pytest.raises(Kill):
        kill_at(patch, mlvae.train.loop, "save_checkpoint", 2)
        make_trainer(cuts, tmp_path / "killed").fit()
    assert read_metadata(tmp_path / "killed" / "model.safetensors")["iteration"] == 2
    assert read_metadata(tmp_path / "killed" / "checkpoint.safetensors")["iteration"] == 1
    make_trainer(cuts, tmp_path / "killed").fit()
    assert_same_files(tmp_path / "killed", tmp_path / "undisturbed")


def test_a_finished_run_is_not_repeated(cuts, tmp_path, undisturbed, monkeypatch):
    folder, expected = undisturbed
    for name in ("checkpoint.safetensors", "model.safetensors"):
        shutil.copy(folder / name, tmp_path / name)
    kill_at(monkeypatch, Trainer, "_iterate", 1)
    assert make_trainer(cuts, tmp_path).fit() == expected
    assert_same_files(tmp_path, folder)


def test_a_run_may_be_prolonged(cuts, tmp_path, undisturbed, capsys):
    make_trainer(cuts, tmp_path, replace(CONFIG, iterations=1)).fit()
    names = ["checkpoint.safetensors", "model.safetensors", "tensorboard"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    found = make_trainer(cuts, tmp_path).fit()
    assert "going on after iteration 1 of 2" in capsys.readouterr().out
    assert figures(found) == figures(undisturbed[1])
    assert_same_files(tmp_path, undisturbed[0])


def test_a_run_over_buckets_goes_on_too(tmp_path):
    """From 40 cuts on, batches are drawn from buckets by another sampler."""
    cuts = spoken_cuts(44)[0], spoken_cuts(8, seed=1)[0]
    make_trainer(cuts, tmp_path / "whole").fit()
    make_trainer(cuts, tmp_path / "parts", replace(CONFIG, iterations=1)).fit()
    make_trainer(cuts, tmp_path / "parts").fit()
    assert_same_files(tmp_path / "parts", tmp_path / "whole")


def test_the_same_seed_gives_the_same_weights_and_another_one_others(cuts, tmp_path, undisturbed):
    trainer = make_trainer(cuts, tmp_path / "same")
    torch.rand(5)  # what happens in between does not matter
    trainer.fit()
    assert_same_files(tmp_path / "same", undisturbed[0])
    make_trainer(cuts, tmp_path / "other", replace(CONFIG, iterations=1), seed=1).fit()
    mine, theirs = (
        load_file(f / "model.safetensors") for f in (tmp_path / "other", undisturbed[0])
    )
    name = "estimator.output.weight"
    assert not torch.equal(mine[name], theirs[name])


@pytest.mark.parametrize("change", ["seed", "rate", "cuts", "setup"])
def test_a_checkpoint_of_another_run_is_not_gone_on_from(
    cuts, tmp_path, undisturbed, capsys, change
):
    """Such as one that is left from a corpus of another size in the same folder."""
    other = {
        "seed": {"seed": 1},
        "rate": {"config": replace(CONFIG, iterations=1, learning_rate=1e-3)},
        "cuts": {"cuts": (CutSet.from_cuts(list(cuts[0])[1:]), cuts[1])},
        "setup": {"setup": {"states": 3}},
    }[change]
    settings = {"cuts": cuts, "config": replace(CONFIG, iterations=1), **other}
    make_trainer(folder=tmp_path, **settings).fit()
    capsys.readouterr()
    found = make_trainer(cuts, tmp_path).fit()
    assert "checkpoint.safetensors is of another seed, config" in capsys.readouterr().out
    assert figures(found) == figures(undisturbed[1])
    assert_same_files(tmp_path, undisturbed[0])
