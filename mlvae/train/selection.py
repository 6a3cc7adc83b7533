"""What is chosen without labels, by corrupting units on purpose: the epoch to keep, and the scale.

An epoch is good if corrupted units are found, see :func:`corrupted_f1`. The acoustic scale is good
if P(mispronounced) can tell which units were replaced:

Frames of a unit are far from independent, so that products of their likelihood ratios are too sure
of themselves. One factor on the log-ratios mends that. It is tuned on held-out cuts, of whose
canonical units a fraction c is replaced at random. Original label errors are unknown, and to leave
out units that the model itself calls wrong would let any scale confirm itself. So the loss uses
only the known event: was this unit replaced?

Let f(P) be the density of P = P(mispronounced) over the units that were left alone. If P is right,
a fraction P of those with that value have wrong labels, and with a rate p of wrong labels
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
from collections.abc import Sequence
from dataclasses import replace

import torch
from lhotse import CutSet

from mlvae.data.dataset import UnitDataset
from mlvae.nn import MlVae
from mlvae.train.estep import EStep, EStepResult, search_compiler
from mlvae.train.loop import Gathered, Passes
from mlvae.train.settings import CalibrationConfig, Decoding
from mlvae.train.stretches import Wanted

#: Rate of mispronunciations at which iterations are compared. It is the same for all of them, as a
#: rate that changes from one to the next would change the figure by itself.
REFERENCE_RATE = 0.15


def corrupt_units(
    units: dict[str, Sequence[int]], num_units: int, rate: float, seed: int
) -> tuple[dict[str, list[int]], dict[str, list[bool]]]:
    """Replace some canonical units by others, drawn evenly.

    Args:
        units: canonical units by cut id.
        num_units: units are 0 .. num_units - 1.
        rate: probability that a unit is replaced.
        seed: of the draw; the result depends on it, the ids and the units alone.

    Returns:
        The corrupted sequences, and by cut which units were replaced.
    """
    corrupted, replaced = {}, {}
    for name, sequence in units.items():
        generator = random.Random(f"{seed} {name}")
        new, marks = [], []
        for unit in sequence:
            mark = num_units > 1 and generator.random() < rate
            other = generator.randrange(num_units - 1) if mark else unit
            new.append(other + (other >= unit) if mark else unit)
            marks.append(mark)
        corrupted[name], replaced[name] = new, marks
    return corrupted, replaced


def corrupted_f1(
    result: EStepResult, replaced: dict[str, list[bool]], rate: float = REFERENCE_RATE
) -> float:
    """Hard detection F1 that is to be expected on real errors, from errors made on purpose.

    A unit whose label was wrong to begin with is no false alarm when it is found. The replaced
    units stand for those with a wrong label: the fraction of them that is flagged is the recall r.
    Those left alone are a mixture, p of them wrong and the rest right, so that of all of them a
    fraction p r is flagged rightly, and what is flagged beyond it are false alarms (learning from
    positive and unlabelled data: Elkan and Noto 2008; held at 0 or above: Kiryo et al. 2017). With
    u the fraction of those left alone that is flagged, precision and recall at a rate of errors p
    give ::

        F1 = 2 p r / (p + max(u, p r))

    A replaced unit is what was said by chance in a few cases, which lowers r by the same factor for
    every iteration; and a rate that is not quite right moves all iterations alike.

    Args:
        result: best paths over the corrupted sequences; units of cuts that are not in it are not
            flagged.
        replaced: as :func:`corrupt_units` gives it.
        rate: p, of labels that are wrong to begin with, and of errors to detect.

    Returns:
        Within 0 and 1; 0 where no unit or every unit was replaced, as then nothing is known.
    """
    flagged, total = [0, 0], [0, 0]
    for name, marks in replaced.items():
        flags = [span.mispronounced for span in result.spans.get(name, []) if span.kind == "unit"]
        for mark in marks:
            total[mark] += 1
        for flag, mark in zip(flags, marks):
            flagged[mark] += flag
    if not all(total):
        return 0.0
    flag_rate, recall = (count / of for count, of in zip(flagged, total))
    return 2 * rate * recall / (rate + max(flag_rate, rate * recall))


#: Rates of wrong labels that are tried.
RATES = torch.logspace(-2.5, -0.31, 60, dtype=torch.float64)


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
        probabilities = Gathered(([], []))  # of units that were left alone, and of those replaced
        batches = search.left(passes, probabilities, f"acoustic scale {scale}")
        wanted = Wanted(posteriors=True)
        for name, answer in search.answers(model, candidate, device, wanted, batches=batches):
            if answer.spans:
                found = answer.posteriors
                wrong = (found.mispronounced + found.deleted).clamp(max=1.0)
                for mark, probability in zip(replaced[name], wrong.tolist()):
                    probabilities.value[mark].append(probability)
        if not all(probabilities.value):
            return decoding, {}
        values = (torch.tensor(some, dtype=torch.float64) for some in probabilities.value)
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
