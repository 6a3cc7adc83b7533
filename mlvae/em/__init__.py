"""Training of ML-VAE: E-step, M-step losses, alternation, checkpoints."""

from mlvae.em.estep import Decoding, EStep, EStepResult
from mlvae.em.settings import TrainConfig
from mlvae.em.trainer import Trainer

__all__ = ["Decoding", "EStep", "EStepResult", "TrainConfig", "Trainer"]
