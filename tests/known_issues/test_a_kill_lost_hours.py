"""A checkpoint was written at the end of an iteration alone, which may take hours with a large
corpus, and the aligner of stage 3 had none at all: all work since was done once more after a kill.
Now ten minutes of work are lost at most. Here each batch takes two minutes of a clock that is not
the machine's.
"""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

import mlvae.systems.align
import mlvae.train.estep
from mlvae.nn import NarrowAcousticModel
from mlvae.train.algorithms import Algorithm, Learner
from tests.systems.test_align import CONFIG as ALIGN
from tests.systems.test_align import make_aligner
from tests.train.tiny import dataset, spoken_cuts
from tests.train.trainers import CONFIG, Kill, assert_same_files, make_trainer

TWO_MINUTES = 120.0
#: Ten minutes, and the batch in which the run is killed.
MOST_REPEATED = 10 * 60 / TWO_MINUTES + 1


class SlowWork:
    """Calls of some functions take two minutes each, and one of them ends the run in its midst."""

    def __init__(self, monkeypatch, functions) -> None:
        self.now, self.calls, self.kill = 0.0, 0, 0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        for owner, name in functions:
            monkeypatch.setattr(owner, name, self.slow(getattr(owner, name)))

    def slow(self, function):
        def working(*args, **options):
            self.now += TWO_MINUTES
            self.calls += 1
            if self.calls == self.kill:
                raise Kill
            return function(*args, **options)

        return working

    def count(self, run, kill: int = 0) -> int:
        """Calls until the run is at its end, or killed in its ``kill``-th one."""
        self.calls, self.kill = 0, kill
        if kill:
            with pytest.raises(Kill):
                run()
        else:
            run()
        return self.calls


@pytest.mark.parametrize("part", ["epoch of the generator", "search"])
def test_training_loses_ten_minutes_at_most(tmp_path, monkeypatch, part):
    monkeypatch.setattr(Algorithm, "search_frames", lambda self: 30)
    functions = [(Learner, "step")] if part != "search" else [(mlvae.train.estep, "answers_of")]
    cuts = spoken_cuts(14)[0], spoken_cuts(3, seed=1)[0]
    config = replace(CONFIG, iterations=1, max_frames=60)
    work = SlowWork(monkeypatch, functions)
    whole = work.count(lambda: make_trainer(cuts, tmp_path / "whole", config).fit())

    def run():
        make_trainer(cuts, tmp_path / "killed", config).fit()

    kill = whole - 3
    assert kill > 2 * MOST_REPEATED
    assert work.count(run, kill) == kill
    assert kill + work.count(run) - whole <= MOST_REPEATED
    assert_same_files(tmp_path / "killed", tmp_path / "whole")


def test_the_aligner_loses_ten_minutes_at_most(tmp_path, monkeypatch):
    cuts = spoken_cuts(20)[0]
    functions = [(NarrowAcousticModel, "middle_frame"), (mlvae.systems.align, "answers_of")]
    work = SlowWork(monkeypatch, functions)
    config = replace(ALIGN, rounds=2, epochs_per_round=1, batch_frames=100, search_frames=200)

    def run():
        aligner = make_aligner(config)
        scores.append(aligner.train(cuts, dataset(), 0, tmp_path / "c.safetensors")["path_scores"])

    scores: list[list[float]] = []
    whole = work.count(run)
    (tmp_path / "c.safetensors").unlink()
    kill = whole - 3
    assert kill > 2 * MOST_REPEATED
    work.count(run, kill)
    assert kill + work.count(run) - whole <= MOST_REPEATED
    assert scores[0] == scores[1]
