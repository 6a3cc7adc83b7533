"""Configurations without meaning were trained, or kept the reader busy for ever.

``max_frames: 0``, ``rounds: 0``, a learning rate of NaN or a dropout of 2 were read without a word;
a section that was emptied, or left out by mistake, became a model of 24 M parameters; of a key that
came twice the last one counted; a few lines of YAML aliases of aliases never ended. All of these
are errors of one line now, which names the file and the key.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml

from mlvae.bounds import Bounds
from mlvae.config import RecipeConfig, load_config
from mlvae.systems import KINDS

CONFS = sorted((Path(__file__).resolve().parents[2] / "recipes").glob("*/conf/*.yaml"))


def settings(section: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every setting of every section: its place and its declared type."""
    kinds = get_type_hints(type(section), include_extras=True)
    for one in fields(section):
        here = (*place, one.name)
        if is_dataclass(value := getattr(section, one.name)):
            yield from settings(value, here)
        else:
            yield here, kinds[one.name]


EVERY = {place: kind for place, kind in settings(RecipeConfig()) if place != ("systems",)}
for kind in KINDS:
    EVERY.update(settings(KINDS[kind].settings(), ("systems", kind)))


def refusal(folder: Path, text: str, systems: tuple[str, ...] | None = None) -> str:
    path = folder / "small.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError) as caught:
        load_config(path, systems)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message
    return message[len(f"{path}: ") :]


def write(place: tuple[str, ...], value: Any) -> str:
    for name in reversed(place):
        value = {name: value}
    if place[0] == "systems":
        value["systems"][place[1]]["kind"] = place[1]
    return yaml.safe_dump(value)


@pytest.mark.parametrize("place", EVERY, ids=".".join)
def test_every_setting_refuses_what_means_nothing(tmp_path, place):
    wrong: list[Any] = [None, {"a": 1}]
    if EVERY[place] is not str:
        wrong += ["nonsense", float("nan"), float("inf"), -1, 10**30]
    if EVERY[place] is not bool:
        wrong.append(True)
    for value in wrong:
        assert refusal(tmp_path, write(place, value)).startswith(f"{'.'.join(place)} must be ")


def test_every_number_has_limits():
    """One without is declared as plain int or float: give it a type of mlvae.bounds."""
    assert len(EVERY) > 70
    for place, kind in EVERY.items():
        inner = getattr(kind, "__args__", (kind,))[0] if "list" in str(kind) else kind
        limits = getattr(inner, "__metadata__", ())
        assert inner not in (int, float), place
        assert all(isinstance(limit, Bounds) for limit in limits), place


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "systems: {ml-vae-sub: {kind: ml_vae, train: {max_frames: 0}}}",
            "systems.ml-vae-sub.train.max_frames must be a whole number from 1 to 1000000000",
        ),
        ("align: {rounds: 0}", "align.rounds must be a whole number from 1 to 1000000000, not 0"),
        ("align: {learning_rate: .nan}", "align.learning_rate must be a number above 0 "),
        (
            "systems: {ml-vae: {kind: ml_vae, model: {estimator: {dropout: 2}}}}",
            "systems.ml-vae.model.estimator.dropout must be ",
        ),
        (
            "systems: {ml-vae-sub: {kind: ml_vae, calibration: {scales: [0.1, .inf]}}}",
            "systems.ml-vae-sub.calibration.scales[1] ",
        ),
        ("systems: {ml-vae-sub:}", "systems.ml-vae-sub is empty: fill it in, or take it out"),
        ("systems: {ml-vae-sub: {}}", "systems.ml-vae-sub is empty"),
        ("systems: {ml-vae: {kind: ml_vae, train:}}", "systems.ml-vae.train is empty"),
        ("systems: {ml-vae: 3}", "systems.ml-vae must hold settings by name, not 3"),
        (
            "systems: {ml-vae: {kind: ml_vae, train: {rounds: 3}}}",
            "systems.ml-vae.train.rounds: there is no such setting; there ",
        ),
        (
            "systems: {ml-vae: {kind: ml_vae, train: {pseudo_labels_after: 3}}}",
            "systems.ml-vae.train: pseudo_labels_after goes with topology",
        ),
        ("1: 2", "1: there is no such setting"),
        ("deltas: true\nsilence: false\ndeltas: false\n", "line 3: the key deltas comes twice"),
        ("? [a, b]\n: c\n", "line 1: a key must be a word"),
        ("deltas: !!python/object/apply:os.getcwd []", "line 1: could not determine a construct"),
        ("deltas: 2001-99-99", "month must be in 1..12"),
        ("deltas: *nowhere", "line 1: found undefined alias"),
        ("silence: true\ndeltas: [1\n", "line 3: expected ',' or ']'"),
        ("deltas: &a [*a]", "line 1: an alias that contains itself"),
        ("deltas: " + 600 * "[", "is nested too deeply"),
        ("base: ''", "base must be the name of a file, not ''"),
        ("base:\ndeltas: true\n", "base must be the name of a file, not None"),
        ("base: gone.yaml", "base: there is no configuration "),
        (f"base: {'x' * 300}.yaml", "base: "),
        ("base: small.yaml", "base leads back to "),
    ],
)
def test_the_line_names_the_key(tmp_path, text, message):
    assert refusal(tmp_path, text).startswith(message)


