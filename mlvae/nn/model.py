"""ML-VAE: the modules together, with what decoding needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from mlvae.bounds import Settings
from mlvae.nn.boundary import BoundaryDetector
from mlvae.nn.estimator import PhonemeEstimator
from mlvae.nn.generator import SpeechGenerator, SpeechGeneratorConfig
from mlvae.nn.layers import FeatureScale
from mlvae.nn.trunk import TrunkConfig


@dataclass
class MlVaeConfig(Settings):
    """Sizes of the three modules; the defaults are the paper's."""

    boundary: TrunkConfig = field(default_factory=TrunkConfig)  # boundary detector phi_b
    #: Phoneme estimator phi_p.
    estimator: TrunkConfig = field(default_factory=TrunkConfig)
    #: Speech generator phi_h.
    generator: SpeechGeneratorConfig = field(default_factory=SpeechGeneratorConfig)


class Posteriors(NamedTuple):
    """What the networks say of each frame, in natural logs, as the ML-FSA's emissions take it."""

    units: torch.Tensor  # (B, T, N * S [+ 1 silence]), log q(y_t), by unit and state
    boundary: torch.Tensor  # (B, T, 2), log q(b_t = 0) and log q(b_t = 1)
    correctness: torch.Tensor  # (B, T, 2), log q(pi_t = 0) and log q(pi_t = 1)


class MlVae(nn.Module):
    """Boundary detector, phoneme estimator and speech generator over the same scaled features.

    Without a speech generator q(pi) is one rate for all frames, ``log_correctness``; without a
    boundary detector q(b) is one, ``log_boundary``.

    Args:
        num_features: feature dimension F.
        num_units: units N.
        silence: whether the estimator has a last output for silence.
        config: sizes.
        states_per_unit: left-to-right states S that the estimator tells apart in a unit.
        generator: whether there is a speech generator.
        boundary_detector: whether there is a boundary detector.
    """

    def __init__(
        self,
        num_features: int,
        num_units: int,
        silence: bool,
        config: MlVaeConfig,
        states_per_unit: int = 1,
        generator: bool = True,
        boundary_detector: bool = True,
    ) -> None:
        super().__init__()
        self.num_units = num_units
        self.silence = silence
        self.states_per_unit = states_per_unit
        outputs = num_units * states_per_unit + int(silence)
        self.scale = FeatureScale(num_features)
        self.boundary = None
        if boundary_detector:
            self.boundary = BoundaryDetector(num_features, config.boundary)
        else:
            #: Log-probabilities that no unit starts in a frame, and that one does.
            self.register_buffer("log_boundary", torch.tensor([0.9, 0.1]).log())
        self.estimator = PhonemeEstimator(num_features, outputs, config.estimator)
        self.generator = None
        if generator:
            of_units = num_units + int(silence)
            self.generator = SpeechGenerator(num_features, of_units, config.generator)
        #: log p(c), frequency of each state (and silence) in the frames of the training alignment.
        self.register_buffer("log_prior", torch.zeros(outputs))
        #: log p(pi = 0) and log p(pi = 1) a unit, and log p(perceived | canonical, pi = 1): what
        #: the E-step found in the training set, where training estimates them.
        self.register_buffer("log_correctness", torch.tensor([0.85, 0.15]).log())
        uniform = torch.full((num_units, num_units), 1.0 / max(num_units - 1, 1)).log()
        self.register_buffer("log_confusion", uniform.fill_diagonal_(-math.inf))

    def unit_probs(self, log_probs: torch.Tensor) -> torch.Tensor:
        """Probabilities of units (and silence), (B, T, N [+ 1]), from those of their states."""
        probs = log_probs.exp()
        if self.states_per_unit == 1:
            return probs
        states = self.num_units * self.states_per_unit
        by_state = probs[..., :states].unflatten(2, (self.num_units, self.states_per_unit))
        return torch.cat([by_state.sum(3), probs[..., states:]], dim=2)

    def boundary_log_probs(self, features: torch.Tensor, num_frames: torch.Tensor) -> torch.Tensor:
        """Log q(b_t = 0) and log q(b_t = 1), (B, T, 2), of scaled features (B, T, F).

        They are by the mean of the boundary detector's Beta distribution.
        """
        if self.boundary is None:
            return self.log_boundary.expand(*features.shape[:2], 2)
        alpha, beta = self.boundary(features, num_frames)
        total = (alpha + beta).log()
        return torch.stack([beta.log() - total, alpha.log() - total], dim=2)

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
        boundary = self.boundary_log_probs(features, num_frames)
        if self.generator is None:
            return Posteriors(units, boundary, self.log_correctness.expand_as(boundary))
        logit = self.generator.correctness_logits(
            features, self.unit_probs(units), boundary[..., 1].exp()
        )
        correctness = torch.stack([F.logsigmoid(-logit), F.logsigmoid(logit)], dim=2)
        return Posteriors(units, boundary, correctness)
