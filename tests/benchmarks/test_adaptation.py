"""How speech is divided to measure adaptation, and how well the text fits."""

from __future__ import annotations

import math

import pytest
import torch
from lhotse import CutSet
from lhotse.utils import fastcopy

from benchmarks.adaptation import GROUPS, grouped, text_log_posterior
from mlvae.systems.judge import SearchedModel
from mlvae.train.goodness import UnitModel
from tests.train.tiny import CPU, dataset, spoken_cuts


def speakers(cuts: CutSet) -> list[str | None]:
    return [cut.supervisions[0].speaker for cut in cuts]


def named(count: int) -> CutSet:
    return CutSet.from_cuts(
        fastcopy(cut, supervisions=[fastcopy(cut.supervisions[0], speaker=f"s{number % 2}")])
        for number, cut in enumerate(spoken_cuts(count)[0])
    )


def test_groups_are_of_one_speaker_and_of_their_size():
    cuts = named(25)
    for size in filter(None, GROUPS.values()):
        found = grouped(cuts, size)
        groups: dict[str, list[str]] = {}
        for name, speaker in zip(speakers(cuts), speakers(found)):
            groups.setdefault(speaker, []).append(name)
        assert all(len(set(names)) == 1 and len(names) <= size for names in groups.values())
        assert len(groups) == -(-13 // size) + -(-12 // size)
    assert speakers(grouped(cuts, None)) == speakers(grouped(cuts, 0)) == speakers(cuts)


def test_the_text_of_a_model_that_knows_nothing_has_the_posterior_of_chance():
    given = dataset()

    class Uniform(SearchedModel):
        def unit_model(self):
            def log_probs(features, lengths):
                return torch.full((*features.shape[:2], 4), math.log(0.25))

            return UnitModel(log_probs, given, CPU)

    system = Uniform(None, "substitution", None, given, CPU)
    assert text_log_posterior(system, named(5)) == pytest.approx(math.log(0.25), abs=1e-6)
