"""Which epoch to keep, without labels: how well are units found that were corrupted on purpose?"""

from __future__ import annotations

import random
from collections.abc import Sequence

from mlvae.em.estep import EStepResult

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


def separate_means(
    unreplaced: float, replaced: float, rate: float, chance: float = 0.0
) -> tuple[float, float]:
    """Mean of something over units whose label is right, and over those whose label is wrong.

    Which label is wrong to begin with is not known. But units that were not replaced are a mixture
    of both kinds with a known share, and so are the replaced ones (learning from positive and
    unlabelled data: Elkan and Noto 2008; du Plessis et al. 2014)::

        unreplaced = (1 - rate)  * right + rate         * wrong
        replaced   =  chance     * right + (1 - chance) * wrong

    Two equations in two unknowns. Sampling noise may lead out of the range of what is averaged:
    results are held within 0 and 1 (the non-negative estimator of Kiryo et al. 2017).

    Args:
        unreplaced: mean of values within 0 and 1 over the units that were not replaced.
        replaced: mean over the replaced ones.
        rate: share of unreplaced units whose label is wrong. Above one half it counts as one half,
            since then labels say too little for the equations to be solved.
        chance: share of replaced units whose new label is right.

    Returns:
        The mean over right and that over wrong labels.
    """
    rate = min(rate, 0.5)
    determinant = max(1.0 - rate - chance, 0.25)
    right = ((1.0 - chance) * unreplaced - rate * replaced) / determinant
    wrong = ((1.0 - rate) * replaced - chance * unreplaced) / determinant
    return min(max(right, 0.0), 1.0), min(max(wrong, 0.0), 1.0)


def corrupted_f1(
    result: EStepResult, replaced: dict[str, list[bool]], rate: float = REFERENCE_RATE
) -> float:
    """Hard detection F1 that is to be expected on real errors, from errors made on purpose.

    A unit whose label was wrong to begin with is no false alarm when it is found. With the share of
    flagged units among the replaced ones as recall r, the share f of flagged units among those with
    a right label is estimated by :func:`separate_means`, and at a rate of errors p::

        F1 = 2 p r / (p r + (1 - p) f + p)

    (A replaced unit is what was said by chance in a few cases, rate / (N - 1); that lowers r by
    the same factor for every iteration.)

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
    shares = [count / of for count, of in zip(flagged, total)]
    false_alarms, recall = separate_means(*shares, rate)
    found = rate * recall
    return 2 * found / (found + (1 - rate) * false_alarms + rate)
