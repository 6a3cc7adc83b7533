"""Training: E-step, losses, algorithms, and the loop with its checkpoints."""

from mlvae.train.estep import EStep, EStepResult
from mlvae.train.settings import CalibrationConfig, Decoding, TrainConfig
from mlvae.train.trainer import Trainer

__all__ = ["CalibrationConfig", "Decoding", "EStep", "EStepResult", "TrainConfig", "Trainer"]
