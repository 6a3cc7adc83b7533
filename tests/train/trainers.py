"""Trainers on tiny data, runs that are killed, and what is compared afterwards."""

from __future__ import annotations

import torch
from safetensors.torch import load_file

from mlvae.device import seed_everything
from mlvae.nn import MlVae
from mlvae.train import TrainConfig, Trainer, loop
from mlvae.train.loop import Passes
from tests.train.tiny import (
    DEVICE,
    NUM_FEATURES,
    TABLE,
    dataset,
    tiny_model_config,
)

CONFIG = TrainConfig(iterations=2, max_frames=300, learning_rate=5e-3)
MODULES = ("estimator", "boundary", "generator")


def make_trainer(
    cuts, folder, config=CONFIG, seed=0, silence=False, setup=None, init=None
) -> Trainer:
    """As stage 4 does it."""
    train, valid = cuts
    seed_everything(seed)
    states = config.states_per_unit
    sizes = tiny_model_config()
    parts = config.generator, config.boundary_detector
    model = MlVae(NUM_FEATURES, len(TABLE), silence, sizes, states, *parts)
    return Trainer(model, train, valid, dataset(), config, folder, DEVICE, seed, setup, init)


def assert_same_files(first, second) -> None:
    for name in ("checkpoint", "model"):
        mine, theirs = (load_file(f / f"{name}.safetensors") for f in (first, second))
        assert mine.keys() == theirs.keys()
        for key, value in mine.items():
            assert torch.equal(value, theirs[key]), key


def figures(training: dict) -> dict:
    return {name: value for name, value in training.items() if name != "training_seconds"}


class Kill(BaseException):
    """No handler may swallow it."""


def kill_at(monkeypatch, target, name: str, call: int) -> None:
    """Make the ``call``-th call of a function end the run in its midst."""
    original = getattr(target, name)
    calls = []

    def dying(*args, **options):
        calls.append(None)
        if len(calls) == call:
            raise Kill
        return original(*args, **options)

    monkeypatch.setattr(target, name, dying)


class Killer:
    """Writes a checkpoint after every ``every``-th batch, and kills at the given ones."""

    def __init__(self, monkeypatch, every: int, kills: tuple[int, ...] = ()) -> None:
        self.count, self.every, self.kills = 0, every, kills
        self.tick = Passes._tick
        monkeypatch.setattr(Passes, "_tick", lambda *args: self(monkeypatch, *args))

    def __call__(self, monkeypatch, *args) -> None:
        self.count += 1
        due = self.every and self.count % self.every == 0
        monkeypatch.setattr(loop, "INTERVAL", -1.0 if due else 1e9)
        self.tick(*args)
        if self.count in self.kills:
            raise Kill


def until_done(run):
    """What ``run`` gives, which is started again after each kill as in a new process."""
    while True:
        torch.manual_seed(99)
        try:
            return run()
        except Kill:
            pass


def values(*sequence: float):
    """A function that gives one value after the other, whatever it is asked."""
    left = list(sequence)
    return lambda *_, **__: left.pop(0)
