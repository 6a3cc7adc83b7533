"""How often units are mispronounced, and as what: the M-step of the ML-FSA's own parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from lhotse.cut import Cut

from mlvae.data.dataset import (
    UnitDataset,
    make_sampler,
    section_features,
    with_sections,
)
from mlvae.fsa import UnitSpan
from mlvae.nn import MlVae
from mlvae.train.targets import spans_within

#: Units that the prior of the rate is worth.
PRIOR_UNITS = 20.0


def estimate_confusions(
    spans: Mapping[str, Iterable[UnitSpan]],
    num_units: int,
    prior_rate: float = 0.15,
    log_prior: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Estimate p(pi) and p(perceived | canonical, mispronounced) from best paths.

    A rate of mispronunciation that is learned from its own decisions can run away; it is held by a
    prior worth some units, and every competitor by a pseudo-count.

    Units that were left out do not count: the acceptor has a rate of its own for them.

    Args:
        spans: best paths by cut; spans whose ``perceived`` is not known count for the rate alone.
        num_units: N.
        prior_rate: mean of the prior of the rate.
        log_prior: float (N, N), rows of log-probabilities in proportion to which pseudo-counts, one
            a competitor on average, are divided among a unit's competitors; None: evenly.

    Returns:
        log p(pi = 0) and log p(pi = 1), float32 (2,); and log p(perceived | canonical,
        mispronounced), float32 (N, N), -inf on the diagonal, rows summing to one.
    """
    counts = torch.ones((num_units, num_units), dtype=torch.float64)
    if log_prior is not None:
        counts *= (num_units - 1) * log_prior.detach().cpu().double().exp()
    counts.fill_diagonal_(0.0)
    total, wrong = PRIOR_UNITS, PRIOR_UNITS * prior_rate
    for utterance in spans.values():
        for span in utterance:
            if span.kind != "unit" or span.is_deletion:
                continue
            total += 1
            wrong += span.mispronounced
            if span.mispronounced and span.perceived >= 0:
                counts[span.unit, span.perceived] += 1
    rate = wrong / total
    correctness = torch.tensor([1 - rate, rate], dtype=torch.float64).log()
    confusion = (counts / counts.sum(1, keepdim=True).clamp(min=1e-300)).log()
    return correctness.float(), confusion.fill_diagonal_(-math.inf).float()


def acoustic_confusions(
    model: MlVae,
    cuts: Iterable[Cut],
    dataset: UnitDataset,
    spans: Mapping[str, Sequence[UnitSpan]],
    device: torch.device,
    max_frames: int = 8000,
) -> torch.Tensor:
    """What the phoneme estimator takes the frames of each unit for, where not for the unit itself.

    It ranks competitors before any has been perceived.

    Args:
        model: whose estimator is asked.
        cuts: with features.
        dataset: gives features.
        spans: which unit each frame is of, by cut id.
        device: where to run.
        max_frames: largest batch, in frames with padding.

    Returns:
        log of the estimator's mean posterior of other units in the frames of each unit, float32
        (N, N) on CPU, -inf on the diagonal, rows summing to one.
    """
    num_units = model.num_units
    mass = torch.full((num_units, num_units), 1e-3, dtype=torch.float64)
    was_training = model.training
    model.eval()
    parts, origin = with_sections(cuts)
    for some in make_sampler(parts, max_frames, shuffle=False):
        own = [origin[part.id] for part in some]
        features, lengths = (tensor.to(device) for tensor in section_features(dataset, own))
        with torch.no_grad():
            log_probs = model.estimator(model.scale(features), lengths)
            probs = model.unit_probs(log_probs)[..., :num_units].cpu().double()
        for row, (cut, section) in zip(probs, own):
            for span in spans_within(spans[cut.id], section.begin, section.end):
                if span.kind == "unit":
                    mass[span.unit] += row[span.start : span.end].sum(0)
    model.train(was_training)
    mass.fill_diagonal_(0.0)
    return (mass / mass.sum(1, keepdim=True).clamp(min=1e-300)).log().float()
