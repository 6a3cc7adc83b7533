"""The configuration of a recipe: typed dataclasses, read from YAML."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from jsonargparse import ArgumentParser

from mlvae.align import AlignConfig
from mlvae.em import TrainConfig
from mlvae.em.calibration import CalibrationConfig
from mlvae.nn import MlVaeConfig

#: What ``SystemConfig.edges`` may name.
EDGES = ("path", "posterior", "aligner")


@dataclass
class SystemConfig:
    """What one trained system is told.

    Attributes:
        model: sizes of the networks.
        train: training, and the acceptor that is searched.
        calibration: how the acoustic scale is chosen after training.
        edges: whose edges units get: the best ``path``'s, the ``posterior`` means over all paths,
            or those of an ``aligner``, a narrow model that aligns what was heard once more.
    """

    model: MlVaeConfig = field(default_factory=MlVaeConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    calibration: CalibrationConfig = field(default_factory=CalibrationConfig)
    edges: str = "path"

    def __post_init__(self) -> None:
        if self.edges not in EDGES:
            raise ValueError(f"edges must be one of {', '.join(EDGES)}, not {self.edges!r}")


def _substitution() -> SystemConfig:
    return SystemConfig(train=TrainConfig(topology="substitution"))


@dataclass
class RecipeConfig:
    """Everything that stages 3 to 5 can be told.

    Attributes:
        deltas: whether deltas and delta-deltas are appended to the FBANK for ML-VAE (not for
            forced alignment, which must see little around a frame).
        silence: whether silence is optional at edges and between words.
        align: forced alignment, and the alignment of what was heard.
        ml_vae: the paper's system.
        ml_vae_sub: the same modules over an acceptor with one path per competitor.
    """

    deltas: bool = False
    silence: bool = False
    align: AlignConfig = field(default_factory=AlignConfig)
    ml_vae: SystemConfig = field(default_factory=SystemConfig)
    ml_vae_sub: SystemConfig = field(default_factory=_substitution)

    def system(self, name: str) -> SystemConfig:
        """Configuration of the system ``ml-vae`` or ``ml-vae-sub``.

        Raises:
            ValueError: there is no such system.
        """
        if name not in SYSTEMS:
            raise ValueError(f"there is no system {name!r}; there are: {', '.join(SYSTEMS)}")
        return getattr(self, name.replace("-", "_"))


#: Systems that stage 4 can train.
SYSTEMS = ("ml-vae", "ml-vae-sub")


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
