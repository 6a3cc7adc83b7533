"""The configuration of a recipe: typed dataclasses, read from YAML."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from jsonargparse import ArgumentParser

from mlvae.align import AlignConfig
from mlvae.em import TrainConfig
from mlvae.nn import MlVaeConfig


@dataclass
class RecipeConfig:
    """Everything that stages 3 to 5 can be told.

    Attributes:
        deltas: whether deltas and delta-deltas are appended to the FBANK for ML-VAE (not for
            forced alignment, which must see little around a frame).
        silence: whether silence is optional at edges and between words.
        align: forced alignment.
        model: sizes of ML-VAE.
        train: training of ML-VAE.
    """

    deltas: bool = False
    silence: bool = False
    align: AlignConfig = field(default_factory=AlignConfig)
    model: MlVaeConfig = field(default_factory=MlVaeConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


def load_config(path: Path) -> RecipeConfig:
    """Read a YAML file; what it leaves out has its default.

    Raises:
        ValueError: the file is absent, or has an unknown key or a value of the wrong type; names
            the file and the key.
    """
    if not Path(path).is_file():
        raise ValueError(f"there is no configuration {path}")
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--config", type=RecipeConfig, default=RecipeConfig())
    try:
        return parser.instantiate(parser.parse_args([f"--config={path}"])).config
    except Exception as error:  # jsonargparse raises several kinds; all mean a wrong file
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from error
