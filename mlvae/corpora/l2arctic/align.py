"""Which annotated phone is which phone of the text: two phone strings aligned, by rapidfuzz.

The annotators' canonical phones and the lexicon's differ where the annotators had another
pronunciation in mind, and where the speaker said another word. Both strings are long and nearly
equal, so that the fewest edits put them right; costs need no weights.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence

from rapidfuzz.distance import Levenshtein

from mlvae.corpora.l2arctic.files import Segment, Utterance
from mlvae.data.lexicon import SIL, Pronunciation
from mlvae.data.text import words_of_text
from mlvae.data.units import align_symbols

MOST_DIFFERENT = 0.5
"""Of the symbols of text and annotation; two sentences differ in three of four phones."""

FEW = 3
"""Differences that say nothing: a short word may have two pronunciations without a common phone."""


def check_phones(utterance: Utterance, words: Sequence[Sequence[Pronunciation]]) -> None:
    """Whether the annotators' canonical phones may be those of a text, given by its words.

    Raises:
        ValueError: if more than `MOST_DIFFERENT` of them are others: text and annotation are of two
            utterances.
    """
    wanted = [phone for pronunciations in words for phone in pronunciations[0]]
    found = [segment.canonical for segment in utterance.segments if segment.canonical != SIL]
    _check_alike(wanted, found, "phones")


def check_words(utterance: Utterance, words: Sequence[str]) -> None:
    """The same for the words of a text and the tier ``words``, where both are there."""
    found = [part for word in utterance.tier_words for part in words_of_text(word.label)]
    if words and found:
        _check_alike([word.strip("'") for word in words], [w.strip("'") for w in found], "words")


def _check_alike(wanted: Sequence[str], found: Sequence[str], what: str) -> None:
    different, most = Levenshtein.distance(wanted, found), max(len(wanted), len(found))
    if different > max(FEW, MOST_DIFFERENT * most):
        raise ValueError(
            f"the annotation is of other words than the text: {different} of {most} {what} differ"
        )


def words_of_segments(
    words: Sequence[Sequence[Pronunciation]], segments: Sequence[Segment]
) -> list[int | None]:
    """The index of the word of the text that each annotated segment is of, None for silence.

    Of every word, that pronunciation counts which fits the annotators' canonical phones best (the
    first of equals).
    """
    spoken = [i for i, segment in enumerate(segments) if segment.canonical != SIL]
    canonical = [segments[i].canonical for i in spoken]
    chosen = [pronunciations[0] for pronunciations in words]
    owners = _owners(chosen, segments, spoken)
    if any(len(pronunciations) > 1 for pronunciations in words):
        for word, pronunciations in enumerate(words):
            mine = [symbol for symbol, owner in zip(canonical, owners) if owner == word]
            chosen[word] = min(pronunciations, key=lambda p: Levenshtein.distance(p, mine))
        owners = _owners(chosen, segments, spoken)
    found: list[int | None] = [None] * len(segments)
    for i, owner in zip(spoken, owners):
        found[i] = owner
    _place_insertions(found, segments)
    return found


def _owners(
    chosen: Sequence[Pronunciation], segments: Sequence[Segment], spoken: Sequence[int]
) -> list[int]:
    """The word of each spoken segment; one without a counterpart goes with a neighbour."""
    units = [(word, phone) for word, phones in enumerate(chosen) for phone in phones]
    indices = align_symbols([phone for _, phone in units], [segments[i].canonical for i in spoken])
    owners: list[int | None] = [None] * len(spoken)
    for (word, _), index in zip(units, indices):
        if index is not None:
            owners[index] = word
    _fill(owners, [segments[i].word for i in spoken])
    return [owner or 0 for owner in owners]


def _fill(owners: list[int | None], tier_words: Sequence[int | None]) -> None:
    """Give what has no word that of the neighbour with which it shares a word of the tier.

    Where neither does, the one before counts.
    """
    known = [i for i, owner in enumerate(owners) if owner is not None]
    for i in set(range(len(owners))).difference(known) if known else ():
        position = bisect(known, i)
        neighbours = known[max(position - 1, 0) : position + 1]
        same = [j for j in neighbours if tier_words[j] == tier_words[i] is not None]
        owners[i] = owners[(same or neighbours)[0]]


def _place_insertions(found: list[int | None], segments: Sequence[Segment]) -> None:
    """Words of insertions, from the segments that are no silence."""
    sounding = [i for i, s in enumerate(segments) if (s.canonical, s.perceived) != (SIL, SIL)]
    owners = [found[i] for i in sounding]
    _fill(owners, [segments[i].word for i in sounding])
    for i, owner in zip(sounding, owners):
        found[i] = owner
