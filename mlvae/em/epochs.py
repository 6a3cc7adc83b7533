"""The M-step: an epoch of each module of ML-VAE over batches with targets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from mlvae.em import distributed
from mlvae.em.batches import Batch, Means
from mlvae.em.losses import boundary_loss, estimator_loss, generator_loss
from mlvae.em.settings import TrainConfig
from mlvae.nn import MlVae

# Up to torch 2.2 the scaler is to be found with CUDA alone.
GradScaler = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler


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
    return GradScaler(enabled=precision == "float16")


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
        self.scaler = scaler or GradScaler(enabled=False)
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


def estimator_epoch(
    learner: Learner, batches: Iterable[Batch], config: TrainConfig, means: Means
) -> dict[str, float]:
    """Train a phoneme estimator towards the batches' units; returns ``loss/estimator``."""
    learner.module.train()
    for batch in batches:
        log_probs = learner(batch.features, batch.num_frames)
        loss = estimator_loss(log_probs, batch.targets.column, config.label_smoothing)
        learner.step(loss)
        means.add(estimator=loss)
    learner.module.eval()
    return means.result()


def boundary_epoch(
    learner: Learner,
    batches: Iterable[Batch],
    config: TrainConfig,
    prior: tuple[float, float],
    means: Means,
) -> dict[str, float]:
    """Train the boundary detector towards the batches' starts; returns ``loss/boundary``.

    Args:
        learner: of the boundary detector.
        batches: of an epoch.
        config: weight of the KL.
        prior: alpha and beta of p(eta).
        means: of the epoch.
    """
    learner.module.train()
    for batch in batches:
        alpha, beta = learner(batch.features, batch.num_frames)
        loss = boundary_loss(
            alpha, beta, batch.targets.boundary, batch.mask, prior, config.boundary_kl_weight
        )
        learner.step(loss)
        means.add(boundary=loss)
    learner.module.eval()
    return means.result()


def generator_epoch(
    learner: Learner, model: MlVae, batches: Iterable[Batch], config: TrainConfig, means: Means
) -> dict[str, float]:
    """Train the speech generator towards the batches' correctness (Eq. loss_h).

    Args:
        learner: of the speech generator.
        model: gives the posteriors of the other two modules, which are not trained.
        batches: of an epoch.
        config: weights of the losses.
        means: of the epoch.

    Returns:
        ``loss/reconstruction``, ``loss/kl`` and ``loss/correctness``.
    """
    learner.module.train()
    for batch in batches:
        output = learner(batch.features, batch.num_frames, *generator_inputs(model, batch))
        loss, parts = generator_loss(
            output,
            batch.features,
            batch.targets.mispronounced,
            batch.mask,
            config.generator_kl_weight,
            config.correctness_weight,
        )
        learner.step(loss)
        means.add(**parts)
    learner.module.eval()
    return means.result()


def generator_inputs(model: MlVae, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What the other two modules tell the speech generator of a batch, as in the E-step.

    Returns:
        The likeliest unit, which selects the component, int64 (B, T); posteriors of units,
        (B, T, N); and the mean of q(b_t = 1), (B, T).
    """
    with torch.no_grad():
        log_probs = model.estimator(batch.features, batch.num_frames)
        alpha, beta = model.boundary(batch.features, batch.num_frames)
    unit_probs = model.unit_probs(log_probs)
    return unit_probs.argmax(dim=2), unit_probs, alpha / (alpha + beta)
