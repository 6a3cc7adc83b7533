"""The paper's alternating training of ML-VAE (its Algorithm 1).

One iteration: an epoch of the phoneme estimator towards the aligned canonical units, an epoch of
the boundary detector towards the aligned boundaries, the E-step over the whole training set, and
an epoch of the speech generator towards the E-step's correctness. The pseudo labels B-bar and
c-tilde come from the tier ``fa``; no truth is read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from lhotse import CutSet
from torch import nn
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from mlvae.data.dataset import UnitDataset, make_sampler
from mlvae.data.units import UnitTable
from mlvae.device import num_parameters, seed_everything
from mlvae.em.checkpoint import (
    TrainingState,
    load_checkpoint,
    read_metadata,
    run_identity,
    save_checkpoint,
    save_model,
)
from mlvae.em.confusion import estimate_confusions
from mlvae.em.estep import Decoding, EStep, EStepResult, search_compiler
from mlvae.em.losses import boundary_loss, estimator_loss, generator_loss
from mlvae.em.selection import corrupt_units, corrupted_f1
from mlvae.em.statistics import boundary_prior, feature_std, log_prior
from mlvae.em.targets import (
    FrameTargets,
    frame_targets,
    pack_spans,
    spans_of_tier,
    unpack_spans,
)
from mlvae.fsa import UnitSpan
from mlvae.nn import MlVae
from mlvae.nn.layers import frame_mask
from mlvae.stage import log


@dataclass
class TrainConfig:
    """How ML-VAE is trained; the defaults are those of the paper-size configuration.

    Attributes:
        iterations: outer iterations.
        max_frames: largest batch, in frames with padding.
        learning_rate: of Adam, one optimizer a module.
        final_learning_rate: reached in the last iteration by equal factors; 0 keeps it constant.
        gradient_clip: largest gradient norm a module; 0 for no limit.
        boundary_kl_weight: lambda_b.
        boundary_prior_strength: alpha + beta of the boundary prior, whose mean is units a frame.
        generator_kl_weight: lambda_r.
        correctness_weight: lambda_l.
        component_unit: what selects the Gaussian component in training: ``estimated`` (argmax of
            the phoneme estimator, the paper) or ``canonical`` (the aligned canonical unit).
        prior: p(c) from ``frames`` of the training alignment or from ``counts`` of units.
        corruption_rate: share of validation units corrupted to choose the epoch.
        patience: stop after this many iterations without a better epoch; 0 for never.
        decoding: how posteriors become scores, in training and afterwards.
        topology: ``ml`` (the paper) or ``substitution``, of the E-step.
        states_per_unit: states that the estimator tells apart in a unit.
        relabel_after: after this many iterations the estimator's targets are what the E-step heard
            instead of the canonical units, and the rate of mispronunciations and the confusion
            table are re-estimated from it; 0 for never (the paper).
        label_smoothing: share of a target's probability that is spread over all outputs.
    """

    iterations: int = 50
    max_frames: int = 2000
    learning_rate: float = 1e-3
    final_learning_rate: float = 0.0
    gradient_clip: float = 5.0
    boundary_kl_weight: float = 0.01
    boundary_prior_strength: float = 10.0
    generator_kl_weight: float = 1.0
    correctness_weight: float = 0.001
    component_unit: str = "estimated"
    prior: str = "frames"
    corruption_rate: float = 0.2
    patience: int = 0
    decoding: Decoding = field(default_factory=Decoding)
    topology: str = "ml"
    states_per_unit: int = 1
    relabel_after: int = 0
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise ValueError(f"iterations must be at least 1, not {self.iterations}")
        if self.topology not in ("ml", "substitution"):
            raise ValueError(f"topology must be ml or substitution, not {self.topology!r}")
        if self.relabel_after and self.topology != "substitution":
            raise ValueError(
                f"relabel_after goes with topology substitution, not {self.topology!r}"
            )
        if self.component_unit not in ("estimated", "canonical"):
            raise ValueError(
                f"component_unit must be estimated or canonical, not {self.component_unit!r}"
            )
        if self.prior not in ("frames", "counts"):
            raise ValueError(f"prior must be frames or counts, not {self.prior!r}")


class Trainer:
    """Trains one ML-VAE in one folder, and goes on from its checkpoint after a kill.

    A checkpoint of another run, that is, of another seed, other settings or other cuts, is not
    gone on from but replaced; a run may be prolonged with more iterations or patience.

    The folder holds ``checkpoint.safetensors`` (the last iteration), ``model.safetensors`` (the
    best by the corruption criterion) and TensorBoard scalars.

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
        self.train_cuts = train_cuts
        self.dataset = dataset
        self.table = table
        self.config = config
        self.folder = Path(folder)
        self.device = device
        self.seed = seed
        self.aligned = self._read_alignment(train_cuts)
        self.targets = self.aligned
        self.model.scale.set(feature_std(train_cuts, dataset))
        self._set_prior()
        self.boundary_prior = boundary_prior(
            train_cuts, self.aligned, config.boundary_prior_strength
        )

        compiler = search_compiler(model, config.topology)
        # Best paths need no gradients and little memory, so their batches may be larger.
        search_frames = 4 * max(config.max_frames, 2000)
        self.estep = EStep(compiler, train_cuts, dataset, search_frames)
        units = {cut.id: self._units(cut) for cut in valid_cuts}
        corrupted, self.replaced = corrupt_units(units, len(table), config.corruption_rate, seed)
        self.valid_estep = EStep(compiler, valid_cuts, dataset, search_frames, corrupted)
        settings = asdict(config)
        del settings["patience"]
        if config.final_learning_rate == 0:
            del settings["iterations"]  # no part of what each iteration does
        self.identity = run_identity(settings, seed, setup, [train_cuts, valid_cuts])

        self.optimizers = {
            name: torch.optim.Adam(getattr(model, name).parameters(), lr=config.learning_rate)
            for name in ("estimator", "boundary", "generator")
        }

    def fit(self) -> dict:
        """Train to the end; return what ``training.json`` says."""
        # The model's initial weights were drawn by the caller; from here on the seed decides.
        seed_everything(self.seed)
        progress: dict = {"iteration": 0, "best": -1.0, "best_iteration": 0, "seconds": 0.0}
        progress.update(history=[], identity=self.identity)
        state = TrainingState({"model": self.model}, self.optimizers, progress, {})
        checkpoint = self.folder / "checkpoint.safetensors"
        self._remove_left_overs(checkpoint)
        if checkpoint.exists():
            load_checkpoint(checkpoint, state)
            if "targets" in state.tensors:
                self.targets = unpack_spans(state.tensors["targets"], self._cut_ids())
                self._use_estimates()
            log(f"going on after iteration {progress['iteration']} of {self.config.iterations}")
        self.folder.mkdir(parents=True, exist_ok=True)
        # Iteration i is written as step i; what a killed run wrote beyond its checkpoint is hidden.
        purge_step = progress["iteration"] + 1
        with SummaryWriter(self.folder / "tensorboard", purge_step=purge_step) as writer:
            while not self._finished(progress):
                began = time.monotonic()
                scalars = self._iterate(progress["iteration"])
                progress["iteration"] += 1
                progress["history"].append(scalars)
                if scalars["corrupted_f1"] > progress["best"]:
                    progress["best"] = scalars["corrupted_f1"]
                    progress["best_iteration"] = progress["iteration"]
                    metadata = {"iteration": progress["iteration"], "config": asdict(self.config)}
                    save_model(self.folder / "model.safetensors", self.model, metadata)
                if self.targets is not self.aligned:
                    state.tensors["targets"] = pack_spans(self.targets, self._cut_ids())
                progress["seconds"] += time.monotonic() - began
                save_checkpoint(checkpoint, state)
                for name, value in scalars.items():
                    writer.add_scalar(name, value, progress["iteration"])
                log(
                    f"iteration {progress['iteration']}: "
                    + ", ".join(f"{name} {value:.4g}" for name, value in scalars.items())
                )
        return {
            "num_params": num_parameters(self.model),
            "training_seconds": round(progress["seconds"], 1),
            "iterations": progress["iteration"],
            "best_iteration": progress["best_iteration"],
            "criterion": "detection F1 of units corrupted at random in the validation part",
            "history": progress["history"],
        }

    def _remove_left_overs(self, checkpoint: Path) -> None:
        """Remove half-written files of a killed run, and the results of another run."""
        for left_over in self.folder.glob(".tmp-*"):
            left_over.unlink()
        if checkpoint.exists() and read_metadata(checkpoint).get("identity") != self.identity:
            log(f"{checkpoint} is of another seed, configuration or corpus: starting afresh")
            (self.folder / "model.safetensors").unlink(missing_ok=True)
            checkpoint.unlink()

    def _finished(self, progress: dict) -> bool:
        waited = progress["iteration"] - progress["best_iteration"]
        out_of_patience = 0 < self.config.patience <= waited and progress["best_iteration"] > 0
        return progress["iteration"] >= self.config.iterations or out_of_patience

    def _iterate(self, iteration: int) -> dict[str, float]:
        self._set_learning_rate(iteration)
        scalars = {
            "loss/estimator": self._estimator_epoch(3 * iteration),
            "loss/boundary": self._boundary_epoch(3 * iteration + 1),
        }
        assignments = self.estep.run(self.model, self.config.decoding, self.device)
        scalars.update(self._generator_epoch(3 * iteration + 2, assignments))
        if 0 < self.config.relabel_after <= iteration + 1:
            changed = self._relabel(assignments)
            scalars["changed_units"] = changed
        valid = self.valid_estep.run(self.model, self.config.decoding, self.device)
        scalars["path_score/train"] = assignments.score
        scalars["path_score/valid_corrupted"] = valid.score
        scalars["flag_rate/train"] = assignments.flag_rate
        scalars["corrupted_f1"] = corrupted_f1(valid, self.replaced)
        return scalars

    def _estimator_epoch(self, epoch: int) -> float:
        losses = []
        for features, num_frames, targets, _ in self._batches(epoch, self.targets, "estimator"):
            log_probs = self.model.estimator(features, num_frames)
            loss = estimator_loss(log_probs, targets.column, self.config.label_smoothing)
            self._step("estimator", loss)
            losses.append(loss.detach())
        return float(torch.stack(losses).mean())

    def _boundary_epoch(self, epoch: int) -> float:
        losses = []
        for features, num_frames, targets, mask in self._batches(epoch, self.aligned, "boundary"):
            alpha, beta = self.model.boundary(features, num_frames)
            loss = boundary_loss(
                alpha,
                beta,
                targets.boundary,
                mask,
                self.boundary_prior,
                self.config.boundary_kl_weight,
            )
            self._step("boundary", loss)
            losses.append(loss.detach())
        return float(torch.stack(losses).mean())

    def _generator_epoch(self, epoch: int, assignments: EStepResult) -> dict[str, float]:
        parts: dict[str, list[torch.Tensor]] = {}
        spans = assignments.spans
        for features, num_frames, targets, mask in self._batches(epoch, spans, "generator"):
            with torch.no_grad():
                log_probs = self.model.estimator(features, num_frames)
                alpha, beta = self.model.boundary(features, num_frames)
            unit_probs = self.model.unit_probs(log_probs)
            unit = unit_probs.argmax(dim=2)
            if self.config.component_unit == "canonical":
                unit = torch.where(targets.unit >= 0, targets.unit, unit)
            output = self.model.generator(
                features, num_frames, unit, unit_probs, alpha / (alpha + beta)
            )
            loss, values = generator_loss(
                output,
                features,
                targets.mispronounced,
                mask,
                self.config.generator_kl_weight,
                self.config.correctness_weight,
            )
            self._step("generator", loss)
            for name, value in values.items():
                parts.setdefault(f"loss/{name}", []).append(value)
        return {name: float(torch.stack(values).mean()) for name, values in parts.items()}

    def _step(self, name: str, loss: torch.Tensor) -> None:
        module = getattr(self.model, name)
        optimizer = self.optimizers[name]
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.config.gradient_clip > 0:
            nn.utils.clip_grad_norm_(module.parameters(), self.config.gradient_clip)
        optimizer.step()

    def _batches(
        self, epoch: int, spans: dict[str, list[UnitSpan]], name: str
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, FrameTargets, torch.Tensor]]:
        """Scaled features, lengths, frame targets and mask, with only one module in training."""
        self.model.eval()
        getattr(self.model, name).train()
        cuts = self.train_cuts.filter(lambda cut: cut.id in spans).to_eager()
        sampler = make_sampler(cuts, self.config.max_frames, shuffle=True, seed=self.seed)
        sampler.set_epoch(epoch)
        bar = tqdm(total=len(cuts), desc=name, unit="cut", leave=False, disable=None)
        with bar:
            for batch_cuts in sampler:
                batch = self.dataset[batch_cuts]
                num_frames = batch["num_frames"].to(self.device)
                features = self.model.scale(batch["features"].to(self.device))
                wanted = [spans[cut_id] for cut_id in batch["cut_ids"]]
                targets = frame_targets(
                    wanted,
                    batch["num_frames"],
                    self.model.num_units,
                    self.model.states_per_unit,
                    self.model.silence,
                ).to(self.device)
                yield features, num_frames, targets, frame_mask(num_frames, features.shape[1])
                bar.update(len(batch_cuts))

    def _set_learning_rate(self, iteration: int) -> None:
        first, last = self.config.learning_rate, self.config.final_learning_rate
        if last > 0:
            share = iteration / max(self.config.iterations - 1, 1)
            for optimizer in self.optimizers.values():
                optimizer.param_groups[0]["lr"] = first * (last / first) ** min(share, 1.0)

    def _cut_ids(self) -> list[str]:
        return [cut.id for cut in self.train_cuts]

    def _set_prior(self) -> None:
        self.model.log_prior.copy_(
            log_prior(self.train_cuts, self.targets, self.model, self.config.prior == "frames")
        )

    def _units(self, cut) -> list[int]:
        return self.table.ids(cut.supervisions[0].custom["units"], cut.id)

    def _read_alignment(self, cuts: CutSet) -> dict[str, list[UnitSpan]]:
        return {cut.id: spans_of_tier(cut, "fa", self._units(cut)) for cut in cuts}

    def _relabel(self, assignments: EStepResult) -> float:
        """Take over what the E-step heard as targets; return the share of units that changed."""
        before = self.targets
        self.targets = {cut_id: before[cut_id] for cut_id in before}
        self.targets.update(assignments.spans)
        changed = total = 0
        for cut_id, spans in assignments.spans.items():
            old = [span.heard for span in before[cut_id] if span.kind == "unit"]
            new = [span.heard for span in spans if span.kind == "unit"]
            changed += sum(a != b for a, b in zip(old, new))
            total += len(new)
        correctness, confusion = estimate_confusions(self.targets, self.model.num_units)
        self.model.log_correctness.copy_(correctness)
        self.model.log_confusion.copy_(confusion)
        self._set_prior()
        self._use_estimates()
        return changed / max(total, 1)

    def _use_estimates(self) -> None:
        """Give both searches the model's confusion table."""
        compiler = search_compiler(self.model, self.config.topology)
        self.estep.use(compiler)
        self.valid_estep.use(compiler)
