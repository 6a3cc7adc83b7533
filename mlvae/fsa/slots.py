"""Reads unit lists, or words with pronunciations, into flat arrays of slots and joins.

A *slot* is one unit of one pronunciation of one word. A *join* says that one slot may follow
another. Everything is an array over the whole batch, so that arcs can be built without loops.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass
class Slots:
    """All slots of a batch; every array is int64.

    Attributes:
        num_slots: (B,) slots an utterance.
        num_words: (B,) words an utterance.
        fewest_units: (B,) units of the shortest way through.
        utterance, word, unit: (n,) of each slot; ``word`` counts within the utterance.
        join_from, join_to: (m,) pairs of slots, the second of which may follow the first.
        first: slots that may start a word; last: slots that may end one.
    """

    num_slots: np.ndarray
    num_words: np.ndarray
    fewest_units: np.ndarray
    utterance: np.ndarray
    word: np.ndarray
    unit: np.ndarray
    join_from: np.ndarray
    join_to: np.ndarray
    first: np.ndarray
    last: np.ndarray


def read_utterances(utterances: Sequence, num_units: int) -> Slots:
    """Read and check a batch; see ``MlFsaCompiler.compile`` for the two forms.

    Raises:
        ValueError: as ``MlFsaCompiler.compile``.
    """
    if len(utterances) == 0:
        raise ValueError("no utterances to compile")
    batch = [
        _as_list(utterance, f"utterance {index}") for index, utterance in enumerate(utterances)
    ]
    for index, utterance in enumerate(batch):
        if len(utterance) == 0:
            raise ValueError(f"utterance {index} has no units")
    plain = all(isinstance(utterance[0], numbers.Integral) for utterance in batch)
    slots = _read_plain(batch) if plain else _read_words(batch)
    _check_range(slots, num_units)
    return slots


def _as_list(value, place: str) -> list:
    try:
        return list(value.tolist() if hasattr(value, "tolist") else value)
    except TypeError:
        raise ValueError(f"{place} is {value!r}, not a list") from None


def _check_range(slots: Slots, num_units: int) -> None:
    wrong = np.flatnonzero((slots.unit < 0) | (slots.unit >= num_units))
    if len(wrong):
        slot = wrong[0]
        raise ValueError(
            f"utterance {slots.utterance[slot]}: unit {slots.unit[slot]} is out of range; "
            f"units are 0 to {num_units - 1}"
        )


def _read_plain(batch: list[list[int]]) -> Slots:
    lengths = np.array([len(utterance) for utterance in batch])
    try:
        unit = np.array([unit for utterance in batch for unit in utterance])
        if unit.ndim != 1 or unit.dtype.kind not in "iu":
            raise TypeError
    except (TypeError, ValueError):
        raise ValueError(
            "units must be integers: an utterance is a list of units, or a list of words, each a "
            "list of pronunciations"
        ) from None
    utterance = np.repeat(np.arange(len(batch)), lengths)
    ends = np.cumsum(lengths)
    word = np.arange(len(unit)) - np.repeat(ends - lengths, lengths)
    every = np.arange(len(unit))
    follows = np.flatnonzero(word > 0)
    return Slots(
        num_slots=lengths,
        num_words=lengths,
        fewest_units=lengths,
        utterance=utterance,
        word=word,
        unit=unit.astype(np.int64),
        join_from=follows - 1,
        join_to=follows,
        first=every,
        last=every,
    )


def _read_words(batch: list[list]) -> Slots:
    num_slots, num_words, fewest = [], [], []
    utterance_of, word_of, unit_of = [], [], []
    join_from, join_to, first, last = [], [], [], []
    for index, words in enumerate(batch):
        begin = len(unit_of)
        shortest = 0
        previous_last: list[int] = []
        for word_index, word in enumerate(words):
            this_last = []
            pronunciations = _pronunciations(index, word_index, word)
            for pronunciation in pronunciations:
                start = len(unit_of)
                end = start + len(pronunciation)
                unit_of.extend(pronunciation)
                utterance_of.extend([index] * len(pronunciation))
                word_of.extend([word_index] * len(pronunciation))
                first.append(start)
                this_last.append(end - 1)
                join_from.extend(range(start, end - 1))
                join_to.extend(range(start + 1, end))
                join_from.extend(previous_last)
                join_to.extend([start] * len(previous_last))
            last.extend(this_last)
            previous_last = this_last
            shortest += min(len(pronunciation) for pronunciation in pronunciations)
        num_slots.append(len(unit_of) - begin)
        num_words.append(len(words))
        fewest.append(shortest)
    return Slots(
        *(
            np.array(values, dtype=np.int64)
            for values in (
                num_slots,
                num_words,
                fewest,
                utterance_of,
                word_of,
                unit_of,
                join_from,
                join_to,
                first,
                last,
            )
        )
    )


def _pronunciations(index: int, word_index: int, word) -> list[tuple[int, ...]]:
    """Check one word and return its distinct pronunciations in order."""
    place = f"utterance {index}, word {word_index}"
    if isinstance(word, numbers.Integral):
        raise ValueError(
            f"{place}: found a unit where a word is expected; do not mix units and words"
        )
    if isinstance(word, numbers.Number):
        raise ValueError(f"{place}: units must be integers, not {word}")
    word = _as_list(word, place)
    if len(word) == 0:
        raise ValueError(f"{place} has no pronunciation")
    distinct: dict[tuple[int, ...], None] = {}
    for pronunciation in word:
        if isinstance(pronunciation, numbers.Integral):
            raise ValueError(
                f"{place}: a word is a list of pronunciations, each a list of units, not a list "
                "of units"
            )
        units = tuple(_as_list(pronunciation, f"{place}: a pronunciation"))
        if len(units) == 0:
            raise ValueError(f"{place} has a pronunciation without units")
        if not all(isinstance(unit, numbers.Integral) for unit in units):
            raise ValueError(f"{place}: units must be integers, not {list(units)}")
        distinct[units] = None
    return list(distinct)
