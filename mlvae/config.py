"""The configuration of a recipe: typed dataclasses, read from YAML.

The section ``systems`` declares every system once, with its settings and how it is shown::

    systems:
      ml-vae-rl:
        base: ml-vae               # has the settings of that system, but for what is said here
        label: ML-VAE-RL           # of its row in the table
        note: ML-VAE whose correctness q(pi) is also trained by REINFORCE
        compare: [flag-all (ours), ml-vae]
        train: {algorithm: reinforce}

``--systems`` may name what is declared, and nothing else. A variant is one more entry.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import yaml

from mlvae.bounds import Settings, checked
from mlvae.errors import one_line
from mlvae.made import atomic_path
from mlvae.systems import KINDS
from mlvae.systems.align import AlignConfig

_T = TypeVar("_T")

#: What was said of a system that was trained, in its folder; see :func:`write_config`.
CONFIG = "config.yaml"


@dataclass
class System(Settings):
    """A system as the configuration declares it."""

    name: str  # what ``--systems`` calls it, and its folder within that of the experiment
    kind: str  # one of :data:`mlvae.systems.KINDS`: how it is trained and how it answers
    base: str = ""  # the system whose settings it has, but for its own; that one's kind, too
    label: str = ""  # its row in the table; default: the name
    note: str = ""  # what it is, for the notes below the table
    # what its figures are compared with: names of systems, or labels of rows that flag every unit
    compare: list[str] = field(default_factory=list)
    flag_all: str = ""  # a row ``flag-all (...)`` is made of this system's spans; empty: none
    in_plot: bool = True  # whether the plot of an utterance shows its hypothesis
    # the system whose model it answers with, whenever that one answers; empty: its own. The kind
    # says whether there is one.
    model_of: str = ""
    settings: Any = None  # of the kind's type, from what the entry says besides these
    # sections that the kind needs and no file has; such a system can be shown, but not trained
    lacking: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {self.kind!r}")
        self.label = self.label or self.name
        if self.settings is None:
            self.settings = KINDS[self.kind].settings()


#: What an entry may say besides its settings, and of which type.
_DECLARED = {
    name: kind
    for name, kind in get_type_hints(System, include_extras=True).items()
    if name not in ("name", "settings", "lacking")
}


@dataclass
class RecipeConfig(Settings):
    """Everything that stages 3 to 6 can be told."""

    # whether deltas and delta-deltas are appended to the FBANK for ML-VAE (not for forced
    # alignment, which must see little around a frame)
    deltas: bool = False
    silence: bool = False  # whether silence is optional at edges and between words
    # forced alignment, and the alignment of what was perceived
    align: AlignConfig = field(default_factory=AlignConfig)
    systems: dict[str, System] = field(default_factory=dict)  # by name, in the order of the table

    def declared(self, name: str) -> System:
        """A system with a model of its own; ValueError where there is none of this name."""
        if name not in self.systems or self.systems[name].model_of:
            known = ", ".join(one.name for one in self.systems.values() if not one.model_of)
            raise ValueError(f"there is no system {name!r}; there are: {known or 'none'}")
        return self.systems[name]

    def system(self, name: str) -> System:
        """A system that can be trained; ValueError where there is none, or it lacks something."""
        system = self.declared(name)
        if system.lacking:
            raise ValueError(
                f"systems.{name} has no section {' and no section '.join(system.lacking)}: say it "
                "there, or in its base"
            )
        return system

    def answering(self, name: str) -> list[str]:
        """Names of a system and of those that answer with its model."""
        return [name, *(one.name for one in self.systems.values() if one.model_of == name)]


#: Values that a file may hold, aliases written out; the largest file of a recipe has 200.
MAX_VALUES = 10_000


def load_config(
    path: Path, systems: Sequence[str] | None = None, with_bases: bool = True
) -> RecipeConfig:
    """Read a YAML file; what it leaves out has its default.

    A file with the key ``base``, the name of another file beside it or a path from its folder, only
    says what differs from that one::

        base: small.yaml
        systems: {ml-vae: {train: {iterations: 3}}}

    Args:
        path: the file.
        systems: names of what is to be trained or used; None: nothing.
        with_bases: whether it may have a base; a file that may not leads to no other.

    Raises:
        ValueError: a file is absent or no YAML, has an unknown key, an empty section or a value
            without meaning, or there is no such system, or none is named; names file and key.
    """
    path = Path(path)
    content = _read(path, (), with_bases)
    try:
        entries = content.pop("systems", {})
        config = _changed(RecipeConfig(), content)
        config.systems = {name: _system(name, entries) for name in entries}
        _check_references(config.systems)
        if systems is not None and not systems:
            known = ", ".join(one.name for one in config.systems.values() if not one.model_of)
            raise ValueError(f"no system is named; there are: {known or 'none'}")
        for name in systems or ():
            config.declared(name)
        for name in systems or ():
            config.system(name)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return config


def write_config(path: Path, config: RecipeConfig, name: str) -> None:
    """Write what a configuration says of one system, as YAML without a base.

    Read again it gives the same settings. What the system is compared with is left out.

    Raises:
        ValueError, OSError: there is no such system, or the file cannot be written.
    """
    system = config.system(name)
    entry = {key: getattr(system, key) for key in _DECLARED if key not in ("base", "compare")}
    content = {
        "deltas": config.deltas,
        "silence": config.silence,
        "align": asdict(config.align),
        "systems": {name: {**entry, **asdict(system.settings)}},
    }
    with atomic_path(path) as temporary:
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
        temporary.write_text(text, encoding="utf-8")


def _system(name: str, entries: Mapping[str, dict[str, Any]]) -> System:
    """A system from its entry and those of its bases; ValueError names the key."""
    place = f"systems.{name}"
    chain, beyond = _chain(name, entries)
    if beyond in chain:
        raise ValueError(f"{place}: base leads back to {beyond!r}")
    if beyond:
        raise ValueError(f"{place}: there is no system {beyond!r} to be its base")
    settings: dict[str, Any] = {}
    for one in reversed(chain):
        own = {key: value for key, value in entries[one].items() if key not in _DECLARED}
        settings = _merged(settings, own)
    declared = {key: value for key, value in entries[name].items() if key in _DECLARED}
    declared["kind"] = _kind_of(name, entries)
    if not declared["kind"]:
        raise ValueError(f"{place} has no kind; there are: {', '.join(KINDS)}")
    kind = KINDS[declared["kind"]]
    return System(
        name,
        **declared,
        settings=_changed(kind.settings(), settings, place),
        lacking=tuple(section for section in kind.required if section not in settings),
    )


def _chain(name: str, entries: Mapping[str, Any]) -> tuple[list[str], str]:
    """A system and its bases; and a base that is not there, or is one of them; else empty.

    Entries that are no sections are for others to name.
    """
    chain: list[str] = []
    while isinstance(name, str) and isinstance(entries.get(name), dict) and name not in chain:
        chain.append(name)
        name = entries[name].get("base") or ""
    return chain, name


def _kind_of(name: str, entries: Mapping[str, Any]) -> str:
    """The kind of a system, its own or that of a base; empty where none says it."""
    kinds = (entries[one].get("kind") for one in _chain(name, entries)[0])
    return next(filter(None, kinds), "")


def _check_references(systems: Mapping[str, System]) -> None:
    """ValueError where a system names another one or a row that is not there."""
    rows = {flag_all_label(one) for one in systems.values() if one.flag_all}
    for system in systems.values():
        for other in system.compare:
            if other not in systems and other not in rows:
                raise ValueError(f"systems.{system.name}.compare: there is no {other!r}")
        _check_model_of(system, systems)


def _check_model_of(system: System, systems: Mapping[str, System]) -> None:
    """ValueError where a system says wrongly whose model it answers with."""
    place, kinds = f"systems.{system.name}", KINDS[system.kind].of_models
    if kinds and not system.model_of:
        raise ValueError(f"{place} has no model_of: kind {system.kind} uses another one's model")
    if not system.model_of:
        return
    if not kinds:
        raise ValueError(f"{place}.model_of: kind {system.kind} has a model of its own")
    if system.model_of not in systems:
        raise ValueError(f"{place}.model_of: there is no system {system.model_of!r}")
    other = systems[system.model_of]
    if other.kind not in kinds:
        raise ValueError(
            f"{place}.model_of: {other.name!r} is of kind {other.kind}, which is not one of "
            f"{', '.join(kinds)}"
        )


def flag_all_label(system: System) -> str:
    """The row that flags every unit on the spans of a system."""
    return f"flag-all ({system.flag_all})"


def _read(path: Path, above: tuple[Path, ...], with_bases: bool = True) -> dict[str, Any]:
    """What a file and its bases say, values checked; ``above`` are the files that led here."""
    if not os.path.isfile(path):  # False, too, for what cannot be a file's name
        place = f"{above[-1]}: base: " if above else ""
        raise ValueError(f"{place}there is no configuration {path}")
    if path.resolve() in [other.resolve() for other in above]:
        raise ValueError(f"{above[-1]}: base leads back to {path}")
    settings = _read_yaml(path)
    if not isinstance(settings, dict) or not settings:
        raise ValueError(f"{path}: holds no settings")
    content: dict[str, Any] = {}
    if "base" in settings:
        base = settings.pop("base")
        if not with_bases:
            raise ValueError(f"{path}: it has a base, {base!r:.60}, where it must stand alone")
        if not isinstance(base, str) or not base:
            raise ValueError(f"{path}: base must be the name of a file, not {base!r}")
        content = _read(path.parent / base, (*above, path))
    whole = _merged(content, settings)
    try:
        kinds = get_type_hints(RecipeConfig, include_extras=True)
        _check_values(kinds, {k: v for k, v in settings.items() if k != "systems"}, "")
        if "systems" in settings:
            _check_entries(settings["systems"], whole["systems"])
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return whole


def _check_entries(own: Any, whole: Any) -> None:
    """Check what a file says of systems, ``whole`` with its bases; ValueError names the key."""
    if not isinstance(own, dict) or not own:
        raise ValueError(f"systems must hold entries by name, not {own!r:.60}")
    for name, entry in own.items():
        place = f"systems.{name}"
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
            raise ValueError(f"{place}: {name!r} cannot be the name of a folder")
        _check_section(entry, place)
        kinds = dict(_DECLARED)
        kind = _kind_of(name, whole)
        if kind in KINDS:
            kinds.update(get_type_hints(KINDS[kind].settings, include_extras=True))
        elif kind:
            raise ValueError(f"{place}: kind must be one of {', '.join(KINDS)}, not {kind!r}")
        elif not entry.get("base"):
            raise ValueError(f"{place} has no kind")
        _check_values(kinds, entry, place)


def _check_values(kinds: Mapping[str, Any], settings: dict[Any, Any], place: str) -> None:
    """Check the values of a section each by itself; ValueError names the key."""
    for key, value in settings.items():
        here = f"{place}.{key}" if place else f"{key}"
        if key not in kinds:
            raise ValueError(f"{here}: there is no such setting; there are: {', '.join(kinds)}")
        if is_dataclass(kinds[key]):
            _check_section(value, here)
            _check_values(get_type_hints(kinds[key], include_extras=True), value, here)
        else:
            checked(kinds[key], value, here)


def _check_section(content: Any, place: str) -> None:
    if content is None or content == {}:
        raise ValueError(f"{place} is empty: fill it in, or take it out")
    if not isinstance(content, dict):
        raise ValueError(f"{place} must hold settings by name, not {content!r:.60}")


def _merged(below: Any, above: Any) -> Any:
    """Sections put together, the values of ``above`` in front."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {
        **below,
        **{k: _merged(below[k], value) if k in below else value for k, value in above.items()},
    }


def _changed(settings: _T, changes: dict[Any, Any], place: str = "") -> _T:
    """A copy of a dataclass with the values of a section; ValueError names the key."""
    kinds = get_type_hints(type(settings), include_extras=True)
    _check_values(kinds, changes, place)
    values: dict[str, Any] = {}
    for key, value in changes.items():
        here = f"{place}.{key}" if place else f"{key}"
        current = getattr(settings, key)
        if is_dataclass(current):
            values[key] = _changed(current, value, here)
        else:
            values[key] = checked(kinds[key], value, here)
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
        raise ValueError(f"{path}: {one_line(error)}") from error


def _check_nodes(node: yaml.Node, sizes: dict[int, int | None]) -> int:
    """How many values a node stands for, aliases written out.

    A few lines of aliases of aliases stand for more values than a machine can hold. ``sizes`` are
    those of nodes that were looked through, by identity; None for those in work.

    Raises:
        ValueError: aliases make too much of little, or a key comes twice; names the line.
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
