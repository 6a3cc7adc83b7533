"""What localisation says of an utterance, as plain values: :class:`Answer`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lhotse import MonoCut
from lhotse.supervision import AlignmentItem

from mlvae.data.dataset import cut_of_line
from mlvae.data.manifests import manifest_lines, place_of, shown_id
from mlvae.errors import one_line
from mlvae.stage import SKIPPED
from mlvae.tiers import has_tier, tier, units_of_words, word_spans

#: The manifest of answers: in what `mlvae localize` writes, and in a system's folder of stage 5.
MANIFESTS = ("cuts.jsonl.gz", "cuts_test.jsonl.gz")
#: Tiers that an answer has at least.
TIERS = ("mlvae", "mlvae_perceived")
#: Stages whose skipped utterances have no answer.
STAGES = ("localize", "3 align", "5 localize")


@dataclass(frozen=True)
class Unit:
    """A canonical unit of an utterance."""

    symbol: str
    start: float  # seconds from the start of the cut
    end: float  # the same; a deleted unit may have no length
    p_mispronounced: float | None  # P(mispronounced or deleted); None from systems that give none
    p_deleted: float | None  # P(deleted); None where deletions are not searched
    perceived: str  # what was perceived: a unit, ``*`` an unknown one, ``-`` nothing
    flagged: bool  # whether that differs from the unit
    word: int | None  # index of its word in the utterance; None where nothing is known of words


@dataclass(frozen=True)
class Word:
    """A word of an utterance."""

    symbol: str  # the word as the text's units were made of it
    start: float  # seconds from the start of the cut
    end: float  # seconds
    # P(any of its units is mispronounced or deleted); None from systems that give none
    p_mispronounced: float | None
    num_units: int
    num_flagged: int  # how many of them are flagged


@dataclass(frozen=True)
class Answer:
    """What was found in an utterance."""

    id: str
    text: str | None  # as it was given; None where the cut came with units alone
    speaker: str | None  # None where nobody is named
    duration: float  # of the cut in seconds
    words: list[Word]  # in order; empty where nothing is known of words
    units: list[Unit]  # the canonical units in order
    # mean over the frames of units of the log posterior minus log prior that the aligner's model
    # gives the forced alignment (natural logarithms). None of stage 5, which does not compute it.
    score_per_frame: float | None
    # the same for a free loop over all units, minus ``score_per_frame``: how much better any sounds
    # at all explain the recording than its text. The loop has the best state of any unit in each
    # frame, so that this is never negative; it is high where the text belongs to another recording.
    # None of stage 5.
    loop_gain: float | None
    cut: MonoCut = field(repr=False, compare=False)  # the cut with its tiers, see docs/formats.md

    @property
    def num_flagged(self) -> int:
        """How many units are flagged."""
        return sum(unit.flagged for unit in self.units)

    @property
    def fraction_flagged(self) -> float:
        """The fraction of units that are flagged."""
        return self.num_flagged / len(self.units)

    @property
    def mean_p(self) -> float | None:
        """Mean P(mispronounced) of the units; None from systems that give none."""
        known = [u.p_mispronounced for u in self.units if u.p_mispronounced is not None]
        return sum(known) / len(known) if known else None


def answer_of(cut: MonoCut) -> Answer:
    """Read an answer off the tiers of a cut that a model has localised."""
    (supervision,) = cut.supervisions
    items = tier(cut, "mlvae")
    deleted = _scores(cut, "mlvae_deleted", len(items))
    word_of, custom = units_of_words(cut), cut.custom or {}
    units = [
        Unit(
            symbol=item.symbol,
            start=item.start,
            end=item.end,
            p_mispronounced=item.score,
            p_deleted=deleted[index],
            perceived=perceived.symbol,
            flagged=perceived.symbol != item.symbol,
            word=None if word_of is None else word_of[index],
        )
        for index, (item, perceived) in enumerate(zip(items, tier(cut, "mlvae_perceived")))
    ]
    return Answer(
        id=cut.id,
        text=supervision.text,
        speaker=supervision.speaker,
        duration=cut.duration,
        words=[] if word_of is None else _words(cut, units, word_of),
        units=units,
        score_per_frame=custom.get("score_per_frame"),
        loop_gain=custom.get("loop_gain"),
        cut=cut,
    )


def _scores(cut: MonoCut, name: str, count: int) -> list[float | None]:
    if not has_tier(cut, name):
        return [None] * count
    items = tier(cut, name)
    if len(items) != count:
        raise ValueError(f"tier {name} has {len(items)} items in the place of {count}")
    return [item.score for item in items]


def _words(cut: MonoCut, units: Sequence[Unit], word_of: Sequence[int]) -> list[Word]:
    symbols = cut.supervisions[0].custom["words"]
    items = [AlignmentItem(u.symbol, u.start, max(u.end - u.start, 0.0)) for u in units]
    scores = _scores(cut, "mlvae_word", len(symbols))
    words = []
    for index, (start, duration) in enumerate(word_spans(items, word_of)):
        mine = [unit.flagged for unit in units if unit.word == index]
        words.append(
            Word(
                symbols[index],
                start,
                round(start + duration, 6),
                scores[index],
                len(mine),
                sum(mine),
            )
        )
    return words


def answers_path(folder: Path) -> Path:
    """The manifest of answers of `mlvae localize`, or of a system after stage 5, in a folder.

    Raises:
        ValueError: there is none.
    """
    folder = Path(folder)
    for path in (folder / name for name in MANIFESTS):
        if path.is_file():
            return path
    raise ValueError(
        f"{folder} has no answers: neither {MANIFESTS[0]}, which `mlvae localize --format cuts` "
        f"writes, nor {MANIFESTS[1]} of stage 5"
    )


def read_answers(
    folder: Path, skip: Callable[[str, str, str], None], with_fit: bool = False
) -> Iterator[Answer]:
    """The answers in a folder, see :func:`answers_path`, one by one.

    ``skip`` is told of a line that has no answer: its id, the reason and the place. ``with_fit``
    says that one that does not say how well its text fits is none.

    Raises:
        ValueError: there is no manifest, or it is damaged; names file and line.
    """
    path = answers_path(folder)
    seen: set[str] = set()
    for number, content in manifest_lines(path):
        place = place_of(path, number)
        try:
            answer = answer_of_line(content, place)
            if with_fit and None in (answer.loop_gain, answer.score_per_frame):
                raise ValueError("no loop_gain, as stage 3 writes it: run the stages from 3 on")
            if answer.id in seen:
                raise ValueError("another line has this id, too")
        except ValueError as error:
            skip(shown_id(content), str(error), place)
            continue
        seen.add(answer.id)
        yield answer


def answer_of_line(content: Mapping[str, Any], place: str) -> Answer:
    """The answer that a line of a manifest has; no command is run and no audio read.

    Raises:
        ValueError: it has none, or a damaged one; says why, without id and place.
    """
    try:
        return _checked(cut_of_line(content, place, allow_commands=True))
    except Exception as error:  # of a damaged line anything
        reason = error.args[0] if isinstance(error, KeyError) and error.args else error
        reason = one_line(reason).removeprefix(f"{place}: ")
        raise ValueError(reason.removeprefix(f"{shown_id(content)}: ")) from error


def _checked(cut: Any) -> Answer:
    if not isinstance(cut, MonoCut) or len(cut.supervisions) != 1:
        raise ValueError("a cut of one channel with one supervision is expected")
    tiers = cut.supervisions[0].alignment or {}
    if missing := [name for name in TIERS if name not in tiers]:
        raise ValueError(f"no answer: no tier {' and '.join(missing)}")
    if not tiers[TIERS[0]]:
        raise ValueError("no answer: no units")
    _scores(cut, TIERS[1], len(tiers[TIERS[0]]))  # as many perceived ones
    answer = answer_of(cut)
    numbers = [answer.score_per_frame, answer.loop_gain, answer.duration]
    chances = [unit.p_deleted for unit in answer.units]
    for item in (*answer.units, *answer.words):
        numbers += [item.start, item.end]
        chances.append(item.p_mispronounced)
    if not all(_is_number(number) for number in (*numbers, *chances)):
        raise ValueError("a time, P, score_per_frame or loop_gain of its answer is no number")
    if not all(p is None or 0 <= p <= 1 for p in chances):
        raise ValueError("a P of its answer is outside 0 to 1")
    return answer


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and math.isfinite(value))


def read_skipped(folder: Path) -> Iterator[tuple[str, str]]:
    """Ids and reasons of what was skipped when the answers of a folder or experiment were made.

    What stage 3 has skipped of other parts than the test part is among them.
    """
    folder = Path(folder)
    if (folder / MANIFESTS[1]).is_file() and not (folder / MANIFESTS[0]).is_file():
        folder = folder.resolve().parent  # a system's: its experiment has the file
    if (folder / SKIPPED).is_file():
        for _, line in manifest_lines(folder / SKIPPED):
            if line.get("stage") in STAGES:
                yield str(line.get("id")), str(line.get("reason"))
