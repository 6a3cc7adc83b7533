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


def corrupted_f1(
    result: EStepResult, replaced: dict[str, list[bool]], rate: float = REFERENCE_RATE
) -> float:
    """Hard detection F1 that is to be expected on real errors, from errors made on purpose.

    A unit whose label was wrong to begin with is no false alarm when it is found. The replaced
    units stand for those with a wrong label: the share of them that is flagged is the recall r.
    Those left alone are a mixture, p of them wrong and the rest right, so that of all of them a
    share p r is flagged rightly, and what is flagged beyond it are false alarms (learning from
    positive and unlabelled data: Elkan and Noto 2008; held at 0 or above: Kiryo et al. 2017). With
    u the share of those left alone that is flagged, precision and recall at a rate of errors p
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
    share, recall = (count / of for count, of in zip(flagged, total))
    return 2 * rate * recall / (rate + max(share, rate * recall))
