from __future__ import annotations

import pytest
import torch

from mlvae.train import TrainConfig
from mlvae.train.algorithms import Learner, gradient_scaler
from tests.train.tiny import CPU, spoken_cuts
from tests.train.trainers import CONFIG, make_trainer


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision_needs_a_gpu(name, tmp_path):
    config = TrainConfig(**{**vars(CONFIG), "precision": name})
    with pytest.raises(ValueError, match=f"precision {name} needs a GPU; on cpu"):
        make_trainer((spoken_cuts(3)[0], spoken_cuts(3)[0]), tmp_path, config)


def test_other_precisions_are_refused():
    with pytest.raises(ValueError, match="precision must be one of float32, float16, bfloat16"):
        TrainConfig(precision="float64")


def test_a_gpu_without_bfloat16_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    with pytest.raises(ValueError, match="this GPU lacks it"):
        gradient_scaler("bfloat16", torch.device("cuda"))


def test_float32_has_no_state_and_changes_nothing(recwarn):
    scaler = gradient_scaler("float32", CPU)
    assert scaler.state_dict() == {}
    learner = Learner(torch.nn.Linear(3, 2), CONFIG, scaler)
    inputs = torch.rand(4, 3)
    expected = learner.module(inputs)
    assert torch.equal(learner(inputs), expected)
    (gradient,) = torch.autograd.grad(expected.sum(), learner.module.weight)
    learner.gradient_clip = 0.0
    learner.step(learner(inputs).sum())
    assert torch.equal(learner.module.weight.grad, gradient)
    assert not list(recwarn)
