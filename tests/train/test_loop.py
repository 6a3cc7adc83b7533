"""The loop itself, with a training that only counts; the trainings that use it have their own."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from mlvae.train.loop import CHECKPOINT, MODEL, Loop, TrainingState, read_metadata
from tests.train.trainers import Kill

LOSSES = (3.0, 1.0, 2.0)


class Counting:
    """Iteration i sets the weight to i + 1 and has the i-th loss; one may be the last."""

    def __init__(self, folder, identity="a", iterations=3, with_model=True) -> None:
        self.module = torch.nn.Linear(1, 1)
        self.done: list[int] = []
        state = TrainingState({"model": self.module}, {}, {})
        where = folder if with_model else None
        self.loop = Loop(state, identity, iterations, folder / CHECKPOINT, where)

    def run(self, least=True, kill=None) -> Loop:
        def step(iteration: int) -> dict[str, float]:
            if iteration == kill:
                raise Kill
            self.done.append(iteration)
            self.module.weight.data.fill_(iteration + 1)
            return {"loss": LOSSES[iteration]}

        self.loop.run(step, "loss", least, {"kind": "counting"})
        return self.loop


@pytest.mark.parametrize(("least", "best"), [(True, 2), (False, 1)])
def test_the_best_iteration_is_kept(tmp_path, least, best):
    loop = Counting(tmp_path).run(least)
    assert loop.best_iteration == best
    assert loop.history == [{"loss": loss} for loss in LOSSES]
    assert load_file(tmp_path / MODEL)["weight"].item() == best
    assert read_metadata(tmp_path / MODEL) == {"iteration": best, "kind": "counting"}
    assert list((tmp_path / "tensorboard").iterdir())


def test_a_killed_loop_goes_on_and_a_finished_one_does_nothing(tmp_path, capsys):
    with pytest.raises(Kill):
        Counting(tmp_path).run(kill=2)
    again = Counting(tmp_path)
    assert again.loop.went_on and again.module.weight.item() == 2
    assert "going on after iteration 2 of 3" in capsys.readouterr().out
    assert again.run().best_iteration == 2
    assert again.done == [2]
    finished = Counting(tmp_path)
    assert finished.run().history == again.loop.history
    assert finished.done == []


def test_of_another_run_neither_checkpoint_nor_model_is_left(tmp_path):
    Counting(tmp_path).run()
    other = Counting(tmp_path, identity="b")
    assert not other.loop.went_on
    assert not (tmp_path / CHECKPOINT).exists() and not (tmp_path / MODEL).exists()


def test_without_a_folder_there_is_a_checkpoint_alone(tmp_path):
    loop = Counting(tmp_path, with_model=False).run()
    assert len(loop.history) == 3 and loop.best_iteration == 0
    assert [path.name for path in tmp_path.iterdir()] == [CHECKPOINT]
