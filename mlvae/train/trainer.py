"""Training in a folder: checkpoints, choice of the iteration, learning curves."""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from lhotse import CutSet

from mlvae.data.dataset import UnitDataset
from mlvae.data.units import UnitTable
from mlvae.device import num_parameters, seed_everything
from mlvae.made import remove_made
from mlvae.nn import MlVae
from mlvae.stage import log
from mlvae.train import distributed
from mlvae.train.algorithms import Algorithm, Alternating, Joint, Reinforce
from mlvae.train.estep import EStep
from mlvae.train.loop import (
    ScalarWriter,
    TrainingState,
    load_checkpoint,
    read_metadata,
    run_identity,
    save_checkpoint,
    save_model,
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

    A checkpoint is written after each iteration and every few minutes within it; see
    :mod:`mlvae.train.loop`.

    A checkpoint of another run, that is, of another seed, other settings or other cuts, is not
    gone on from but replaced; a run may be prolonged with more iterations.

    The folder holds ``checkpoint.safetensors`` (how far training is), ``model.safetensors`` (the
    best iteration by the criterion) and TensorBoard scalars.

    Several processes (:mod:`.distributed`) each make a trainer of the same arguments. With as many
    processes as before, a killed run goes on as if undisturbed. With another number it goes
    on from the same weights, optimizers and targets, at the beginning of the iteration: batches are
    divided otherwise, and processes that are new draw other random numbers.

    Args:
        model: to train.
        train_cuts: training cuts with features and the tier ``fa``.
        valid_cuts: held-out cuts with features; their alignment is not needed.
        dataset: gives features and units.
        table: unit table.
        config: how to train.
        folder: where to write.
        device: where to train.
        seed: of everything random.
        setup: JSON values of what else makes this run another one, such as the configuration of
            the model and of the alignment.
    """

    def __init__(
        self,
        model: MlVae,
        train_cuts: CutSet,
        valid_cuts: CutSet,
        dataset: UnitDataset,
        table: UnitTable,
        config: TrainConfig,
        folder: Path,
        device: torch.device,
        seed: int,
        setup: dict | None = None,
    ) -> None:
        seed_everything(seed)
        self.model = model.to(device)
        self.config = config
        self.folder = Path(folder)
        self.device = device
        self.seed = seed
        self._began = time.monotonic()  # work that no checkpoint has counted yet
        self.model.scale.set(feature_std(train_cuts, dataset))
        self.algorithm = ALGORITHMS[config.algorithm](
            model, train_cuts, dataset, config, device, seed
        )

        units = {
            cut.id: table.ids(cut.supervisions[0].custom["units"], cut.id) for cut in valid_cuts
        }
        corrupted, self.replaced = corrupt_units(units, len(table), config.corruption_rate, seed)
        self.valid_estep = EStep(
            self.algorithm.compiler,
            valid_cuts,
            dataset,
            self.algorithm.search_frames(),
            corrupted,
            shared=True,
        )
        self.valid_searches = {"valid_corrupted": self.valid_estep}
        if config.selection == "path_score":
            self.valid_searches["valid"] = EStep(
                self.algorithm.compiler,
                valid_cuts,
                dataset,
                self.algorithm.search_frames(),
                shared=True,
            )
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
        progress: dict = {"iteration": 0, "best": None, "best_iteration": 0, "seconds": 0.0}
        progress.update(history=[], identity=self.identity)
        learners = self.algorithm.learners
        optimizers = {name: learner.optimizer for name, learner in learners.items()}
        passes = self.algorithm.passes
        state = TrainingState(self.algorithm.modules, optimizers, progress, passes=passes)
        checkpoint = self.folder / "checkpoint.safetensors"
        main = distributed.is_main()
        if main:
            self._remove_left_overs(checkpoint)
        distributed.barrier()
        if checkpoint.exists():
            processes = load_checkpoint(checkpoint, state)
            self.algorithm.restore(state.tensors)
            self.algorithm.scaler.load_state_dict(progress.get("scaler", {}))
            self._use_compiler()
            model = self.folder / "model.safetensors"
            kept = read_metadata(model).get("iteration", 0) if model.exists() else 0
            if kept > progress["iteration"]:
                # A kill came between model and checkpoint, and the best model from before is gone.
                # Done again on other hardware, that iteration need not be the best once more.
                progress["best"] = None
            log(f"going on after iteration {progress['iteration']} of {self.config.iterations}")
            if processes != distributed.world_size():
                log(
                    f"now with {distributed.world_size()} processes instead of {processes}: "
                    "not what an undisturbed run would have given"
                )
        # Nobody must write before all have read.
        distributed.barrier()
        self.folder.mkdir(parents=True, exist_ok=True)
        # Iteration i is written as step i; what a killed run wrote beyond its checkpoint is hidden.
        purge_step = progress["iteration"] + 1
        with contextlib.ExitStack() as stack:
            writer = None
            if main:
                writer = stack.enter_context(
                    ScalarWriter(self.folder / "tensorboard", purge_step=purge_step)
                )
            passes.save = partial(self._save, state, checkpoint)
            self._began = time.monotonic()
            while progress["iteration"] < self.config.iterations:
                scalars = self._iterate(progress["iteration"])
                progress["iteration"] += 1
                progress["history"].append(scalars)
                value = scalars[CRITERIA[self.config.selection][0]]
                if progress["best"] is None or value > progress["best"]:
                    progress["best"] = value
                    progress["best_iteration"] = progress["iteration"]
                    metadata = {"iteration": progress["iteration"], "config": asdict(self.config)}
                    if main:
                        save_model(self.folder / "model.safetensors", self.model, metadata)
                state.tensors = self.algorithm.tensors()
                passes.clear()
                self._save(state, checkpoint)
                if writer is not None:
                    for name, value in scalars.items():
                        writer.add_scalar(name, value, progress["iteration"])
                log(
                    f"iteration {progress['iteration']}: "
                    + ", ".join(f"{name} {value:.4g}" for name, value in scalars.items())
                )
        return {
            "num_params": sum(map(num_parameters, self.algorithm.modules.values())),
            "training_seconds": round(progress["seconds"], 1),
            "iterations": progress["iteration"],
            "best_iteration": progress["best_iteration"],
            "criterion": CRITERIA[self.config.selection][1],
            "history": progress["history"],
        }

    def _save(self, state: TrainingState, checkpoint: Path) -> None:
        """Write the checkpoint, and the time since the last one."""
        now = time.monotonic()
        state.progress["seconds"] += now - self._began
        self._began = now
        state.progress["scaler"] = self.algorithm.scaler.state_dict()
        save_checkpoint(checkpoint, state)

    def _remove_left_overs(self, checkpoint: Path) -> None:
        """Remove the results of another run.

        Raises:
            ValueError: the best model of this run is gone, or a file is damaged.
        """
        model = self.folder / "model.safetensors"
        if checkpoint.exists() and read_metadata(checkpoint).get("identity") != self.identity:
            log(f"{checkpoint} is of another seed, configuration or corpus: starting afresh")
            remove_made(model)
            remove_made(checkpoint)
        # Within the first iteration there is no model yet.
        if (
            checkpoint.exists()
            and read_metadata(checkpoint)["best_iteration"]
            and not model.exists()
        ):
            raise ValueError(
                f"{checkpoint} is there without {model.name}, its best iteration: move it away to "
                "start afresh"
            )

    def _iterate(self, iteration: int) -> dict[str, float]:
        scalars = self.algorithm.iterate(iteration)
        self._use_compiler()
        for name, search in self.valid_searches.items():
            valid = search.run(
                self.model,
                self.config.decoding,
                self.device,
                passes=self.algorithm.passes,
                description="search of validation cuts",
            )
            scalars[f"path_score/{name}"] = valid.score
            if name == "valid_corrupted":
                scalars["corrupted_f1"] = corrupted_f1(valid, self.replaced)
        # Searches have the same answers everywhere, but each process has losses of its own.
        losses = {name: value for name, value in scalars.items() if name.startswith("loss/")}
        scalars.update(distributed.average(losses))
        return scalars

    def _use_compiler(self) -> None:
        """Search the validation part as the algorithm searches now."""
        for search in self.valid_searches.values():
            if search.compiler is not self.algorithm.compiler:
                search.use(self.algorithm.compiler)
