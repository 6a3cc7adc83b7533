"""What the acoustics say of each unit: several measures as one calibrated log-likelihood ratio.

A unit is judged by more than one measure, as each hears something else: the log-odds of
P(mispronounced) over all paths of the acceptor, and the goodness of pronunciation by the phoneme
estimator and by the narrow model of forced alignment (:mod:`mlvae.train.goodness`). The deviation
z of a measure from what is usual for the canonical unit, in standard deviations over all units,
does not depend on how hard the unit is for a model.

How much a deviation means is learned from held-out utterances in whose text units are replaced on
purpose, so that their maker knows which are wrong. Half of the replacements are drawn evenly, half
as speakers make them: the written unit is one for which the model takes the spoken one. With R(z)
the odds of a replaced unit by logistic regression, less those of the replacement rate, R is the
density of z over wrong units to that over all units. Of the latter a fraction r is wrong already,
nobody knows which; taking its expected value, the likelihood ratio of wrong to right is ::

    LR(z) = R (1 - r) / (1 - r R)

(learning from positive and unlabelled data: Elkan and Noto 2008), where 1 - r R is held above
:data:`LEAST_RIGHT`. A measure that knows nothing gets no weight, and a ratio of 1 everywhere.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch

#: Measures, each higher for what fits worse.
MEASURES = ("graph", "estimator", "aligner")
#: Units that the mean over all is worth in the mean of a unit.
PRIOR_UNITS = 20.0
#: Least 1 - r R, and so the least P(right) of any unit at the expected rate.
LEAST_RIGHT = 0.03
#: Weight of the squared coefficients of the logistic regression, in units.
RIDGE = 1.0
#: Steps of Newton's method.
STEPS = 30
#: Largest log-odds of a measure.
LARGEST = 12.0


@dataclass(frozen=True)
class Evidence:
    """How measures of a unit become a log-likelihood ratio.

    Attributes:
        centres: by measure and canonical unit (M, N) what is usual.
        deviations: standard deviations, (M,).
        weight: of the mean deviation.
        bias: log-odds where nothing deviates, less those of the replacement rate.
        rate: r, expected rate of wrong units.
    """

    centres: tuple[tuple[float, ...], ...]
    deviations: tuple[float, ...]
    weight: float
    bias: float
    rate: float

    def to_dict(self) -> dict:
        """As JSON keeps it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict) -> Evidence:
        """What :meth:`to_dict` gave."""
        centres = tuple(tuple(row) for row in content["centres"])
        return cls(**{**content, "centres": centres, "deviations": tuple(content["deviations"])})

    def log_ratio(self, measures: np.ndarray, units: np.ndarray) -> np.ndarray:
        """Log-likelihood ratios of n units.

        Args:
            measures: float64 (n, M), NaN for what says nothing of a unit.
            units: int64 (n,), canonical units.

        Returns:
            float64 (n,), log p(measures | mispronounced) - log p(measures | right).
        """
        mean = mean_deviation(measures, units, np.array(self.centres), np.array(self.deviations))
        ratio = np.exp(np.minimum(self.weight * mean + self.bias, 50.0))
        right = np.maximum(1 - self.rate * ratio, LEAST_RIGHT)
        return np.log(ratio * (1 - self.rate) / right)


def mean_deviation(
    measures: np.ndarray, units: np.ndarray, centres: np.ndarray, deviations: np.ndarray
) -> np.ndarray:
    """Mean over measures of their deviations from the usual, 0 for those that say nothing."""
    return np.nan_to_num((measures - centres.T[units]) / deviations).mean(1)
