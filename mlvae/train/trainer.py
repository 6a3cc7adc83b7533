"""Training in a folder: checkpoints, choice of the iteration, learning curves."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import torch
from lhotse import CutSet

from mlvae.data.dataset import UnitDataset
from mlvae.data.units import canonical_units
from mlvae.device import num_parameters, seed_everything
from mlvae.nn import MlVae
from mlvae.stage import log
from mlvae.train import distributed
from mlvae.train.algorithms import Algorithm, Alternating, Joint, Reinforce
from mlvae.train.estep import EStep
from mlvae.train.loop import (
    CHECKPOINT,
    Loop,
    Passes,
    TrainingState,
    adapted_count,
    run_identity,
    take_weights,
)
from mlvae.train.selection import corrupt_units, corrupted_f1
from mlvae.train.settings import TrainConfig
from mlvae.train.targets import feature_std

#: What ``TrainConfig.algorithm`` may name.
ALGORITHMS: dict[str, type[Algorithm]] = {
    "alternating": Alternating,
    "reinforce": Reinforce,
    "joint": Joint,
}

#: What ``TrainConfig.selection`` may name: the scalar, the higher the better, and what it is.
CRITERIA = {
    "corrupted_f1": (
        "corrupted_f1",
        "detection F1 of units corrupted at random in the validation part",
    ),
    "path_score": ("path_score/valid", "best paths' score a frame of the validation part"),
}

#: Between the seeds of a run's processes, so that runs of seeds 0, 1, 2 ... share none.
SEED_STEP = 1_000_003


class Trainer:
    """Trains one ML-VAE in one folder, and goes on from its checkpoint after a kill.

    The best iteration by the criterion is kept; see :class:`mlvae.train.loop.Loop`.

    Several processes (:mod:`.distributed`) each make a trainer of the same arguments. With as many
    processes as before, a killed run goes on as if undisturbed. With another number it goes
    on from the same weights, optimizers and targets, at the beginning of the iteration: batches are
    divided otherwise, and processes that are new draw other random numbers.

    Args:
        model: to train.
        train_cuts: training cuts with features and the tier ``fa``.
        valid_cuts: held-out cuts with features; their alignment is not needed.
        dataset: gives features and units.
        config: how to train.
        folder: where to write.
        device: where to train.
        seed: of everything random.
        setup: JSON values of what else makes this run another one, such as the configuration of
            the model and of the alignment.
        init: weights of a trained model of the same units that training begins from, as far as
            their sizes are the same. The prior of states stays as it is there, half the iterations
            are made, and the model as it was is kept where no iteration is better.
    """

    def __init__(
        self,
        model: MlVae,
        train_cuts: CutSet,
        valid_cuts: CutSet,
        dataset: UnitDataset,
        config: TrainConfig,
        folder: Path,
        device: torch.device,
        seed: int,
        setup: dict | None = None,
        init: Path | None = None,
    ) -> None:
        seed_everything(seed)
        self.model = model.to(device)
        self.config = config
        self.folder = Path(folder)
        self.device = device
        self.seed = seed
        self.model.scale.set(feature_std(train_cuts, dataset))
        taken: dict[str, torch.Tensor] = {}
        if init is not None:
            config = replace(config, iterations=adapted_count(config.iterations))
            self.config = config
            taken, left = take_weights(init, self.model)
            log(f"begins from {init}" + (f", but for other sizes: {left}" if left else ""))
        self.adapts = init is not None
        self.algorithm = ALGORITHMS[config.algorithm](
            model, train_cuts, dataset, config, device, seed
        )
        if "log_prior" in taken:
            self.model.log_prior.copy_(taken["log_prior"])

        table = dataset.table
        units = {cut.id: table.ids(canonical_units(cut), cut.id) for cut in valid_cuts}
        corrupted, self.replaced = corrupt_units(units, len(table), config.corruption_rate, seed)
        compiler, max_frames = self.algorithm.compiler, self.algorithm.search_frames()
        searched = compiler, valid_cuts, dataset, max_frames
        self.valid_estep = EStep(*searched, corrupted, shared=True)
        self.valid_searches = {"valid_corrupted": self.valid_estep}
        if config.selection == "path_score":
            self.valid_searches["valid"] = EStep(*searched, shared=True)
        settings = asdict(config)
        if config.final_learning_rate == 0:
            del settings["iterations"]  # no part of what each iteration does
        self.identity = run_identity(settings, seed, setup, [train_cuts, valid_cuts])

    def fit(self) -> dict:
        """Train to the end; return what ``training.json`` says.

        Raises:
            ValueError: a checkpoint of this run is damaged, or its best model is gone.
        """
        # The model's initial weights were drawn by the caller; from here on the seed decides.
        # Processes see other utterances, and must not draw the same numbers for them.
        seed_everything(self.seed + SEED_STEP * distributed.rank())
        algorithm, config = self.algorithm, self.config
        optimizers = {name: learner.optimizer for name, learner in algorithm.learners.items()}
        state = TrainingState(
            algorithm.modules, optimizers, {}, passes=algorithm.passes, scaler=algorithm.scaler
        )
        checkpoint = self.folder / CHECKPOINT
        loop = Loop(state, self.identity, config.iterations, checkpoint, self.folder)
        if loop.went_on:
            algorithm.restore(state.tensors)
            self._use_compiler()
        metadata = {"config": asdict(config)}
        if self.adapts and not loop.went_on:
            scalars = self._validate(Passes(together=True))
            loop.keep(scalars, self._criterion(scalars)[0], metadata)

        def first() -> dict[str, float]:
            return loop.before or next(iter(loop.history), {})

        def iterate(iteration: int) -> dict[str, float]:
            scalars = self._iterate(iteration)
            if self._trusted(first() or scalars):
                scalars.update(algorithm.learn_from_answers(iteration))
                self._use_compiler()
            return scalars

        loop.run(
            iterate,
            lambda: self._criterion(first())[0],
            metadata=metadata,
            tensors=algorithm.tensors,
        )
        criterion, meaning = self._criterion(first())
        return {
            "num_params": sum(map(num_parameters, algorithm.modules.values())),
            "training_seconds": round(state.progress["seconds"], 1),
            "iterations": len(loop.history),
            "best_iteration": loop.best_iteration,
            "trusted": self._trusted(first()),
            "criterion": meaning,
            "chosen_by": criterion,
            "history": loop.history,
            **({"before_adaptation": loop.before} if self.adapts else {}),
        }

    def _trusted(self, first: dict[str, float]) -> bool:
        """Whether the model may learn from its own answers; see ``TrainConfig.trusted_f1``.

        Args:
            first: scalars of the first iteration, or of the model that is adapted.
        """
        return first["corrupted_f1"] >= self.config.trusted_f1

    def _criterion(self, first: dict[str, float]) -> tuple[str, str]:
        """The scalar that chooses the iteration, and what it is; ``first`` as above."""
        return CRITERIA[self.config.selection if self._trusted(first) else "corrupted_f1"]

    def _iterate(self, iteration: int) -> dict[str, float]:
        scalars = self.algorithm.iterate(iteration)
        self._use_compiler()
        scalars.update(self._validate(self.algorithm.passes))
        # Searches have the same answers everywhere, but each process has losses of its own.
        losses = {name: value for name, value in scalars.items() if name.startswith("loss/")}
        scalars.update(distributed.average(losses))
        return scalars

    def _validate(self, passes: Passes) -> dict[str, float]:
        """Scalars of the validation part."""
        scalars = {}
        for name, search in self.valid_searches.items():
            valid = search.run(
                self.model,
                self.config.decoding,
                self.device,
                passes=passes,
                description="search of validation cuts",
            )
            scalars[f"path_score/{name}"] = valid.score
            if name == "valid_corrupted":
                scalars["corrupted_f1"] = corrupted_f1(valid, self.replaced)
        return scalars

    def _use_compiler(self) -> None:
        """Search the validation part as the algorithm searches now."""
        for search in self.valid_searches.values():
            if search.compiler is not self.algorithm.compiler:
                search.use(self.algorithm.compiler)
