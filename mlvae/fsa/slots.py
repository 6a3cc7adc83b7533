"""Reads unit lists, or words with pronunciations, into flat arrays of slots and junctions.

A *slot* is one unit of one pronunciation of one word. A *junction* is a point between slots: two
slots follow each other where the junction after one is that before the other. Everything is an
array over the whole batch, so that arcs can be built without loops.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .checks import checked_names, integer_array, listed, shown


@dataclass
class Slots:
    """All slots of a batch; every array is int64.

    Junctions are numbered within an utterance: 0 .. W around its W words, then those inside
    pronunciations.

    Attributes:
        num_words: (B,) words an utterance; also the number of its last junction.
        num_junctions: (B,) junctions an utterance.
        first_slot: (B,) where the slots of an utterance begin.
        utterance, word, unit: (n,) of each slot; ``word`` counts within the utterance.
        left, right: (n,) junctions before and after each slot.
    """

    num_words: np.ndarray
    num_junctions: np.ndarray
    first_slot: np.ndarray
    utterance: np.ndarray
    word: np.ndarray
    unit: np.ndarray
    left: np.ndarray
    right: np.ndarray


def read_utterances(
    utterances: Iterable, num_units: int, names: Sequence[str] | None = None
) -> Slots:
    """Read and check a batch; see ``MlFsaCompiler.compile`` for the two forms.

    Raises:
        ValueError: as ``MlFsaCompiler.compile``.
    """
    batch = _as_list(utterances, "the list of utterances")
    names = checked_names(names, len(batch))
    if len(batch) == 0:
        raise ValueError("no utterances to compile")
    batch = [_as_list(utterance, name) for name, utterance in zip(names, batch)]
    for name, utterance in zip(names, batch):
        if len(utterance) == 0:
            raise ValueError(f"{name} has no units")
    plain = all(isinstance(utterance[0], numbers.Integral) for utterance in batch)
    slots = _read_plain(batch, names) if plain else _read_words(batch, names)
    _check_range(slots, num_units, names)
    return slots


def _as_list(value: object, place: str) -> list:
    try:
        return listed(value)
    except TypeError:
        raise ValueError(f"{place} is {shown(value)}, not a list") from None


def _check_range(slots: Slots, num_units: int, names: Sequence[str]) -> None:
    wrong = np.flatnonzero((slots.unit < 0) | (slots.unit >= num_units))
    if len(wrong):
        slot = wrong[0]
        raise ValueError(
            f"{names[slots.utterance[slot]]}: unit {slots.unit[slot]} is out of range; "
            f"units are 0 to {num_units - 1}"
        )


def _read_plain(batch: list[list[int]], names: Sequence[str]) -> Slots:
    lengths = np.array([len(utterance) for utterance in batch])
    try:
        unit = integer_array([unit for utterance in batch for unit in utterance])
    except TypeError:
        name = next(name for name, utterance in zip(names, batch) if not _are_integers(utterance))
        raise ValueError(
            f"{name}: units must be integers: an utterance is a list of units, or a list of words, "
            "each a list of pronunciations"
        ) from None
    utterance = np.repeat(np.arange(len(batch)), lengths)
    first_slot = np.cumsum(lengths) - lengths
    word = np.arange(len(unit)) - first_slot[utterance]
    return Slots(
        num_words=lengths,
        num_junctions=lengths + 1,
        first_slot=first_slot,
        utterance=utterance,
        word=word,
        unit=unit,
        left=word,
        right=word + 1,
    )


def _are_integers(units: list) -> bool:
    try:
        integer_array(units)
    except TypeError:
        return False
    return True


def _read_words(batch: list[list], names: Sequence[str]) -> Slots:
    num_words, num_junctions, first_slot = [], [], []
    utterance_of, word_of, unit_of, left, right = [], [], [], [], []
    for index, words in enumerate(batch):
        first_slot.append(len(unit_of))
        junctions = len(words) + 1
        for word_index, word in enumerate(words):
            for pronunciation in _pronunciations(f"{names[index]}, word {word_index}", word):
                inside = list(range(junctions, junctions + len(pronunciation) - 1))
                junctions += len(inside)
                left += [word_index, *inside]
                right += [*inside, word_index + 1]
                unit_of += pronunciation
                utterance_of += [index] * len(pronunciation)
                word_of += [word_index] * len(pronunciation)
        num_words.append(len(words))
        num_junctions.append(junctions)
    columns = (num_words, num_junctions, first_slot, utterance_of, word_of)
    num_words, num_junctions, first_slot, utterance, word, left, right = (
        np.array(values, dtype=np.int64) for values in (*columns, left, right)
    )
    unit = integer_array(unit_of)
    return Slots(num_words, num_junctions, first_slot, utterance, word, unit, left, right)


def _pronunciations(place: str, word: object) -> list[tuple[int, ...]]:
    """Check one word and return its distinct pronunciations in order."""
    if isinstance(word, numbers.Integral) and not isinstance(word, bool):
        raise ValueError(
            f"{place}: found a unit where a word is expected; do not mix units and words"
        )
    if isinstance(word, (numbers.Number, str, bytes)):
        raise ValueError(f"{place}: units must be integers, not {shown(word)}")
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
        if not _are_integers(list(units)):
            raise ValueError(f"{place}: units must be integers, not {shown(list(units))}")
        distinct[units] = None
    return list(distinct)
