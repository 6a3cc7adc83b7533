"""Training of ML-VAE: E-step, M-step losses, alternation, checkpoints."""

from mlvae.train.estep import Decoding, EStep, EStepResult
from mlvae.train.settings import TrainConfig
from mlvae.train.trainer import Trainer

__all__ = ["Decoding", "EStep", "EStepResult", "TrainConfig", "Trainer"]
