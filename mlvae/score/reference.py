"""The reference of a test set as arrays over its units; nothing else in mlvae reads it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from lhotse import SupervisionSegment
from lhotse.supervision import AlignmentItem
from lhotse.utils import fastcopy

from mlvae.data.manifests import load_supervisions
from mlvae.tiers import UNKNOWN

#: Perceived symbol of a sound that no unit describes.
UNCLEAR = "err"


@dataclass(frozen=True)
class Annotation:
    """The fields of an annotated reference; see docs/formats.md."""

    errors: list[str]  # N error types, ``s``, ``d``, ``a`` or empty
    # (N,) bool, the unit has an interval of the annotators. One without is correct, has no length,
    # and does not count where times are compared.
    annotated: np.ndarray
    # the words of the text as units: mispronounced (``*`` perceived) where the annotators mark an
    # error in them, whatever the units are. None where the text has no words.
    words: Reference | None
    # per utterance the inserted sounds, which are no unit; seconds
    insertions: list[list[AlignmentItem]]
    # numbers of ``insertions`` (sounds of no unit), ``words with insertions``, ``unplaced`` errors
    # (on phones that the text's pronunciation lacks), and words ``excused`` (read in another of
    # their pronunciations)
    counts: dict[str, int]


@dataclass(frozen=True)
class Reference:
    """A test set of U utterances and N units."""

    utterances: list[str]  # U utterance ids, in the order of the file
    speakers: list[str]  # U speakers
    first: np.ndarray  # (U + 1,) int64; the units of utterance u are ``first[u]:first[u + 1]``
    canonical: list[str]  # N canonical symbols
    perceived: list[str]  # N perceived symbols
    starts: np.ndarray  # (N,) float64, seconds
    ends: np.ndarray  # (N,) float64, seconds
    sources: list[str]  # N ids of the recordings that the units were taken from
    # of annotated corpora; None where the mismatches were made
    annotation: Annotation | None = None

    @property
    def annotated(self) -> np.ndarray:
        """(N,) bool: the reference has a time for the unit."""
        if self.annotation is None:
            return np.ones(len(self.canonical), dtype=bool)
        return self.annotation.annotated

    @property
    def positive(self) -> np.ndarray:
        """(N,) bool: the canonical and the perceived symbol differ."""
        return np.array([a != b for a, b in zip(self.canonical, self.perceived)], dtype=bool)

    @cached_property
    def units_of(self) -> dict[str, slice]:
        """By id of an utterance where its units are."""
        return {name: slice(*self.first[i : i + 2]) for i, name in enumerate(self.utterances)}

    @property
    def utterance(self) -> np.ndarray:
        """(N,) int64: the utterance of each unit."""
        return np.repeat(np.arange(len(self.utterances)), np.diff(self.first))

    def clusters(self, by: str = "recording") -> np.ndarray:
        """(N,) int64 in 0..C-1: the source recording of each unit, or its speaker.

        Raises:
            ValueError: ``by`` is neither ``"recording"`` nor ``"speaker"``.
        """
        if by not in ("recording", "speaker"):
            raise ValueError(f"clusters are by recording or by speaker, not by {by!r}")
        names = self.sources
        if by == "speaker":
            names = np.repeat(np.array(self.speakers), np.diff(self.first))
        return np.unique(names, return_inverse=True)[1].reshape(-1)


def read_reference(path: Path) -> Reference:
    """Read the test utterances of a reference file, see docs/formats.md.

    Raises:
        ValueError: the file is damaged or has no test utterance, or the tiers of an utterance do
            not agree with each other; names the line or the utterance.
    """
    chosen = [item for item in load_supervisions(path) if item.custom["split"] == "test"]
    if not chosen:
        raise ValueError(f"{path} has no utterance of the split 'test'")
    return reference_of(chosen)


def reference_of(supervisions: Iterable[SupervisionSegment]) -> Reference:
    """The reference of some utterances, given as supervisions; see ``read_reference``."""
    supervisions = list(supervisions)
    pairs, sources = [], []
    for item in supervisions:
        if not {"canonical", "perceived"} <= set(item.alignment or {}):
            raise ValueError(f"reference of {item.id} lacks a tier, canonical or perceived")
        written, other = item.alignment["canonical"], item.alignment["perceived"]
        units_from = item.custom["units_from"]
        same_times = [w[1:3] for w in written] == [o[1:3] for o in other]  # start and duration
        if not written or not same_times or len(units_from) != len(written):
            raise ValueError(
                f"reference of {item.id}: the tiers canonical ({len(written)} units) and perceived "
                f"({len(other)}) and units_from ({len(units_from)}) do not agree"
            )
        pairs += zip(written, other)
        sources += units_from
    return Reference(
        utterances=[item.id for item in supervisions],
        speakers=[item.speaker or item.id for item in supervisions],
        first=firsts([len(item.alignment["canonical"]) for item in supervisions]),
        canonical=[unit.symbol for unit, _ in pairs],
        perceived=[other.symbol for _, other in pairs],
        starts=np.array([unit.start for unit, _ in pairs], dtype=np.float64),
        ends=np.array([unit.end for unit, _ in pairs], dtype=np.float64),
        sources=sources,
        annotation=_annotation(supervisions),
    )


def firsts(sizes: Sequence[int]) -> np.ndarray:
    """(U + 1,) int64: where each of U utterances begins, and where the last one ends."""
    return np.cumsum([0, *sizes], dtype=np.int64)


def _annotation(supervisions: list[SupervisionSegment]) -> Annotation | None:
    customs = [item.custom for item in supervisions]
    if not all("error" in custom for custom in customs):
        return None
    words = None
    if all(custom["words"] for custom in customs):
        words = reference_of(_words_as_units(item) for item in supervisions)
    own = [word for custom in customs for word in custom["words"]]
    return Annotation(
        errors=[error for custom in customs for error in custom["error"]],
        annotated=np.array([known for c in customs for known in c["annotated"]], dtype=bool),
        words=words,
        insertions=[
            [AlignmentItem(a["symbol"], a["start"], a["duration"]) for a in custom["insertions"]]
            for custom in customs
        ],
        counts={
            "insertions": sum(len(custom["insertions"]) for custom in customs),
            "words with insertions": sum(word["insertions"] > 0 for word in own),
            "unplaced": sum(len(custom["unplaced"]) for custom in customs),
            "excused": sum(len(custom["excused"]) for custom in customs),
        },
    )


def _words_as_units(item: SupervisionSegment) -> SupervisionSegment:
    """The reference of an utterance whose units are its words."""
    words = item.custom["words"]
    spans = [(word["start"] or 0.0, word["duration"] or 0.0) for word in words]
    perceived = [UNKNOWN if word["marked"] else word["word"] for word in words]
    custom = {
        "split": item.custom["split"],
        "units_from": [item.id] * len(words),
        "error": ["s" if word["marked"] else "" for word in words],
        "annotated": [word["start"] is not None for word in words],
        "words": [],
        "insertions": [],
        "unplaced": [],
        "excused": [],
    }
    tiers = {
        "canonical": [AlignmentItem(w["word"], *span) for w, span in zip(words, spans)],
        "perceived": [AlignmentItem(symbol, *span) for symbol, span in zip(perceived, spans)],
    }
    return fastcopy(item, custom=custom, alignment=tiers)
