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
    """Frames ``start`` to ``end`` (exclusive) of one unit, one silence or one insertion.

    A unit that was left out has no frames; its score is what that costs.
    """

    kind: str
    unit: int
    wrong: bool
    perceived: int
    start: int
    end: int
    word: int
    slot: int
    score: float

    @property
    def deleted(self) -> bool:
        return self.start == self.end


class Place(NamedTuple):
    """A canonical unit in a choice of pronunciations."""

    unit: int
    word: int
    slot: int


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
    has_silence: bool | str = False
    topology: str = "ml"
    confusion: list[list[float]] | None = None  # log p(perceived | unit, mispronounced)
    deletion_rate: float | None = None
    insertion_rate: float | None = None
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

    def any_unit(self, frame: int) -> float:
        """Scaled log of q(y is a unit) / p(a unit)."""
        units = self.num_units * self.states
        return self._ratio(max(sum(self._q[frame][:units]), 1e-5), sum(self._p[:units]))

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
        if self.correctness is None:
            return math.log(0.15 if wrong else 0.85)
        return self.correctness[frame][int(wrong)]

    def transitions(self, begin: int, end: int) -> float:
        return sum(self.log_b(t, starts=t == begin) for t in range(begin, end))


def log_odds(rate: float) -> float:
    return math.log(rate / (1 - rate))


def number_slots(words: list[list[list[int]]]) -> list[list[list[Place]]]:
    """The distinct pronunciations of each word, their units numbered on through the utterance."""
    result, slot = [], 0
    for index, word in enumerate(words):
        distinct: list[list[int]] = []
        for pronunciation in word:
            if pronunciation not in distinct:
                distinct.append(pronunciation)
        result.append([])
        for units in distinct:
            result[-1].append([Place(unit, index, slot + i) for i, unit in enumerate(units)])
            slot += len(units)
    return result


def hypotheses(words: list[list[list[int]]], num_frames: int, model: Model) -> list[Hypothesis]:
    """Every hypothesis: pronunciations, silences, insertions, deletions, durations and states.

    A silence or insertion next to deleted units is the same wherever it stands among them: it
    counts once, as early as it may stand. An alternative pronunciation that is deleted altogether
    is one hypothesis a pronunciation.
    """
    result = []
    for choice in itertools.product(*number_slots(words)):
        places = [place for pronunciation in choice for place in pronunciation]
        used = tuple(place.slot for place in places)
        for segments in _Filling(places, num_frames, model).all():
            result.append(Hypothesis(sum(segment.score for segment in segments), segments, used))
    return result


class _Filling:
    """Ways to fill all frames with the units of ``places`` and with what may stand between them."""

    def __init__(self, places: list[Place], num_frames: int, model: Model) -> None:
        self.places, self.num_frames, self.model = places, num_frames, model
        self.known: dict = {}

    def all(self) -> list[tuple[Segment, ...]]:
        return self._before(0, 0, 0, False)

    def _is_edge(self, index: int) -> bool:
        """Whether the point before place ``index`` is not inside a word."""
        at_end = index in (0, len(self.places)) or self.model.has_silence == "everywhere"
        return at_end or self.places[index - 1].word != self.places[index].word

    def _before(self, index: int, frame: int, run: int, passed: bool) -> list[tuple[Segment, ...]]:
        """Ways to go on from the point before a place.

        Args:
            index: of the place.
            frame: where that point is.
            run: units left out since the last sound.
            passed: whether silence might have stood before one of those.
        """
        key = (index, frame, run, passed)
        if key not in self.known:
            edge = self._is_edge(index)
            result = self._at(index, frame, run, passed or edge)
            kinds = []
            if self.model.insertion_rate is not None and run == 0:
                kinds.append("insertion")
            if self.model.has_silence and edge and not passed:
                kinds.append("silence")
            for kind in kinds:
                result += self._sound(index, frame, kind)
            self.known[key] = result
        return self.known[key]

    def _sound(self, index: int, frame: int, kind: str) -> list[tuple[Segment, ...]]:
        """Ways that begin with a silence or an insertion, at the point before a place."""
        model, result = self.model, []
        for end in range(frame + 1, self.num_frames + 1):
            if kind == "silence":
                score = sum(model.silence(t) + model.log_b(t, False) for t in range(frame, end))
            else:
                score = sum(model.any_unit(t) for t in range(frame, end))
                score += model.transitions(frame, end) + model.log_pi(frame, wrong=True)
                score += log_odds(model.insertion_rate)
            rests = list(self._at(index, end, 0, self._is_edge(index)))
            if model.insertion_rate is not None:
                rests += self._sound(index, end, "insertion")
            if model.has_silence and kind != "silence" and self._is_edge(index):
                rests += self._sound(index, end, "silence")
            first = Segment(kind, -1, False, -1, frame, end, -1, -1, score)
            result += [(first, *rest) for rest in rests]
        return result

    def _at(self, index: int, frame: int, run: int, passed: bool) -> list[tuple[Segment, ...]]:
        """Ways to go on with a place, with nothing more before it."""
        if index == len(self.places):
            return [()] if frame == self.num_frames else []
        place, result = self.places[index], []
        for end in range(frame + 1, self.num_frames + 1):
            rests = self._before(index + 1, end, 0, False)
            for wrong, perceived, score in _branches(place.unit, frame, end, self.model):
                first = Segment("unit", place.unit, wrong, perceived, frame, end, *place[1:], score)
                result += [(first, *rest) for rest in rests]
        if self.model.deletion_rate is not None and run < 2:
            score = log_odds(self.model.deletion_rate)
            first = Segment("unit", place.unit, True, -1, frame, frame, *place[1:], score)
            rests = self._before(index + 1, frame, run + 1, passed)
            result += [(first, *rest) for rest in rests]
        return result


