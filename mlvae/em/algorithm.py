"""What one outer iteration of training does."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from lhotse import CutSet
from torch import nn

from mlvae.data.dataset import UnitDataset
from mlvae.em.batches import TrainingBatches
from mlvae.em.epochs import Learner, gradient_scaler
from mlvae.em.estep import EStep, search_compiler
from mlvae.em.passes import Passes
from mlvae.em.settings import TrainConfig
from mlvae.em.statistics import boundary_prior, log_prior
from mlvae.em.targets import variant_spans
from mlvae.fsa import MlFsaCompiler
from mlvae.nn import MlVae


class Algorithm(ABC):
    """Trains the modules of a model, iteration by iteration.

    The trainer stores and restores what this holds: the model, every other module of ``modules``,
    the optimizer of every learner, :meth:`tensors` as they were when the iteration began, and what
    its passes over batches have done; see :mod:`mlvae.em.passes`. All else must follow from these,
    the number of the iteration and the seed, or a killed run would not go on as if undisturbed.

    Args:
        model: to train, on ``device``; its scale has been set.
        cuts: training cuts with features and the tier ``fa``.
        dataset: gives features and units.
        config: how to train.
        device: where to train.
        seed: of the order of batches.

    Attributes:
        modules: what is trained, by name: the ``model``, and what an algorithm needs beside it.
        learners: by name; they have the optimizers.
        scaler: of the learners' losses, see :func:`mlvae.em.epochs.gradient_scaler`.
        passes: over batches, in the order in which an iteration makes them.
        aligned: spans of the tier ``fa`` by cut id, of the pronunciations that were found.
        boundary_prior: alpha and beta of p(eta).
        compiler: makes the graphs that are searched with the model as it is.
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
        self.model = model
        self.cuts = cuts
        self.dataset = dataset
        self.config = config
        self.device = device
        self.aligned = {cut.id: variant_spans(cut, "fa", dataset.table) for cut in cuts}
        self.set_prior(self.aligned)
        self.boundary_prior = boundary_prior(cuts, self.aligned, config.boundary_prior_strength)
        self.passes = Passes(together=True)
        self.batches = TrainingBatches(
            model, cuts, dataset, config.max_frames, seed, device, self.passes
        )
        self.modules: dict[str, nn.Module] = {"model": model}
        self.scaler = gradient_scaler(config.precision, device)
        self.learners = {
            name: self.new_learner(self.taught(name))
            for name in ("estimator", "boundary", "generator")
        }
        self.compiler: MlFsaCompiler = search_compiler(model, config.topology, config.decoding)

    @abstractmethod
    def iterate(self, iteration: int) -> dict[str, float]:
        """Train for one iteration, the first being 0; returns scalars for the learning curves."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """What a checkpoint needs beside modules and optimizers."""
        return {}

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take over :meth:`tensors` of a checkpoint; modules and optimizers are restored.

        Raises:
            ValueError: the checkpoint has tensors that this algorithm does not know.
        """
        if tensors:
            raise ValueError(f"a checkpoint with unknown tensors: {', '.join(sorted(tensors))}")

    def taught(self, name: str) -> nn.Module:
        """The module of the model that a learner trains and calls."""
        return getattr(self.model, name)

    def new_learner(self, module: nn.Module) -> Learner:
        """A learner of a module, in the precision of training."""
        return Learner(module, self.config, self.scaler)

    def set_prior(self, targets: dict) -> None:
        """Set the model's p(c) to that of the spans that the estimator is trained towards."""
        self.model.log_prior.copy_(log_prior(self.cuts, targets, self.model))

    def set_learning_rate(self, iteration: int) -> None:
        """Set the rate of an iteration, which falls by equal factors to the last one's."""
        first, last = self.config.learning_rate, self.config.final_learning_rate
        if last > 0:
            share = iteration / max(self.config.iterations - 1, 1)
            for learner in self.learners.values():
                group = learner.optimizer.param_groups[0]
                group["lr"] = first * (last / first) ** min(share, 1.0)

    def search_frames(self) -> int:
        """Largest batch of a search: best paths need no gradients and little memory."""
        return 4 * max(self.config.max_frames, 2000)

    def new_search(self) -> EStep:
        """The E-step over all training cuts, which the processes of a run divide."""
        return EStep(self.compiler, self.cuts, self.dataset, self.search_frames(), shared=True)
