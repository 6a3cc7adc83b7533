"""What training takes from the training set before it begins: scales and priors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from lhotse import CutSet

from mlvae.data.dataset import UnitDataset
from mlvae.fsa import UnitSpan
from mlvae.nn import MlVae


def feature_std(cuts: CutSet, dataset: UnitDataset) -> torch.Tensor:
    """Standard deviation of each feature dimension, float32 (F,); cut means are zero already."""
    features = [dataset.features(cut) for cut in cuts]
    power = sum(frames.double().pow(2).sum(0) for frames in features)
    return (power / sum(len(frames) for frames in features)).sqrt().float()


def log_prior(
    cuts: CutSet, targets: Mapping[str, Sequence[UnitSpan]], model: MlVae
) -> torch.Tensor:
    """Log p(c) of each of the estimator's outputs, from what it is trained towards.

    Args:
        cuts: training cuts with features.
        targets: their spans.
        model: gives units, states and silence.

    Returns:
        float32 (N * S [+ 1]); states of a unit share its frames, and nothing has probability 0.
    """
    states = model.states_per_unit
    counts = torch.ones(len(model.log_prior), dtype=torch.float64)
    for cut in cuts:
        covered = 0
        spans = [s for s in targets[cut.id] if s.kind == "unit" and s.end > s.start]
        for span in spans:
            length = span.end - span.start
            unit = span.unit if span.perceived < 0 else span.perceived
            counts[unit * states : (unit + 1) * states] += length / states
            covered += length
        if model.silence:
            counts[-1] += cut.num_frames - covered
    return (counts / counts.sum()).log().float()


def boundary_prior(
    cuts: CutSet, aligned: Mapping[str, Sequence[UnitSpan]], strength: float
) -> tuple[float, float]:
    """Alpha and beta of p(eta): mean units a frame in the training set, and alpha + beta."""
    units = sum(len(spans) for spans in aligned.values())
    rate = units / sum(cut.num_frames for cut in cuts)
    return strength * rate, strength * (1 - rate)
