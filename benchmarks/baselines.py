"""Other ways to do an E-step, to compare k2 with: the same scores and best paths by plain DP.

Each takes :class:`Inputs` and returns one :class:`UnitPath` an utterance. The scores are those of
``mlvae.fsa.emissions`` for topology ``ml``; to compute them is part of the work.

* :func:`loop_dp`: Viterbi as one writes it first, scalar by scalar over numpy arrays. Its time says
  as much of the style as of the algorithm: a loop tuned by hand, with Python lists, local variables
  and nothing computed twice, takes about a ninth of it.
* :func:`batched_dp`: torch, all utterances, units and branches in one step per frame.
* :func:`compiled_dp`: the loop compiled by numba, for one thread.

State (k, 0) says that the last frame was in unit k said right, (k, 1) in unit k said wrong.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.inputs import FLOOR, Inputs, UnitPath


def loop_dp(inputs: Inputs) -> list[UnitPath]:
    """Viterbi as in a textbook: for each frame, each state and each predecessor, keep the best.

    Args:
        inputs: on CPU.
    """
    paths = []
    for index, units in enumerate(inputs.units):
        scores = _Scores(inputs, index)
        num_frames, num_units = int(inputs.num_frames[index]), len(units)
        states = [(k, wrong) for k in range(num_units) for wrong in (0, 1)]
        best = np.full((num_frames, num_units, 2), -np.inf)
        back = np.zeros((num_frames, num_units, 2, 2), dtype=np.int64)
        for wrong in (0, 1):
            best[0, 0, wrong] = scores.initial(wrong) + scores.output(0, 0, wrong)
        for frame in range(1, num_frames):
            for k, wrong in states:
                predecessors = [(k, wrong)]
                if k > 0:
                    predecessors += [(k - 1, 0), (k - 1, 1)]
                for before, branch in predecessors:
                    score = best[frame - 1, before, branch]
                    score += scores.transition(frame, before, k, wrong)
                    if score > best[frame, k, wrong]:
                        best[frame, k, wrong] = score
                        back[frame, k, wrong] = before, branch
                best[frame, k, wrong] += scores.output(frame, k, wrong)

        k, wrong = num_units - 1, int(np.argmax(best[-1, -1]))
        score = float(best[-1, k, wrong])
        starts, flags = [0] * num_units, [False] * num_units
        for frame in range(num_frames - 1, -1, -1):
            flags[k] = bool(wrong)
            before, wrong = back[frame, k, wrong]
            if before != k:
                starts[k] = frame
            k = before
        paths.append(UnitPath(starts, flags, score))
    return paths


class _Scores:
    """Log-probabilities of one utterance's hidden Markov model, each computed when asked for."""

    def __init__(self, inputs: Inputs, index: int) -> None:
        self.units = inputs.units[index]
        self.log_q = inputs.log_posteriors[index].double().numpy()
        self.log_p = inputs.log_prior.double().numpy()
        self.log_b = inputs.log_boundary[index].double().numpy()
        self.log_pi = inputs.log_correctness[index].double().numpy()
        self.total_q = np.exp(self.log_q).sum(1)
        self.total_p = np.exp(self.log_p).sum()

    def initial(self, wrong: int) -> float:
        return self.log_pi[0, wrong]

    def transition(self, frame: int, before: int, k: int, wrong: int) -> float:
        if before == k:
            return self.log_b[frame, 0]
        return self.log_b[frame, 1] + self.log_pi[frame, wrong]

    def output(self, frame: int, k: int, wrong: int) -> float:
        unit = self.units[k]
        log_q, log_p = self.log_q[frame, unit], self.log_p[unit]
        if not wrong:
            return log_q - log_p
        others_q = max(self.total_q[frame] - math.exp(log_q), FLOOR)
        others_p = max(self.total_p - math.exp(log_p), FLOOR)
        return math.log(others_q) - math.log(others_p)


