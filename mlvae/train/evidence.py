"""What the acoustics say of each unit: several measures as one calibrated log-likelihood ratio.

A unit is judged by more than one measure, as each hears something else: the log-odds of
P(mispronounced) over all paths of the acceptor, and the goodness of pronunciation, mean log
posterior and log ratio to the best other unit, by the phoneme estimator and by the narrow model of
forced alignment (:mod:`mlvae.train.goodness`). The deviation z of a unit is the mean over measures,
weighted where said, of how far each is from what is usual for the canonical unit, in units of its
spread where it is lower than usual, which wrong units hardly reach. A measure that parts right from
wrong units well has a small one, and so counts for more.

Recordings and voices differ by more than mispronunciations: all sounds of a poor recording are
somewhat off. A part of what its median unit is off is therefore taken away (:data:`MEDIAN_PART`),
but no more than :data:`LARGEST_MEDIAN`: a text that is wrong as a whole is off by more. How often
the speaker errs is then heard from units that stand out; see :mod:`mlvae.train.rates`.

How much a deviation means is learned from held-out utterances in whose text units are replaced on
purpose (:func:`replace_units`), so that their maker knows which are wrong. Let a log-likelihood
ratio be linear, LR(z) = exp(bias + weight z), and a fraction r of the units that were left alone be
wrong already, nobody knows which (learning from positive and unlabelled data: Elkan and Noto 2008).
At a rate c of replacements ::

    P(replaced | z) = c LR(z) / (c LR(z) + (1 - c) (1 - r + r LR(z)))

Bias, weight and r have the greatest likelihood, with a weak prior on r. Measures that know nothing
get a ratio of 1 everywhere.

Where a model is trusted (``TrainConfig.trusted_f1``) what a deviation means is learned from its own
answers instead: P(mispronounced) over all paths of held-out utterances is what the deviation is to
tell (:func:`fit_to_answers`). The rate is then the model's, and the measures correct which units it
is of. Half of the deviation is the acceptor's, the other half that of the log ratios: such a model
knows the sounds that may have been said instead, and of a mean log posterior, which is low of any
odd sound, it learns no more.

Such a model also hears which units are wrong more often than others (:func:`rates_of_units`): those
in whose place an acoustic model that has learned from what was perceived, not from the text, hears
another unit. A deviation is then one from what is usual for the tokens that it hears as what is
written, as the mean of all would lie between the right and the wrong ones of a unit that many say
otherwise. The median of such a recording is taken away whole.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import expit, logit

from mlvae.train.rates import UnitSequences

#: How much of a recording's median deviation is put down to the recording and the voice.
MEDIAN_PART = 0.5
#: The same where a model is trusted.
TRUSTED_MEDIAN_PART = 1.0
#: Largest deviation that is, in spreads of the measures.
LARGEST_MEDIAN = 1.0
#: Units that the median over all recordings is worth in the median of one.
MEDIAN_UNITS = 30.0
#: Units that the mean over all units is worth in the mean of one.
CENTRE_UNITS = 20.0
#: Least spread of a measure, as a part of its standard deviation.
LEAST_SPREAD = 0.05
#: Largest log-odds of P(mispronounced) as a measure.
LARGEST_ODDS = 12.0
#: A replaced unit is written as one of the units that this fraction is likeliest to be heard as.
CONFUSABLE = 0.25
#: Weight of the squared weight in the likelihood.
RIDGE = 1.0
#: Units that the prior of r is worth.
RATE_UNITS = 10.0
#: Tokens that the rate of all units is worth in that of one.
HEARD_UNITS = 20.0
#: Least and largest rate of mispronounced units that a trusted model is taken to find.
RATE_LIMITS = 1e-3, 0.9
#: Rates r that are tried.
RATES = np.exp(np.linspace(math.log(0.003), math.log(0.6), 30))


@dataclass(frozen=True)
class Evidence:
    """How measures of a unit become a log-likelihood ratio."""

    centres: tuple[tuple[float, ...], ...]  # by measure and canonical unit (M, N) what is usual
    spreads: tuple[float, ...]  # of the M measures, one standard deviation where lower than usual
    weights: tuple[float, ...]  # of the M measures in the mean deviation; they sum to 1
    median: float  # of all units' mean deviations
    weight: float  # of the mean deviation
    bias: float  # log-likelihood ratio where nothing deviates
    rate: float  # r, fraction of units that seem to be wrong already
    #: How much of a recording's median deviation is taken away, up to :data:`LARGEST_MEDIAN`.
    median_part: float = MEDIAN_PART

    @classmethod
    def from_dict(cls, content: dict) -> Evidence:
        """From what ``asdict`` gives, and JSON keeps."""
        centres = tuple(tuple(row) for row in content["centres"])
        spreads, weights = tuple(content["spreads"]), tuple(content["weights"])
        return cls(**{**content, "centres": centres, "spreads": spreads, "weights": weights})

    def log_ratio(self, measures: np.ndarray, sequences: UnitSequences) -> np.ndarray:
        """Log-likelihood ratios of n units.

        Args:
            measures: float64 (n, M), NaN for what says nothing of a unit.
            sequences: the units, and which of them are of one recording.

        Returns:
            float64 (n,), log p(measures | mispronounced) - log p(measures | right).
        """
        mean = self._usual().mean_deviation(measures, sequences.unit)
        return self.bias + self.weight * _centred(
            mean, sequences.utterance, self.median, self.median_part
        )

    def _usual(self) -> _Usual:
        return _Usual(np.array(self.centres), np.array(self.spreads), np.array(self.weights))


def fit_evidence(
    measures: np.ndarray,
    sequences: UnitSequences,
    corrupted_measures: np.ndarray,
    corrupted: UnitSequences,
    replaced: np.ndarray,
    num_units: int,
    expected_rate: float,
    median_part: float = MEDIAN_PART,
) -> Evidence:
    """Learn what is usual from held-out units, and what a deviation means from replaced ones.

    Args:
        measures: float64 (n, M), of the utterances under their own text.
        sequences: of these n units.
        corrupted_measures: float64 (m, M), under a text in which units are replaced.
        corrupted: of these m units; ``unit`` is the one that is written.
        replaced: bool (m,), which units are replaced.
        num_units: N, different units.
        expected_rate: prior mean of r.
        median_part: see :class:`Evidence`.

    Raises:
        ValueError: no unit was replaced, or all were.
    """
    if not replaced.any() or replaced.all():
        raise ValueError("no unit of the held-out part can be replaced: nothing to learn from")
    weights = np.full(measures.shape[1], 1 / measures.shape[1])
    usual = _Usual.of(measures, sequences.unit, num_units, weights)
    median = float(np.median(usual.mean_deviation(measures, sequences.unit)))
    z = usual.mean_deviation(corrupted_measures, corrupted.unit)
    z = _centred(z, corrupted.utterance, median, median_part)
    bias, weight, rate = fit_ratio(z, replaced, expected_rate)
    return Evidence(*usual.as_tuples(), median, weight, bias, rate, median_part)


def fit_to_answers(
    measures: np.ndarray,
    sequences: UnitSequences,
    relative_rates: np.ndarray,
    weights: np.ndarray | None = None,
    rate: float | None = None,
) -> tuple[Evidence, np.ndarray]:
    """Learn what is usual from held-out units, and what a deviation means from a model's answers.

    Args:
        measures: float64 (n, 1 + 2 K), of the utterances under their own text: the log-odds of
            P(mispronounced) over all paths, and by acoustic model its negative GOP and log ratio.
            The last one says which units are heard as written, see :func:`heard_otherwise`.
        sequences: of these n units.
        relative_rates: float64 (N,), how much more often than all units each of the N different
            ones is wrong, above 0; see :func:`rates_of_units`.
        weights: float64 (1 + 2 K,), of the measures, of sum 1; None: :func:`trusted_weights`.
        rate: of mispronounced units, where it is known better than from these answers.

    Returns:
        The evidence, and the rate of mispronounced units, float64 (N,). Over the n units their P
        has the rate that was given, or that the model finds.
    """
    if weights is None:
        weights = trusted_weights(measures.shape[1])
    as_written = ~heard_otherwise(measures[:, -1])
    if not as_written.any():
        as_written[:] = True
    num_units = len(relative_rates)
    usual = _Usual.of(measures[as_written], sequences.unit[as_written], num_units, weights)
    mean = usual.mean_deviation(measures, sequences.unit)
    median = float(np.median(mean))
    z = _centred(mean, sequences.utterance, median, TRUSTED_MEDIAN_PART)
    wrong = expit(measures[:, 0])
    rate = float(np.clip(wrong.mean() if rate is None else rate, *RATE_LIMITS))
    rates = np.clip(rate * relative_rates, *RATE_LIMITS)
    effect = (logit(rates) - logit(rate))[sequences.unit]

    def loss(found: np.ndarray) -> tuple[float, np.ndarray]:
        odds = effect + found[0] + found[1] * z
        slope = expit(odds) - wrong
        total = (np.logaddexp(0, odds) - wrong * odds).sum() + RIDGE / 2 * found[1] ** 2
        return total, np.array([slope.sum(), slope @ z + RIDGE * found[1]])

    bias, weight = minimize(loss, np.array([-1.0, 1.0]), jac=True, method="L-BFGS-B").x.tolist()
    odds = effect + bias + weight * z

    def excess(shift: float) -> float:
        return float(expit(odds + shift).mean()) - rate

    # Between these all units have at most this rate, and at least.
    shifts = logit(rate) - odds
    bias += brentq(excess, shifts.min() - 1, shifts.max() + 1) - float(logit(rate))
    usual_values = usual.as_tuples()
    return Evidence(*usual_values, median, weight, bias, rate, TRUSTED_MEDIAN_PART), rates


def heard_otherwise(ratio: np.ndarray) -> np.ndarray:
    """Bool (n,): whether an acoustic model hears another unit than the one that is written.

    Args:
        ratio: float64 (n,), its negative log ratio to the best other unit; NaN for a unit without
            frames, which is heard as another.

    Example:
        >>> heard_otherwise(np.array([-2.0, 1.0, np.nan])).tolist()
        [False, True, True]
    """
    return ~(ratio <= 0)


def rates_of_units(heard: np.ndarray, units: np.ndarray, num_units: int) -> np.ndarray:
    """How much more often than all units each is heard as another.

    What P over all paths says of it is no such rate: the acceptor knows one rate for all.

    Args:
        heard: bool (n,), of n tokens; see :func:`heard_otherwise`.
        units: int64 (n,), the unit that is written, from 0 to N - 1.
        num_units: N.

    Returns:
        float64 (N,), above 0; 1 is as often as all. That of few tokens is drawn towards 1.

    Example:
        >>> heard = np.array([True] * 180 + [False] * 820)
        >>> rates_of_units(heard, np.array([0] * 480 + [1] * 520), 3).round(2).tolist()
        [2.03, 0.04, 1.0]
    """
    # One more of each kind: a rate of all that is neither 0 nor 1.
    rate = (heard.sum() + 1) / (len(heard) + 2)
    wrong = np.bincount(units, heard, num_units) + HEARD_UNITS * rate
    return wrong / (np.bincount(units, minlength=num_units) + HEARD_UNITS) / rate


def trusted_weights(num_measures: int) -> np.ndarray:
    """Weights of a trusted model's measures, float64 (1 + 2 K,), of sum 1.

    Half is the acceptor's, and half that of the K log ratios; mean log posteriors have none.

    Example:
        >>> trusted_weights(5).tolist()
        [0.5, 0.0, 0.25, 0.0, 0.25]
    """
    weights = np.zeros(num_measures)
    weights[2::2] = 0.5 / max(len(weights[2::2]), 1)
    weights[0] = 1 - weights.sum()
    return weights


def fit_ratio(
    deviation: np.ndarray, replaced: np.ndarray, expected_rate: float
) -> tuple[float, float, float]:
    """Fit a log-likelihood ratio that is linear in a deviation; see the head of this module.

    Args:
        deviation: float64 (m,), z.
        replaced: bool (m,), some and not all.
        expected_rate: prior mean of r, the fraction of the others that is wrong, too.

    Returns:
        Bias, weight and r.
    """
    odds = math.log(replaced.mean() / (1 - replaced.mean()))
    best, start = (math.inf, 0.0, 0.0, 0.0), np.array([-1.0, 1.0])
    for rate in RATES:
        log_rate, log_right = math.log(rate), math.log1p(-rate)

        def loss(
            found: np.ndarray, log_rate: float = log_rate, log_right: float = log_right
        ) -> tuple[float, np.ndarray]:
            ratio = np.clip(found[0] + found[1] * deviation, -50, 50)
            others = np.logaddexp(log_right, log_rate + ratio)
            logit = odds + ratio - others
            total = np.logaddexp(0, np.where(replaced, -logit, logit)).sum()
            slope = (1 / (1 + np.exp(-logit)) - replaced) * (1 - np.exp(log_rate + ratio - others))
            gradient = np.array([slope.sum(), slope @ deviation + RIDGE * found[1]])
            return total + RIDGE / 2 * found[1] ** 2, gradient

        fitted = minimize(loss, start, jac=True, method="L-BFGS-B")
        start = fitted.x
        prior = expected_rate * log_rate + (1 - expected_rate) * log_right
        best = min(best, (fitted.fun - RATE_UNITS * prior, *map(float, (*fitted.x, rate))))
    return best[1:]


@dataclass(frozen=True)
class _Usual:
    """What is usual of M measures."""

    centres: np.ndarray  # float64 (M, N), by unit
    spreads: np.ndarray  # float64 (M,)
    weights: np.ndarray  # float64 (M,), in the mean deviation

    @classmethod
    def of(
        cls, measures: np.ndarray, units: np.ndarray, num_units: int, weights: np.ndarray
    ) -> _Usual:
        """Mean of each measure by unit, drawn towards that of all units, and its spread.

        The spread is median less 16 % quantile, one standard deviation of a normal one, and at
        least a part (:data:`LEAST_SPREAD`) of the standard deviation.
        """
        known = ~np.isnan(measures)
        values = np.where(known, measures, 0.0)
        overall = values.sum(0) / np.maximum(known.sum(0), 1)
        rows = [
            (np.bincount(units, column, num_units) + CENTRE_UNITS * mean)
            / (np.bincount(units, there, num_units) + CENTRE_UNITS)
            for column, there, mean in zip(values.T, known.T, overall)
        ]
        centres = np.array(rows)
        deviations = measures - centres.T[units]
        low, middle = np.nanquantile(deviations, (0.16, 0.5), axis=0)
        spreads = np.maximum(middle - low, LEAST_SPREAD * np.nanstd(deviations, axis=0))
        return cls(centres, np.where(spreads > 0, spreads, 1.0), weights)

    def mean_deviation(self, measures: np.ndarray, units: np.ndarray) -> np.ndarray:
        """Mean over measures of how far each is from the usual, (n,); 0 for what says nothing."""
        deviations = np.nan_to_num((measures - self.centres.T[units]) / self.spreads)
        return (deviations * self.weights).sum(1)  # each row by itself, to the bit

    def as_tuples(self) -> tuple[tuple, ...]:
        """Centres, spreads and weights as they are kept."""
        return tuple(map(tuple, self.centres.tolist())), *(
            tuple(values.tolist()) for values in (self.spreads, self.weights)
        )


def _centred(
    deviation: np.ndarray, utterances: np.ndarray, median: float, part: float
) -> np.ndarray:
    """Deviations less what of their utterance's median is put down to the recording."""
    order = np.argsort(utterances, kind="stable")
    bounds = np.flatnonzero(np.diff(utterances[order], prepend=-1, append=-1))
    centred = deviation.copy()
    for begin, end in zip(bounds[:-1], bounds[1:]):
        own = order[begin:end]
        trust = len(own) / (len(own) + MEDIAN_UNITS)
        off = part * trust * (np.median(deviation[own]) - median)
        centred[own] -= np.clip(off, -LARGEST_MEDIAN, LARGEST_MEDIAN)
    return centred


