"""The paper's alternating training of ML-VAE (its Algorithm 1)."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

import torch
from lhotse import CutSet

from mlvae.data.dataset import UnitDataset
from mlvae.em.algorithm import Algorithm
from mlvae.em.batches import Means
from mlvae.em.confusion import acoustic_confusions, estimate_confusions
from mlvae.em.epochs import boundary_epoch, estimator_epoch, generator_epoch
from mlvae.em.estep import EStepResult, search_compiler
from mlvae.em.settings import TrainConfig
from mlvae.em.targets import changed_frames, pack_spans, unpack_spans
from mlvae.fsa import UnitSpan
from mlvae.nn import MlVae

#: Training cuts that competitors are ranked by.
CONFUSION_CUTS = 300
#: Between the numbers of the estimator's epochs in one iteration; more than any run has.
EPOCH_STEP = 1_000_000


class Alternating(Algorithm):
    """An epoch of each module in turn, with the E-step before the speech generator's.

    One iteration: an epoch of the phoneme estimator towards the aligned canonical units (or more,
    ``estimator_epochs``), an epoch of the boundary detector towards the aligned boundaries, the
    E-step over the whole training set, and an epoch of the speech generator towards the E-step's
    correctness. The pseudo labels B-bar and c-tilde come from the tier ``fa``; no reference is
    read. With boundaries that the E-step found in the place of B-bar, the boundary detector's epoch
    comes after the E-step.

    The four parts are methods: a variant replaces one of them and adds its own modules and
    learners.

    Attributes:
        targets: what the estimator is trained towards, spans by cut id.
        assigned: what the last E-step found, spans by cut id; before the first, the alignment.
        estep: the search over the training cuts.
    """

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
        self.targets: dict[str, Sequence[UnitSpan]] = self.aligned
        self.assigned: dict[str, Sequence[UnitSpan]] = self.aligned
        self.estep = self.new_search()
        if config.boundary_target == "found":
            self.start_from_the_prior()

    def iterate(self, iteration: int) -> dict[str, float]:
        """Train for one iteration."""
        self.set_learning_rate(iteration)
        for extra in range(self.config.estimator_epochs):
            scalars = self.train_estimator(3 * iteration + EPOCH_STEP * extra)
        aligned = self.config.boundary_target == "aligned"
        if aligned:
            scalars.update(self.train_boundary(3 * iteration + 1, self.aligned))
        if iteration == 0 and self.config.decoding.competitors:
            self.model.log_confusion.copy_(self.acoustic_confusions())
            self._use_estimates()
        assignments = self.search()
        if not aligned:
            scalars.update(self.train_boundary(3 * iteration + 1, assignments.spans))
        scalars.update(self.train_generator(3 * iteration + 2, assignments))
        pseudo = 0 < self.config.pseudo_labels_after <= iteration + 1
        if pseudo or 0 < self.config.estimate_after <= iteration + 1:
            if pseudo:
                scalars["changed_units"] = self.update_pseudo_labels(assignments)
            self.estimate(self.targets if pseudo else assignments.spans)
        scalars["changed_frames"] = changed_frames(self.assigned, assignments.spans)
        self.assigned = {**self.assigned, **assignments.spans}
        scalars["path_score/train"] = assignments.score
        scalars["flag_rate/train"] = assignments.flag_rate
        return scalars

    def train_estimator(self, epoch: int) -> dict[str, float]:
        """Train the phoneme estimator towards the targets."""
        self.model.eval()
        means = Means(self.device)
        batches = self.batches.epoch(epoch, self.targets, "estimator", means)
        return estimator_epoch(self.learners["estimator"], batches, self.config, means)

    def train_boundary(
        self, epoch: int, spans: Mapping[str, Sequence[UnitSpan]]
    ) -> dict[str, float]:
        """Train the boundary detector towards the starts of spans."""
        self.model.eval()
        means = Means(self.device)
        batches = self.batches.epoch(epoch, spans, "boundary", means)
        learner = self.learners["boundary"]
        return boundary_epoch(learner, batches, self.config, self.boundary_prior, means)

    def start_from_the_prior(self) -> None:
        """Make an untrained boundary detector say about p(eta).

        An E-step comes before its first epoch then. With starts half the time, which is what it
        would say of itself, that E-step takes many times as long and its boundaries mean nothing.
        """
        heads = self.model.boundary.alpha, self.model.boundary.beta
        with torch.no_grad():
            for head, value in zip(heads, self.boundary_prior):
                head.bias.fill_(math.log(math.expm1(value)))  # the inverse of Softplus

    def search(self) -> EStepResult:
        """The E-step: hard assignments of all training cuts."""
        return self.estep.run(self.model, self.config.decoding, self.device, passes=self.passes)

    def train_generator(self, epoch: int, assignments: EStepResult) -> dict[str, float]:
        """Train the speech generator towards the E-step's correctness."""
        self.model.eval()
        means = Means(self.device)
        batches = self.batches.epoch(epoch, assignments.spans, "generator", means)
        return generator_epoch(self.learners["generator"], self.model, batches, self.config, means)

    def update_pseudo_labels(self, assignments: EStepResult) -> float:
        """Take over what was perceived as targets; return the share of units that changed."""
        before = self.targets
        self.targets = {cut_id: before[cut_id] for cut_id in before}
        self.targets.update(assignments.spans)
        changed = total = 0
        for cut_id, spans in assignments.spans.items():
            old = [span.perceived for span in before[cut_id] if span.kind == "unit"]
            new = [span.perceived for span in spans if span.kind == "unit"]
            changed += sum(a != b for a, b in zip(old, new))
            total += len(new)
        self.set_prior(self.targets)
        return changed / max(total, 1)

    def estimate(self, spans: Mapping[str, Sequence[UnitSpan]]) -> None:
        """Estimate the rate of mispronunciations and the confusion table, and search with them."""
        limited = self.config.decoding.competitors > 0
        correctness, confusion = estimate_confusions(
            spans,
            self.model.num_units,
            # A unit that was no competitor could not be perceived; this lets it become one.
            log_prior=self.acoustic_confusions() if limited else None,
        )
        self.model.log_correctness.copy_(correctness)
        self.model.log_confusion.copy_(confusion)
        self._use_estimates()

    def acoustic_confusions(self) -> torch.Tensor:
        """What the estimator takes units for, in some training cuts; see there."""
        some = sorted(self.cuts, key=lambda cut: cut.id)
        random.Random(0).shuffle(some)
        return acoustic_confusions(
            self.model, some[:CONFUSION_CUTS], self.dataset, self.targets, self.device
        )

    def tensors(self) -> dict[str, torch.Tensor]:
        """What the last E-step found; and the targets, where they are not the alignment's."""
        packed = {"assigned": pack_spans(self.assigned, self._cut_ids())}
        if self.targets is not self.aligned:
            packed["targets"] = pack_spans(self.targets, self._cut_ids())
        return packed

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take over assignments and targets, and search with the model's confusion table."""
        if "assigned" in tensors:
            self.assigned = unpack_spans(tensors["assigned"], self._cut_ids())
        if "targets" in tensors:
            self.targets = unpack_spans(tensors["targets"], self._cut_ids())
        config = self.config
        if "targets" in tensors or config.estimate_after or config.decoding.competitors:
            self._use_estimates()

    def _cut_ids(self) -> list[str]:
        return [cut.id for cut in self.cuts]

    def _use_estimates(self) -> None:
        """Search with the model's confusion table as it is now."""
        self.compiler = search_compiler(self.model, self.config.topology, self.config.decoding)
        self.estep.use(self.compiler)
