"""Which epoch to keep, without labels: how well are units found that were corrupted on purpose?"""

from __future__ import annotations

import random
from collections.abc import Sequence

from mlvae.em.estep import EStepResult


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


def corrupted_f1(result: EStepResult, replaced: dict[str, list[bool]]) -> float:
    """Hard detection F1 of the units that were replaced.

    Units whose label was wrong to begin with count as false alarms when they are found. They hold
    this figure down in the same way for every epoch, so that it still ranks them.

    Args:
        result: best paths over the corrupted sequences.
        replaced: as :func:`corrupt_units` gives it.
    """
    hits = flagged = total = 0
    for name, marks in replaced.items():
        total += sum(marks)
        flags = [span.mispronounced for span in result.spans.get(name, []) if span.kind == "unit"]
        flagged += sum(flags)
        hits += sum(flag and mark for flag, mark in zip(flags, marks))
    return 2 * hits / max(flagged + total, 1)
