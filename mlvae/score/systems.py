"""The systems that an experiment folder may hold, and the rows that each of them gives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lhotse import MonoCut

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

CUTS = "cuts_test.jsonl.gz"
TRAINING = "training.json"
THRESHOLD = 0.5
FLAG_ALL = "flag-all (ours)"


@dataclass(frozen=True)
class System:
    """Where the answers of one system lie and what is made of them.

    Attributes:
        name: The row's name in the table and in ``results.json``.
        folder: Folder of its cuts within the experiment folder.
        spans: The tier with the spans.
        heard: The tier with what was heard, or None where nothing is flagged. Where there is one,
            the scores in ``spans`` are P(mispronounced).
        trained_in: Folder of its ``training.json``; None: the same folder.
        num_params: Key of that file for the number of parameters.
        flag_all: Name of a row that flags every unit on this system's spans, if wanted.
        in_picture: The picture of an utterance shows its answer.
        secondary: Its row is in the second table, with those that flag by a threshold.
        minus: Names of the rows that its figures are compared with, as first minus second.
        stage: The stage that makes the cuts, for messages.
        note: What it is, for the notes below the table.
    """

    name: str
    folder: str
    spans: str = "mlvae"
    heard: str | None = "mlvae_heard"
    trained_in: str | None = None
    num_params: str = "num_params"
    flag_all: str | None = None
    in_picture: bool = True
    secondary: bool = False
    minus: tuple[str, ...] = ()
    stage: str = "stage 5 (localize)"
    note: str = ""

    def cuts_path(self, exp_dir: Path) -> Path:
        """The manifest with the answers; the system is there when this file is."""
        return exp_dir / self.folder / CUTS

    def training_path(self, exp_dir: Path) -> Path:
        """The file with the size and the training time of the model."""
        return exp_dir / (self.trained_in or self.folder) / TRAINING


#: In the order of the rows. To add a system, add a line.
SYSTEMS = (
    System(
        "FA",
        "fa",
        spans="fa",
        heard=None,
        flag_all="flag-all (FA)",
        in_picture=False,  # its spans are the picture's row of the text
        stage="stage 3 (align)",
        note="forced alignment of the text; it flags nothing",
    ),
    System(
        "Two-Pass-FA",
        "two-pass-fa",
        minus=(FLAG_ALL,),
        note="units recognised freely by FA's model and aligned, then compared with the text",
    ),
    System(
        "w2v-CTC",
        "w2v-ctc",
        minus=(FLAG_ALL,),
        note="wav2vec 2.0 with CTC: units recognised and segmented, then compared with the text",
    ),
    System(
        "ML-VAE",
        "ml-vae",
        flag_all=FLAG_ALL,
        minus=(FLAG_ALL,),
        note="the paper's alternating training",
    ),
    System(
        "ML-VAE-RL",
        "ml-vae-rl",
        minus=(FLAG_ALL, "ML-VAE"),
        note="ML-VAE whose correctness q(pi) is also trained by REINFORCE",
    ),
    System(
        "Ablation 1",
        "ablation-1",
        minus=(FLAG_ALL, "ML-VAE-RL"),
        note="ML-VAE-RL with the E-step's boundaries as targets in place of the forced alignment's",
    ),
    System(
        "Ablation 2",
        "ablation-2",
        minus=(FLAG_ALL, "ML-VAE"),
        note="ML-VAE with all modules trained at once on the joint objective",
    ),
    System(
        "Ablation 3",
        "ablation-3",
        minus=(FLAG_ALL, "ML-VAE-RL"),
        note="ML-VAE-RL that first finds boundaries by a single path, then flags segments",
    ),
    System(
        "ML-VAE-sub, no generator",
        "ml-vae-sub-no-generator",
        trained_in="ml-vae-sub",
        num_params="num_params_without_generator",
        in_picture=False,
        secondary=True,
        note="ML-VAE-sub with one rate of mispronunciations in place of q(pi)",
    ),
    System(
        "ML-VAE-sub",
        "ml-vae-sub",
        flag_all="flag-all (sub)",
        minus=(FLAG_ALL, "ML-VAE", "ML-VAE-sub, no generator"),
        note="ML-VAE over an acceptor with one path per competing unit",
    ),
)
#: Pairs of rows whose difference is shown where both are there, the better one (so we hope) first.
COMPARED = tuple(
    (system.name, other)
    for place in range(3)
    for system in SYSTEMS
    for other in system.minus[place : place + 1]
)


def find_systems(exp_dir: Path) -> list[System]:
    """Find the systems that have answers in an experiment folder, in the order of the rows.

    A system whose folder is there without answers gets a line in the log, unless its training said
    that it is not available; see ``find_unavailable``.

    Raises:
        FileNotFoundError: No system has answers, or the ``training.json`` of one that has is
            missing; names the stage that makes it.
    """
    found = []
    unavailable = find_unavailable(exp_dir)
    for system in SYSTEMS:
        if system.name in unavailable:
            continue
        if system.cuts_path(exp_dir).exists():
            found.append(system)
        elif (exp_dir / system.folder).exists():
            path = system.cuts_path(exp_dir)
            log(f"no row for {system.name}: {path} is missing; {system.stage} makes it")
    if not found:
        folders = ", ".join(system.folder for system in SYSTEMS)
        raise FileNotFoundError(
            f"no {CUTS} in any of the folders {folders} of {exp_dir}; "
            "stages 3 (align) and 5 (localize) make them"
        )
    for system in found:
        path = system.training_path(exp_dir)
        if not path.exists():
            maker = system.stage if system.heard is None else "stage 4 (train)"
            raise FileNotFoundError(f"{path} is missing; {maker} makes it")
    return found


def find_unavailable(exp_dir: Path) -> dict[str, str]:
    """By name of the system why it could not be trained, from ``training.json``.

    Answers that lie in the folder of such a system are of an earlier training and do not count.
    """
    reasons = {}
    for system in SYSTEMS:
        path = exp_dir / system.folder / TRAINING
        if path.exists():
            content = json.loads(path.read_text(encoding="utf-8"))
            if "unavailable" in content:
                reasons[system.name] = content["unavailable"]
    return reasons


def read_cuts(systems: Sequence[System], exp_dir: Path) -> dict[str, list[MonoCut]]:
    """The cuts with the answers of each system, by the system's name."""
    return {system.name: list(load_cuts(system.cuts_path(exp_dir))) for system in systems}


