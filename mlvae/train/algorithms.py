"""What one outer iteration of training does: the M-step's epochs, and the orders they come in."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from lhotse import CutSet
from torch import nn
from torch.distributions.relaxed_bernoulli import RelaxedBernoulli

from mlvae.compat import grad_scaler
from mlvae.data.dataset import UnitDataset
from mlvae.fsa import MlFsaCompiler, UnitSpan
from mlvae.nn import GeneratorOutput, MlVae, SpeechGenerator
from mlvae.nn.generator import RewardBaseline
from mlvae.train import distributed
from mlvae.train.augment import random_factors, warp_frequencies
from mlvae.train.confusion import acoustic_confusions, estimate_confusions
from mlvae.train.estep import EStep, EStepResult, search_compiler
from mlvae.train.loop import Passes
from mlvae.train.losses import (
    boundary_loss,
    boundary_terms,
    estimator_loss,
    frame_losses,
    generator_loss,
    masked_mean,
    reconstruction_loss,
    sampled_rate,
)
from mlvae.train.packed import PackedSpans
from mlvae.train.settings import TrainConfig
from mlvae.train.targets import (
    Batch,
    Means,
    TrainingBatches,
    boundary_prior,
    changed_frames,
    log_prior,
    variant_spans,
)


def gradient_scaler(precision: str, device: torch.device) -> torch.cuda.amp.GradScaler:
    """Scales the losses of a training in float16 and does nothing in other precisions.

    Float16 has few exponents: losses are scaled up so that small gradients do not vanish, a step
    whose gradients overflow is left out, and the scale adapts.

    Args:
        precision: as ``TrainConfig.precision``.
        device: where training runs.

    Raises:
        ValueError: the device does not have this precision.
    """
    if precision != "float32" and device.type != "cuda":
        raise ValueError(f"precision {precision} needs a GPU; on {device.type} it must be float32")
    if precision == "bfloat16" and not torch.cuda.is_bf16_supported():
        raise ValueError("precision bfloat16: this GPU lacks it, float16 may do")
    return grad_scaler(enabled=precision == "float16")


class Learner:
    """A module with its Adam optimizer; calling it is a call of the module to learn from.

    In half precision (automatic mixed precision) are the matrix products and LSTM layers of the
    module that learns. Weights, optimizers, losses, the recurrence of the speech generator's
    decoder, the reward's baseline and the E-step are in float32 always.

    Args:
        module: to train, where it will be trained.
        config: learning rate, largest gradient norm and precision.
        scaler: of the losses, one for modules that learn together; None: the module learns in
            float32 whatever the configuration says.
    """

    def __init__(
        self,
        module: nn.Module,
        config: TrainConfig,
        scaler: torch.cuda.amp.GradScaler | None = None,
    ) -> None:
        self.module = module
        self.network = distributed.wrap(module)
        self.scaler = scaler or grad_scaler(enabled=False)
        self.half: torch.dtype | None = None
        if scaler is not None and config.precision != "float32":
            self.half = getattr(torch, config.precision)
        self.device_type = next(module.parameters()).device.type
        self.optimizer = torch.optim.Adam(module.parameters(), lr=config.learning_rate)
        self.gradient_clip = config.gradient_clip

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Output of the module, computed in the precision of training.

        Under DDP every call must be followed by ``backward``.
        """
        with torch.autocast(self.device_type, self.half, enabled=self.half is not None):
            return self.network(*args, **options)

    def step(self, loss: torch.Tensor) -> None:
        """Move the module's parameters one step down the loss."""
        step_together([self], loss)

    def update(self) -> None:
        """Move the module's parameters by the gradients that they have."""
        self.scaler.unscale_(self.optimizer)
        if self.gradient_clip > 0:
            nn.utils.clip_grad_norm_(self.module.parameters(), self.gradient_clip)
        self.scaler.step(self.optimizer)


