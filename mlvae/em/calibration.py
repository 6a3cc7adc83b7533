"""The acoustic scale, chosen without labels: how well are units found that were corrupted?

Frames of a unit are far from independent, so that products of their likelihood ratios are too sure
of themselves. One factor on the log-ratios mends that. It is chosen on held-out cuts whose
canonical units are replaced at random: the maker of an error knows where it is. Units that the
model calls mispronounced before anything was replaced are left out: their labels may be wrong.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace

import torch
from lhotse import CutSet

from mlvae.data.dataset import UnitDataset
from mlvae.em.estep import Decoding, EStep, search_compiler
from mlvae.nn import MlVae


@dataclass
class CalibrationConfig:
    """How the acoustic scale is chosen.

    Attributes:
        scales: candidates; none leaves the scale as it is.
        corruption_rate: share of trusted units that are replaced.
        max_cuts: held-out cuts used, the first ones of a random order.
        max_frames: largest batch, in frames with padding.
    """

    scales: list[float] = field(default_factory=list)
    corruption_rate: float = 0.2
    max_cuts: int = 200
    max_frames: int = 8000


def choose_scale(
    model: MlVae,
    cuts: CutSet,
    dataset: UnitDataset,
    topology: str,
    decoding: Decoding,
    config: CalibrationConfig,
    device: torch.device,
    seed: int,
) -> tuple[Decoding, dict[str, float]]:
    """Choose the scale with the least log loss of P(mispronounced) on corrupted units.

    Args:
        model: trained.
        cuts: held-out cuts with features.
        dataset: gives features and units.
        topology: of the search.
        decoding: what to start from; its scale decides which units are trusted.
        config: candidates and sizes.
        device: where to run.
        seed: of the choice of cuts and the corruption.

    Returns:
        ``decoding`` with the chosen scale, and the log loss of each candidate; ``decoding`` itself
        and nothing where there is no candidate or no unit to be trusted.
    """
    if not config.scales or model.num_units < 2:
        return decoding, {}
    generator = random.Random(seed)
    cuts = list(cuts)
    generator.shuffle(cuts)
    cuts = CutSet.from_cuts(cuts[: config.max_cuts])
    compiler = search_compiler(model, topology)
    probabilities = _probabilities(
        EStep(compiler, cuts, dataset, config.max_frames), model, decoding, device
    )
    trusted = {name: [value < 0.5 for value in values] for name, values in probabilities.items()}
    units, replaced = {}, {}
    for cut in cuts:
        if cut.id not in trusted:
            continue
        own = dataset.table.ids(cut.supervisions[0].custom["units"], cut.id)
        marks = [
            is_trusted and generator.random() < config.corruption_rate
            for is_trusted in trusted[cut.id]
        ]
        others = [generator.randrange(model.num_units - 1) for _ in own]
        units[cut.id] = [
            other + (other >= unit) if mark else unit
            for unit, other, mark in zip(own, others, marks)
        ]
        replaced[cut.id] = marks
    if not any(map(any, trusted.values())):
        return decoding, {}
    usable = cuts.filter(lambda cut: cut.id in units).to_eager()
    search = EStep(compiler, usable, dataset, config.max_frames, units)
    losses = {}
    for scale in config.scales:
        candidate = replace(decoding, acoustic_scale=scale)
        found = _probabilities(search, model, candidate, device)
        losses[str(scale)] = _log_loss(found, replaced, trusted)
    best = min(losses, key=losses.get)
    return replace(decoding, acoustic_scale=float(best)), losses


def _probabilities(
    search: EStep, model: MlVae, decoding: Decoding, device: torch.device
) -> dict[str, list[float]]:
    """P(mispronounced or left out) of each unit, by cut; cuts that are too short are left out."""
    return {
        name: (found.mispronounced + found.deleted).tolist()
        for name, spans, found in search.localize(model, decoding, device)
        if spans
    }


def _log_loss(
    found: dict[str, list[float]], replaced: dict[str, list[bool]], trusted: dict[str, list[bool]]
) -> float:
    """Mean log loss over the trusted units."""
    total, count = 0.0, 0
    for name, values in found.items():
        for value, mark, is_trusted in zip(values, replaced[name], trusted[name]):
            if is_trusted:
                right = value if mark else 1.0 - value
                total -= math.log(min(max(right, 1e-6), 1.0))
                count += 1
    return total / max(count, 1)
