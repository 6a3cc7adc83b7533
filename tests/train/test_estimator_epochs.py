"""Several passes of the phoneme estimator an iteration, and what chooses the iteration."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlvae.train import TrainConfig
from mlvae.train.estep import EStepResult
from mlvae.train.loop import read_metadata
from tests.train.tiny import spoken_cuts
from tests.train.trainers import (
    CONFIG,
    Kill,
    assert_same_files,
    figures,
    kill_at,
    make_trainer,
    values,
)


@pytest.fixture(scope="module")
def cuts():
    return spoken_cuts(12)[0], spoken_cuts(4, seed=1)[0]


def orders(trainer, monkeypatch) -> list[tuple[str, ...]]:
    """The cuts of each epoch of the estimator in their order, over two iterations."""
    batches, seen = trainer.algorithm.batches, []
    original = batches.epoch

    def epoch(number, spans, description, means):
        names = []
        for batch in original(number, spans, description, means):
            names += batch.cut_ids
            yield batch
        if description == "estimator":
            seen.append(tuple(names))

    monkeypatch.setattr(batches, "epoch", epoch)
    trainer.fit()
    return seen


def test_each_pass_takes_all_cuts_in_an_order_of_its_own(cuts, tmp_path, monkeypatch):
    config = replace(CONFIG, estimator_epochs=3)
    seen = orders(make_trainer(cuts, tmp_path, config), monkeypatch)
    assert len(seen) == len(set(seen)) == 3 * CONFIG.iterations
    assert {tuple(sorted(names)) for names in seen} == {tuple(sorted(cut.id for cut in cuts[0]))}


def test_a_killed_run_goes_on_to_the_same_end(cuts, tmp_path, monkeypatch):
    config = replace(CONFIG, estimator_epochs=2)
    training = make_trainer(cuts, tmp_path / "whole", config).fit()
    with monkeypatch.context() as patch:
        trainer = make_trainer(cuts, tmp_path / "killed", config)
        kill_at(patch, trainer.algorithm, "train_estimator", 4)
        with pytest.raises(Kill):
            trainer.fit()
    again = make_trainer(cuts, tmp_path / "killed", config).fit()
    assert figures(again) == figures(training)
    assert_same_files(tmp_path / "whole", tmp_path / "killed")


def test_the_path_score_of_the_validation_part_may_choose(cuts, tmp_path, monkeypatch):
    trainer = make_trainer(cuts, tmp_path, replace(CONFIG, iterations=4, selection="path_score"))
    score, asked = values(-3.0, -2.0, -2.5, -2.0), []

    def run(model, decoding, device, **_):
        asked.append(trainer.valid_searches["valid"].other_units)
        return EStepResult({}, score(), 0.0)

    monkeypatch.setattr(trainer.valid_searches["valid"], "run", run)
    training = trainer.fit()
    assert training["best_iteration"] == 2
    assert read_metadata(tmp_path / "model.safetensors")["iteration"] == 2
    assert [row["path_score/valid"] for row in training["history"]] == [-3.0, -2.0, -2.5, -2.0]
    assert "path" in training["criterion"]
    assert asked[0] is None and trainer.valid_estep.other_units  # the text, not corrupted


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (dict(estimator_epochs=0), "estimator_epochs must be a whole number from 1 to .*, not 0"),
        (dict(estimator_epochs=2, algorithm="joint"), "estimator_epochs is 1"),
        (dict(selection="f1"), "selection must be one of corrupted_f1, path_score, not 'f1'"),
    ],
)
def test_wrong_settings(settings, reason):
    with pytest.raises(ValueError, match=reason):
        TrainConfig(**settings)
