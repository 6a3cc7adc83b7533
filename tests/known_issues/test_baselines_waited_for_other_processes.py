"""With several processes the first one alone trains the baselines. Its checkpoint asked the others
for their random generators all the same, which were not there to answer.
"""

from __future__ import annotations

import torch

from mlvae.train.loop import TrainingState, load_checkpoint, save_checkpoint


def test_a_state_of_one_process_asks_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr("mlvae.train.distributed.world_size", lambda: 2)
    asked = []
    monkeypatch.setattr(
        "mlvae.train.distributed.gather", lambda value: asked.append(value) or [value]
    )
    module = torch.nn.Linear(2, 2)
    state = TrainingState({"model": module}, {}, {"epoch": 1})
    save_checkpoint(tmp_path / "checkpoint.safetensors", state)
    assert asked == []
    assert load_checkpoint(tmp_path / "checkpoint.safetensors", state) == 1
