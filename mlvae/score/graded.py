"""Scoring against experts' scores: how P(mispronounced) ranks phones, words and utterances.

The reference has no times and nothing that was perceived, only the mean score of the experts for
each unit, 2 (right) to 0 (wrong or missing). A unit is taken for wrong below each of
`THRESHOLDS`. Units that were not scored do not count; those of an utterance without a hypothesis
count with the lowest P there is, 0, and are not flagged.

All intervals are percentile intervals of a bootstrap over speakers, with the same resamples for all
systems. They do not cover another training run or another corpus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from lhotse import MonoCut, SupervisionSegment

from mlvae.audit import log_ratios
from mlvae.data.manifests import load_supervisions, manifest_lines
from mlvae.score.calibration import equal_mass_bins
from mlvae.score.hypotheses import tier_hypothesis
from mlvae.score.intervals import LEVEL, Difference
from mlvae.score.ranking import RANKING_METRICS, ranking_metrics
from mlvae.score.reference import Reference, firsts
from mlvae.tiers import WORD_TIER, has_tier, tier

THRESHOLDS = (0.5, 1.0, 1.5)
LEVELS = ("unit", "word", "utterance")


@dataclass(frozen=True)
class GradedReference:
    """A test set of U utterances, W words and N units, with scores."""

    units: Reference  # the utterances with their units; times and perceived units mean nothing
    scores: np.ndarray  # (N,) float64, 0..2; NaN where a unit was not scored
    word: np.ndarray  # (N,) int64 in 0..W-1, the word of each unit
    word_scores: np.ndarray  # (W,) float64; NaN where there is none
    utterance_scores: np.ndarray  # (U,) float64; NaN where there is none
    # whether experts scored words and utterances; otherwise their scores are the means of their
    # units'
    words_are_scored: bool
    # (U,) int64 in 0..W-1: the word that is another one in the text than was said; None where the
    # texts are as they were read
    changed: np.ndarray | None = None

    @property
    def scored(self) -> np.ndarray:
        """(N,) bool: the unit has a score."""
        return ~np.isnan(self.scores)

    @property
    def clusters(self) -> np.ndarray:
        """(U,) int64 in 0..C-1: the speaker of each utterance."""
        return np.unique(self.units.speakers, return_inverse=True)[1].reshape(-1)

    @property
    def utterance_of_word(self) -> np.ndarray:
        """(W,) int64: the utterance of each word."""
        found = np.empty(len(self.word_scores), dtype=np.int64)
        found[self.word] = self.units.utterance
        return found

    def base_rate(self, threshold: float) -> float:
        """Fraction of the scored units below a threshold."""
        return float(np.mean(self.scores[self.scored] < threshold))


def is_graded(path: Path) -> bool:
    """Whether a reference file holds scores; its first line tells."""
    for _, content in manifest_lines(path):
        return "scores" in (content.get("custom") or {})
    return False


def read_graded(path: Path) -> tuple[GradedReference, GradedReference | None]:
    """The test utterances as they were read, and those with a changed word.

    The latter have no scores; None where there are none.

    Raises:
        ValueError: the file is damaged, no test utterance has a score, or the fields of an
            utterance do not agree with each other; names the line or the utterance.
    """
    chosen = [item for item in load_supervisions(path) if item.custom["split"] == "test"]
    changed = [item for item in chosen if "changed_word" in item.custom]
    read = [item for item in chosen if "changed_word" not in item.custom]
    reference = graded_of(read) if read else None
    if reference is None or not reference.scored.any():
        raise ValueError(f"{path}: no unit of the split 'test' has a score")
    return reference, graded_of(changed) if changed else None


def graded_of(items: Sequence[SupervisionSegment]) -> GradedReference:
    """The same from supervisions; all or none of them have a changed word."""
    for item in items:
        _check(item)
    customs = [item.custom for item in items]
    sizes = [len(custom["units"]) for custom in customs]
    canonical = [unit for custom in customs for unit in custom["units"]]
    nowhere = np.zeros(len(canonical))
    units = Reference(
        utterances=[item.id for item in items],
        speakers=[item.speaker for item in items],
        first=firsts(sizes),
        canonical=canonical,
        perceived=canonical,
        starts=nowhere,
        ends=nowhere,
        sources=[item.id for item, size in zip(items, sizes) for _ in range(size)],
    )
    first_words = np.cumsum([0, *[len(custom["words"]) for custom in customs[:-1]]])
    words = [np.array(c["word_of_unit"]) + first for c, first in zip(customs, first_words)]
    word = np.concatenate(words).astype(np.int64)
    scores = np.array([s for custom in customs for s in custom["scores"]], dtype=np.float64)
    word_scores = np.array([w["score"] for c in customs for w in c["words"]], dtype=np.float64)
    utterance_scores = np.array([custom["score"] for custom in customs], dtype=np.float64)
    words_are_scored = not np.isnan(word_scores).all()
    if not words_are_scored:
        word_scores = _means(scores, word, len(word_scores))
        utterance_scores = _means(scores, units.utterance, len(items))
    changed = None
    if "changed_word" in customs[0]:
        changed = np.array([c["changed_word"] for c in customs]) + first_words
    return GradedReference(
        units, scores, word, word_scores, utterance_scores, words_are_scored, changed
    )


def _check(item: SupervisionSegment) -> None:
    custom = item.custom
    lacking = [n for n in ("units", "scores", "word_of_unit", "words", "score") if n not in custom]
    if lacking:
        raise ValueError(f"reference of {item.id} lacks {', '.join(lacking)}")
    lengths = {name: len(custom[name]) for name in ("units", "scores", "word_of_unit")}
    if len(set(lengths.values())) > 1 or not custom["units"]:
        raise ValueError(f"reference of {item.id}: numbers of fields differ: {lengths}")
    if sorted(set(custom["word_of_unit"])) != list(range(len(custom["words"]))):
        raise ValueError(f"reference of {item.id}: units are not of {len(custom['words'])} words")
    if not 0 <= custom.get("changed_word", 0) < len(custom["words"]):
        raise ValueError(f"reference of {item.id}: no word {custom['changed_word']} was changed")
    if not item.speaker:
        raise ValueError(f"reference of {item.id} names no speaker")


def _means(values: np.ndarray, groups: np.ndarray, count: int) -> np.ndarray:
    """(count,) mean of the values of each group that are known; NaN where none is."""
    known = ~np.isnan(values)
    sums = np.bincount(groups[known], weights=values[known], minlength=count)
    sizes = np.bincount(groups[known], minlength=count)
    return np.where(sizes > 0, sums / np.maximum(sizes, 1), np.nan)


# ---- Hypotheses -------------------------------------------------------------------------------


@dataclass(frozen=True)
class GradedHypothesis:
    """P(mispronounced) of a system for the units, words and utterances of a reference."""

    name: str
    probabilities: np.ndarray  # (N,) float64, 0..1; 0 for the units of missing utterances
    word_probabilities: np.ndarray  # (W,) float64, 0..1
    utterance_probabilities: np.ndarray  # (U,) float64, 0..1, the mean of the units'
    # (N,) bool, what the system calls mispronounced; None where it calls nothing so
    flags: np.ndarray | None = None
    missing: tuple[str, ...] = ()  # ids of utterances without a hypothesis
    # number of trained parameters, or None where the row has no model
    num_params: int | None = None
    training_seconds: float | None = None


def hypothesis_of(
    reference: GradedReference, name: str, probabilities: np.ndarray, **others: Any
) -> GradedHypothesis:
    """A hypothesis of (N,) P by unit; P of words and utterances are means of the units'."""
    words = _means(probabilities, reference.word, len(reference.word_scores))
    utterances = _means(probabilities, reference.units.utterance, len(reference.units.utterances))
    return GradedHypothesis(name, probabilities, words, utterances, **others)


