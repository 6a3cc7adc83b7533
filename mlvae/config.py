"""The configuration of a recipe: typed dataclasses, read from YAML."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentParser

from mlvae.align import AlignConfig
from mlvae.baselines.two_pass import TwoPassConfig
from mlvae.baselines.w2v_ctc import W2vCtcConfig
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


def _trained(**settings: str) -> SystemConfig:
    """A field whose default differs from the paper's system in some settings of training."""
    return field(default_factory=lambda: SystemConfig(train=TrainConfig(**settings)))


@dataclass
class RecipeConfig:
    """Everything that stages 3 to 5 can be told.

    Attributes:
        deltas: whether deltas and delta-deltas are appended to the FBANK for ML-VAE (not for
            forced alignment, which must see little around a frame).
        silence: whether silence is optional at edges and between words.
        align: forced alignment, and the alignment of what was heard.
        two_pass_fa: free recognition with the model of forced alignment.
        w2v_ctc: recognition with wav2vec 2.0.
        ml_vae: the paper's system.
        ml_vae_rl: the same, where q(pi) also learns from a reward.
        ablation_1: ML-VAE-RL whose boundary detector learns from the E-step's boundaries.
        ablation_2: joint optimisation of all modules without an E-step.
        ablation_3: ML-VAE-RL whose E-step finds boundaries first, then correctness.
        ml_vae_sub: the modules of ML-VAE over an acceptor with one path per competitor.
    """

    deltas: bool = False
    silence: bool = False
    align: AlignConfig = field(default_factory=AlignConfig)
    two_pass_fa: TwoPassConfig = field(default_factory=TwoPassConfig)
    w2v_ctc: W2vCtcConfig = field(default_factory=W2vCtcConfig)
    ml_vae: SystemConfig = field(default_factory=SystemConfig)
    ml_vae_rl: SystemConfig = _trained(algorithm="reinforce")
    ablation_1: SystemConfig = _trained(algorithm="reinforce", boundary_target="found")
    ablation_2: SystemConfig = _trained(algorithm="joint")
    ablation_3: SystemConfig = _trained(algorithm="reinforce", topology="separate")
    ml_vae_sub: SystemConfig = _trained(topology="substitution")

    def system(self, name: str) -> SystemConfig:
        """Configuration of a system of :data:`TRAINED`.

        Raises:
            ValueError: there is no such system.
        """
        if name not in TRAINED:
            raise ValueError(f"no configuration has a system {name!r}, only {', '.join(TRAINED)}")
        return getattr(self, name.replace("-", "_"))


#: Systems made of the modules of ML-VAE; each has a section in the configuration.
TRAINED = ("ml-vae", "ml-vae-rl", "ablation-1", "ablation-2", "ablation-3", "ml-vae-sub")


def load_config(path: Path) -> RecipeConfig:
    """Read a YAML file; what it leaves out has its default.

    A file with the key ``base``, the name of another file beside it or a path from its folder, only
    says what differs from that one: ``{base: small.yaml, ml_vae: {train: {iterations: 3}}}``.

    Raises:
        ValueError: the file or its base is absent, or has an unknown key or a value of the wrong
            type; names the file and the key.
    """
    settings = _read_settings(Path(path), ())
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--config", type=RecipeConfig, default=RecipeConfig())
    try:
        return parser.instantiate(parser.parse_object({"config": settings})).config
    except Exception as error:  # jsonargparse raises several kinds; all mean a wrong file
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from error


def _read_settings(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """What a file says, merged into what its base says; ``above`` are the files that led here."""
    if not path.is_file():
        raise ValueError(f"{f'{above[-1]}: ' if above else ''}there is no configuration {path}")
    if path.resolve() in [other.resolve() for other in above]:
        raise ValueError(f"{above[0]}: base leads back to {path}")
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from error
    if not isinstance(settings, dict):
        raise ValueError(f"{path}: holds no settings")
    base = settings.pop("base", None)
    if base is None:
        return settings
    if not isinstance(base, str):
        raise ValueError(f"{path}: base must be the name of a file, not {base!r}")
    return _merged(_read_settings(path.parent / base, (*above, path)), settings)


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """``base`` with ``changes``, section by section."""
    merged = dict(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = _merged(base[key], value) if both else value
    return merged
