"""How late boundaries are found, measured in recordings that are spliced from others.

A frame hears 25 ms. Where two sounds meet it hears both, and a model that nobody has told where one
ends gives most such frames to the same one of them: to the louder one, or to the one that has more
to tell it by. So boundaries are late or early by some milliseconds, which depends on the units. No
annotation is needed to know by how much: where the end of one unit is joined to the begin of
another one, the place is known. What it is in spliced recordings it is taken to be in all others.
A slow transition from one sound to the other, which a joint does not have, is not corrected.

What is found is a sum: with b of the unit before a boundary and a of the one after it ::

    late(before, after) = constant + b(before) + a(after)

by least squares over joints, where each term is drawn towards 0 (:data:`PRIOR_JOINTS`).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from lhotse import MonoCut
from lhotse.supervision import AlignmentItem
from lhotse.utils import fastcopy

from mlvae.data.audio import AudioError, memory_recording, read_cut
from mlvae.data.features import fbank_extractor, with_features
from mlvae.data.manifests import recording_cut
from mlvae.tiers import has_tier, tier

#: Joints that are made, where recordings allow.
JOINTS = 6000
#: Pieces of a spliced recording, and units of a piece.
PIECES = 9
PIECE_UNITS = 2, 4
#: How far within a unit it is cut, in seconds, and as a part of its length at most. Its own
#: boundary may be misplaced, and a window that lies there hears what is beyond it.
MARGIN, MARGIN_PART = 0.015, 0.3
#: Seconds before and after a joint over which its step is smoothed.
SMOOTHED = 0.002
#: Boundaries that are found farther from their joint say nothing; seconds.
FARTHEST = 0.04
#: Joints at which a unit is not late that are put to those that were seen.
PRIOR_JOINTS = 10.0
#: Shortest unit that a moved boundary leaves, in seconds.
SHORTEST = 0.005
#: Pieces that could not be read after which it is given up, where none could.
FAILURES = 30

#: Who finds boundaries: the best path, or an aligner of what was perceived.
Finder = Literal["path", "aligner"]


class Joint(NamedTuple):
    """Where a unit begins in a spliced recording."""

    position: int  # which of its units, from 1
    seconds: float  # from its begin


class Found(NamedTuple):
    """A boundary that was found in a spliced recording."""

    before: str  # unit that ends there
    after: str  # unit that begins
    late: float  # seconds after the joint


class _Token(NamedTuple):
    """A unit in a recording."""

    cut: MonoCut
    position: int


def spliced(
    cuts: Sequence[MonoCut], seed: int, joints: int = JOINTS
) -> Iterator[tuple[MonoCut, list[Joint]]]:
    """Splice recordings of pieces of others, those of a speaker together.

    Two units meet at a joint that meet in a text, about as often.

    Args:
        cuts: with audio, canonical units and the tier ``fa``; they have one sampling rate. Those
            that were spoken in other pronunciations are left out.
        seed: of what is drawn.
        joints: how many are wanted; there are no more than units. Cuts whose audio cannot be
            read, or not without running a command, give none.

    Yields:
        A cut with audio, features and canonical units, without words; and its joints.
    """
    by_speaker: dict[str, list[MonoCut]] = defaultdict(list)
    for cut in sorted(cuts, key=lambda cut: cut.id):
        if cut.recording is None or has_tier(cut, "fa_variant"):
            continue
        by_speaker[cut.supervisions[0].speaker or cut.id].append(cut)
    draw, made, failures = random.Random(seed), 0, 0
    total, seen, tried = sum(map(len, by_speaker.values())), 0, 0
    joints = min(joints, sum(len(tier(cut, "fa")) for own in by_speaker.values() for cut in own))
    wanted = -(-joints // (PIECES - 1))
    for own in by_speaker.values():
        seen += len(own)
        tokens: dict[str, list[_Token]] = defaultdict(list)
        followers: dict[str, list[str]] = defaultdict(list)
        for cut in own:
            symbols = [item.symbol for item in tier(cut, "fa")]
            for position, symbol in enumerate(symbols):
                tokens[symbol].append(_Token(cut, position))
            for symbol, follower in zip(symbols, symbols[1:]):
                followers[symbol].append(follower)
        while tried * total < wanted * seen:  # as many of a speaker as the speaker has cuts
            tried += 1
            pieces = _drawn(own, tokens, followers, draw)
            try:
                if len(pieces) > 1:
                    yield _joined(f"splice-{made}", pieces)
                    made += 1
            except AudioError:
                failures += 1
                if not made and failures >= FAILURES:
                    return


def _drawn(
    own: Sequence[MonoCut],
    tokens: Mapping[str, Sequence[_Token]],
    followers: Mapping[str, Sequence[str]],
    draw: random.Random,
) -> list[tuple[MonoCut, int, int]]:
    """Pieces of a speaker's cuts that go together: the cut, its first unit and its last one.

    ``tokens`` are of each unit, and ``followers`` the unit that follows each of these.
    """
    cut = draw.choice(own)
    first = draw.randrange(len(tier(cut, "fa")))
    pieces: list[tuple[MonoCut, int, int]] = []
    while True:
        items = tier(cut, "fa")
        last = min(first + draw.randint(*PIECE_UNITS) - 1, len(items) - 1)
        pieces.append((cut, first, last))
        if len(pieces) == PIECES:
            return pieces
        # What follows some token of the last unit follows it here.
        behind = followers.get(items[last].symbol)
        if not behind:
            return pieces
        cut, first = draw.choice(tokens[draw.choice(behind)])


def _joined(name: str, pieces: Sequence[tuple[MonoCut, int, int]]) -> tuple[MonoCut, list[Joint]]:
    """A cut of some pieces, one after another; AudioError where one cannot be read."""
    rate = pieces[0][0].sampling_rate
    units: list[str] = []
    samples: list[np.ndarray] = []
    joints: list[Joint] = []
    for cut, first, last in pieces:
        items = tier(cut, "fa")
        begin = items[first].start + _margin(items[first])
        end = items[last].end - _margin(items[last])
        audio = fastcopy(  # what else a long cut has would be cut, too
            cut, start=cut.start + begin, duration=end - begin, features=None, supervisions=[]
        )
        piece, _ = read_cut(audio)
        if samples:
            joints.append(Joint(len(units), sum(map(len, samples)) / rate))
        samples.append(piece)
        units += [item.symbol for item in items[first : last + 1]]
    whole = np.concatenate(samples)
    _smooth(whole, [round(joint.seconds * rate) for joint in joints], round(SMOOTHED * rate))
    recording = memory_recording(name, whole, rate)
    cut = recording_cut(recording, {"units": units})
    return with_features(cut, fbank_extractor(rate)), joints


def _margin(item: AlignmentItem) -> float:
    return min(MARGIN, MARGIN_PART * item.duration)


def _smooth(samples: np.ndarray, joints: Sequence[int], width: int) -> None:
    """Take the step away that samples make at each joint, over ``width`` before and after it."""
    ramp = np.linspace(0, 1, width, dtype=samples.dtype)
    for joint in joints:
        before, after = samples[joint - width : joint], samples[joint : joint + width]
        if len(before) == len(after) == width:
            half = (after[0] - before[-1]) / 2
            before += half * ramp
            after -= half * ramp[::-1]


@dataclass(frozen=True)
class Lateness:
    """How late boundaries are found, in seconds; below 0 where early."""

    constant: float  # of all
    before: Mapping[str, float]  # more, by the unit that ends there
    after: Mapping[str, float]  # more, by the unit that begins
    joints: int  # that it was measured at

    def of(self, before: str, after: str) -> float:
        """Of one boundary; units that are not known add nothing."""
        return self.constant + self.before.get(before, 0.0) + self.after.get(after, 0.0)

    def corrected(
        self, symbols: Sequence[str], times: Sequence[tuple[float, float]]
    ) -> list[tuple[float, float]]:
        """Begin and end of units, where boundaries that two of them share are moved.

        No unit gets shorter than :data:`SHORTEST`; one that has no length, or is shorter already,
        stays where it is.

        Args:
            symbols: of the units.
            times: begin and end of each in seconds, in order.

        Example:
            >>> late = Lateness(0.004, {"a": 0.002}, {}, 100)
            >>> late.corrected(["a", "b"], [(0.0, 0.1), (0.1, 0.2)])
            [(0.0, 0.094), (0.094, 0.2)]
        """
        moved = [list(time) for time in times]
        for left, right, before, after in zip(moved, moved[1:], symbols, symbols[1:]):
            least, most = left[0] + SHORTEST, right[1] - SHORTEST
            if abs(left[1] - right[0]) < 1e-6 and least <= left[1] <= most:
                at = min(max(left[1] - self.of(before, after), least), most)
                left[1] = right[0] = round(at, 6)
        return [(begin, end) for begin, end in moved]


def fit_lateness(found: Sequence[Found]) -> Lateness:
    """Fit what the head of this module says to boundaries in spliced recordings."""
    found = [one for one in found if abs(one.late) <= FARTHEST]
    units = sorted({unit for one in found for unit in (one.before, one.after)})
    index = {unit: number for number, unit in enumerate(units)}
    # Columns: of the unit before, of the one after, and of all.
    design = np.zeros((len(found), 2 * len(units) + 1))
    rows = np.arange(len(found))
    design[rows, [index[one.before] for one in found]] = 1.0
    design[rows, [len(units) + index[one.after] for one in found]] = 1.0
    design[:, -1] = 1.0
    late = np.array([one.late for one in found])
    prior = PRIOR_JOINTS * np.eye(design.shape[1])
    terms = np.linalg.solve(design.T @ design + prior, design.T @ late).round(6).tolist()
    before, after = terms[: len(units)], terms[len(units) : -1]
    return Lateness(terms[-1], dict(zip(units, before)), dict(zip(units, after)), len(found))
