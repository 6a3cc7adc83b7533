"""The reference of L2-ARCTIC utterances: the annotation, mapped to the canonical units.

Canonical units are phones of the text, phones (and silence) of the annotators, or words, see the
functions below. docs/formats.md lists the fields that are written. A unit comes from its own
recording; one without an interval of the annotators (their pronunciation of the word lacks it)
counts as correct, without length.

Scoring by word needs ``words``, whose order is that of ``words`` in the cut; ``marked`` does not
depend on the kind of unit, so that phones and BPE tokens can be compared by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lhotse import SupervisionSegment
from lhotse.supervision import AlignmentItem

from mlvae.corpora.l2arctic.align import words_of_segments
from mlvae.corpora.l2arctic.files import Segment, Utterance
from mlvae.corpora.l2arctic.labels import DELETION, error_type
from mlvae.data.lexicon import SIL, Pronunciation
from mlvae.data.text import words_of_text
from mlvae.data.units import align_symbols
from mlvae.tiers import DELETED, UNKNOWN


@dataclass(frozen=True)
class ReferenceUnit:
    """A canonical unit, and what became of it; times in seconds."""

    canonical: str
    perceived: str
    error: str
    start: float
    end: float
    word: int | None
    annotated: bool = True


@dataclass
class UtteranceReference:
    """The reference of an utterance, before it is written; see the module."""

    units: list[ReferenceUnit]
    words: list[dict[str, Any]] = field(default_factory=list)
    insertions: list[dict[str, Any]] = field(default_factory=list)
    unplaced: list[dict[str, Any]] = field(default_factory=list)
    excused: list[int] = field(default_factory=list)

    def supervision(self, utterance: Utterance, split: str) -> SupervisionSegment:
        """As a line of ``reference.jsonl.gz``."""
        tiers = {
            tier: [
                AlignmentItem(getattr(unit, tier), *_span(unit.start, unit.end).values())
                for unit in self.units
            ]
            for tier in ("canonical", "perceived")
        }
        return SupervisionSegment(
            id=utterance.files.id,
            recording_id=utterance.files.id,
            start=0.0,
            duration=utterance.duration,
            speaker=utterance.files.speaker,
            custom={
                "split": split,
                "units_from": [utterance.files.id] * len(self.units),
                "error": [unit.error for unit in self.units],
                "annotated": [unit.annotated for unit in self.units],
                "word_of_unit": [unit.word for unit in self.units],
                "words": self.words,
                "insertions": self.insertions,
                "unplaced": self.unplaced,
                "excused": self.excused,
            },
            alignment=tiers,
        )


def _span(start: float, end: float) -> dict[str, float]:
    return {"start": round(start, 7), "duration": round(max(end - start, 0.0), 7)}


def annotation_reference(utterance: Utterance) -> UtteranceReference:
    """Protocol annotation: every annotated interval is a unit, silence and insertions among them.

    Silence that is cut into several intervals is one unit.
    """
    units: list[ReferenceUnit] = []
    for segment in utterance.segments:
        error = error_type(segment.canonical, segment.perceived)
        silent = segment.canonical == segment.perceived == SIL
        if silent and units and units[-1].canonical == units[-1].perceived == SIL:
            before = units.pop()
            unit = ReferenceUnit(SIL, SIL, "", before.start, segment.end, None)
        else:
            perceived = DELETED if error == DELETION else segment.perceived
            word = None if silent else segment.word
            unit = ReferenceUnit(
                segment.canonical, perceived, error, segment.start, segment.end, word
            )
        units.append(unit)
    reference = UtteranceReference(units)
    names = ["-".join(words_of_text(word.label)) for word in utterance.tier_words]
    owners = [None if s.canonical == s.perceived == SIL else s.word for s in utterance.segments]
    reference.words = _words(names, utterance.segments, owners)
    return reference


def phone_reference(
    utterance: Utterance, words: Sequence[tuple[str, Sequence[Pronunciation]]]
) -> UtteranceReference:
    """Protocol text: the units are the first pronunciation of each word of the transcript.

    Within a word the units are aligned with the annotators' canonical phones. Deletions keep the
    interval that the annotators gave them. What the annotators call correct is correct, whatever
    the symbol of the unit; so is a word that was read in another of its pronunciations.
    """
    segments = utterance.segments
    owners = words_of_segments([pronunciations for _, pronunciations in words], segments)
    reference = UtteranceReference([])
    now = 0.0
    for word, (_, pronunciations) in enumerate(words):
        mine = [s for s, owner in zip(segments, owners) if owner == word]
        perceived = tuple(segment.perceived for segment in mine if segment.perceived != SIL)
        has_error = any(segment.canonical != segment.perceived for segment in mine)
        excused = has_error and perceived in pronunciations
        if excused:
            reference.excused.append(word)
        sounds = [segment for segment in mine if segment.canonical != SIL]
        indices = align_symbols(pronunciations[0], [segment.canonical for segment in sounds])
        for symbol, index in zip(pronunciations[0], indices):
            if index is None:
                unit = ReferenceUnit(symbol, symbol, "", now, now, word, annotated=False)
            else:
                unit = _unit(symbol, sounds[index], word, excused)
            now = unit.end
            reference.units.append(unit)
        reference.insertions += [_inserted(s, word) for s in mine if s.canonical == SIL]
        reference.unplaced += [
            {**_inserted(sound, word), "canonical": sound.canonical}
            for i, sound in enumerate(sounds)
            if i not in indices and sound.perceived not in (sound.canonical, SIL) and not excused
        ]
    _start_where_sound_is(reference.units)
    reference.words = _words([word for word, _ in words], segments, owners)
    wrong = {unit.word for unit in reference.units if unit.error}
    for number, word in enumerate(reference.words):
        word["wrong"] = number in wrong
    return reference


def word_reference(utterance: Utterance, words: Sequence[str]) -> UtteranceReference:
    """BPE tokens: the units of the reference are the words of the transcript.

    A word is wrong (``*`` was perceived) if any of its phones is, folded; its times are those of
    its phones. Words of the transcript are those of the tier ``words`` by alignment of both texts.

    Raises:
        ValueError: if a word of the transcript has no counterpart in the tier ``words``, or that
            has no phone; names the word.
    """
    bare = ["-".join(words_of_text(word.label)).strip("'") for word in utterance.tier_words]
    indices = align_symbols([word.strip("'") for word in words], bare)
    word_of = {index: word for word, index in enumerate(indices) if index is not None}
    owners = [None if s.word is None else word_of.get(s.word) for s in utterance.segments]
    reference = UtteranceReference([], _words(words, utterance.segments, owners))
    for number, word in enumerate(reference.words):
        if word["start"] is None:
            raise ValueError(f"the tiers have no phones for the word {word['word']!r}")
        wrong = word["wrong"]
        start, end = word["start"], word["start"] + word["duration"]
        perceived = UNKNOWN if wrong else word["word"]
        reference.units.append(
            ReferenceUnit(word["word"], perceived, "s" if wrong else "", start, end, number)
        )
    reference.insertions = [
        _inserted(segment, owner)
        for segment, owner in zip(utterance.segments, owners)
        if segment.canonical == SIL != segment.perceived
    ]
    return reference


def _unit(symbol: str, segment: Segment, word: int, excused: bool) -> ReferenceUnit:
    perceived = segment.perceived
    if excused or perceived in (segment.canonical, symbol):
        return ReferenceUnit(symbol, symbol, "", segment.start, segment.end, word)
    error = error_type(symbol, perceived)
    perceived = DELETED if error == DELETION else perceived
    return ReferenceUnit(symbol, perceived, error, segment.start, segment.end, word)


def _inserted(segment: Segment, word: int | None) -> dict[str, Any]:
    return {"symbol": segment.perceived, **_span(segment.start, segment.end), "word": word}


def _start_where_sound_is(units: list[ReferenceUnit]) -> None:
    """Units without an interval before the first that has one are where that one starts."""
    first = next((unit.start for unit in units if unit.annotated), 0.0)
    for i, unit in enumerate(units):
        if unit.annotated:
            return
        units[i] = ReferenceUnit(unit.canonical, unit.perceived, "", first, first, unit.word, False)


def _words(
    names: Sequence[str], segments: Sequence[Segment], owners: Sequence[int | None]
) -> list[dict[str, Any]]:
    """The records of words; ``start`` and ``duration`` are None where nothing was annotated."""
    records = []
    for word, name in enumerate(names):
        mine = [s for s, owner in zip(segments, owners) if owner == word]
        sounds = [s for s in mine if s.canonical != SIL]
        marked = any(s.canonical != s.perceived for s in sounds)
        record = {"word": name, "start": None, "duration": None}
        if sounds:
            record.update(_span(sounds[0].start, sounds[-1].end))
        insertions = sum(s.canonical == SIL != s.perceived for s in mine)
        records.append({**record, "wrong": marked, "marked": marked, "insertions": insertions})
    return records
