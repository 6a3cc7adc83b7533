"""Answers to more cuts than memory has room for: portion by portion, written as they come."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lhotse import CutSet
from lhotse.cut import Cut

from mlvae.data.manifests import write_lines, write_manifest
from mlvae.made import Record
from mlvae.train.loop import Keeper, Passes

#: Utterances and seconds of what is worked on together, at most; half of either, where another
#: speaker begins. Few of new recordings, so that little is in memory; many in stages 3 and 5.
FEW, MANY = (32, 600.0), (6000, 6 * 3600.0)

Item = TypeVar("Item")


def portions(
    items: Iterable[Item],
    seconds: Callable[[Item], float],
    speaker: Callable[[Item], str | None],
    most: tuple[int, float] | None = None,
) -> Iterator[list[Item]]:
    """What is worked on together, of bounded length, always the same of the same utterances.

    What a speaker's recordings say of how often this speaker errs counts for each of them in the
    same portion. One therefore ends early rather than between recordings of a speaker who has few.

    Args:
        items: utterances in their order.
        seconds: of one of them.
        speaker: of one of them; None: nobody is named.
        most: utterances and seconds of a portion; None: :data:`FEW`.
    """
    utterances, longest = most or FEW
    portion: list[Item] = []
    total = 0.0
    for item in items:
        full = max(len(portion) / utterances, total / longest)
        if full >= 1 or (full >= 0.5 and speaker(item) != speaker(portion[-1])):
            yield portion
            portion, total = [], 0.0
        portion.append(item)
        total += seconds(item)
    if portion:
        yield portion


@dataclass(frozen=True)
class Answered:
    """Answers that lie in parts on the disk."""

    path: Path  # of the manifest that they are for
    num_parts: int  # how many portions there are
    without: list[str]  # ids of the cuts without an answer

    def write(self) -> None:
        """Write the manifest of all cuts that have an answer.

        Raises:
            InTheWayError: where it is to be written lies what was not made here.
            WriteError: it cannot be written.
        """
        write_lines(self.path, self._lines())

    def _lines(self) -> Iterator[bytes]:
        for number in range(self.num_parts):
            with gzip.open(_part(self.path, number), "rb") as lines:
                yield from lines


def answer_in_portions(
    path: Path,
    cuts: Iterable[Cut],
    keeper: Keeper,
    answer: Callable[[CutSet, Passes], tuple[CutSet, list[str]]],
    ids: Collection[str] | None = None,
) -> Answered:
    """Answer cuts, those of a portion together.

    What a portion gave lies beside the manifest, as ``NAME.NUMBER.jsonl.gz``, before the next one
    begins. A killed run goes on with the portion that was under way, behind its last pass.

    Args:
        path: the manifest that answers are for, ``NAME.jsonl.gz``.
        cuts: of which portions are made.
        keeper: of these cuts and of what answers them.
        answer: gives the cuts of a portion that have an answer, and the ids of the others.
        ids: of the cuts to answer; None: all. Portions are the same whichever these are.

    Raises:
        InTheWayError: where something is to be written lies what was not made here.
        WriteError: something cannot be written.
    """
    progress, passes = keeper.state.progress, keeper.state.passes
    done, without = progress.get("portions", 0), progress.get("without", [])

    if not all(map(_record(path).is_ours, (_part(path, number) for number in range(done)))):
        done, without = 0, []  # somebody has removed one, or changed it
        progress.update(portions=done, without=without)
        passes.clear()  # they are of the portion that was under way
    count = 0
    for whole in portioned(cuts):
        some = [cut for cut in whole if ids is None or cut.id in ids]
        if not some:
            continue
        count += 1
        if count <= done:
            continue
        found, short = answer(CutSet.from_cuts(some), passes)
        write_manifest(_part(path, count - 1), found)
        without += short
        progress.update(portions=count, without=without)
        passes.clear()
        keeper.save()
    return Answered(path, count, without)


def remove_parts(path: Path) -> None:
    """Remove all parts of a manifest that were made here, also those of an earlier, killed run.

    That is for when all that is made of them has been written, and the keeper's file is gone.
    """
    record = _record(path)
    for part in path.parent.glob(f"{path.name.split('.')[0]}.*.jsonl.gz"):
        if part.name.split(".")[1].isdecimal() and record.is_ours(part):
            record.remove(part)


def _record(path: Path) -> Record:
    return Record.above(path) or Record(path.parent)


def _part(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name.split('.')[0]}.{number}.jsonl.gz")


def portioned(cuts: Iterable[Cut]) -> Iterator[list[Cut]]:
    """Cuts in portions of :data:`MANY`, which end between two speakers where they can."""
    return portions(cuts, lambda cut: cut.duration, speaker_of, MANY)


def speaker_of(cut: Cut) -> str | None:
    """Who speaks in a cut; None: nobody is named."""
    return cut.supervisions[0].speaker if cut.supervisions else None
