"""The truth of a test set as arrays over its units; read here and nowhere else in the package."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from lhotse import SupervisionSegment, SupervisionSet


@dataclass(frozen=True)
class Truth:
    """What was really said in a test set of U utterances and N units.

    Attributes:
        utterances: U utterance ids, in the order of the file.
        speakers: U speakers.
        first: (U + 1,) int64; the units of utterance u are ``first[u]:first[u + 1]``.
        canonical: N canonical symbols.
        perceived: N symbols that were really said.
        starts: (N,) float64, seconds.
        ends: (N,) float64, seconds.
        sources: N ids of the recordings that the units were taken from.
    """

    utterances: list[str]
    speakers: list[str]
    first: np.ndarray
    canonical: list[str]
    perceived: list[str]
    starts: np.ndarray
    ends: np.ndarray
    sources: list[str]

    @property
    def positive(self) -> np.ndarray:
        """(N,) bool: the canonical and the perceived symbol differ."""
        return np.array([a != b for a, b in zip(self.canonical, self.perceived)], dtype=bool)

    @property
    def utterance(self) -> np.ndarray:
        """(N,) int64: the utterance of each unit."""
        return np.repeat(np.arange(len(self.utterances)), np.diff(self.first))

    def clusters(self, by: str = "recording") -> np.ndarray:
        """The cluster of each unit, for intervals.

        Args:
            by: ``"recording"`` (the source recording of a unit) or ``"speaker"``.

        Returns:
            (N,) int64 in 0..C-1.

        Raises:
            ValueError: ``by`` is neither.
        """
        if by not in ("recording", "speaker"):
            raise ValueError(f"clusters are by recording or by speaker, not by {by!r}")
        names = self.sources
        if by == "speaker":
            names = np.repeat(np.array(self.speakers), np.diff(self.first))
        return np.unique(names, return_inverse=True)[1].reshape(-1)


def read_truth(path: Path, split: str = "test") -> Truth:
    """Read one split of a truth file.

    Args:
        path: A manifest of supervisions with the tiers ``canonical`` and ``perceived`` and
            ``custom={"split": ..., "units_from": [...]}``.
        split: The split to read.

    Raises:
        ValueError: The split is empty, or the tiers of an utterance do not agree with each other;
            names the utterance.
    """
    chosen = [item for item in SupervisionSet.from_file(path) if item.custom["split"] == split]
    if not chosen:
        raise ValueError(f"{path} has no utterance of the split {split!r}")
    return truth_of(chosen)


def truth_of(supervisions: Iterable[SupervisionSegment]) -> Truth:
    """Bring the truth of some utterances, given as supervisions, to arrays; see ``read_truth``."""
    utterances, speakers, sizes, canonical, perceived, sources = [], [], [], [], [], []
    starts, ends = [], []
    for item in supervisions:
        written, spoken = item.alignment["canonical"], item.alignment["perceived"]
        units_from = item.custom["units_from"]
        same_times = [(w.start, w.duration) for w in written] == [
            (s.start, s.duration) for s in spoken
        ]
        if not written or not same_times or len(units_from) != len(written):
            raise ValueError(
                f"truth of {item.id}: the tiers canonical ({len(written)} units) and perceived "
                f"({len(spoken)}) and units_from ({len(units_from)}) do not agree"
            )
        utterances.append(item.id)
        speakers.append(item.speaker or item.id)
        sizes.append(len(written))
        canonical += [unit.symbol for unit in written]
        perceived += [unit.symbol for unit in spoken]
        starts += [unit.start for unit in written]
        ends += [unit.end for unit in written]
        sources += units_from
    return Truth(
        utterances=utterances,
        speakers=speakers,
        first=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        canonical=canonical,
        perceived=perceived,
        starts=np.array(starts, dtype=np.float64),
        ends=np.array(ends, dtype=np.float64),
        sources=sources,
    )
