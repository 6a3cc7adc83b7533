"""How often units are mispronounced, and how mispronunciations cluster.

Mispronunciations are no independent events: who stumbles stumbles over a word, and some speakers
make ten times as many as others. The acceptor has one rate for all. What the acoustics say of each
unit, a log-likelihood ratio, is therefore put together by a first-order Markov chain over the
correctness y_1, y_2, ... of an utterance's units, y_i = 1 being mispronounced or deleted::

    P(y_i = 1 | y_{i-1}) = sigmoid(eta_i + coupling_i y_{i-1})
    eta_i = log-odds of the rate + effect of the unit + effect of the speaker

where the coupling is one number within words and another one across words. Seen as an acceptor its
states are junctions that remember whether the last unit was right.

Whatever is estimated from a system's own answers can feed on itself. Three things hold it:

* the rate has a prior: an expected value, worth a number of units (:class:`RatesConfig`);
* effects are normal around 0 with a standard deviation that is given and not estimated. With one
  that is estimated, effects of units take over: a unit that the acoustics judge too harshly cannot
  be told from one that is often wrong;
* the log-likelihood ratios do not depend on any of this: they are calibrated once, on units that
  were replaced on purpose; see :mod:`mlvae.train.evidence`.

The chain is fitted by expectation maximisation: the forward-backward algorithm gives P(y_i) and
P(y_{i-1}, y_i), and penalised Newton steps the rest. Rate, couplings and effects of units are
fitted to held-out recordings and kept; the effect of a speaker is fitted to the recordings that are
judged together: the prior outweighs a single one, and many outweigh the prior. A recording of
nobody who is named is judged by itself. (``benchmarks/judge.py`` compares.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mlvae.bounds import Positive, Rate, Settings

#: Rounds of expectation maximisation in training, and where only recordings are new.
FIT_ROUNDS, APPLY_ROUNDS = 30, 10
#: Largest Newton step of anything, in log-odds.
LARGEST_STEP = 1.0
#: Standard deviation of the couplings' prior, in log-odds.
COUPLING_STD = 2.0
#: Standard deviation of effects that are none.
LEAST_STD = 1e-6
#: Log-likelihood ratios beyond this say nothing more.
LARGEST_RATIO = 20.0


@dataclass
class RatesConfig(Settings):
    """The prior of how often units are mispronounced."""

    expected: Rate = 0.05  # rate of mispronounced units to begin with
    #: How many units that is worth beside those that the chain is fitted to.
    strength: Positive = 100.0
    unit_std: Positive = 0.2  # standard deviation of the effects of units, in log-odds
    speaker_std: Positive = 0.3  # the same of speakers


@dataclass(frozen=True)
class UnitSequences:
    """Units of many utterances, one after another."""

    utterance: np.ndarray  # int64 (n,), which utterance each unit is of, not falling
    word: np.ndarray  # int64 (n,), its word in the utterance; units of one word lie side by side
    unit: np.ndarray  # int64 (n,), the canonical unit
    speaker: np.ndarray  # int64 (n,), from 0 on, who speaks

    @property
    def first(self) -> np.ndarray:
        """Bool (n,), whether a unit is the first of its utterance."""
        return np.diff(self.utterance, prepend=-1) != 0

    @property
    def within_word(self) -> np.ndarray:
        """Bool (n,), whether the unit before is of the same word."""
        return ~self.first & (np.diff(self.word, prepend=-1) == 0)


def unit_sequences(
    units: Sequence[Sequence[int]],
    words: Sequence[Sequence[int] | None],
    speakers: Sequence[str | None],
) -> UnitSequences:
    """Sequences of some utterances.

    Args:
        units: canonical units of each utterance.
        words: the word of each of its units; None: each unit is a word of its own.
        speakers: who speaks each of them; None: nobody who speaks another.
    """
    sizes = [len(one) for one in units]
    own_words = [range(n) if word is None else word for n, word in zip(sizes, words)]

    def flat(parts: Sequence[Sequence[int]]) -> np.ndarray:
        return np.array([value for part in parts for value in part], dtype=np.int64)

    keys = [index if name is None else name for index, name in enumerate(speakers)]
    number = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    utterance = np.repeat(np.arange(len(sizes)), sizes)
    speaker = np.repeat(np.array([number[key] for key in keys], dtype=np.int64), sizes)
    return UnitSequences(utterance, flat(own_words), flat(units), speaker)


@dataclass(frozen=True)
class Correctness:
    """What the chain says of n units."""

    mispronounced: np.ndarray  # float64 (n,), P(y_i = 1)
    #: float64 (n,), P(y_i = 0 | y_{i-1} = 0), and P(y_i = 0) for the first unit of an utterance.
    #: The product over a word's units, the first unit's being P(y_i = 0), is the probability that
    #: all are right.
    stays_right: np.ndarray


@dataclass(frozen=True)
class Rates:
    """A fitted chain."""

    config: RatesConfig  # the prior
    log_odds: float  # of the rate of a unit and speaker without effects, after a unit that is right
    within_word: float  # coupling of units of one word, at least 0
    across_words: float  # of others, at least 0
    of_units: tuple[float, ...]  # effects of the N units, log-odds
    mean: float  # posterior mean of the rate over the units that the chain was fitted to

    @classmethod
    def from_dict(cls, content: dict) -> Rates:
        """From what ``asdict`` gives, and JSON keeps."""
        config = RatesConfig(**content["config"])
        return cls(**{**content, "config": config, "of_units": tuple(content["of_units"])})

    @classmethod
    def independent(cls, rate: float, of_units: np.ndarray, config: RatesConfig) -> Rates:
        """Units that are wrong at known rates, whatever is said before them and by whom.

        Args:
            rate: of all units, between 0 and 1.
            of_units: float64 (N,), of each unit, the same.
            config: the prior.
        """
        still = replace(config, expected=rate, speaker_std=LEAST_STD)
        odds = math.log(rate / (1 - rate))
        effects = np.log(of_units) - np.log1p(-of_units) - odds
        return cls(still, odds, 0.0, 0.0, tuple(effects.tolist()), rate)

    def correctness(self, sequences: UnitSequences, log_ratio: np.ndarray) -> Correctness:
        """What the chain says of some units, after the effects of their speakers are fitted.

        Args:
            sequences: n units.
            log_ratio: float64 (n,), log p(acoustics | mispronounced) - log p(acoustics | right).
        """
        state = _State(self, sequences)
        if self.config.speaker_std > LEAST_STD:
            for _ in range(APPLY_ROUNDS):
                state.update_speakers(_Expected(state, log_ratio))
        return _Expected(state, log_ratio).result()


def fit_rates(
    sequences: UnitSequences, log_ratio: np.ndarray, num_units: int, config: RatesConfig
) -> Rates:
    """Fit a chain to units of which none is known to be right or wrong.

    Args:
        sequences: n units.
        log_ratio: float64 (n,), see :meth:`Rates.correctness`.
        num_units: N, different units.
        config: the prior.
    """
    odds = float(np.log(config.expected / (1 - config.expected)))
    start = Rates(config, odds, 0.0, 0.0, (0.0,) * num_units, config.expected)
    state = _State(start, sequences)
    for _ in range(FIT_ROUNDS):
        expected = _Expected(state, log_ratio)
        state.update_speakers(expected)
        state.update_units(expected)
        state.update_rate(expected)
        state.update_couplings(expected)
    mean = _Expected(state, log_ratio).mispronounced.mean() if len(log_ratio) else config.expected
    return Rates(
        config,
        float(state.log_odds),
        float(state.couplings[1]),
        float(state.couplings[0]),
        tuple(state.of_units.tolist()),
        float(mean),
    )


def _sigmoid(values: np.ndarray | float) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(values, -40, 40)))


class _Expected:
    """P(y_i) and P(y_{i-1}, y_i) under the acoustics: one forward and one backward pass.

    Utterances lie side by side, so that a step is over all of them that are long enough.
    """

    def __init__(self, state: _State, log_ratio: np.ndarray) -> None:
        steps, size = state.steps, len(log_ratio)
        ratio = np.exp(np.clip(log_ratio, -LARGEST_RATIO, LARGEST_RATIO))
        base = state.base()
        after_right, after_wrong = _sigmoid(base), _sigmoid(base + state.coupling())
        forward = np.zeros((size, 2))  # P(y_i | acoustics up to i)
        scale = np.ones(size)
        before: np.ndarray | None = None
        for here in steps:
            rate = after_right[here]
            if before is not None:
                past = forward[before[: len(here)]]
                rate = past[:, 0] * rate + past[:, 1] * after_wrong[here]
            joint = np.stack([1 - rate, rate * ratio[here]], axis=1)
            scale[here] = joint.sum(1)
            forward[here] = joint / scale[here, None]
            before = here
        backward = np.ones((size, 2))
        #: P(y_{i-1} = a, y_i = b) by unit, a and b; a is right before the first unit.
        self.pair = np.zeros((size, 2, 2))
        for number in range(len(steps) - 1, -1, -1):
            here = steps[number]
            weight = np.stack([1 / scale[here], ratio[here] / scale[here]], axis=1) * backward[here]
            wrong = np.stack([after_right[here], after_wrong[here]], axis=1)
            step = np.stack([1 - wrong, wrong], axis=2) * weight[:, None, :]
            if number > 0:
                previous = steps[number - 1][: len(here)]
                backward[previous] = step.sum(2)
                pair = forward[previous][:, :, None] * step
            else:
                pair = np.zeros_like(step)
                pair[:, 0] = step[:, 0]
            self.pair[here] = pair / pair.sum((1, 2), keepdims=True)

    @property
    def mispronounced(self) -> np.ndarray:
        return self.pair[:, :, 1].sum(1)

    def result(self) -> Correctness:
        right = self.pair[:, 0]
        stays = right[:, 0] / np.maximum(right.sum(1), 1e-300)
        return Correctness(self.mispronounced, stays)


class _State:
    """The chain while it is fitted to some sequences."""

    def __init__(self, rates: Rates, sequences: UnitSequences) -> None:
        self.sequences, self.config = sequences, rates.config
        self.log_odds = rates.log_odds
        self.couplings = np.array([rates.across_words, rates.within_word])
        self.of_units = np.array(rates.of_units)
        speakers = int(sequences.speaker.max()) + 1 if len(sequences.speaker) else 0
        self.of_speakers = np.zeros(speakers)
        self.first, self.within = sequences.first, sequences.within_word
        starts = np.flatnonzero(self.first)
        sizes = np.diff(np.append(starts, len(self.first)))
        starts = starts[np.argsort(-sizes, kind="stable")]
        sizes = np.sort(sizes)[::-1]
        longest = int(sizes[0]) if len(sizes) else 0
        counts = np.searchsorted(-sizes, -np.arange(longest), side="left")
        #: By position the units that utterances have there, longest utterances first.
        self.steps = [starts[:count] + place for place, count in enumerate(counts)]

    def base(self) -> np.ndarray:
        """Log-odds of each unit after one that is right, (n,)."""
        of_units = self.of_units[self.sequences.unit]
        return self.log_odds + of_units + self.of_speakers[self.sequences.speaker]

    def coupling(self) -> np.ndarray:
        return np.where(self.first, 0.0, self.couplings[self.within.astype(np.int64)])

    def _slopes(self, expected: _Expected) -> tuple[np.ndarray, np.ndarray]:
        """Gradient and curvature of the expected log-likelihood in each unit's log-odds.

        Returns:
            Both (n, 2), by the correctness of the unit before.
        """
        before = expected.pair.sum(2)
        base = self.base()
        rate = _sigmoid(np.stack([base, base + self.coupling()], axis=1))
        return expected.pair[:, :, 1] - before * rate, before * rate * (1 - rate)

    def _effects(
        self, expected: _Expected, effects: np.ndarray, of: np.ndarray, std: float
    ) -> np.ndarray:
        gradient, curvature = (part.sum(1) for part in self._slopes(expected))
        up = np.bincount(of, gradient, len(effects)) - effects / std**2
        down = np.bincount(of, curvature, len(effects)) + 1 / std**2
        return effects + np.clip(up / down, -LARGEST_STEP, LARGEST_STEP)

    def update_speakers(self, expected: _Expected) -> None:
        of = self.sequences.speaker
        self.of_speakers = self._effects(expected, self.of_speakers, of, self.config.speaker_std)

    def update_units(self, expected: _Expected) -> None:
        of = self.sequences.unit
        self.of_units = self._effects(expected, self.of_units, of, self.config.unit_std)

    def update_rate(self, expected: _Expected) -> None:
        gradient, curvature = (part.sum() for part in self._slopes(expected))
        rate, strength = _sigmoid(self.log_odds), self.config.strength
        gradient += strength * (self.config.expected - rate)
        curvature += strength * rate * (1 - rate)
        self.log_odds += np.clip(gradient / curvature, -LARGEST_STEP, LARGEST_STEP)

    def update_couplings(self, expected: _Expected) -> None:
        for kind in (0, 1):
            some = ~self.first & (self.within == bool(kind))
            gradient, curvature = (part[some, 1].sum() for part in self._slopes(expected))
            gradient -= self.couplings[kind] / COUPLING_STD**2
            step = gradient / (curvature + 1 / COUPLING_STD**2)
            moved = self.couplings[kind] + np.clip(step, -LARGEST_STEP, LARGEST_STEP)
            self.couplings[kind] = max(float(moved), 0.0)
