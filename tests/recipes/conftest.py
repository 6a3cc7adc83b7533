from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from mlvae.data.audio import write_wav
from tests.data.conftest import ROOT, load_script, sine

STAGES = {
    0: "recipes/audiomnist/prepare.py",
    1: "local/fbank.py",
    2: "local/units.py",
    3: "local/align.py",
    4: "local/train.py",
    5: "local/localize.py",
    6: "local/score.py",
}

#: Seconds on one core; enough for sounds that are as easily told apart as those of write_tones.
TINY = (
    f"base: {ROOT}/recipes/systems.yaml\n"
    + """\
align:
  model: {states_per_unit: 3, hidden_size: 48}
  rounds: 6
  epochs_per_round: 3
  batch_frames: 256
  learning_rate: 5.0e-3
systems:
  ml-vae:
    model:
      boundary: {lstm_layers: 1, lstm_size: 24, bidirectional: true, fc_size: 24}
      estimator: {lstm_layers: 1, lstm_size: 24, bidirectional: true, fc_size: 24, dropout: 0.2}
      generator:
        encoder_fc_size: 24
        encoder_lstm_layers: 1
        encoder_lstm_size: 24
        latent_size: 8
        variant_fc_size: 16
        correctness_fc_size: 16
        decoder_layers: 1
        decoder_size: 24
    train:
      iterations: 8
      max_frames: 800
      learning_rate: 1.5e-2
  ml-vae-sub:
    judged: false  # of so few held-out units a judge learns little
    adapted: false  # answers are compared that were given together and one by one
    train:
      iterations: 10
      estimator_epochs: 3
      states_per_unit: 2
      estimate_after: 0
      pseudo_labels_after: 6
      trusted_f1: 0.0  # of so little data every model is bad at first
      decoding: {acoustic_scale: 0.3}
    calibration: {scales: [0.1, 0.3, 1.0], max_cuts: 20}
"""
)


@pytest.fixture(autouse=True, scope="session")
def scripts_find_each_other():
    """As a program, a stage finds local/options.py beside itself."""
    sys.path.insert(0, str(ROOT / "local"))
    yield
    sys.path.remove(str(ROOT / "local"))


#: Too little to find anything.
QUICK = (
    TINY.replace("iterations: 8", "iterations: 2")
    .replace("iterations: 10", "iterations: 2")
    .replace("pseudo_labels_after: 6", "pseudo_labels_after: 1")
    .replace("rounds: 6", "rounds: 2")
)

#: What stage 5 leaves a folder of answers of.
ANSWERS = ("ml-vae", "ml-vae-sub", "gop-fa", "gop-sub-ratio")


class Recipe:
    """One corpus folder and one experiment folder, and the stages as functions."""

    stages = STAGES

    def __init__(
        self,
        data: Path,
        exp: Path,
        config: Path,
        options: Sequence[object] = (),
        seed: int = 0,
        systems: str = "ml-vae ml-vae-sub",
        init: Path | None = None,
    ) -> None:
        self.init = init
        self.data, self.exp, self.config = data, exp, config
        self.options, self.seed, self.systems = options, seed, systems

    def run(self, *numbers: int) -> list[int]:
        """Exit statuses of stages."""
        return [self.stage(number) for number in numbers]

    def stage(self, number: int, *more: object) -> int:
        """Exit status of a stage, with more options."""
        options: list[object] = ["--data-dir", self.data, *more]
        if number == 0:
            options += self.options
        if number >= 3:
            options += ["--exp-dir", self.exp]
        if number >= 3:
            options += ["--config", self.config]
        if 3 <= number <= 5:
            options += ["--device", "cpu"]
        if number in (4, 5):
            options += ["--systems", self.systems]
        if number in (0, 3, 4, 5, 6):
            options += ["--seed", self.seed]
        if self.init is not None and number in (0, 2, 3, 4):
            options += ["--init", self.init]
        return load_script(self.stages[number])([str(option) for option in options])

    def skipped(self) -> dict[tuple[str, str], str]:
        """Reasons by stage and id."""
        lines = (self.exp / "skipped.jsonl").read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines]
        return {(record["stage"], record["id"]): record["reason"] for record in records}


class Own(Recipe):
    stages = {**STAGES, 0: "recipes/own/prepare.py"}


def write_tones(folder: Path) -> Path:
    """In FSDD's layout; each digit is a short tone of its own pitch."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for speaker in ("ann", "bob"):
        for digit in range(10):
            for index in (0, 1, 2, 10, 11, *range(20, 32)):  # test, validation, training
                samples = sine(rng.uniform(0.102, 0.18), pitch=200 + 100 * digit)
                write_wav(folder / f"{digit}_{speaker}_{index}.wav", samples, 8000)
    return folder


def options(corpus_dir: Path, num_utterances: int = 60) -> list[object]:
    corpus = ["--corpus", "fsdd", "--corpus-dir", corpus_dir]
    return [*corpus, "--num-utterances", num_utterances]


@pytest.fixture(scope="session")
def tones(tmp_path_factory) -> Path:
    return write_tones(tmp_path_factory.mktemp("tones") / "recordings")


@pytest.fixture(scope="session")
def config(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("conf") / "tiny.yaml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="session")
def quick_config(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("conf") / "quick.yaml"
    path.write_text(QUICK)
    return path


@pytest.fixture(scope="session")
def finished(tmp_path_factory, tones, config) -> Recipe:
    """All stages, once; not to be changed."""
    folder = tmp_path_factory.mktemp("finished")
    recipe = Recipe(folder / "fsdd", folder / "exp", config, options(tones))
    assert recipe.run(*range(7)) == [0] * 7
    return recipe


@pytest.fixture
def prepared(tmp_path, tones, quick_config) -> Recipe:
    """A small corpus after stages 0 to 2, of one's own."""
    recipe = Recipe(tmp_path / "fsdd", tmp_path / "exp", quick_config, options(tones, 20))
    assert recipe.run(0, 1, 2) == [0, 0, 0]
    return recipe