def read_answers(
    truth: Truth, systems: Sequence[System], cuts: dict[str, list[MonoCut]], exp_dir: Path
) -> list[SystemAnswer]:
    """All rows of the table: oracle, flag-all, and each system with its threshold row.

    Args:
        truth: The units to answer for.
        systems: Those to read.
        cuts: By name of the system its cuts, as ``read_cuts`` gives them.
        exp_dir: Folder of the experiment, with their ``training.json``.

    Raises:
        ValueError: Answers are not of the units of the truth, or a ``training.json`` lacks a key.
    """
    flag_all, rows = [], []
    for system in systems:
        num_params, seconds = _trained(system.training_path(exp_dir), system.num_params)
        answer = tier_answer(
            system.name,
            truth,
            cuts[system.name],
            system.spans,
            system.heard,
            num_params=num_params,
            training_seconds=seconds,
        )
        answer = replace(answer, secondary=system.secondary)
        rows.append(answer)
        if answer.probabilities is not None:
            rows.append(threshold_answer(f"{system.name}, P > {THRESHOLD}", answer, THRESHOLD))
        if system.flag_all:
            flag_all.append(flag_all_answer(system.flag_all, truth, answer))
    return [oracle_answer(truth), *flag_all, *rows]


def other_seeds(systems: Sequence[System], exp_dir: Path, seed: int) -> dict[str, int]:
    """By name the seeds of systems that were trained with another one than ``seed``."""
    found = {}
    for system in systems:
        content = json.loads(system.training_path(exp_dir).read_text(encoding="utf-8"))
        if content.get("seed", seed) != seed:
            found[system.name] = content["seed"]
    return found


def _trained(path: Path, num_params: str) -> tuple[int, float]:
    """Number of parameters and training time, as the stage that trained the model wrote them."""
    content = json.loads(path.read_text(encoding="utf-8"))
    try:
        return content[num_params], content["training_seconds"]
    except KeyError as error:
        raise ValueError(f"{path} has no {error}") from error
