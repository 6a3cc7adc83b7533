from __future__ import annotations

import pytest
import torch

from mlvae.em import TrainConfig
from mlvae.em.precision import Precision
from tests.em.tiny import CPU, spoken_cuts
from tests.em.trainers import CONFIG, make_trainer


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision_needs_a_gpu(name, tmp_path):
    with pytest.raises(ValueError, match=f"precision {name} needs a GPU; on cpu"):
        Precision(name, CPU)
    config = TrainConfig(**{**vars(CONFIG), "precision": name})
    with pytest.raises(ValueError, match="needs a GPU"):
        make_trainer((spoken_cuts(3)[0], spoken_cuts(3)[0]), tmp_path, config)


def test_other_precisions_are_refused():
    with pytest.raises(ValueError, match="precision must be one of float32, float16, bfloat16"):
        TrainConfig(precision="float64")
    with pytest.raises(ValueError, match="not 'half'"):
        Precision("half", CPU)


def test_a_gpu_without_bfloat16_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    with pytest.raises(ValueError, match="this GPU lacks it"):
        Precision("bfloat16", torch.device("cuda"))


def test_float32_has_no_state_and_changes_nothing():
    precision = Precision("float32", CPU)
    assert precision.state() == {}
    assert not torch.is_autocast_enabled()
    with precision.autocast():
        assert not torch.is_autocast_enabled()