def _branches(unit: int, begin: int, end: int, model: Model):
    """(wrong, perceived, score) of each way to say ``unit`` in these frames."""
    frames = range(begin, end)
    transitions = model.transitions(begin, end)
    if model.topology == "single":
        spoken = [(unit, 0.0)]
    else:
        spoken = [(unit, model.log_pi(begin, wrong=False))]
        wrong = model.log_pi(begin, wrong=True)
    if model.topology == "substitution":
        for other, prior in enumerate(model.confusion[unit]):
            if other != unit and prior != -math.inf:
                spoken.append((other, wrong + prior))
    for cuts in itertools.combinations(range(begin + 1, end), model.states - 1):
        states = [sum(cut <= t for cut in cuts) for t in frames]
        for perceived, score in spoken:
            acoustic = sum(model.correct(t, perceived, state) for t, state in zip(frames, states))
            yield perceived != unit, perceived, acoustic + transitions + score
    if model.topology == "ml":
        acoustic = sum(model.mismatch(t, unit) for t in frames)
        yield True, -1, acoustic + transitions + wrong


@dataclass
class Answer:
    """Sums over all hypotheses; lists by slot, by slot and unit perceived, by frame and slot."""

    total: float
    best: float
    used: list[float]
    mispronounced: list[float]
    deleted: list[float]
    perceived: list[list[float]]
    occupancy: list[list[float]]
    frame_mispronounced: list[float]


def log_sum(scores: list[float]) -> float:
    top = max(scores, default=-math.inf)
    if top == -math.inf:
        return top
    return top + math.log(sum(math.exp(score - top) for score in scores))


def answer(hypotheses: list[Hypothesis], num_slots: int, num_frames: int, num_units: int) -> Answer:
    total = log_sum([hypothesis.score for hypothesis in hypotheses])
    best = max((hypothesis.score for hypothesis in hypotheses), default=-math.inf)
    used, wrong, deleted = [0.0] * num_slots, [0.0] * num_slots, [0.0] * num_slots
    perceived = [[0.0] * num_units for _ in range(num_slots)]
    occupancy = [[0.0] * num_slots for _ in range(num_frames)]
    frame_wrong = [0.0] * num_frames
    for hypothesis in hypotheses:
        probability = math.exp(hypothesis.score - total)
        for slot in hypothesis.used_slots:
            used[slot] += probability
        for segment in hypothesis.segments:
            if segment.kind != "unit":
                continue
            if segment.deleted:
                deleted[segment.slot] += probability
                continue
            wrong[segment.slot] += probability * segment.wrong
            if segment.perceived >= 0:
                perceived[segment.slot][segment.perceived] += probability
            for frame in range(segment.start, segment.end):
                occupancy[frame][segment.slot] += probability
                frame_wrong[frame] += probability * segment.wrong
    return Answer(total, best, used, wrong, deleted, perceived, occupancy, frame_wrong)
