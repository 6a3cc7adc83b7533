"""The acoustic scale, chosen without labels: can P(mispronounced) tell which units were replaced?

Frames of a unit are far from independent, so that products of their likelihood ratios are too sure
of themselves. One factor on the log-ratios mends that. It is chosen on held-out cuts of whose
canonical units a share c is replaced at random. The maker of an error knows where it is, but not
where labels were wrong before; and to leave out units that the model itself calls wrong would let
any scale confirm itself. So nothing is asked but what is known for certain: which units were
replaced. Let f(P) be the density of P = P(mispronounced) over the units that were left alone. If P
is right, a share P of those with that value have wrong labels, and with a rate p of wrong labels
altogether, the densities over wrong and right labels are ::

    f(P | wrong) = f(P) P / p        f(P | right) = f(P) (1 - P) / (1 - p)

Replaced units have wrong labels, but for those that were wrong before and got the label of what was
said by chance, r = p / (N - 1) of them. So by Bayes' rule ::

    h(P) = (1 - r) P / p + r (1 - P) / (1 - p)
    P(replaced | P) = c h(P) / (c h(P) + 1 - c)

The mean log loss of this prediction is a proper scoring rule: it is least for the scale whose P is
right, whatever labels were wrong before. The rate p is fitted along with it, for each scale,
because a wrong one would move the choice. (A Brier score that is corrected for wrong labels, as in
learning from positive and unlabelled data, needs the rate to be given and exact: with 0.15 for 0.2
it chose scales whose true Brier score was several times the least one in simulations.)
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import torch
from lhotse import CutSet

from mlvae.bounds import Count, Positive, Rate, Settings
from mlvae.data.dataset import UnitDataset
from mlvae.em.estep import Decoding, EStep, search_compiler
from mlvae.em.passes import Gathered, Passes
from mlvae.em.selection import corrupt_units
from mlvae.em.stretches import Wanted
from mlvae.nn import MlVae

#: Rates of wrong labels that are tried.
RATES = torch.logspace(-2.5, -0.31, 60, dtype=torch.float64)


@dataclass
class CalibrationConfig(Settings):
    """How the acoustic scale is chosen.

    Attributes:
        scales: candidates; none leaves the scale as it is.
        corruption_rate: share of units that are replaced.
        max_cuts: held-out cuts used, the first ones of a random order.
        max_frames: largest batch, in frames with padding.
    """

    scales: list[Positive] = field(default_factory=list)
    corruption_rate: Rate = 0.2
    max_cuts: Count = 200
    max_frames: Count = 8000


def choose_scale(
    model: MlVae,
    cuts: CutSet,
    dataset: UnitDataset,
    topology: str,
    decoding: Decoding,
    config: CalibrationConfig,
    device: torch.device,
    seed: int,
    passes: Passes | None = None,
) -> tuple[Decoding, dict[str, float]]:
    """Choose the scale by which P(mispronounced) tells best which units were replaced.

    Args:
        model: trained.
        cuts: held-out cuts with features.
        dataset: gives features and units.
        topology: of the search.
        decoding: what the scale is set in; its own scale plays no part.
        config: candidates and sizes.
        device: where to run.
        seed: of the choice of cuts and the corruption.
        passes: what an earlier run has done of it; None: nothing.

    Returns:
        ``decoding`` with the chosen scale, and the log loss of each candidate; ``decoding`` itself
        and nothing where there is no candidate, or no unit was replaced or left alone.
    """
    if not config.scales or model.num_units < 2:
        return decoding, {}
    cuts = sorted(cuts, key=lambda cut: cut.id)
    random.Random(seed).shuffle(cuts)
    cuts = CutSet.from_cuts(cuts[: config.max_cuts])
    own = {cut.id: dataset.table.ids(cut.supervisions[0].custom["units"], cut.id) for cut in cuts}
    units, replaced = corrupt_units(own, model.num_units, config.corruption_rate, seed)
    compiler = search_compiler(model, topology, decoding)
    search = EStep(compiler, cuts, dataset, config.max_frames, units)
    passes = passes or Passes()
    losses = {}
    for scale in config.scales:
        candidate = replace(decoding, acoustic_scale=scale)
        chances = Gathered(([], []))  # of units that were left alone, and of those replaced
        batches = search.left(passes, chances, f"acoustic scale {scale}")
        wanted = Wanted(posteriors=True)
        for name, answer in search.answers(model, candidate, device, wanted, batches=batches):
            if answer.spans:
                found = answer.posteriors
                wrong = (found.mispronounced + found.deleted).clamp(max=1.0)
                for mark, chance in zip(replaced[name], wrong.tolist()):
                    chances.value[mark].append(chance)
        if not all(chances.value):
            return decoding, {}
        values = (torch.tensor(chance, dtype=torch.float64) for chance in chances.value)
        losses[str(scale)] = replacement_loss(*values, model.num_units, config.corruption_rate)[0]
    best = min(losses, key=losses.get)
    return replace(decoding, acoustic_scale=float(best)), losses


def replacement_loss(
    left_alone: torch.Tensor, replaced: torch.Tensor, num_units: int, corruption_rate: float
) -> tuple[float, float]:
    """Log loss of telling by P(mispronounced) which units were replaced.

    See the head of this module for the derivation.

    Args:
        left_alone: (n,), P of the units that were not replaced.
        replaced: (m,), P of the units that were replaced by another one, drawn evenly.
        num_units: N, at least 2.
        corruption_rate: c, probability that a unit was replaced.

    Returns:
        The mean loss over the n + m units at the rate of wrong labels where it is least, and that
        rate.
    """
    chance = RATES / (num_units - 1)

    def odds(values: torch.Tensor) -> torch.Tensor:
        """Of having been replaced, by unit and rate; never 0, as chance is not."""
        values = values.double().unsqueeze(1)
        ratio = (1 - chance) * values / RATES + chance * (1 - values) / (1 - RATES)
        return ratio * corruption_rate / (1 - corruption_rate)

    total = odds(left_alone).log1p().sum(0) + (1 / odds(replaced)).log1p().sum(0)
    best = int(total.argmin())
    return float(total[best]) / (len(left_alone) + len(replaced)), float(RATES[best])