def trivial_hypotheses(reference: GradedReference, seed: int = 0) -> list[GradedHypothesis]:
    """P drawn at random, and every unit flagged."""
    size = len(reference.scores)
    drawn = np.random.default_rng(seed).random(size)
    every = hypothesis_of(reference, "flag-all", np.ones(size), flags=np.ones(size, dtype=bool))
    return [hypothesis_of(reference, "random", drawn), every]


def read_graded_hypothesis(
    name: str,
    reference: GradedReference,
    cuts: Sequence[MonoCut],
    spans: str,
    perceived: str | None,
) -> GradedHypothesis | None:
    """Read a system's P and flags from tiers of cuts.

    P of a word is that of the tier ``mlvae_word``; without this tier the mean of its units.
    Arguments and errors are those of `mlvae.score.hypotheses.tier_hypothesis`. None where the
    system has answers, but gives no P.
    """
    found = tier_hypothesis(name, reference.units, cuts, spans, perceived or spans)
    if found.probabilities is not None:
        probabilities = np.nan_to_num(found.probabilities)  # of missing utterances: the lowest
    elif len(found.missing) == len(reference.units.utterances):
        probabilities = np.zeros(len(reference.scores))
    else:
        return None
    hypothesis = hypothesis_of(
        reference,
        name,
        probabilities,
        flags=None if perceived is None else found.flags,
        missing=found.missing,
    )
    words = hypothesis.word_probabilities.copy()
    for cut in cuts:
        if has_tier(cut, WORD_TIER):
            units = reference.units.units_of[cut.id]
            own = np.unique(reference.word[units])
            items = tier(cut, WORD_TIER)
            if len(items) != len(own):
                raise ValueError(
                    f"{name}: utterance {cut.id} has {len(items)} words in tier {WORD_TIER}, the "
                    f"reference {len(own)}"
                )
            words[own] = np.clip([item.score for item in items], 0.0, 1.0)
    return replace(hypothesis, word_probabilities=words)


