"""Recordings of any length: what is too large to be searched whole is searched in stretches.

A search costs arcs x frames, which grows with the square of a recording's length. So a long one is

1. aligned roughly (by the tier ``fa``, or by :func:`locate`, which reads it window by window),
2. cut between words into stretches (:func:`divide`), in pauses where there are any,
3. searched stretch by stretch, and once more in *seams*, which go from the middle of the stretch
   before a cut to that of the stretch behind it. A seam begins and ends where the paths of the two
   stretches go from one word to the next,
4. put together (:func:`searched`): near a cut the seam is believed, which has context there, and
   elsewhere the stretch. The parts of a path are joined where both of its neighbours go from one
   word to the next in the same frame. That happens at an end of the seam at the latest, so that
   the whole is always a path of the whole graph.

Networks see the whole of it, or sections with margins where it is longer than they can see at
once; see :mod:`mlvae.data.dataset`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import k2
import torch
from lhotse.cut import Cut

from mlvae.data.units import UnitTable, canonical_units
from mlvae.fsa import (
    Emissions,
    MlFsaCompiler,
    UnitPosteriors,
    UnitSpan,
    best_columns,
    best_path,
    posteriors,
    word_posteriors,
)
from mlvae.fsa.search import open_ended, pruned_path
from mlvae.tiers import units_of_words
from mlvae.train.targets import spans_of_tier

#: Frames that :func:`locate` reads at once; the first five sixths are believed.
WINDOW = 9000
#: Longest stretch that is searched because a part of it has no path, in stretches.
MOST_MERGED = 4
#: Fewest words between a cut and the end of its seam, where the stretch has so many.
SEAM_WORDS = 3

#: The words of a recording, each with its pronunciations; see MlFsaCompiler.compile.
Words = Sequence[Sequence[Sequence[int]]]


class WordTime(NamedTuple):
    """Roughly where a word lies, in frames, and the least mean score a frame of its units."""

    start: int
    end: int
    score: float


class Stretch(NamedTuple):
    """Words of a recording and the frames in which they are searched, both with exclusive ends."""

    first_word: int
    end_word: int
    begin: int
    end: int


@dataclass
class Answer:
    """What a search says of an utterance; what was not asked for is None."""

    spans: list[UnitSpan]  # the best path's; none where the utterance is too short
    posteriors: UnitPosteriors | None = None  # of its units
    #: P(mispronounced) of words; None also where each word has one unit.
    words: torch.Tensor | None = None
    #: The posterior column of each frame, see :func:`mlvae.fsa.best_columns`.
    columns: torch.Tensor | None = None
    can_skip: bool = False  # whether its graph can leave units out
    #: Of states (T, C), as the networks give them, on CPU.
    log_posteriors: torch.Tensor | None = None


@dataclass(frozen=True)
class Wanted:
    """What is asked of a search; see :class:`Answer`."""

    paths: bool = True
    posteriors: bool = False
    words: bool = False
    columns: bool = False
    log_posteriors: bool = False


def answers_of(graphs: k2.Fsa, emissions: Emissions, wanted: Wanted) -> list[Answer]:
    """Search a batch; answers are in its order."""
    paths = best_path(graphs, emissions) if wanted.paths else [[] for _ in emissions.names]
    answers = [Answer(spans) for spans in paths]

    def put(name: str, values: Sequence) -> None:
        for answer, value in zip(answers, values):
            setattr(answer, name, value)

    put("can_skip", [bool((graphs.num_deleted > 0).any())] * len(answers))
    if wanted.posteriors:
        put("posteriors", posteriors(graphs, emissions))
    # Units and their words are the same where each word has one unit.
    if wanted.words and bool((graphs.word_pos != graphs.unit_pos).any()):
        put("words", word_posteriors(graphs, emissions))
    if wanted.columns:
        columns = best_columns(graphs, emissions)
        lengths = emissions.num_frames.tolist()
        put("columns", [row[:length] for row, length in zip(columns, lengths)])
    return answers


def compile_words(
    compiler: MlFsaCompiler, batch: Sequence[Words], names: Sequence[str] | None = None
) -> k2.Fsa:
    """Graphs of words, and of plain lists of units where each word has one; names for messages."""
    if all(len(word) == 1 and len(word[0]) == 1 for words in batch for word in words):
        batch = [[word[0][0] for word in words] for words in batch]
    return compiler.compile(batch, names=names)


def num_slots(word: Sequence[Sequence[int]]) -> int:
    """How many slots a word has in a graph."""
    return sum(len(units) for units in word)


def word_times(cut: Cut, table: UnitTable) -> list[WordTime]:
    """Where the words of a cut lie by its tier ``fa``.

    Raises:
        ValueError: as :func:`mlvae.train.targets.spans_of_tier`.
    """
    spans = spans_of_tier(cut, "fa", table.ids(canonical_units(cut), cut.id))
    return times_of_spans(spans, units_of_words(cut) or range(len(spans)))


def times_of_spans(spans: Sequence[UnitSpan], word_of: Sequence[int]) -> list[WordTime]:
    """Where words lie, from spans of their units with mean scores, and the word of each of them."""
    times: list[WordTime] = []
    for span, word in zip(spans, word_of):
        if word == len(times):
            times.append(WordTime(span.start, span.end, span.score))
        else:
            least = min(span.score, times[word].score)
            times[word] = WordTime(times[word].start, span.end, least)
    return times


def times_of_path(spans: Sequence[UnitSpan]) -> list[WordTime]:
    """Where the words of a path lie that leaves none out."""
    units = [
        span._replace(score=span.score / max(span.end - span.start, 1))
        for span in spans
        if span.kind == "unit"
    ]
    return times_of_spans(units, [span.word for span in units])


def divide(times: Sequence[WordTime], num_frames: int, size: int) -> list[Stretch]:
    """Cut a recording between words into stretches of about ``size`` frames at most.

    Each cut is in the longest pause within the second half of ``size``, or, where there is none,
    between the two words whose alignment is the surest.

    Args:
        times: of the words.
        num_frames: of the recording.
        size: frames; a stretch is longer only where a single word is.
    """
    borders: list[tuple[int, int, tuple[int, float]]] = []  # frame, word, merit
    for word, (before, behind) in enumerate(zip(times[:-1], times[1:]), start=1):
        pause = max(behind.start - before.end, 0)
        frame = behind.start - pause // 2
        last = borders[-1][0] if borders else 0
        if last < frame < num_frames:
            borders.append((frame, word, (pause, min(before.score, behind.score))))
    stretches: list[Stretch] = []
    word = begin = place = 0
    while num_frames - begin > size:
        while place < len(borders) and borders[place][0] < begin + size // 2:
            place += 1
        last = place
        latest = min(begin + size, num_frames - size // 4)  # nothing tiny is left over
        while last < len(borders) and borders[last][0] <= latest:
            last += 1
        some = borders[place : max(last, place + 1)]
        if not some:
            break
        frame, next_word, _ = max(some, key=lambda border: (border[2], border[0]))
        stretches.append(Stretch(word, next_word, begin, frame))
        begin, word = frame, next_word
    stretches.append(Stretch(word, len(times), begin, num_frames))
    return stretches


def stretch_size(num_cells: int, num_frames: int, max_cells: int, most: int) -> int:
    """Frames of a stretch whose search has a quarter of ``max_cells``, or ``most`` if that is less.

    Args:
        num_cells: arcs x frames of the recording.
        num_frames: of the recording.
        max_cells: largest search.
        most: frames of a stretch at most; short ones are faster, and long ones have more context.
    """
    return max(1, min(most, int(num_frames * math.sqrt(max_cells / (4 * max(num_cells, 1))))))


def groups(stretches: Sequence[Stretch], max_frames: int) -> Iterator[list[Stretch]]:
    """Stretches in batches of neighbours, in frames with padding."""
    group: list[Stretch] = []
    longest = 0
    for stretch in stretches:
        longest = max(longest, stretch.end - stretch.begin)
        if group and longest * (len(group) + 1) > max_frames:
            yield group
            group, longest = [], stretch.end - stretch.begin
        group.append(stretch)
    if group:
        yield group


class Junction(NamedTuple):
    """Where a path goes on to a word that is spoken: the word, and its first frame."""

    word: int
    frame: int


#: Searches stretches of one recording, in any order; an answer without spans is none.
Search = Callable[[Sequence[Stretch]], Sequence[Answer]]


def searched(
    words: Words, times: Sequence[WordTime], num_frames: int, search: Search, size: int, margin: int
) -> Answer | None:
    """Search a long recording in stretches and seams, and put the answers together.

    Args:
        words: of the recording.
        times: roughly where they lie.
        num_frames: of the recording.
        search: searches stretches.
        size: frames of a stretch.
        margin: frames from a cut to the end of its seam, but not beyond the middle of a stretch.

    Returns:
        The answer as of the whole; None where a stretch of all its words has no path.
    """
    stretches = divide(times, num_frames, size)
    answers = list(search(stretches))
    while not all(answer.spans for answer in answers):
        # Words that were aligned to too few frames: together with their neighbours they may fit.
        if len(stretches) == 1:
            return None
        empty = next(place for place, answer in enumerate(answers) if not answer.spans)
        first = max(empty - 1, 0)
        one, two = stretches[first : first + 2]
        merged = Stretch(one.first_word, two.end_word, one.begin, two.end)
        if merged.end - merged.begin > MOST_MERGED * size:
            return None
        stretches[first : first + 2] = [merged]
        answers[first : first + 2] = search([merged])
    between = [
        _seam(*pair, margin)
        for pair in zip(stretches[:-1], answers[:-1], stretches[1:], answers[1:])
    ]
    return _joined(words, stretches, answers, between, search(between) if between else [])


def junctions(stretch: Stretch, answer: Answer) -> list[Junction]:
    """Where a path goes from a spoken unit to a spoken word, in frames of the recording.

    Its two ends are among them.
    """
    found = [Junction(stretch.first_word, stretch.begin)]
    before = None
    for span in answer.spans:
        if span.kind != "unit":
            continue
        spoken = before is not None and not span.is_deletion and not before.is_deletion
        if spoken and span.word == before.word + 1:
            found.append(Junction(stretch.first_word + span.word, stretch.begin + span.start))
        before = span
    return [*found, Junction(stretch.end_word, stretch.end)]


def _middle(stretch: Stretch, answer: Answer) -> Junction:
    """The junction where the seams on both sides of a stretch meet at the latest."""
    middle = (stretch.begin + stretch.end) / 2
    return min(junctions(stretch, answer)[:-1], key=lambda found: abs(found.frame - middle))


def _seam(left: Stretch, left_answer: Answer, right: Stretch, right_answer: Answer, margin: int):
    """The seam over the cut between two stretches."""
    cut = Junction(right.first_word, right.begin)
    begin, end = _middle(left, left_answer), _middle(right, right_answer)
    for found in junctions(left, left_answer)[:-1]:
        if found.frame <= cut.frame - margin and found.word <= cut.word - SEAM_WORDS:
            begin = max(begin, found)
    for found in reversed(junctions(right, right_answer)[:-1]):
        if found.frame >= cut.frame + margin and found.word >= cut.word + SEAM_WORDS:
            end = min(end, found)
    return Stretch(begin.word, end.word, begin.frame, end.frame)


def _meeting(
    one: Iterable[Junction], other: Iterable[Junction], seam_end: Junction, cut: Junction
) -> Junction:
    """Where two paths are joined: the common junction that is nearest to half way to the cut."""
    middle = (seam_end.frame + cut.frame) / 2
    low, high = sorted((seam_end, cut))
    common = [found for found in set(one) & set(other) if low <= found <= high]
    return min(common, key=lambda found: (abs(found.frame - middle), found), default=seam_end)


def _joined(
    words: Words,
    stretches: Sequence[Stretch],
    answers: Sequence[Answer],
    seams: Sequence[Stretch],
    seam_answers: Sequence[Answer],
) -> Answer:
    """The answer for the whole recording, from parts of those for stretches and seams."""
    parts: list[tuple[Stretch, Answer, Junction, Junction]] = []
    here = Junction(stretches[0].first_word, stretches[0].begin)
    for place, (seam, answer) in enumerate(zip(seams, seam_answers)):
        left, right = stretches[place : place + 2]
        cut = Junction(right.first_word, right.begin)
        if not answer.spans:
            parts.append((left, answers[place], here, cut))
            here = cut
            continue
        own = junctions(seam, answer)
        begin = _meeting(junctions(left, answers[place]), own, own[0], cut)
        end = _meeting(junctions(right, answers[place + 1]), own, own[-1], cut)
        parts += [(left, answers[place], here, begin), (seam, answer, begin, end)]
        here = end
    last = Junction(stretches[-1].end_word, stretches[-1].end)
    parts.append((stretches[-1], answers[-1], here, last))
    return _assembled(words, [part for part in parts if part[2] != part[3]])


def _assembled(words: Words, parts: Sequence[tuple[Stretch, Answer, Junction, Junction]]) -> Answer:
    first_slot = [0, *accumulate(num_slots(word) for word in words)]
    spans: list[UnitSpan] = []
    fields: dict[str, list[torch.Tensor]] = {}
    any_words = any(answer.words is not None for _, answer, _, _ in parts)
    position = 0
    for source, answer, begin, end in parts:
        offset = first_slot[source.first_word]
        slots = slice(first_slot[begin.word] - offset, first_slot[end.word] - offset)
        of_words = slice(begin.word - source.first_word, end.word - source.first_word)
        for span in answer.spans:
            is_unit = span.kind == "unit"
            start = source.begin + span.start
            if is_unit and not of_words.start <= span.word < of_words.stop:
                continue
            if not is_unit and not begin.frame <= start < end.frame:
                continue
            span = span._replace(start=start, end=source.begin + span.end)
            if is_unit:
                span = span._replace(
                    position=position,
                    word=span.word + source.first_word,
                    slot=span.slot + offset,
                )
                position += 1
            spans.append(span)
        if answer.posteriors is not None:
            own = answer.posteriors
            word = own.word + source.first_word
            for name, values in {**vars(own), "word": word}.items():
                if values is not None:
                    fields.setdefault(name, []).append(values[slots])
        if answer.columns is not None:
            frames = slice(begin.frame - source.begin, end.frame - source.begin)
            fields.setdefault("columns", []).append(answer.columns[frames])
        if any_words:
            probability = answer.words
            if probability is None:
                probability = answer.posteriors.mispronounced + answer.posteriors.deleted
            fields.setdefault("words", []).append(probability[of_words])
    whole = {name: torch.cat(values) for name, values in fields.items()}
    result = Answer(spans, can_skip=any(answer.can_skip for _, answer, _, _ in parts))
    for name in ("columns", "words"):
        setattr(result, name, whole.pop(name, None))
    if whole:
        result.posteriors = UnitPosteriors(**whole)
    return result


#: Emissions of topology ``single`` of some frames of a recording, from ``begin`` to ``end``, with
#: log-probabilities that no unit starts and that one does, float (1, end - begin, 2).
EmissionsOf = Callable[[int, int, torch.Tensor], Emissions]


def locate(
    words: Words, num_frames: int, compiler: MlFsaCompiler, emissions_of: EmissionsOf
) -> list[WordTime] | None:
    """Align a recording of any length roughly, reading on window by window.

    A window begins where the one before it was sure, and holds words enough; the path through it
    may end with any of them. That costs pruned searches whose time and memory grow with the frames.

    Args:
        words: of the recording.
        num_frames: its length.
        compiler: of topology ``single``.
        emissions_of: what it is searched with.

    Returns:
        Where each word lies; None where the text does not fit into what is left of the recording.
    """
    units = [min(map(len, word)) for word in words]
    units_before = [0, *accumulate(units)]
    times: list[WordTime] = []
    frame, window, factor = 0, WINDOW, 4.0
    while len(times) < len(words):
        first, end = len(times), min(frame + window, num_frames)
        rate = (units_before[-1] - units_before[first]) / max(num_frames - frame, 1)
        rate = min(max(rate, 1e-3), 0.5)
        enough = units_before[first] + factor * rate * (end - frame) + 20
        last = first + 1
        while last < len(words) and (end == num_frames or units_before[last] < enough):
            last += 1
        graph = compile_words(compiler, [words[first:last]])
        starts = torch.tensor([1 - rate, rate]).log().expand(1, end - frame, 2)
        emissions = emissions_of(frame, end, starts)
        if end < num_frames:
            graph = open_ended(graph)
        spans = pruned_path(graph.to(emissions.device), emissions)
        if not spans:
            return None
        found = [
            time._replace(start=time.start + frame, end=time.end + frame)
            for time in times_of_path(spans)
        ]
        if end == num_frames:
            return times + found
        if len(found) == last - first < len(words) - first:
            factor *= 2  # more was said than there were words
            continue
        sure = frame + 5 * (end - frame) // 6
        believed = [time for time in found if time.end <= sure]
        if not believed:
            if not found or found[0].start >= sure:
                frame = sure  # a long pause
            elif window < 16 * WINDOW:
                window *= 2
            else:
                return None  # a word that lasts for minutes
            continue
        times += believed
        # Within a pause, the next window may begin anywhere: it has less of it to read again.
        following = [time.start for time in found[len(believed) :]]
        frame = max(believed[-1].end, min([sure, *following]))
        window, factor = WINDOW, 4.0
    return times
