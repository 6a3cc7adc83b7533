"""What simulated learners get wrong: confusions as counted in L2-ARCTIC, dealt out to speakers.

``confusions.tsv`` holds counts of canonical and perceived phones over 2,697 annotated
utterances of L2-ARCTIC (folded phones: AO counts as AA, ZH as SH; ``-`` is a deletion, canonical
``+`` an insertion, ``err`` an unclear sound). They do not tell speakers apart, so speakers are
invented: each has a handful of confusions that happen often (its habits), some of them shared with
the speakers of the same first language, and makes the others rarely. Averaged over the speakers,
each confusion has its counted rate. Which speaker has which habit is drawn; it says nothing about
real speakers or languages.
"""

from __future__ import annotations

import csv
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlvae.corpora.simulate.phones import ERR_CONSONANTS, ERR_VOWELS, VOWELS, base, is_vowel

REAL_UTTERANCES = 3599
"""Annotated utterances of the real corpus."""

REAL_COUNTS = {"s": 14098, "d": 3420, "a": 1092}
"""Annotated substitutions, deletions and insertions in the real corpus."""

SHARED_HABITS, OWN_HABITS = 3, 4
HABIT_WEIGHT = 12.0
"""How much more often than others a speaker with a habit makes that error."""
MIN_HABIT_COUNT = 40  # rarer confusions are nobody's habit
MAX_RATE = 0.85  # of one confusion, for one speaker and phone
MAX_ERRORS = 0.95  # of all confusions of a phone together

Pair = tuple[str, str]

_FOLD = {"AO": "AA", "ZH": "SH"}
_VOICED_SIBILANTS = frozenset(["JH", "Z", "ZH"])


@dataclass(frozen=True)
class Segment:
    """One phone of an utterance, as it should be and as it is spoken."""

    word: int  # index of its word
    canonical: str | None  # ARPAbet with stress; None: an insertion
    # what an annotator writes, ARPAbet with stress, or ``err``; None: a deletion
    perceived: str | None
    # what the voice is given (see `mlvae.corpora.simulate.phones`); None: a deletion
    spoken: str | None

    @property
    def kind(self) -> str:
        """``c`` (correct), ``s``, ``d`` or ``a``."""
        if self.canonical is None:
            return "a"
        if self.perceived is None:
            return "d"
        return "c" if self.canonical == self.perceived else "s"


def fold(phone: str) -> str:
    """The phone of the confusion table: no stress, AO as AA, ZH as SH."""
    symbol = base(phone)
    return _FOLD.get(symbol, symbol)


def read_confusions() -> dict[Pair, int]:
    """The embedded counts by (canonical, perceived)."""
    path = Path(__file__).with_name("confusions.tsv")
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return {(row["canonical"], row["perceived"]): int(row["count"]) for row in rows}


def mean_rates(counts: Mapping[Pair, int], phones: Sequence[Sequence[str]]) -> dict[Pair, float]:
    """Rates that give the real numbers of errors per utterance on sentences of canonical phones.

    Returns:
        By (canonical, perceived): probability that the phone is spoken so; for ``+``: expected
        number of such insertions in an utterance.
    """
    totals: Counter[str] = Counter()
    for (canonical, _), count in counts.items():
        totals[canonical] += count
    present = Counter(fold(phone) for sentence in phones for phone in sentence)
    rates = {
        pair: count / totals[pair[0]] for pair, count in counts.items() if error_kind(pair) != "c"
    }
    expected: Counter[str] = Counter()
    for pair, rate in rates.items():
        expected[error_kind(pair)] += rate * present[pair[0]] / len(phones)
    expected["a"] = 1.0  # the counts of insertions are fractions already
    scale = {kind: n / REAL_UTTERANCES / expected[kind] for kind, n in REAL_COUNTS.items()}
    return {pair: rate * scale[error_kind(pair)] for pair, rate in rates.items()}


def error_kind(pair: Pair) -> str:
    """``c``, ``s``, ``d`` or ``a`` of a pair of the table."""
    canonical, perceived = pair
    if canonical == "+":
        return "a"
    if perceived == "-":
        return "d"
    return "c" if canonical == perceived else "s"


def draw_habits(
    counts: Mapping[Pair, int], languages: Mapping[str, str], seed: int
) -> dict[str, list[Pair]]:
    """Habits of speakers, whose first languages are given; frequent confusions are likelier.

    Returns:
        By speaker: `SHARED_HABITS` of its language, then `OWN_HABITS` of its own.
    """
    candidates = {
        pair: count
        for pair, count in counts.items()
        if error_kind(pair) in "sd" and count >= MIN_HABIT_COUNT
    }
    rng = random.Random(f"{seed}/habits")

    def draw(number: int, without: list[Pair]) -> list[Pair]:
        left = {pair: count for pair, count in candidates.items() if pair not in without}
        drawn: list[Pair] = []
        for _ in range(number):
            drawn += rng.choices(list(left), weights=[n**0.5 for n in left.values()])
            del left[drawn[-1]]
        return drawn

    shared = {language: draw(SHARED_HABITS, []) for language in sorted(set(languages.values()))}
    return {
        speaker: shared[language] + draw(OWN_HABITS, shared[language])
        for speaker, language in languages.items()
    }


