"""The configuration of a recipe: typed dataclasses, read from YAML."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_type_hints

import yaml

from mlvae.align import AlignConfig
from mlvae.baselines.w2v_ctc import W2vCtcConfig
from mlvae.bounds import Settings, checked
from mlvae.em import TrainConfig
from mlvae.em.calibration import CalibrationConfig
from mlvae.nn import MlVaeConfig

_T = TypeVar("_T")


@dataclass
class SystemConfig(Settings):
    """What one trained system is told.

    Attributes:
        model: sizes of the networks.
        train: training, and the acceptor that is searched.
        calibration: how the acoustic scale is chosen after training.
        edges: whose edges units get: the best ``path``'s, or those of an ``aligner``, a narrow
            model that aligns what was heard once more.
    """

    model: MlVaeConfig = field(default_factory=MlVaeConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    calibration: CalibrationConfig = field(default_factory=CalibrationConfig)
    edges: Literal["path", "aligner"] = "path"


def _trained(**settings: str) -> SystemConfig:
    """A field whose default differs from the paper's system in some settings of training."""
    return field(default_factory=lambda: SystemConfig(train=TrainConfig(**settings)))


@dataclass
class RecipeConfig(Settings):
    """Everything that stages 3 to 5 can be told.

    Attributes:
        deltas: whether deltas and delta-deltas are appended to the FBANK for ML-VAE (not for
            forced alignment, which must see little around a frame).
        silence: whether silence is optional at edges and between words.
        align: forced alignment, and the alignment of what was heard.
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


#: Values that a file may hold, aliases written out; the largest file of a recipe has 200.
MAX_VALUES = 10_000


def load_config(path: Path, systems: Sequence[str] = ()) -> RecipeConfig:
    """Read a YAML file; what it leaves out has its default.

    A file with the key ``base``, the name of another file beside it or a path from its folder, only
    says what differs from that one: ``{base: small.yaml, ml_vae: {train: {iterations: 3}}}``.

    Args:
        path: the file.
        systems: what is to be trained or used. Those of :data:`TRAINED` need a section of their
            own, as their defaults are the paper's 24 M parameters, which nobody wants by mistake.

    Raises:
        ValueError: the file or its base is absent or no YAML, has an unknown key, an empty section
            or a value without meaning, or lacks the section of a system; names file and key.
    """
    path = Path(path)
    config, sections = _read(path, ())
    for name in systems:
        section = name.replace("-", "_")
        if name in TRAINED and section not in sections:
            raise ValueError(f"{path}: has no section {section}, which system {name} needs")
    return config


def _read(path: Path, above: tuple[Path, ...]) -> tuple[RecipeConfig, set[str]]:
    """What a file and its bases say, and their sections; ``above`` are the files that led here."""
    if not os.path.isfile(path):  # False, too, for what cannot be a file's name
        place = f"{above[-1]}: base: " if above else ""
        raise ValueError(f"{place}there is no configuration {path}")
    if path.resolve() in [other.resolve() for other in above]:
        raise ValueError(f"{above[-1]}: base leads back to {path}")
    settings = _read_yaml(path)
    if not isinstance(settings, dict) or not settings:
        raise ValueError(f"{path}: holds no settings")
    config, sections = RecipeConfig(), set()
    if "base" in settings:
        base = settings.pop("base")
        if not isinstance(base, str) or not base:
            raise ValueError(f"{path}: base must be the name of a file, not {base!r}")
        config, sections = _read(path.parent / base, (*above, path))
    try:
        return _changed(config, settings), sections | settings.keys()
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _changed(settings: _T, changes: dict[Any, Any], place: str = "") -> _T:
    """A copy of a dataclass with the values of a section; ValueError names the key."""
    kinds = get_type_hints(type(settings), include_extras=True)
    values: dict[str, Any] = {}
    for key, value in changes.items():
        here = f"{place}.{key}" if place else f"{key}"
        if key not in kinds:
            raise ValueError(f"{here}: there is no such setting; there are: {', '.join(kinds)}")
        current = getattr(settings, key)
        if not is_dataclass(current):
            values[key] = checked(kinds[key], value, here)
        elif value is None or value == {}:
            raise ValueError(f"{here} is empty: fill it in, or take it out")
        elif not isinstance(value, dict):
            raise ValueError(f"{here} must hold settings by name, not {value!r:.60}")
        else:
            values[key] = _changed(current, value, here)
    try:
        return replace(settings, **values)
    except ValueError as error:  # settings that do not go together
        raise ValueError(f"{place}: {error}") from error


class _Loader(yaml.SafeLoader):
    """Plain values alone, no objects; ``1e-3`` is a number, as in JSON and YAML 1.2."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def _read_yaml(path: Path) -> Any:
    """The content of a YAML file; ValueError names the file and the line of what is wrong."""
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
        node = loader.get_single_node()
        if node is None:
            return None
        _check_nodes(node, {})
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(f"{path}: {line}{error.problem or error.context}") from error
    except RecursionError as error:
        raise ValueError(f"{path}: is nested too deeply") from error
    except (yaml.YAMLError, OSError, ValueError) as error:  # or no UTF-8, or a date of no day
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from error


def _check_nodes(node: yaml.Node, sizes: dict[int, int | None]) -> int:
    """Refuse keys that come twice, and aliases that make much of little, before values are made.

    A few lines of aliases of aliases stand for more values than a machine can hold.

    Args:
        node: what to look through.
        sizes: of the nodes that were looked through, by their identity; None for those in work.

    Returns:
        How many values the node stands for, aliases written out.

    Raises:
        ValueError: one of the two, with its line.
    """
    place = f"line {node.start_mark.line + 1}: "
    size = sizes.setdefault(id(node), None)
    if size is not None:
        return size
    children: list[yaml.Node] = []
    if isinstance(node, yaml.SequenceNode):
        children = node.value
    elif isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ValueError(f"{place}a key must be a word")
            if key.value in keys:
                line = key.start_mark.line + 1
                raise ValueError(f"line {line}: the key {key.value} comes twice")
            keys.add(key.value)
            children.append(value)
    size = 1
    for child in children:
        if id(child) in sizes and sizes[id(child)] is None:
            raise ValueError(f"{place}an alias that contains itself")
        size += _check_nodes(child, sizes)
    if size > MAX_VALUES:
        raise ValueError(f"{place}stands for more than {MAX_VALUES} values, aliases written out")
    sizes[id(node)] = size
    return size
