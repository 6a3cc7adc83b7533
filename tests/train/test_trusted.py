"""A model that does not even find units replaced at random learns nothing from its own answers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from lhotse import CutSet
from safetensors.torch import load_file

import mlvae.train.trainer
from mlvae.train import Decoding
from tests.train.tiny import spoken_cuts
from tests.train.trainers import (
    CONFIG,
    Killer,
    assert_same_files,
    figures,
    make_trainer,
    until_done,
    values,
)

SELF_TRAINED = replace(
    CONFIG,
    iterations=3,
    topology="substitution",
    generator=False,
    boundary_detector=False,
    pseudo_labels_after=1,
    selection="path_score",
    decoding=Decoding(acoustic_scale=0.5),
)
PRIOR = torch.tensor([0.85, 0.15]).log()


@pytest.fixture(scope="module")
def cuts() -> tuple[CutSet, CutSet]:
    return spoken_cuts(12)[0], spoken_cuts(4, seed=1)[0]


@pytest.mark.parametrize(
    ("least", "scores", "learns"),
    [
        (0.0, (0.0, 0.0, 0.0), (True, True, True)),
        (0.6, (0.6, 0.1, 0.1), (True, True, True)),
        (0.6, (0.5, 0.9, 0.9), (False, False, False)),
    ],
    ids=["always", "trusted", "not trusted"],
)
def test_the_first_iteration_decides(cuts, tmp_path, monkeypatch, least, scores, learns):
    monkeypatch.setattr(mlvae.train.trainer, "corrupted_f1", values(*scores))
    training = make_trainer(cuts, tmp_path, replace(SELF_TRAINED, trusted_f1=least)).fit()
    assert tuple("changed_units" in row for row in training["history"]) == learns
    assert training["trusted"] == learns[-1]
    assert training["chosen_by"] == ("path_score/valid" if learns[-1] else "corrupted_f1")
    chosen = [row[training["chosen_by"]] for row in training["history"]]
    assert training["best_iteration"] == 1 + chosen.index(max(chosen))
    kept = load_file(tmp_path / "checkpoint.safetensors")
    rates = next(value for name, value in kept.items() if name.endswith("log_correctness"))
    assert torch.equal(rates, PRIOR) != learns[-1]


def test_a_model_that_is_adapted_is_trusted_as_it_is(cuts, tmp_path, monkeypatch):
    make_trainer(cuts, tmp_path / "first", SELF_TRAINED).fit()
    init, least = tmp_path / "first" / "model.safetensors", replace(SELF_TRAINED, trusted_f1=0.6)
    for name, score in (("trusted", 0.7), ("not", 0.5)):
        scores = (score, *([1 - score] * 3))
        monkeypatch.setattr(mlvae.train.trainer, "corrupted_f1", values(*scores))
        training = make_trainer(cuts, tmp_path / name, least, init=init).fit()
        trusted = name == "trusted"
        assert training["trusted"] == trusted
        assert all(("changed_units" in row) == trusted for row in training["history"])


@pytest.mark.parametrize("least", [0.0, math.nextafter(1, 0)], ids=["trusted", "not trusted"])
def test_a_killed_run_goes_on_as_if_nothing_had_happened(cuts, tmp_path, monkeypatch, least):
    config = replace(SELF_TRAINED, trusted_f1=least)
    whole = make_trainer(cuts, tmp_path / "whole", config).fit()
    with monkeypatch.context() as patch:
        Killer(patch, 5, (7, 31))
        found = until_done(lambda: make_trainer(cuts, tmp_path / "killed", config).fit())
    assert whole["trusted"] == (least == 0.0)
    assert figures(found) == figures(whole)
    assert_same_files(tmp_path / "killed", tmp_path / "whole")