def batched_dp(inputs: Inputs) -> list[UnitPath]:
    """One step per frame for the whole batch, on the device of the inputs; traced back on CPU."""
    log_q, log_p = inputs.log_posteriors, inputs.log_prior
    batch, num_frames, _ = log_q.shape
    units = inputs.padded_units().to(log_q.device)
    index = units.unsqueeze(1).expand(-1, num_frames, -1)
    # Double precision, because of 1 - q(c) the rest of which is small.
    q, p = log_q.double().exp(), log_p.double().exp()
    others = (q.sum(-1, keepdim=True) - q.gather(2, index)).clamp(min=FLOOR).log()
    others_p = (p.sum() - p).clamp(min=FLOOR).log()
    right = log_q.gather(2, index) - log_p[units].unsqueeze(1)
    wrong = (others - others_p[units].unsqueeze(1)).float()
    acoustic = torch.stack([right, wrong], dim=2).transpose(0, 1)  # (T, B, 2, K)
    hold = acoustic + inputs.log_boundary[..., 0].T[..., None, None]
    start = acoustic + inputs.log_correctness.transpose(0, 1).unsqueeze(3)
    start[1:] += inputs.log_boundary[:, 1:, 1].T[..., None, None]

    running = (torch.arange(num_frames)[:, None] < inputs.num_frames).to(log_q.device)
    running = running[..., None, None]
    score = torch.full_like(start[0], -math.inf)
    score[..., 0] = start[0, ..., 0]
    # Whether a state is entered in a frame, and of its two predecessors the one it is entered from.
    entered = torch.zeros_like(start, dtype=torch.bool)
    source = torch.zeros_like(start[:, :, 0], dtype=torch.int64)
    for frame in range(1, num_frames):
        before, source[frame, :, 1:] = score[..., :-1].max(dim=1)
        stay = score + hold[frame]
        enter = start[frame, ..., 1:] + before.unsqueeze(1)
        torch.gt(enter, stay[..., 1:], out=entered[frame, ..., 1:])
        stay[..., 1:] = torch.maximum(stay[..., 1:], enter)
        score = torch.where(running[frame], stay, score)
    entered &= running

    every = np.arange(batch)
    k = np.array([len(sequence) - 1 for sequence in inputs.units])
    final = score.cpu().numpy()[every, :, k]
    branch = final.argmax(1)
    entered, source = entered.cpu().numpy(), source.cpu().numpy()
    starts = np.zeros(units.shape, dtype=np.int64)
    flags = np.zeros(units.shape, dtype=bool)
    flags[every, k] = branch
    for frame in range(num_frames - 1, 0, -1):
        moves = np.flatnonzero(entered[frame, every, branch, k])
        if len(moves):
            starts[moves, k[moves]] = frame
            branch[moves] = source[frame, moves, k[moves]]
            k[moves] -= 1
            flags[moves, k[moves]] = branch[moves]
    return _as_paths(inputs, starts, flags, final.max(1))


@functools.cache
def compiled_dp() -> Callable[[Inputs], list[UnitPath]]:
    """Make the compiled DP, for inputs on CPU; it compiles itself when it is first called.

    Raises:
        ImportError: numba is not installed.
    """
    import numba

    viterbi = numba.njit(_viterbi)

    def run(inputs: Inputs) -> list[UnitPath]:
        units = inputs.padded_units().numpy()
        starts = np.zeros(units.shape, dtype=np.int64)
        flags = np.zeros(units.shape, dtype=np.bool_)
        scores = np.zeros(len(units))
        viterbi(
            units,
            np.array([len(sequence) for sequence in inputs.units]),
            inputs.num_frames.numpy(),
            inputs.log_posteriors.numpy(),
            inputs.log_prior.numpy(),
            inputs.log_boundary.numpy(),
            inputs.log_correctness.numpy(),
            starts,
            flags,
            scores,
        )
        return _as_paths(inputs, starts, flags, scores)

    return run


def _viterbi(units, lengths, num_frames, log_q, log_p, log_b, log_pi, starts, flags, scores):
    """Fill in starts and flags (B, K) and scores (B,); in the subset of Python that numba compiles.

    ``back[frame, wrong, k]`` is 0 where state (k, wrong) goes on, else 1 + the branch of unit k - 1
    that it is entered from.
    """
    q = np.exp(log_p.astype(np.float64))
    others_p = np.log(np.maximum(q.sum() - q, FLOOR))
    back = np.zeros((log_q.shape[1], 2, units.shape[1]), dtype=np.uint8)
    for index in range(len(units)):
        length = lengths[index]
        old = np.full((2, length), -np.inf)
        new = np.empty((2, length))
        acoustic = np.empty((2, length))
        for frame in range(num_frames[index]):
            total = 0.0
            for unit in range(len(q)):
                q[unit] = np.exp(np.float64(log_q[index, frame, unit]))
                total += q[unit]
            for k in range(length):
                unit = units[index, k]
                acoustic[0, k] = log_q[index, frame, unit] - log_p[unit]
                acoustic[1, k] = np.log(max(total - q[unit], FLOOR)) - others_p[unit]
            for wrong in range(2):
                start = np.float64(log_pi[index, frame, wrong])
                if frame == 0:
                    new[wrong] = -np.inf
                    new[wrong, 0] = acoustic[wrong, 0] + start
                    continue
                start += log_b[index, frame, 1]
                hold = np.float64(log_b[index, frame, 0])
                new[wrong, 0] = old[wrong, 0] + hold + acoustic[wrong, 0]
                back[frame, wrong, 0] = 0
                for k in range(1, length):
                    enter = max(old[0, k - 1], old[1, k - 1]) + start
                    stay = old[wrong, k] + hold
                    source = 2 if old[1, k - 1] > old[0, k - 1] else 1
                    back[frame, wrong, k] = source if enter > stay else 0
                    new[wrong, k] = max(enter, stay) + acoustic[wrong, k]
            old, new = new, old
        k = length - 1
        wrong = 1 if old[1, k] > old[0, k] else 0
        scores[index] = old[wrong, k]
        flags[index, k] = wrong == 1
        for frame in range(num_frames[index] - 1, 0, -1):
            source = back[frame, wrong, k]
            if source > 0:
                starts[index, k] = frame
                wrong = source - 1
                k -= 1
                flags[index, k] = wrong == 1


def _as_paths(inputs: Inputs, starts, flags, scores) -> list[UnitPath]:
    """Cut arrays (B, K) to the number of units of each utterance."""
    rows = zip(inputs.units, starts.tolist(), flags.tolist(), scores.tolist())
    return [UnitPath(start[: len(u)], flag[: len(u)], score) for u, start, flag, score in rows]