def replace_units(
    units: Mapping[str, Sequence[int]],
    log_confusion: np.ndarray,
    rate: float,
    seed: int,
    confusable: float = CONFUSABLE,
) -> tuple[dict[str, list[int]], dict[str, list[bool]]]:
    """Replace some canonical units by units that the spoken one may be taken for.

    A speaker says d for a written dh: what is written is a unit that is often heard as the one that
    is spoken. Units evenly drawn would be too easy to tell, and make every deviation look small.

    Args:
        units: canonical units by cut id.
        log_confusion: float (N, N), log p(heard | canonical, not heard as canonical).
        rate: probability that a unit is replaced, where another may be heard as it.
        seed: of the draw; the result depends on it, the ids, the units and the table alone.
        confusable: fraction of the other units, the likeliest, that a unit may be heard as.

    Returns:
        The corrupted sequences, and by cut which units were replaced.
    """
    count = max(1, round(confusable * (len(log_confusion) - 1)))
    perceived = np.argsort(-log_confusion, axis=1, kind="stable")[:, :count]
    written: list[list[int]] = [[] for _ in log_confusion]
    for unit, likeliest in enumerate(perceived):
        for other in likeliest:
            if other != unit:
                written[other].append(unit)
    corrupted, replaced = {}, {}
    for name, sequence in units.items():
        draw = random.Random(f"{seed} {name}")
        marks = [draw.random() < rate and bool(written[unit]) for unit in sequence]
        corrupted[name] = [
            draw.choice(written[unit]) if mark else unit for unit, mark in zip(sequence, marks)
        ]
        replaced[name] = marks
    return corrupted, replaced
