"""The acoustic scale, chosen without labels: how well are units found that were corrupted?

Frames of a unit are far from independent, so that products of their likelihood ratios are too sure
of themselves. One factor on the log-ratios mends that. It is chosen on held-out cuts whose
canonical units are replaced at random, with the Brier score: the mean of (P - z)^2 for a
P(mispronounced) of P and a label that is wrong (z = 1) or right (z = 0). With E the mean over units
of one kind and p the rate of mispronunciations it is::

    risk = (1 - p) E[P^2 | right] + p E[(1 - P)^2 | wrong]

The maker of an error knows where it is, but not where labels were wrong before. To leave out units
that the model itself calls wrong would let any scale confirm itself. But the replaced units stand
for the wrong ones, and those that were left alone are a mixture: p of them wrong, the rest right.
So, as (1 - p) E[P^2 | right] = E[P^2 | not replaced] - p E[P^2 | wrong], ::

    risk = E[P^2 | not replaced] - p E[P^2 | replaced] + p E[(1 - P)^2 | replaced]

which needs no unit's own label (positive and unlabelled data: du Plessis et al. 2014).
Two details make it exact and stable. A unit whose label was wrong may by chance get the label of
what was said, so that p / (N - 1) of the replaced units are right; and each mean is held within 0
and 1, which sampling noise might leave (Kiryo et al. 2017). The rate p is the one that training
has estimated and stored in the model.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import torch
from lhotse import CutSet

from mlvae.data.dataset import UnitDataset
from mlvae.em.estep import Decoding, EStep, search_compiler
from mlvae.em.selection import corrupt_units, separate_means
from mlvae.nn import MlVae


@dataclass
class CalibrationConfig:
    """How the acoustic scale is chosen.

    Attributes:
        scales: candidates; none leaves the scale as it is.
        corruption_rate: share of units that are replaced.
        max_cuts: held-out cuts used, the first ones of a random order.
        max_frames: largest batch, in frames with padding.
    """

    scales: list[float] = field(default_factory=list)
    corruption_rate: float = 0.2
    max_cuts: int = 200
    max_frames: int = 8000

    def __post_init__(self) -> None:
        if any(not scale > 0 for scale in self.scales):
            raise ValueError(f"scales must be above 0, not {self.scales}")
        if not 0 < self.corruption_rate < 1:
            raise ValueError(f"corruption_rate must be within 0 and 1, not {self.corruption_rate}")
        for name in ("max_cuts", "max_frames"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")


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
    """Choose the scale with the least estimated Brier risk of P(mispronounced).

    Args:
        model: trained.
        cuts: held-out cuts with features.
        dataset: gives features and units.
        topology: of the search.
        decoding: what the scale is set in; its own scale plays no part.
        config: candidates and sizes.
        device: where to run.
        seed: of the choice of cuts and the corruption.

    Returns:
        ``decoding`` with the chosen scale, and the risk of each candidate; ``decoding`` itself and
        nothing where there is no candidate, or no unit was replaced or left alone.
    """
    if not config.scales or model.num_units < 2:
        return decoding, {}
    cuts = sorted(cuts, key=lambda cut: cut.id)
    random.Random(seed).shuffle(cuts)
    cuts = CutSet.from_cuts(cuts[: config.max_cuts])
    own = {cut.id: dataset.table.ids(cut.supervisions[0].custom["units"], cut.id) for cut in cuts}
    units, replaced = corrupt_units(own, model.num_units, config.corruption_rate, seed)
    search = EStep(search_compiler(model, topology), cuts, dataset, config.max_frames, units)
    rate = float(model.log_correctness[1].exp())
    risks = {}
    for scale in config.scales:
        candidate = replace(decoding, acoustic_scale=scale)
        left_alone, corrupted = [], []
        for name, spans, found in search.localize(model, candidate, device):
            if spans:
                mark = torch.tensor(replaced[name])
                wrong = (found.mispronounced + found.deleted).clamp(max=1.0)
                left_alone.append(wrong[~mark])
                corrupted.append(wrong[mark])
        if not sum(map(len, left_alone)) or not sum(map(len, corrupted)):
            return decoding, {}
        values = torch.cat(left_alone), torch.cat(corrupted)
        risks[str(scale)] = brier_risk(*values, rate, model.num_units)
    best = min(risks, key=risks.get)
    return replace(decoding, acoustic_scale=float(best)), risks


def brier_risk(
    left_alone: torch.Tensor, replaced: torch.Tensor, rate: float, num_units: int
) -> float:
    """Brier score of P(mispronounced) over labels as they came, without knowing which are wrong.

    See the head of this module for the derivation.

    Args:
        left_alone: (n,), P of the units that were not replaced.
        replaced: (m,), P of the units that were replaced by another one, drawn evenly.
        rate: p, share of labels that were wrong to begin with.
        num_units: N, at least 2.

    Returns:
        Within 0 and 1.
    """
    rate = min(rate, 0.5)
    chance = rate / (num_units - 1)
    squares = (float(values.double().square().mean()) for values in (left_alone, replaced))
    misses = (float((1 - values.double()).square().mean()) for values in (left_alone, replaced))
    of_right, _ = separate_means(*squares, rate, chance)
    _, of_wrong = separate_means(*misses, rate, chance)
    return (1 - rate) * of_right + rate * of_wrong
