"""What an E-step is given and what it answers, whoever does it; random inputs to measure with."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

#: Floor of 1 - q(c), as in mlvae.fsa.emissions.
FLOOR = 1e-5

#: Scores are sums of one float32 a frame, of about ten and with a rounding error of about 1e-6.
TOLERANCE_A_FRAME = 1e-5

#: Fraction of the units that are said wrong.
MISPRONUNCIATION_RATE = 0.15


@dataclass(frozen=True)
class Inputs:
    """Canonical units and the networks' answers; B utterances, T frames at most, N units."""

    # canonical units of each utterance, 0 .. N - 1; not more than it has frames.
    units: list[list[int]]
    num_frames: torch.Tensor  # int64 (B,) on CPU
    log_posteriors: torch.Tensor  # float32 (B, T, N), log q(y_t)
    log_prior: torch.Tensor  # float32 (N,), log p(y)
    log_boundary: torch.Tensor  # float32 (B, T, 2), log q(b_t = 0) and log q(b_t = 1)
    log_correctness: torch.Tensor  # float32 (B, T, 2), log q(pi_t = 0) and log q(pi_t = 1)

    def padded_units(self) -> torch.Tensor:
        """int64 (B, most units) on CPU, padded with 0."""
        width = max(map(len, self.units))
        return torch.tensor([units + [0] * (width - len(units)) for units in self.units])

    def to(self, device: torch.device) -> Inputs:
        """The same with the networks' answers on another device."""
        names = ("log_posteriors", "log_prior", "log_boundary", "log_correctness")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


class UnitPath(NamedTuple):
    """First frame of each unit, whether it is said wrong, and the natural-log score of it all."""

    starts: list[int]
    wrong: list[bool]
    score: float


def path_score(inputs: Inputs, index: int, path: UnitPath) -> float:
    """Score of a path of utterance ``index`` from the equations, in double precision."""
    log_q = inputs.log_posteriors[index].double().cpu()
    log_p = inputs.log_prior.double().cpu()
    log_b = inputs.log_boundary[index].double().cpu()
    log_pi = inputs.log_correctness[index].double().cpu()
    ends = path.starts[1:] + [int(inputs.num_frames[index])]
    score = 0.0
    for unit, start, end, wrong in zip(inputs.units[index], path.starts, ends, path.wrong):
        acoustic = log_q[start:end, unit] - log_p[unit]
        if wrong:
            others = [other for other in range(len(log_p)) if other != unit]
            acoustic = log_q[start:end, others].logsumexp(1).clamp(min=math.log(FLOOR))
            acoustic = acoustic - log_p[others].logsumexp(0).clamp(min=math.log(FLOOR))
        score += float(acoustic.sum() + log_b[start + 1 : end, 0].sum() + log_pi[start, int(wrong)])
        # A start is certain in the first frame.
        score += float(log_b[start, 1]) if start > 0 else 0.0
    return score


def disagreements(
    inputs: Inputs, answers: dict[str, list[UnitPath]], reference: str
) -> tuple[list[str], int]:
    """Compare all paths with those of one way, and all scores with the scores of their paths.

    Args:
        inputs: of the E-step.
        answers: paths by the way that found them.
        reference: the way that the others are compared with.

    Returns:
        What is wrong, one line each, and the number of paths that are other ones than the
        reference's but have the same score up to rounding.
    """
    wrong, num_ties = [], 0
    for name, paths in answers.items():
        for index, (path, expected) in enumerate(zip(paths, answers[reference])):
            tolerance = TOLERANCE_A_FRAME * int(inputs.num_frames[index])
            score = path_score(inputs, index, path)
            if not abs(path.score - score) <= tolerance:
                wrong.append(f"utterance {index}: {name} says {path.score}, its path has {score}")
            if path[:2] == expected[:2]:
                continue
            best = path_score(inputs, index, expected)
            if abs(best - score) <= tolerance:
                num_ties += 1
            else:
                wrong.append(
                    f"utterance {index}: {name} has another path than {reference}, "
                    f"of score {score} against {best}"
                )
    return wrong, num_ties


def random_inputs(
    num_utterances: int,
    num_frames: int,
    num_units: int,
    alphabet: int,
    vary: float = 0.0,
    seed: int = 0,
) -> Inputs:
    """Draw utterances, and posteriors as of networks that know them fairly well.

    Each utterance has a random segmentation, and some of its units are said as another one. The
    posteriors peak on what is said, the other two rise where a unit starts or is said wrong, and
    there is noise on all.

    Args:
        num_utterances: B.
        num_frames: frames of the longest utterance, T.
        num_units: units of an utterance, at most ``num_frames``.
        alphabet: number of different units N, at least 2.
        vary: the shortest utterances have ``1 - vary`` times as many frames and units.
        seed: of everything random.

    Raises:
        ValueError: more units than frames, or fewer than two different units.
    """
    if alphabet < 2:
        raise ValueError("there must be two different units at least: a wrong one has to exist")
    if num_units > num_frames:
        raise ValueError(f"{num_units} units do not fit into {num_frames} frames")
    draw = np.random.default_rng(seed)
    shares = 1 - vary * draw.random(num_utterances)
    frames = np.ceil(shares * num_frames).astype(int)
    lengths = np.minimum(np.ceil(shares * num_units).astype(int), frames)
    units = [draw.integers(alphabet, size=length).tolist() for length in lengths]

    acoustic = draw.normal(0.0, 1.5, (num_utterances, num_frames, alphabet))
    boundary = draw.normal(-2.5, 1.0, (num_utterances, num_frames))
    wrongness = draw.normal(-1.7, 0.7, (num_utterances, num_frames))
    for index, sequence in enumerate(units):
        inner = draw.permutation(np.arange(1, frames[index]))[: len(sequence) - 1]
        starts = np.concatenate([[0], np.sort(inner)])
        for unit, start, end in zip(sequence, starts, np.append(starts[1:], frames[index])):
            is_wrong = draw.random() < MISPRONUNCIATION_RATE
            said = (unit + draw.integers(1, alphabet)) % alphabet if is_wrong else unit
            acoustic[index, start:end, said] += 5.0
            boundary[index, start] += 4.0
            wrongness[index, start:end] += 2.0 * is_wrong
    prior = draw.dirichlet(np.full(alphabet, 10.0))
    return Inputs(
        units=units,
        num_frames=torch.from_numpy(frames).long(),
        log_posteriors=torch.from_numpy(acoustic).float().log_softmax(-1),
        log_prior=torch.from_numpy(prior).float().log(),
        log_boundary=_no_and_yes(boundary),
        log_correctness=_no_and_yes(wrongness),
    )


def _no_and_yes(logits: np.ndarray) -> torch.Tensor:
    """Log-probabilities of no and of yes, float32 (..., 2)."""
    both = torch.from_numpy(np.stack([-logits, logits], axis=-1)).float()
    return torch.nn.functional.logsigmoid(both)
