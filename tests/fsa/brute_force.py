"""An independent reference for mlvae.fsa: every path of a tiny utterance, one after the other.

Written from the equations (paper, Appendix "MAP estimation", with the project's readings of it) in
plain Python and double precision. It shares no code and no idea of arcs, states or columns with
the package: a *hypothesis* here is a list of segments, each with frames and a branch.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import NamedTuple


class Segment(NamedTuple):
    """Frames ``start`` to ``end`` (exclusive) of one unit or of one silence."""

    kind: str
    unit: int
    wrong: bool
    start: int
    end: int
    word: int
    slot: int
    score: float


class Hypothesis(NamedTuple):
    score: float
    segments: tuple[Segment, ...]
    used_slots: tuple[int, ...]


@dataclass
class Model:
    """What the networks say of one utterance; nested lists of natural logs.

    ``posteriors[t]`` has one value a unit and state, then silence if any; a blank may sit anywhere.
    """

    num_units: int
    states: int
    posteriors: list[list[float]]
    has_silence: bool = False
    ml: bool = True
    prior: list[float] | None = None
    boundary: list[list[float]] | None = None
    correctness: list[list[float]] | None = None
    scale: float = 1.0
    blank: int | None = None
    _q: list[list[float]] = field(init=False)
    _p: list[float] = field(init=False)

    def __post_init__(self) -> None:
        columns = len(self.posteriors[0]) if self.posteriors else 1
        q = [[math.exp(value) for value in row] for row in self.posteriors]
        p = [math.exp(v) for v in self.prior] if self.prior else [1 / columns] * columns
        if self.blank is not None:
            mass = 1 - p[self.blank] if self.prior is None else sum(p) - p[self.blank]
            rest = [column for column in range(columns) if column != self.blank]
            p_rest = [p[column] / mass for column in rest]
            q = [
                [row[column] + row[self.blank] * share for column, share in zip(rest, p_rest)]
                for row in q
            ]
            p = p_rest
        self._q, self._p = q, p

    def _ratio(self, numerator: float, denominator: float) -> float:
        if numerator == 0:
            return -math.inf
        return self.scale * (math.log(numerator) - math.log(denominator))

    def correct(self, frame: int, unit: int, state: int) -> float:
        """Scaled log of q(y = unit, state) / p(unit, state)."""
        column = unit * self.states + state
        return self._ratio(self._q[frame][column], self._p[column])

    def mismatch(self, frame: int, unit: int) -> float:
        """Scaled log of q(y != unit) / p(not unit); silence belongs to neither."""
        mine = range(unit * self.states, (unit + 1) * self.states)
        others = [column for column in range(self.num_units * self.states) if column not in mine]
        numerator = max(sum(self._q[frame][column] for column in others), 1e-5)
        return self._ratio(numerator, max(sum(self._p[column] for column in others), 1e-5))

    def silence(self, frame: int) -> float:
        return self._ratio(self._q[frame][-1], self._p[-1])

    def log_b(self, frame: int, starts: bool) -> float:
        """log q(b_t); the first frame has none, because a start is certain there."""
        if frame == 0:
            return 0.0
        if self.boundary is None:
            return math.log(0.1 if starts else 0.9)
        return self.boundary[frame][int(starts)]

    def log_pi(self, frame: int, wrong: bool) -> float:
        if not self.ml:
            return 0.0
        if self.correctness is None:
            return math.log(0.15 if wrong else 0.85)
        return self.correctness[frame][int(wrong)]


def hypotheses(words: list[list[list[int]]], num_frames: int, model: Model) -> list[Hypothesis]:
    """Every hypothesis: choice of pronunciations, silences, durations, branches and states."""
    numbered, slot = [], 0
    for word in words:
        distinct = []
        for pronunciation in word:
            if pronunciation not in [units for units, _ in distinct]:
                distinct.append((pronunciation, slot))
                slot += len(pronunciation)
        numbered.append(distinct)
    result = []
    for choice in itertools.product(*numbered):
        places = []  # (unit, word, slot, may silence stand before it)
        for word, (units, first_slot) in enumerate(choice):
            for offset, unit in enumerate(units):
                places.append((unit, word, first_slot + offset, offset == 0))
        used = tuple(place[2] for place in places)
        for segments in _fill(places, 0, num_frames, model):
            result.append(Hypothesis(sum(segment.score for segment in segments), segments, used))
    return result


def _fill(places, frame: int, num_frames: int, model: Model):
    """Ways to fill the frames from ``frame`` on with the units of ``places``."""
    if not places:
        if frame == num_frames:
            yield ()
        elif model.has_silence:
            yield (_silence(frame, num_frames, model),)
        return
    unit, word, slot, may_be_silent = places[0]
    begins = [(frame, ())]
    if model.has_silence and may_be_silent:
        begins += [(end, (_silence(frame, end, model),)) for end in range(frame + 1, num_frames)]
    for begin, before in begins:
        for end in range(begin + 1, num_frames + 1):
            rests = list(_fill(places[1:], end, num_frames, model))
            if not rests:
                continue
            for wrong, score in _branch_scores(unit, begin, end, model):
                segment = Segment("unit", unit, wrong, begin, end, word, slot, score)
                for rest in rests:
                    yield (*before, segment, *rest)


def _silence(begin: int, end: int, model: Model) -> Segment:
    score = sum(model.silence(t) + model.log_b(t, starts=False) for t in range(begin, end))
    return Segment("silence", -1, False, begin, end, -1, -1, score)


def _branch_scores(unit: int, begin: int, end: int, model: Model):
    """(wrong, score) of each way to say ``unit`` in these frames."""
    transitions = sum(model.log_b(t, starts=t == begin) for t in range(begin, end))
    for cuts in itertools.combinations(range(begin + 1, end), model.states - 1):
        edges = [begin, *cuts, end]
        acoustic = sum(
            model.correct(t, unit, state)
            for state in range(model.states)
            for t in range(edges[state], edges[state + 1])
        )
        yield False, acoustic + transitions + model.log_pi(begin, wrong=False)
    if model.ml:
        acoustic = sum(model.mismatch(t, unit) for t in range(begin, end))
        yield True, acoustic + transitions + model.log_pi(begin, wrong=True)


@dataclass
class Answer:
    """Sums over all hypotheses; lists by slot, and by frame and slot."""

    total: float
    best: float
    used: list[float]
    mispronounced: list[float]
    occupancy: list[list[float]]
    frame_mispronounced: list[float]


def log_sum(scores: list[float]) -> float:
    top = max(scores, default=-math.inf)
    if top == -math.inf:
        return top
    return top + math.log(sum(math.exp(score - top) for score in scores))


def answer(hypotheses: list[Hypothesis], num_slots: int, num_frames: int) -> Answer:
    total = log_sum([hypothesis.score for hypothesis in hypotheses])
    used, wrong = [0.0] * num_slots, [0.0] * num_slots
    occupancy = [[0.0] * num_slots for _ in range(num_frames)]
    frame_wrong = [0.0] * num_frames
    for hypothesis in hypotheses:
        probability = math.exp(hypothesis.score - total)
        for slot in hypothesis.used_slots:
            used[slot] += probability
        for segment in hypothesis.segments:
            if segment.kind == "silence":
                continue
            wrong[segment.slot] += probability * segment.wrong
            for frame in range(segment.start, segment.end):
                occupancy[frame][segment.slot] += probability
                frame_wrong[frame] += probability * segment.wrong
    best = max((hypothesis.score for hypothesis in hypotheses), default=-math.inf)
    return Answer(total, best, used, wrong, occupancy, frame_wrong)
