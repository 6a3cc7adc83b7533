"""The baselines as systems of the recipe: trained in a folder, and read from it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Callable

import torch
from lhotse import CutSet

from mlvae.baselines.two_pass import load_two_pass, train_two_pass
from mlvae.baselines.w2v_ctc import load_w2v
from mlvae.baselines.w2v_train import MODEL, train_w2v
from mlvae.config import RecipeConfig
from mlvae.data.dataset import UnitDataset
from mlvae.stage import log

TWO_PASS, W2V_CTC = BASELINES = ("two-pass-fa", "w2v-ctc")


def train_baseline(
    name: str,
    config: RecipeConfig,
    train_cuts: CutSet,
    valid_cuts: CutSet,
    dataset: UnitDataset,
    folder: Path,
    device: torch.device,
    seed: int,
) -> dict:
    """Train a baseline in its folder, which lies beside the aligner's ``fa``.

    Args:
        name: ``two-pass-fa`` or ``w2v-ctc``.
        config: of the recipe.
        train_cuts: training cuts with features, audio and canonical units.
        valid_cuts: held-out cuts with the same.
        dataset: gives the units; features are those of the aligner, without deltas.
        folder: where to write.
        device: where to run.
        seed: of everything random; Two-Pass-FA has nothing random.

    Returns:
        What ``training.json`` says; with the key ``unavailable``, and the reason as its value,
        where the baseline cannot be trained.

    Raises:
        ValueError: there is no such baseline, or what it needs cannot be read.
    """
    table = dataset.table
    if name == TWO_PASS:
        return train_two_pass(config.align, config.silence, valid_cuts, table, folder, device)
    if name == W2V_CTC:
        return train_w2v(config.w2v_ctc, train_cuts, valid_cuts, table, folder, device, seed)
    raise ValueError(f"there is no baseline {name!r}; there are: {', '.join(BASELINES)}")


def load_baseline(
    name: str,
    config: RecipeConfig,
    cuts: CutSet,
    dataset: UnitDataset,
    folder: Path,
    device: torch.device,
) -> dict[str, Callable[..., tuple[CutSet, list[str]]]]:
    """Read a trained baseline.

    Args:
        name: ``two-pass-fa`` or ``w2v-ctc``.
        config: of the recipe.
        cuts: some cuts with features; their dimension counts.
        dataset: gives the units.
        folder: where it was trained.
        device: where to run.

    Returns:
        By the name of the folder for the answers, what adds the tiers to cuts and also gives the
        ids of those without an answer; nothing where ``training.json`` says ``unavailable``.

    Raises:
        ValueError: it has not been trained, or with another configuration; names the file.
    """
    table = dataset.table
    if name == TWO_PASS:
        system = load_two_pass(config.align, config.silence, cuts, table, folder, device)
        return {name: partial(system.localize, dataset=UnitDataset(table))}
    if name == W2V_CTC:
        reason = _unavailable(folder)
        if reason is not None:
            log(f"{name}: no answers: {reason}")
            return {}
        return {name: load_w2v(folder / MODEL, table, config.w2v_ctc.margin, device).localize}
    raise ValueError(f"there is no baseline {name!r}; there are: {', '.join(BASELINES)}")


def _unavailable(folder: Path) -> str | None:
    """Why training said that there would be no model; None where it did not."""
    path = Path(folder) / "training.json"
    if not path.is_file():
        return None
    return json.loads(path.read_text(encoding="utf-8")).get("unavailable")