# ---- Metrics ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class GradedEvaluation:
    """Some systems scored on one set."""

    reference: GradedReference
    hypotheses: tuple[GradedHypothesis, ...]
    # by name and by key (a threshold and a metric, or ``"correlation"`` and a level) a metric on
    # the whole set, and then on each resample, (1 + R,) float64; NaN where it is not defined
    samples: dict[str, dict[Any, np.ndarray]]
    num_speakers: int  # number of speakers, C
    num_resamples: int  # number of resamples, R
    compared: tuple[tuple[str, str], ...] = ()  # pairs of names whose average precision is compared
    # by name of a system without hypotheses the reason
    unavailable: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)  # by name of a system what it is

    def estimate(self, name: str, key: Any) -> Difference | None:
        """A metric with its interval; None where it is not defined."""
        return self._with_interval(self.samples[name].get(key))

    def difference(self, first: str, second: str, threshold: float) -> Difference | None:
        """Average precision of a first system minus that of a second one, on the same resamples."""
        key = (threshold, "average_precision")
        return self._with_interval(self.samples[first][key] - self.samples[second][key])

    def _with_interval(self, values: np.ndarray | None) -> Difference | None:
        return None if values is None else with_interval(values, self.num_speakers)


def speaker_weights(reference: GradedReference, num_resamples: int, seed: int) -> np.ndarray:
    """(1 + R, C) float64: ones, and how often each speaker is drawn in each of R resamples."""
    count = int(reference.clusters.max()) + 1
    draw = np.random.default_rng(seed)
    drawn = draw.multinomial(count, np.full(count, 1 / count), size=num_resamples)
    return np.vstack([np.ones(count), drawn])


def with_interval(values: np.ndarray, num_speakers: int) -> Difference | None:
    """A metric from (1 + R,) values on the whole set and on resamples; None where it is NaN."""
    if np.isnan(values[0]):
        return None
    known = values[1:][~np.isnan(values[1:])]
    if num_speakers < 2 or not len(known):
        return Difference(float(values[0]), None, None)
    outside = (1 - LEVEL) / 2
    low, high = np.quantile(known, [outside, 1 - outside])
    return Difference(float(values[0]), float(low), float(high))


@dataclass(frozen=True)
class ChangedOnTop:
    """In what fraction of the utterances with a changed word it is above each other word."""

    by_p: Difference  # by P of the words, see `GradedHypothesis`
    # by the evidence of `mlvae.audit` that another word was said: the sum of its units' log
    # likelihood ratios, to the mean P of all units of these utterances
    by_evidence: Difference


def changed_on_top(
    reference: GradedReference,
    hypotheses: Sequence[GradedHypothesis],
    num_resamples: int = 1000,
    seed: int = 0,
) -> dict[str, ChangedOnTop]:
    """By name how often the changed word of an utterance is above each other word.

    A tie counts as wrong, and so does an utterance without a hypothesis. Intervals are over
    speakers.
    """
    weights = speaker_weights(reference, num_resamples, seed)
    count = weights.shape[1]
    found = {}
    for hypothesis in hypotheses:
        missing = set(hypothesis.missing)
        answered = np.array([name not in missing for name in reference.units.utterances])
        p = hypothesis.probabilities
        usual = p[answered[reference.units.utterance]].mean() if answered.any() else 0.0
        ratios = np.bincount(
            reference.word, log_ratios(p, usual), minlength=len(reference.word_scores)
        )
        fractions = []
        for values in (hypothesis.word_probabilities, ratios):
            hits = answered & _changed_is_highest(reference, values)
            on_top, total = (weights @ _sums(reference.clusters, count, hits, 1)).T
            fractions.append(with_interval(on_top / total, count))
        found[hypothesis.name] = ChangedOnTop(*fractions)
    return found


def _changed_is_highest(reference: GradedReference, values: np.ndarray) -> np.ndarray:
    """(U,) bool: the changed word has more of these (W,) values than each other word."""
    others = values.copy()
    others[reference.changed] = -np.inf
    highest = np.full(len(reference.changed), -np.inf)
    np.maximum.at(highest, reference.utterance_of_word, others)
    return values[reference.changed] > highest


