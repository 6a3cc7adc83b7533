"""Cross-fitting: what a recording is relabelled as is judged by an estimator that never learned it.

Recordings of a training set come again and again with the same label, right or wrong. An estimator
that has learned a wrong one no longer finds it wrong, so that the E-step confirms it. Therefore the
frames of the training set are divided into K folds, and beside the estimator K more are trained,
each without loss on the frames of its own fold. To relabel, every frame is judged by the one that
has had no loss on it (cross-fitting: Chernozhukov et al. 2018; for label noise: Northcutt et al.
2021). The rate of mispronunciations that is stored with the model stands for q(pi) there, since the
speech generator has learned from earlier judgements. The K estimators are part of the checkpoint,
not of the model that is saved.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from lhotse import CutSet
from lhotse.cut import Cut
from torch import nn

from mlvae.data.dataset import UnitDataset
from mlvae.em import distributed
from mlvae.em.alternating import Alternating
from mlvae.em.batches import Means
from mlvae.em.estep import EStepResult
from mlvae.em.losses import estimator_loss
from mlvae.em.sections import Section
from mlvae.em.settings import CrossFitConfig, TrainConfig
from mlvae.em.targets import IGNORE
from mlvae.fsa import UnitSpan
from mlvae.nn import MlVae


class CrossFitted(Alternating):
    """Alternating training whose E-step for relabelling is cross-fitted.

    Args: as :class:`mlvae.em.algorithm.Algorithm`.

    Raises:
        ValueError: there are fewer recordings or speakers than folds, or a cut does not say what
            folds are made of.
    """

    helpers = frozenset({"folds"})

    def __init__(
        self,
        model: MlVae,
        cuts: CutSet,
        dataset: UnitDataset,
        config: TrainConfig,
        device: torch.device,
        seed: int,
    ) -> None:
        super().__init__(model, cuts, dataset, config, device, seed)
        self.folds = nn.ModuleList(
            copy.deepcopy(model.estimator) for _ in range(config.crossfit.folds)
        )
        self.modules["folds"] = self.folds
        for number, estimator in enumerate(self.folds):
            self.learners[f"fold{number}"] = self.new_learner(estimator)
        self.fold_of_frame = folds_of_frames(cuts, self.aligned, config.crossfit, seed)

    def train_estimator(self, epoch: int) -> dict[str, float]:
        """Train the estimator, and those of the folds on the same batches."""
        scalars = super().train_estimator(epoch)
        means = Means(self.device)
        self.folds.train()
        for batch in self.batches.epoch(epoch, self.targets, "estimators of folds", means):
            fold = self._folds(batch.sections, batch.features.shape[1])
            for number in range(len(self.folds)):
                column = batch.targets.column.masked_fill(fold == number, IGNORE)
                kept = (column != IGNORE).any(1)
                if not distributed.anywhere(kept.any()):
                    continue
                learner = self.learners[f"fold{number}"]
                if not kept.any():
                    # Others have something to learn, and all take a step together.
                    learner.step(0.0 * learner(batch.features, batch.num_frames).sum())
                    continue
                log_probs = learner(batch.features[kept], batch.num_frames[kept])
                loss = estimator_loss(
                    log_probs,
                    column[kept],
                    self.config.label_smoothing,
                    self.config.loss_exponent,
                )
                learner.step(loss)
                means.add(folds=loss)
        self.folds.eval()
        return {**scalars, **means.result()}

    def hear(self, assignments: EStepResult) -> EStepResult:
        """Search once more, each frame being judged by the estimator that did not learn it."""
        decoding = replace(self.config.decoding, use_correctness=False)
        return self.estep.run(
            self.model, decoding, self.device, units=self.unit_posteriors, passes=self.passes
        )

    def unit_posteriors(
        self, sections: Sequence[Section], features: torch.Tensor, num_frames: torch.Tensor
    ) -> torch.Tensor:
        """Log-posteriors of units; see :data:`mlvae.em.estep.UnitSource`."""
        self.folds.eval()
        fold = self._folds(sections, features.shape[1])
        judged = torch.stack([estimator(features, num_frames) for estimator in self.folds])
        return judged.take_along_dim(fold[None, :, :, None], dim=0).squeeze(0)

    def _folds(self, sections: Sequence[Section], width: int) -> torch.Tensor:
        """int64 (B, width): the fold of each frame; padding has fold 0."""
        rows = torch.zeros(len(sections), width, dtype=torch.int64)
        for row, section in zip(rows, sections):
            own = self.fold_of_frame[section.cut_id][section.begin : section.end]
            row[: len(own)] = own
        return rows.to(self.device)


def folds_of_frames(
    cuts: Iterable[Cut],
    aligned: Mapping[str, Sequence[UnitSpan]],
    config: CrossFitConfig,
    seed: int,
) -> dict[str, torch.Tensor]:
    """The fold that each frame belongs to, for the whole of training.

    A frame belongs to the fold of its unit's recording or speaker. Which unit that is is taken from
    one alignment once and for all: edges that moved from iteration to iteration would move frames
    into folds whose estimators have learned them. Frames outside units belong to the unit before
    them, those before the first one to that.

    Args:
        cuts: training cuts with features.
        aligned: spans by cut id.
        config: number of folds, and what they are made of.
        seed: of the division.

    Returns:
        int64 (num_frames,) by cut id.

    Raises:
        ValueError: there are fewer groups than folds, or a cut lacks its speaker or has another
            number of sources than of units, or of units that were spoken; names the cut.
    """
    cuts = list(cuts)
    groups = {cut.id: groups_of_units(cut, config.by) for cut in cuts}
    everyone = {group for own in groups.values() for group in own}
    if len(everyone) < config.folds:
        raise ValueError(
            f"{len(everyone)} {config.by}s cannot be divided into {config.folds} folds"
        )
    fold = assign_folds(everyone, config.folds, seed)
    result = {}
    for cut in cuts:
        units = [span for span in aligned[cut.id] if span.kind == "unit"]
        own = groups[cut.id]
        if len(units) != len(own):  # spoken in other pronunciations than the canonical ones
            if len(set(own)) > 1:
                raise ValueError(f"{cut.id}: {len(units)} units spoken, but sources of {len(own)}")
            own = own[:1] * len(units)
        starts = [0, *(span.start for span in units[1:]), cut.num_frames]
        lengths = torch.tensor(starts).diff()
        of_units = torch.tensor([fold[group] for group in own])
        result[cut.id] = torch.repeat_interleave(of_units, lengths)
    return result


def groups_of_units(cut: Cut, by: str) -> list[str]:
    """The recording or the speaker that each canonical unit of a cut comes from.

    A cut that was joined from recordings says in ``custom["sources"]`` which unit is from which;
    otherwise all are from the cut's own recording.

    Raises:
        ValueError: as :func:`folds_of_frames`.
    """
    supervision = cut.supervisions[0]
    custom = supervision.custom or {}
    num_units = len(custom["units"])
    if by == "speaker":
        if not supervision.speaker:
            raise ValueError(f"{cut.id}: no speaker, but folds are made of speakers")
        return [supervision.speaker] * num_units
    sources = custom.get("sources")
    if sources is None:
        return [supervision.recording_id] * num_units
    if len(sources) != num_units:
        raise ValueError(f"{cut.id}: {len(sources)} sources for {num_units} units")
    return list(sources)


def assign_folds(groups: Iterable[str], folds: int, seed: int) -> dict[str, int]:
    """Deal groups out to folds evenly, in an order that hangs on their names and the seed alone."""

    def place(group: str) -> bytes:
        return hashlib.sha256(f"{seed}/fold/{group}".encode()).digest()

    return {group: number % folds for number, group in enumerate(sorted(set(groups), key=place))}
