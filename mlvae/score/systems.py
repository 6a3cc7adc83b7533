"""The rows that the declared systems give, and where their answers lie in an experiment folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from lhotse import MonoCut

from mlvae.config import System, flag_all_label
from mlvae.data.dataset import load_cuts
from mlvae.score.answers import (
    SystemAnswer,
    flag_all_answer,
    oracle_answer,
    threshold_answer,
    tier_answer,
)
from mlvae.score.truth import Truth
from mlvae.stage import log
from mlvae.systems import KINDS

CUTS = "cuts_test.jsonl.gz"
TRAINING = "training.json"
THRESHOLD = 0.5


def cuts_path(system: System, exp_dir: Path) -> Path:
    """The manifest with the answers of a system; the system is there when this file is."""
    return exp_dir / system.name / CUTS


def training_path(system: System, exp_dir: Path) -> Path:
    """The file with the size and the training time of a system's model."""
    return exp_dir / (system.model_of or system.name) / TRAINING


def stage_of(system: System) -> str:
    """The stage that makes the cuts, for messages."""
    return "stage 5 (localize)" if KINDS[system.kind].load else "stage 3 (align)"


def compared_rows(systems: Iterable[System]) -> list[tuple[str, str]]:
    """Pairs of rows whose difference is shown where both are there.

    All first comparisons come before all second ones.
    """
    systems = list(systems)
    labels = {system.name: system.label for system in systems}
    most = max((len(system.compare) for system in systems), default=0)
    return [
        (system.label, labels.get(other, other))
        for place in range(most)
        for system in systems
        for other in system.compare[place : place + 1]
    ]


def find_systems(declared: Iterable[System], exp_dir: Path) -> list[System]:
    """Find the systems that have answers in an experiment folder, in the order of the rows.

    A system whose folder is there without answers gets a line in the log, unless its training said
    that it is not available; see ``find_unavailable``.

    Raises:
        FileNotFoundError: No system has answers, or the ``training.json`` of one that has is
            missing; names the stage that makes it.
    """
    found, declared = [], list(declared)
    unavailable = find_unavailable(declared, exp_dir)
    for system in declared:
        if system.label in unavailable:
            continue
        path = cuts_path(system, exp_dir)
        if path.exists():
            found.append(system)
        elif (exp_dir / system.name).exists():
            log(f"no row for {system.label}: {path} is missing; {stage_of(system)} makes it")
    if not found:
        folders = ", ".join(system.name for system in declared)
        raise FileNotFoundError(
            f"no {CUTS} in any of the folders {folders} of {exp_dir}; "
            "stages 3 (align) and 5 (localize) make them"
        )
    for system in found:
        path = training_path(system, exp_dir)
        if not path.exists():
            maker = "stage 4 (train)" if KINDS[system.kind].train else stage_of(system)
            raise FileNotFoundError(f"{path} is missing; {maker} makes it")
    return found


def find_unavailable(declared: Iterable[System], exp_dir: Path) -> dict[str, str]:
    """By label of the system why it could not be trained, from ``training.json``.

    Answers that lie in the folder of such a system are of an earlier training and do not count.
    """
    reasons = {}
    for system in declared:
        path = exp_dir / system.name / TRAINING
        if path.exists():
            content = json.loads(path.read_text(encoding="utf-8"))
            if "unavailable" in content:
                reasons[system.label] = content["unavailable"]
    return reasons


def read_cuts(systems: Sequence[System], exp_dir: Path) -> dict[str, list[MonoCut]]:
    """The cuts with the answers of each system, by the system's label."""
    return {system.label: list(load_cuts(cuts_path(system, exp_dir))) for system in systems}


def read_answers(
    truth: Truth, systems: Sequence[System], cuts: dict[str, list[MonoCut]], exp_dir: Path
) -> list[SystemAnswer]:
    """All rows of the table: oracle, flag-all, and each system with its threshold row.

    Args:
        truth: The units to answer for.
        systems: Those to read.
        cuts: By label of the system its cuts, as ``read_cuts`` gives them.
        exp_dir: Folder of the experiment, with their ``training.json``.

    Raises:
        ValueError: Answers are not of the units of the truth, or a ``training.json`` lacks a key.
    """
    flag_all, rows = [], []
    for system in systems:
        num_params, seconds = _trained(training_path(system, exp_dir), system.num_params)
        kind = KINDS[system.kind]
        answer = tier_answer(
            system.label,
            truth,
            cuts[system.label],
            kind.spans,
            kind.heard,
            num_params=num_params,
            training_seconds=seconds,
        )
        answer = replace(answer, secondary=system.secondary)
        rows.append(answer)
        if answer.probabilities is not None:
            rows.append(threshold_answer(f"{system.label}, P > {THRESHOLD}", answer, THRESHOLD))
        if system.flag_all:
            flag_all.append(flag_all_answer(flag_all_label(system), truth, answer))
    return [oracle_answer(truth), *flag_all, *rows]


def other_seeds(systems: Sequence[System], exp_dir: Path, seed: int) -> dict[str, int]:
    """By label the seeds of systems that were trained with another one than ``seed``."""
    found = {}
    for system in systems:
        content = json.loads(training_path(system, exp_dir).read_text(encoding="utf-8"))
        if content.get("seed", seed) != seed:
            found[system.label] = content["seed"]
    return found


def _trained(path: Path, num_params: str) -> tuple[int, float]:
    """Number of parameters and training time, as the stage that trained the model wrote them."""
    content = json.loads(path.read_text(encoding="utf-8"))
    try:
        return content[num_params], content["training_seconds"]
    except KeyError as error:
        raise ValueError(f"{path} has no {error}") from error
