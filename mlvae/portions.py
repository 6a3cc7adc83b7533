"""Answers to more cuts than memory has room for: portion by portion, written as they come."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lhotse import CutSet
from lhotse.cut import Cut

from mlvae.data.manifests import write_lines, write_manifest
from mlvae.made import Record
from mlvae.model_folder import portions
from mlvae.train.loop import Keeper, Passes

#: Utterances and seconds of cuts that are answered together, at most; see :func:`portions`.
PORTION = (6000, 6 * 3600.0)


@dataclass(frozen=True)
class Answered:
    """Answers that lie in parts on the disk.

    Attributes:
        path: of the manifest that they are for.
        num_parts: how many portions there are.
        without: ids of the cuts without an answer.
    """

    path: Path
    num_parts: int
    without: list[str]

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
) -> Answered:
    """Answer cuts, those of a portion together.

    What a portion gave lies beside the manifest, as ``NAME.NUMBER.jsonl.gz``, before the next one
    begins. A killed run goes on with the portion that was under way, behind its last pass.

    Args:
        path: the manifest that answers are for, ``NAME.jsonl.gz``.
        cuts: to answer.
        keeper: of these cuts and of what answers them.
        answer: gives the cuts of a portion that have an answer, and the ids of the others.

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
    for some in portions(cuts, lambda cut: cut.duration, _speaker, PORTION):
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


def _speaker(cut: Cut) -> str | None:
    return cut.supervisions[0].speaker