def step_together(learners: Sequence[Learner], loss: torch.Tensor) -> None:
    """Move the parameters of modules that share a scaler one step down their common loss."""
    for learner in learners:
        learner.optimizer.zero_grad(set_to_none=True)
    scaler = learners[0].scaler
    scaler.scale(loss).backward()
    for learner in learners:
        learner.update()
    scaler.update()


def generator_inputs(model: MlVae, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What the other two modules tell the speech generator of a batch, as in the E-step.

    Returns:
        The likeliest unit, which selects the component, int64 (B, T); posteriors of units,
        (B, T, N); and the mean of q(b_t = 1), (B, T).
    """
    with torch.no_grad():
        log_probs = model.estimator(batch.features, batch.num_frames)
        starts = model.boundary_log_probs(batch.features, batch.num_frames)[..., 1].exp()
    unit_probs = model.unit_probs(log_probs)
    return unit_probs.argmax(dim=2), unit_probs, starts


class Algorithm(ABC):
    """Trains the modules of a model, iteration by iteration.

    The trainer stores and restores what this holds: the model, every other module of ``modules``,
    the optimizer of every learner, :meth:`tensors` as they were when the iteration began, and what
    its passes over batches have done; see :mod:`mlvae.train.loop`. All else must follow from these,
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
        scaler: of the learners' losses, see :func:`mlvae.train.algorithms.gradient_scaler`.
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
        self.aligned = PackedSpans()
        for cut in cuts:
            self.aligned[cut.id] = variant_spans(cut, dataset.table)
        self.set_prior(self.aligned)
        self.boundary_prior = boundary_prior(cuts, self.aligned, config.boundary_prior_strength)
        if model.boundary is None:
            start, hold = (part / sum(self.boundary_prior) for part in self.boundary_prior)
            model.log_boundary.copy_(torch.tensor([hold, start]).log())
        self.passes = Passes(together=True)
        self.batches = TrainingBatches(
            model, cuts, dataset, config.max_frames, seed, device, self.passes
        )
        self.modules: dict[str, nn.Module] = {"model": model}
        self.scaler = gradient_scaler(config.precision, device)
        self.learners = {
            name: Learner(self.taught(name), config, self.scaler)
            for name in ("estimator", "boundary", "generator")
            if getattr(model, name) is not None
        }
        self.begin()

    def begin(self) -> None:
        """Make what is searched; a subclass adds what it needs. The constructor ends with it."""
        config = self.config
        self.compiler: MlFsaCompiler = search_compiler(self.model, config.topology, config.decoding)

    @abstractmethod
    def iterate(self, iteration: int) -> dict[str, float]:
        """Train for one iteration, the first being 0; returns scalars for the learning curves."""

    def learn_from_answers(self, iteration: int) -> dict[str, float]:
        """Learn from what the iteration's E-step has perceived; returns scalars as well.

        It is called after :meth:`iterate`, where the model is trusted.
        """
        return {}

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

    def set_prior(self, targets: dict) -> None:
        """Set the model's p(c) to that of the spans that the estimator is trained towards."""
        self.model.log_prior.copy_(log_prior(self.cuts, targets, self.model))

    def set_learning_rate(self, iteration: int) -> None:
        """Set the rate of an iteration, which falls by equal factors to the last one's."""
        first, last = self.config.learning_rate, self.config.final_learning_rate
        if last > 0:
            progress = iteration / max(self.config.iterations - 1, 1)
            for learner in self.learners.values():
                group = learner.optimizer.param_groups[0]
                group["lr"] = first * (last / first) ** min(progress, 1.0)

    def search_frames(self) -> int:
        """Largest batch of a search: best paths need no gradients and little memory."""
        return 4 * max(self.config.max_frames, 2000)

    def new_search(self) -> EStep:
        """The E-step over all training cuts, which the processes of a run divide."""
        return EStep(self.compiler, self.cuts, self.dataset, self.search_frames(), shared=True)


#: Training cuts that competitors are ranked by.
CONFUSION_CUTS = 300
#: Between the numbers of the estimator's epochs in one iteration; more than any run has.
EPOCH_STEP = 1_000_000


class Alternating(Algorithm):
    """An epoch of each module in turn, with the E-step before the speech generator's.

    One iteration: an epoch of the phoneme estimator towards the aligned canonical units (or more,
    ``estimator_epochs``), an epoch of the boundary detector towards the aligned boundaries, the
    E-step over the whole training set, and an epoch of the speech generator, if there is one,
    towards the E-step's correctness. The pseudo-labels B-bar and c-tilde come from the tier ``fa``.
    With boundaries that the E-step found in the place of B-bar, the boundary detector's epoch comes
    after the E-step.

    The four parts are methods: a variant replaces one of them and adds its own modules and
    learners.

    Attributes:
        targets: what the estimator is trained towards, spans by cut id.
        assigned: what the last E-step found, spans by cut id; before the first, the alignment.
        found: the same, without cuts that have no path; nothing before the first.
        estep: the search over the training cuts.
        num_samples: of pi in each frame of the speech generator's epoch.
    """

    def begin(self) -> None:
        """Start from the alignment, and make the search."""
        super().begin()
        self.num_samples = 1
        self.targets = self.assigned = self.aligned
        self.found = PackedSpans()
        self.estep = self.new_search()
        if self.config.boundary_target == "found":
            self.start_from_the_prior()

    def iterate(self, iteration: int) -> dict[str, float]:
        """Train for one iteration."""
        self.set_learning_rate(iteration)
        for extra in range(self.config.estimator_epochs):
            scalars = self.train_estimator(3 * iteration + EPOCH_STEP * extra)
        detects = self.model.boundary is not None
        aligned = self.config.boundary_target == "aligned"
        if detects and aligned:
            scalars.update(self.train_boundary(3 * iteration + 1, self.aligned))
        if iteration == 0 and self.config.decoding.competitors:
            self.model.log_confusion.copy_(self.acoustic_confusions())
            self._use_estimates()
        assignments = self.search()
        if detects and not aligned:
            scalars.update(self.train_boundary(3 * iteration + 1, assignments.spans))
        if self.config.generator:
            scalars.update(self.train_generator(3 * iteration + 2, assignments))
        scalars["changed_frames"] = changed_frames(self.assigned, assignments.spans)
        self.assigned = PackedSpans(self.assigned)
        self.assigned.update(assignments.spans)
        self.found = assignments.spans
        scalars["path_score/train"] = assignments.score
        scalars["flag_rate/train"] = assignments.flag_rate
        return scalars

    def learn_from_answers(self, iteration: int) -> dict[str, float]:
        """Take over pseudo-labels, rate and confusions, as the configuration says; see there."""
        scalars: dict[str, float] = {}
        pseudo = 0 < self.config.pseudo_labels_after <= iteration + 1
        if pseudo:
            scalars["changed_units"] = self.update_pseudo_labels()
        if pseudo or 0 < self.config.estimate_after <= iteration + 1:
            self.estimate(self.targets if pseudo else self.found)
        return scalars

    def train_estimator(self, epoch: int) -> dict[str, float]:
        """Train the phoneme estimator towards the targets; returns ``loss/estimator``."""
        learner, means = self.learners["estimator"], Means(self.device)
        self.model.eval()
        learner.module.train()
        for batch in self.batches.epoch(epoch, self.targets, "estimator", means):
            log_probs = learner(self.varied(batch.features), batch.num_frames)
            loss = estimator_loss(log_probs, batch.targets.column, self.config.label_smoothing)
            learner.step(loss)
            means.add(estimator=loss)
        learner.module.eval()
        return means.result()

    def varied(self, features: torch.Tensor) -> torch.Tensor:
        """Features of a batch, (B, T, F), as voices of another vocal tract would have them."""
        most = self.config.frequency_warp
        if most == 0:
            return features
        factors = random_factors(len(features), most, features.device)
        return warp_frequencies(features, factors, 3 if self.dataset.deltas else 1)

    def train_boundary(
        self, epoch: int, spans: Mapping[str, Sequence[UnitSpan]]
    ) -> dict[str, float]:
        """Train the boundary detector towards the starts of spans; returns ``loss/boundary``."""
        learner, means = self.learners["boundary"], Means(self.device)
        prior, kl_weight = self.boundary_prior, self.config.boundary_kl_weight
        self.model.eval()
        learner.module.train()
        for batch in self.batches.epoch(epoch, spans, "boundary", means):
            alpha, beta = learner(batch.features, batch.num_frames)
            loss = boundary_loss(alpha, beta, batch.targets.boundary, batch.mask, prior, kl_weight)
            learner.step(loss)
            means.add(boundary=loss)
        learner.module.eval()
        return means.result()

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
        """Train the speech generator towards the E-step's correctness (Eq. loss_h).

        Returns:
            ``loss/reconstruction``, ``loss/kl`` and ``loss/correctness``.
        """
        learner, means = self.learners["generator"], Means(self.device)
        self.model.eval()
        learner.module.train()
        for batch in self.batches.epoch(epoch, assignments.spans, "generator", means):
            inputs = generator_inputs(self.model, batch)
            output = learner(
                batch.features, batch.num_frames, *inputs, num_samples=self.num_samples
            )
            wrong, weights = batch.targets.mispronounced, self.generator_weights()
            loss, parts = generator_loss(output, batch.features, wrong, batch.mask, *weights)
            means.add(**self.learn(batch, output, loss, parts))
        learner.module.eval()
        return means.result()

    def generator_weights(self) -> tuple[float, float]:
        """lambda_r and lambda_l of the speech generator's loss."""
        return self.config.generator_kl_weight, self.config.correctness_weight

    def learn(
        self,
        batch: Batch,
        output: GeneratorOutput,
        loss: torch.Tensor,
        parts: dict[str, torch.Tensor],
    ) -> dict[str, torch.Tensor]:
        """Teach the speech generator a batch.

        Args:
            batch: that it was given.
            output: what it said of it.
            loss: L_h, a scalar.
            parts: of the loss, by name.

        Returns:
            Scalars whose means are reported, by name.
        """
        self.learners["generator"].step(loss)
        return parts

    def update_pseudo_labels(self) -> float:
        """Take over what was perceived as targets; return the fraction of units that changed."""
        before = self.targets
        self.targets = PackedSpans(before)
        self.targets.update(self.found)
        changed = total = 0
        for cut_id, spans in self.found.items():
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
        kept = {"assigned": self.assigned}
        if self.targets is not self.aligned:
            kept["targets"] = self.targets
        return {
            f"{name}.{key}": tensor
            for name, spans in kept.items()
            for key, tensor in spans.tensors().items()
        }

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take over assignments and targets, and search with the model's confusion table."""
        kept: dict[str, dict[str, torch.Tensor]] = {}
        for key, tensor in tensors.items():
            name, _, own = key.partition(".")
            kept.setdefault(name, {})[own] = tensor
        for name, own in kept.items():
            setattr(self, name, PackedSpans.from_tensors(own))
        config = self.config
        if "targets" in kept or config.estimate_after or config.decoding.competitors:
            self._use_estimates()

    def _use_estimates(self) -> None:
        """Search with the model's confusion table as it is now."""
        self.compiler = search_compiler(self.model, self.config.topology, self.config.decoding)
        self.estep.use(self.compiler)


class _Soft(nn.Module):
    """The speech generator, called by its method ``soft``, as learners call modules."""

    def __init__(self, generator: SpeechGenerator) -> None:
        super().__init__()
        self.generator = generator

    def forward(self, *args: torch.Tensor | float) -> GeneratorOutput:
        return self.generator.soft(*args)


class Joint(Algorithm):
    """All three modules at every step, on the joint ELBO (Eq. joint_elbo) and the pseudo labels.

    There is no E-step. y stands by its posterior, b and pi by relaxed samples (b through its Beta),
    so that the reconstruction teaches all three modules. The loss is the mean over frames of ::

        - log p(x | h) + lambda_r KL(q(h) || p(h | y, pi)) + KL(q(y) || p(y))
        + KL(q(eta) || p(eta)) + KL(q(pi) || p(pi))
        - log q(y = c-tilde) - log p(b-bar | eta)

    where p(y) are the frequencies in the training alignment, p(eta) a Beta of mean L/T, and p(pi)
    has a constant mean; KL(q(h) || p(h | y, pi)) is its mean over q(y) and the relaxed pi.
    """

    def taught(self, name: str) -> nn.Module:
        """The module of the model that a learner trains and calls."""
        module = super().taught(name)
        return _Soft(module) if name == "generator" else module

    def iterate(self, iteration: int) -> dict[str, float]:
        """Train all modules for an epoch."""
        self.set_learning_rate(iteration)
        self.model.train()
        means = Means(self.device)
        for batch in self.batches.epoch(iteration, self.aligned, "joint", means):
            loss, parts = self.loss(batch)
            step_together(list(self.learners.values()), loss)
            means.add(**parts)
        self.model.eval()
        return means.result()

    def loss(self, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss of a batch, and its parts by name."""
        config, model, mask = self.config, self.model, batch.mask
        log_probs = self.learners["estimator"](batch.features, batch.num_frames)
        unit_probs = model.unit_probs(log_probs)

        alpha, beta = self.learners["boundary"](batch.features, batch.num_frames)
        eta, rate = sampled_rate(alpha, beta, mask)
        temperature = rate.new_tensor(config.joint.temperature)
        boundary = RelaxedBernoulli(temperature, probs=rate).rsample()

        output = self.learners["generator"](
            batch.features, batch.num_frames, unit_probs, boundary, config.joint.temperature
        )
        logit = output.correctness_logit
        pi = torch.sigmoid(logit)
        prior = config.joint.mispronunciation_rate
        # KL(q(pi) || p(pi)): the cross-entropy with a constant target, less the entropy.
        kl_pi = pi * (F.logsigmoid(logit) - math.log(prior)) + (1 - pi) * (
            F.logsigmoid(-logit) - math.log1p(-prior)
        )
        log_prior = model.log_prior
        kl_unit = (log_probs.exp() * (log_probs - log_prior)).sum(2)
        nll_boundary, kl_boundary = boundary_terms(
            eta, rate, batch.targets.boundary, self.boundary_prior
        )
        parts = {
            "reconstruction": masked_mean(
                reconstruction_loss(output.mean, output.log_variance, batch.features), mask
            ),
            "kl": masked_mean(output.kl, mask),
            "kl_unit": masked_mean(kl_unit, mask),
            "kl_boundary": masked_mean(kl_boundary, mask),
            "kl_correctness": masked_mean(kl_pi, mask),
            "estimator": estimator_loss(log_probs, batch.targets.column, config.label_smoothing),
            "boundary": masked_mean(nll_boundary, mask),
        }
        weights = {"kl": config.generator_kl_weight}
        return sum(weights.get(name, 1.0) * value for name, value in parts.items()), parts


class Reinforce(Alternating):
    """Alternating training with the paper's equation grad_rl in the speech generator's epoch.

    pi_t is sampled N_mc times from q(pi). A sample's reward is R = -L_h of its frame: with +L_h, as
    printed, samples of a high loss would be favoured. A network b(x_t) learns the reward by mean
    squared error; what a sample brings beyond it moves q(pi). Losses are means over frames and over
    samples.
    """

    def begin(self) -> None:
        """Start as the alternating training does, and make the baseline."""
        super().begin()
        config, num_features = self.config, len(self.model.scale.inverse_std)
        self.num_samples = config.reinforce.samples
        baseline = RewardBaseline(num_features, config.reinforce.baseline_size).to(self.device)
        self.modules["baseline"] = baseline
        # In float32 always: it is small, and the errors it learns from would overflow float16.
        self.learners["baseline"] = Learner(baseline, config)

    def train_generator(self, epoch: int, assignments: EStepResult) -> dict[str, float]:
        """Train the speech generator, q(pi) by the reward too, and the baseline."""
        baseline = self.modules["baseline"].train()
        scalars = super().train_generator(epoch, assignments)
        baseline.eval()
        return scalars

    def learn(
        self,
        batch: Batch,
        output: GeneratorOutput,
        loss: torch.Tensor,
        parts: dict[str, torch.Tensor],
    ) -> dict[str, torch.Tensor]:
        """Teach the speech generator a batch, and then the baseline."""
        baseline, wrong = self.learners["baseline"], batch.targets.mispronounced
        reward = frame_rewards(output, batch.features, wrong, *self.generator_weights())
        expected = baseline(batch.features.detach())
        policy, policy_parts = policy_loss(
            output.correctness_logit,
            output.sampled,
            reward - expected.detach(),
            batch.mask,
            self.config.reinforce.entropy_weight,
        )
        parts = super().learn(batch, output, loss + policy, parts)
        error = masked_mean((reward - expected).pow(2).mean(0), batch.mask)
        baseline.step(error)
        return {**parts, **policy_parts, "baseline": error}


def frame_rewards(
    output: GeneratorOutput,
    features: torch.Tensor,
    mispronounced: torch.Tensor,
    kl_weight: float,
    correctness_weight: float,
) -> torch.Tensor:
    """R = -L_h of each sample of pi in each frame.

    Only the KL to the selected component differs between samples of a frame; the rest of L_h is
    there for the baseline to take away.

    Args:
        output: what the speech generator gave.
        features: (B, T, F), the speech to reconstruct, scaled.
        mispronounced: float (B, T), pi-hat of the E-step.
        kl_weight: lambda_r.
        correctness_weight: lambda_l.

    Returns:
        float (S, B, T), without gradient.
    """
    nll, correctness = frame_losses(output, features, mispronounced)
    loss = nll + kl_weight * output.sample_kl + correctness_weight * correctness
    return -loss.detach()


def policy_loss(
    logit: torch.Tensor,
    sampled: torch.Tensor,
    advantage: torch.Tensor,
    mask: torch.Tensor,
    entropy_weight: float,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """A loss whose gradient makes samples likelier by what they brought beyond expectation.

    The advantage is divided by its standard deviation over the batch, as log-likelihoods of speech
    are tens of nats and fall as training goes on. Its mean stays: taking it away is the baseline's
    task.

    Args:
        logit: (B, T), log-odds of q(pi_t = 1).
        sampled: (S, B, T), samples of pi_t, 0 or 1.
        advantage: (S, B, T), reward less baseline, without gradient.
        mask: bool (B, T), frames that count.
        entropy_weight: of the entropy of q(pi), which is explicit.

    Returns:
        The loss, and detached: the ``entropy`` of q(pi), nats per frame, and ``advantage_std``.
    """
    std = advantage[:, mask].std(unbiased=False)
    advantage = advantage / std.clamp(min=1e-6)
    log_q = -F.binary_cross_entropy_with_logits(logit.expand_as(sampled), sampled, reduction="none")
    # H = -(1 - q) log (1 - q) - q log q
    entropy = masked_mean(F.softplus(logit) - logit * torch.sigmoid(logit), mask)
    policy = masked_mean(-(advantage * log_q).mean(0), mask)
    parts = {"entropy": entropy.detach(), "advantage_std": std.detach()}
    return policy - entropy_weight * entropy, parts
