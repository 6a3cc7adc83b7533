"""Goodness of pronunciation: how well frames fit their canonical unit, by an acoustic model alone.

Of a unit c with frames t in its span [s, e), an acoustic model of posteriors p(q | x_t) says::

    GOP = 1 / (e - s) * sum_t log p(c | x_t)
    LPR = GOP - max over units q other than c of 1 / (e - s) * sum_t log p(q | x_t)

GOP is the mean log posterior, as S. M. Witt and S. J. Young, "Phone-level pronunciation scoring and
assessment for interactive language learning", Speech Communication 30 (2000), define it with the
likelihoods of an HMM, and W. Hu, Y. Qian, F. K. Soong and Y. Wang, "Improved mispronunciation
detection with deep neural network trained acoustic models and transfer learning based logistic
regression classifiers", Speech Communication 67 (2015), with the posteriors of a neural network.
LPR is its log ratio to the best other unit. The posterior of a unit is the sum of those of its
states; silence, where the model has it, takes its part of the posterior and is no other unit.

A system of the kind ``gop`` trains nothing: it answers with the model of another system
(``model_of``), on the spans of forced alignment (tier ``fa``). What is said of a unit:

==================  ==========================================================================
tier                score, and symbol
==================  ==========================================================================
``mlvae``           1 - exp(GOP), or 1 / (1 + exp(LPR)), as ``score`` says: between 0 and 1, and
                    higher for what fits worse, but no calibrated probability
``mlvae_perceived`` the best other unit where LPR < 0, otherwise the canonical unit
``mlvae_word``      the largest score of the word's units
==================  ==========================================================================

No threshold is chosen: a unit is flagged where another one fits better. Where forced alignment
found another correct pronunciation, a unit may be what that has in its place, or the canonical
unit, whichever fits better; a unit that it does not have is right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.supervision import AlignmentItem

from mlvae.bounds import Settings
from mlvae.data.dataset import make_sampler
from mlvae.data.units import canonical_units
from mlvae.systems.acoustic import load_acoustic
from mlvae.systems.align import load_aligner
from mlvae.systems.base import Setup
from mlvae.systems.ml_vae import load_ml_vae
from mlvae.tiers import WORD_TIER, tier, units_of_words, with_tiers, word_items
from mlvae.train.goodness import BATCH_FRAMES, UnitModel
from mlvae.train.loop import Gathered, Passes


@dataclass
class GopSettings(Settings):
    """Settings of a system of kind ``gop``.

    Attributes:
        score: what P is made of, the mean log ``posterior`` or its log ``ratio`` to the best other
            unit.
    """

    score: Literal["posterior", "ratio"] = "posterior"


@dataclass
class Gop:
    """A system of kind ``gop``, ready to answer."""

    model: UnitModel  # of the other system
    score: str  # see :class:`GopSettings`

    def localize(self, cuts: CutSet, passes: Passes | None = None) -> tuple[CutSet, list[str]]:
        """Add the tiers that the head of this module lists.

        Args:
            cuts: with features, canonical units and the tier ``fa``.
            passes: what an earlier run has done; None: nothing.

        Returns:
            The cuts with the tiers, in their order, and no id, as there is an answer for all.

        Raises:
            ValueError: a cut has no tier ``fa``, or its words do not fit its units; names the cut.
        """
        words = {cut.id: units_of_words(cut) for cut in cuts}
        answers = Gathered({})  # by cut the score of each unit, and what was perceived
        batches = list(make_sampler(cuts, BATCH_FRAMES, shuffle=False))
        total = sum(cut.num_frames for cut in cuts)
        for batch in (passes or Passes()).over(
            batches, answers, "gop", "frame", total, lambda some: sum(c.num_frames for c in some)
        ):
            for cut, log_probs in self.model.of_cuts(batch):
                answers.value[cut.id] = self._answer(cut, log_probs)
        found = [_with_answer(cut, words[cut.id], *answers.value[cut.id]) for cut in cuts]
        return CutSet.from_cuts(found), []

    def _answer(self, cut: Cut, log_probs: torch.Tensor) -> tuple[list[float], list[str]]:
        """The score of each unit, and what was perceived."""
        table = self.model.dataset.table
        gop, ratio, best_other = self.model.goodness(cut, log_probs)
        wrong = -gop.expm1() if self.score == "posterior" else (-ratio).sigmoid()
        units = torch.tensor(table.ids(canonical_units(cut), cut.id))
        perceived = torch.where(ratio < 0, best_other, units)
        return wrong.nan_to_num(0.0).clamp(0.0, 1.0).tolist(), table.units(perceived.tolist())


def _with_answer(
    cut: Cut, word_of: list[int] | None, scores: list[float], perceived: list[str]
) -> Cut:
    """Add the tiers, with the times of ``fa``."""
    items = tier(cut, "fa")
    tiers = {
        name: [
            AlignmentItem(symbol, item.start, item.duration, score)
            for item, symbol, score in zip(items, symbols, scores)
        ]
        for name, symbols in (("mlvae", canonical_units(cut)), ("mlvae_perceived", perceived))
    }
    if word_of is not None:
        largest = [0.0] * (word_of[-1] + 1)
        for word, score in zip(word_of, scores):
            largest[word] = max(largest[word], score)
        tiers[WORD_TIER] = word_items(cut, items, word_of, largest)
    return with_tiers(cut, tiers)


def load_gop(setup: Setup, cuts: CutSet) -> Gop:
    """Read the model that a system of kind ``gop`` answers with.

    Args:
        setup: the system, and the folder of the one whose model it is.
        cuts: some cuts with features; their dimension counts.

    Raises:
        ValueError: that one has not been trained, or with another configuration; names the file.
    """
    other = setup.config.systems[setup.config.systems[setup.name].model_of]
    model = MODELS[other.kind](replace(setup, name=other.name), cuts)
    return Gop(model, setup.settings.score)


#: How the acoustic model is read of a system of a kind.
MODELS: dict[str, Callable[[Setup, CutSet], UnitModel]] = {
    "align": lambda setup, cuts: load_aligner(setup, cuts).unit_model(setup.dataset.plain()),
    "ml_vae": lambda setup, cuts: load_ml_vae(setup, cuts).unit_model(),
    "acoustic": lambda setup, cuts: load_acoustic(setup, cuts).unit_model(),
}