@pytest.mark.parametrize("nested", ["[{}]", "{{<<: [{}]}}"])
def test_aliases_of_aliases_are_refused_at_once(tmp_path, nested):
    first = "a0: &a0 {deltas: true}\n"
    lines = [
        f"a{number}: &a{number} {nested.format(', '.join(9 * [f'*a{number - 1}']))}\n"
        for number in range(1, 40)
    ]
    began = time.monotonic()
    message = refusal(tmp_path, first + "".join(lines))
    assert time.monotonic() - began < 2
    assert "stands for more than 10000 values" in message and message.startswith("line ")


def test_the_file_of_a_chain_that_holds_the_mistake_is_named(tmp_path):
    (tmp_path / "base.yaml").write_text("base: lowest.yaml\nalign: {rounds: 3}\n")
    (tmp_path / "lowest.yaml").write_text("align: {batch_frames: 0}\n")
    (tmp_path / "top.yaml").write_text("base: base.yaml\ndeltas: true\n")
    with pytest.raises(ValueError, match=r"lowest.yaml: align.batch_frames must be"):
        load_config(tmp_path / "top.yaml")
    (tmp_path / "lowest.yaml").write_text("base: base.yaml\n")
    with pytest.raises(ValueError, match=r"lowest.yaml: base leads back to .*base.yaml"):
        load_config(tmp_path / "top.yaml")
    (tmp_path / "lowest.yaml").write_text("align: {batch_frames: 7}\n")
    assert load_config(tmp_path / "top.yaml").align.batch_frames == 7


def test_a_system_that_is_asked_for_needs_its_entry(tmp_path):
    first = "systems: {fa: {kind: align}, ml-vae: {kind: ml_vae, boundaries: path}}"
    message = refusal(tmp_path, first, ("fa", "ml-vae-sub"))
    assert message == "there is no system 'ml-vae-sub'; there are: fa, ml-vae"
    message = refusal(tmp_path, first, ("fa", "ml-vae"))
    assert message.startswith("systems.ml-vae has no section model")
    text = "base: small.yaml\nsystems: {ml-vae: {model: {boundary: {lstm_size: 8}}}}\n"
    (tmp_path / "top.yaml").write_text(text)
    config = load_config(tmp_path / "top.yaml", ("fa", "ml-vae"))
    assert config.systems["ml-vae"].settings.boundaries == "path"


def test_numbers_may_be_written_as_in_json(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(
        "align: {learning_rate: 2e-3}\nsystems: {one: {kind: ml_vae, train: {gradient_clip: 1}}}\n"
    )
    config = load_config(path)
    assert config.align.learning_rate == 2e-3
    assert isinstance(config.systems["one"].settings.train.gradient_clip, float)


@pytest.mark.parametrize("path", CONFS, ids=lambda path: "/".join(path.parts[-3:]))
def test_what_is_shipped_can_be_read_and_has_every_section(path):
    names = ("ml-vae", "ml-vae-rl", "ablation-1", "ablation-2", "ablation-3", "ml-vae-sub")
    load_config(path, names)
