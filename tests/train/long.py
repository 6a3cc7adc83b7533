"""Long recordings that are made up of sounds, with pauses, for the tests of stretches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from lhotse import CutSet, MonoCut

from mlvae.tiers import with_tiers
from mlvae.train.targets import items_of_spans
from tests.train.tiny import NUM_FEATURES, TABLE, make_cut, unit_spans


def page(
    name: str,
    num_units: int,
    seed: int,
    wrong_rate: float = 0.0,
    pause_rate: float = 0.1,
    noise: float = 0.3,
    in_words: bool = False,
    tier: str = "fa",
) -> tuple[MonoCut, list[bool]]:
    """A read page and which of its units were said otherwise; the true edges are in a tier.

    Unit u sounds as a bump in feature u, each starts with one in the last feature, and a pause is
    quiet. No unit comes twice in a row. ``in_words`` makes words of two units, without pauses
    inside; every other one has an alternative pronunciation of three, and half of these say it.
    """
    rng = np.random.default_rng(seed)
    written = np.cumsum(rng.integers(1, len(TABLE), num_units)) % len(TABLE)
    wrong = rng.random(num_units) < wrong_rate
    said = np.where(wrong, (written + rng.integers(1, len(TABLE), num_units)) % 4, written)
    features, edges, time = [], [], 0

    def utter(unit: int) -> None:
        nonlocal time
        sound = np.zeros((int(rng.integers(5, 9)), NUM_FEATURES))
        sound[:, unit] += 2.0
        sound[0, -1] += 2.0
        features.append(sound)
        time += len(sound)

    pronunciations = []
    for place, unit in enumerate(said):
        first_of_word = not in_words or place % 2 == 0
        if first_of_word and rng.random() < pause_rate:
            features.append(np.full((int(rng.integers(5, 40)), NUM_FEATURES), -2.0))
            time += len(features[-1])
        start = time
        utter(unit)
        if in_words and place % 2 == 1:
            own = written[place - 1 : place + 1].tolist()
            pronunciations.append([TABLE.units(own)])
            if place % 4 == 1:
                extra = (own[1] + 1) % len(TABLE)
                pronunciations[-1].append(TABLE.units([*own, extra]))
                if rng.random() < 0.5:
                    utter(extra)
        edges.append((start, time))
    matrix = np.concatenate(features) + noise * rng.standard_normal((time, NUM_FEATURES))
    cut = make_cut(name, matrix, TABLE.units(written.tolist()))
    if in_words:
        cut.supervisions[0].custom.update(
            words=[f"w{number}" for number in range(len(pronunciations))],
            word_of_unit=[place // 2 for place in range(num_units)],
            pronunciations=pronunciations,
        )
    return with_edges(cut, written.tolist(), edges, tier), wrong.tolist()


def pages(count: int, num_units: int, seed: int = 0, **options: object) -> CutSet:
    """Pages of equally many units."""
    return CutSet.from_cuts(
        page(f"page{seed}-{number}", num_units, 1000 * seed + number, **options)[0]
        for number in range(count)
    )


def with_edges(
    cut: MonoCut, units: Sequence[int], edges: Sequence[tuple[int, int]], tier: str = "fa"
) -> MonoCut:
    """The cut with a tier whose units have these first and end frames."""
    spans = [
        span._replace(start=start, end=end)
        for span, (start, end) in zip(unit_spans(units, range(len(units) + 1)), edges)
    ]
    symbols = TABLE.units(units)
    return with_tiers(cut, {tier: items_of_spans(cut, spans, symbols, [0.0] * len(spans))})
