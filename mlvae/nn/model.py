"""ML-VAE: the three modules together, with what decoding needs."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

from mlvae.nn.boundary import BoundaryDetector, BoundaryDetectorConfig, boundary_log_probs
from mlvae.nn.estimator import PhonemeEstimator, PhonemeEstimatorConfig
from mlvae.nn.generator import SpeechGenerator, SpeechGeneratorConfig
from mlvae.nn.normalize import FeatureScale


@dataclass
class MlVaeConfig:
    """Sizes of the three modules; the defaults are the paper's.

    Attributes:
        boundary: boundary detector phi_b.
        estimator: phoneme estimator phi_p.
        generator: speech generator phi_h.
    """

    boundary: BoundaryDetectorConfig = field(default_factory=BoundaryDetectorConfig)
    estimator: PhonemeEstimatorConfig = field(default_factory=PhonemeEstimatorConfig)
    generator: SpeechGeneratorConfig = field(default_factory=SpeechGeneratorConfig)


@dataclass
class Posteriors:
    """What the networks say of each frame; natural logs, the arguments of the ML-FSA's emissions.

    Attributes:
        units: (B, T, N [+ 1 silence]), log q(y_t).
        boundary: (B, T, 2), log q(b_t = 0) and log q(b_t = 1).
        correctness: (B, T, 2), log q(pi_t = 0) and log q(pi_t = 1).
    """

    units: torch.Tensor
    boundary: torch.Tensor
    correctness: torch.Tensor


class MlVae(nn.Module):
    """Boundary detector, phoneme estimator and speech generator over the same scaled features.

    Args:
        num_features: feature dimension F.
        num_units: units N.
        silence: whether the estimator has a last output for silence.
        config: sizes.
    """

    def __init__(
        self, num_features: int, num_units: int, silence: bool, config: MlVaeConfig
    ) -> None:
        super().__init__()
        self.num_units = num_units
        self.silence = silence
        outputs = num_units + int(silence)
        self.scale = FeatureScale(num_features)
        self.boundary = BoundaryDetector(num_features, config.boundary)
        self.estimator = PhonemeEstimator(num_features, outputs, config.estimator)
        self.generator = SpeechGenerator(num_features, outputs, config.generator)
        #: log p(c), frequency of each unit (and silence) in the frames of the training alignment.
        self.register_buffer("log_prior", torch.zeros(outputs))

    def forward(self, features: torch.Tensor, num_frames: torch.Tensor) -> Posteriors:
        """Deterministic posteriors for the E-step.

        Args:
            features: float (B, T, F), cut-mean normalised.
            num_frames: int64 (B,).

        Returns:
            :class:`Posteriors`; padding holds values that mean nothing.
        """
        features = self.scale(features)
        units = self.estimator(features, num_frames)
        boundary = boundary_log_probs(*self.boundary(features, num_frames))
        logit = self.generator.correctness_logits(features, units.exp(), boundary[..., 1].exp())
        correctness = torch.stack([F.logsigmoid(-logit), F.logsigmoid(logit)], dim=2)
        return Posteriors(units, boundary, correctness)