def evaluate_graded(
    reference: GradedReference,
    hypotheses: Sequence[GradedHypothesis],
    compared: Iterable[tuple[str, str]] = (),
    num_resamples: int = 1000,
    seed: int = 0,
    **texts: Mapping[str, str],
) -> GradedEvaluation:
    """Score systems on the same units; arguments as of `mlvae.score.hypotheses.evaluate`."""
    weights = speaker_weights(reference, num_resamples, seed)
    num_speakers = weights.shape[1]
    names = {hypothesis.name for hypothesis in hypotheses}
    return GradedEvaluation(
        reference,
        tuple(hypotheses),
        {h.name: metrics_of(reference, h, weights) for h in hypotheses},
        num_speakers,
        num_resamples,
        tuple(pair for pair in compared if names.issuperset(pair)),
        **texts,
    )


def metrics_of(
    reference: GradedReference, hypothesis: GradedHypothesis, weights: np.ndarray
) -> dict[Any, np.ndarray]:
    """All metrics of a system under weights (R, C) float64 of the speakers.

    Returns:
        By threshold and metric, and by ``"correlation"`` and level, (R,) float64; NaN where a
        metric is not defined.
    """
    scored = reference.scored
    clusters = reference.clusters[reference.units.utterance[scored]]
    probability, scores = hypothesis.probabilities[scored], reference.scores[scored]
    positives = [scores < threshold for threshold in THRESHOLDS]
    found: dict[Any, np.ndarray] = {}
    ranked = ranking_metrics(probability, positives, clusters, weights)
    for index, metric in enumerate(RANKING_METRICS):
        for threshold, values in zip(THRESHOLDS, ranked[index]):
            found[threshold, metric] = values
    for threshold, positive in zip(THRESHOLDS, positives):
        found.update(
            {
                (threshold, metric): values
                for metric, values in _calibration(probability, positive, clusters, weights).items()
            }
        )
        if hypothesis.flags is not None:
            flags = hypothesis.flags[scored]
            sums = weights @ _sums(clusters, weights.shape[1], positive & flags, flags, positive, 1)
            hits, flagged, wrong, total = sums.T
            with np.errstate(invalid="ignore"):
                f1 = np.where(wrong > 0, 2 * hits / (flagged + wrong), np.nan)
            found[threshold, "hard_f1"] = f1
            found[threshold, "hard_flagged"] = flagged / total
    for level, (values, truth, utterance) in {
        "unit": (hypothesis.probabilities, reference.scores, reference.units.utterance),
        "word": (
            hypothesis.word_probabilities,
            reference.word_scores,
            reference.utterance_of_word,
        ),
        "utterance": (
            hypothesis.utterance_probabilities,
            reference.utterance_scores,
            np.arange(len(reference.utterance_scores)),
        ),
    }.items():
        known = ~np.isnan(truth)
        found["correlation", level] = _correlation(
            -values[known], truth[known], reference.clusters[utterance[known]], weights
        )
    return found


def _sums(clusters: np.ndarray, num_clusters: int, *values: np.ndarray | float) -> np.ndarray:
    """(C, K) sum of each of K values (N,) over each cluster."""
    columns = [
        np.bincount(
            clusters,
            weights=np.broadcast_to(np.asarray(value, dtype=np.float64), clusters.shape),
            minlength=num_clusters,
        )
        for value in values
    ]
    return np.stack(columns, axis=1)


def _calibration(
    probability: np.ndarray, positive: np.ndarray, clusters: np.ndarray, weights: np.ndarray
) -> dict[str, np.ndarray]:
    """As `mlvae.score.calibration` has it; resamples keep the bins of the whole set."""
    num_clusters = weights.shape[1]
    errors = (probability - positive) ** 2
    squares, wrong, total = (weights @ _sums(clusters, num_clusters, errors, positive, 1)).T
    rate, brier = wrong / total, squares / total
    bins = equal_mass_bins(probability)
    off = np.zeros((num_clusters, bins.max() + 1))
    np.add.at(off, (clusters, bins), probability - positive)
    with np.errstate(divide="ignore", invalid="ignore"):
        skill = 1 - brier / (rate * (1 - rate))
    return {
        "brier_score": brier,
        "brier_skill": np.where((rate > 0) & (rate < 1), skill, np.nan),
        "expected_calibration_error": np.abs(weights @ off).sum(axis=1) / total,
    }


def _correlation(
    first: np.ndarray, second: np.ndarray, clusters: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """(R,) Pearson's correlation of two arrays (M,); NaN where one of them does not vary."""
    if not len(first):
        return np.full(len(weights), np.nan)
    x, y = first - first.mean(), second - second.mean()  # for small rounding errors
    sums = weights @ _sums(clusters, weights.shape[1], x, y, x * x, y * y, x * y, 1)
    total = sums[:, -1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_x, mean_y, xx, yy, xy = (sums[:, :-1] / total).T
        spread = (xx - mean_x**2) * (yy - mean_y**2)
        found = (xy - mean_x * mean_y) / np.sqrt(spread)
    return np.where(spread > 1e-24, found, np.nan)