def speaker_rates(
    rates: Mapping[Pair, float], habits: Mapping[str, list[Pair]]
) -> dict[str, dict[Pair, float]]:
    """Deal the mean rates out to the speakers, each pair's mean over the speakers unchanged.

    Only where one speaker's errors of a phone would together go beyond `MAX_ERRORS` are they
    scaled down to it.
    """
    dealt: dict[str, dict[Pair, float]] = {speaker: {} for speaker in habits}
    for pair, rate in rates.items():
        weights = [HABIT_WEIGHT if pair in own else 1.0 for own in habits.values()]
        for speaker, own_rate in zip(habits, _with_mean(rate, weights)):
            dealt[speaker][pair] = own_rate
    for own in dealt.values():
        totals: Counter[str] = Counter()
        for (canonical, _), rate in own.items():
            totals[canonical] += rate
        for pair in own:
            if pair[0] != "+" and totals[pair[0]] > MAX_ERRORS:
                own[pair] *= MAX_ERRORS / totals[pair[0]]
    return dealt


def _with_mean(mean: float, weights: list[float]) -> list[float]:
    """Rates in proportion to the weights, but at most `MAX_RATE`, of the given mean."""
    low, high = 0.0, MAX_RATE  # of a weight of 1
    for _ in range(60):
        middle = (low + high) / 2
        if sum(min(MAX_RATE, middle * w) for w in weights) < mean * len(weights):
            low = middle
        else:
            high = middle
    return [min(MAX_RATE, high * weight) for weight in weights]


def mispronounce(
    words: Sequence[Sequence[str]], rates: Mapping[Pair, float], rng: random.Random
) -> list[Segment]:
    """One speaker's rendering of a sentence, given the canonical phones of each word.

    Returns:
        The segments in order; those of one word stand together.

    Raises:
        ValueError: if nothing of the sentence would be spoken.
    """
    outcomes: dict[str, list[tuple[str, float]]] = {}
    for (canonical, perceived), rate in rates.items():
        outcomes.setdefault(canonical, []).append((perceived, rate))
    segments = []
    for index, word in enumerate(words):
        for phone in word:
            perceived = _outcome(outcomes.get(fold(phone), []), rng)
            segments.append(_segment(index, phone, perceived, rng))
    if all(segment.spoken is None for segment in segments):
        raise ValueError("every phone of the sentence is deleted")
    for phone, rate in outcomes.get("+", []):
        if rng.random() < rate:
            places = _places(segments, phone)
            if places:
                place, word_index = rng.choice(places)
                segments.insert(place, _segment(word_index, None, phone, rng))
    return segments


def _outcome(outcomes: list[tuple[str, float]], rng: random.Random) -> str | None:
    """What becomes of a phone; None: it is spoken as it should be."""
    point = rng.random()
    for perceived, rate in outcomes:
        point -= rate
        if point < 0:
            return perceived
    return None


def _segment(word: int, canonical: str | None, outcome: str | None, rng: random.Random) -> Segment:
    if outcome is None:
        return Segment(word, canonical, canonical, canonical)
    if outcome == "-":
        return Segment(word, canonical, None, None)
    if outcome == "err":
        vowel = canonical is not None and is_vowel(canonical)
        sound = rng.choice(ERR_VOWELS if vowel else ERR_CONSONANTS)
        return Segment(word, canonical, "err", f"err:{sound}")
    # Of two phones that fold to one, the likelier.
    if outcome == "AA" and canonical is not None and base(canonical) == "OW":
        outcome = "AO"
    if outcome == "SH" and canonical is not None and base(canonical) in _VOICED_SIBILANTS:
        outcome = "ZH"
    if outcome in VOWELS:
        stress = canonical[-1] if canonical is not None and canonical[-1] in "012" else "0"
        outcome += stress
    return Segment(word, canonical, outcome, outcome)


def _places(segments: list[Segment], phone: str) -> list[tuple[int, int]]:
    """Where a phone may be added: (index to insert at, word).

    A vowel breaks up a cluster or follows a final consonant; a consonant follows any phone, a
    velar stop the velar nasal where there is one. Nothing is added beside a deletion (it would
    look like a substitution) or beside its like.
    """
    places, after_nasal = [], []
    for index, left in enumerate(segments):
        right = segments[index + 1] if index + 1 < len(segments) else None
        neighbours = [left] if right is None else [left, right]
        if any(s.spoken is None or fold(s.spoken) == fold(phone) for s in neighbours):
            continue
        last = right is None or right.word != left.word
        if phone in VOWELS and (is_vowel(left.spoken) or not (last or not is_vowel(right.spoken))):
            continue
        places.append((index + 1, left.word))
        if phone in ("G", "K") and base(left.spoken) == "NG":
            after_nasal.append(places[-1])
    return after_nasal or places
