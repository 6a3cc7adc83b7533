"""Answers to more cuts than memory has room for: portion by portion, written as they come."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lhotse import CutSet
from lhotse.cut import Cut

from mlvae.data.manifests import write_lines, write_manifest
from mlvae.made import remove_made
from mlvae.model_folder import portions
from mlvae.train.loop import Keeper, Passes

#: Utterances and seconds of cuts that are answered together, at most; see :func:`portions`.
PORTION = (6000, 6 * 3600.0)


@dataclass(frozen=True)
class Answered:
    """Answers that lie in parts on the disk.

    Attributes:
        path: of the manifest that they are for.
        parts: manifests of the portions, in their order.
        without: ids of the cuts without an answer.
        keeper: knows that the parts are whole.
    """

    path: Path
    parts: list[Path]
    without: list[str]
    keeper: Keeper

    def write(self) -> None:
        """Write the manifest of all cuts that have an answer, and remove the parts.

        Raises:
            InTheWayError: where it is to be written lies what was not made here.
            WriteError: it cannot be written.
        """
        write_lines(self.path, self._lines())
        self.keeper.remove()
        for part in self.parts:
            remove_made(part)

    def _lines(self) -> Iterator[bytes]:
        for part in self.parts:
            with gzip.open(part, "rb") as lines:
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

    def part(number: int) -> Path:
        return path.with_name(f"{path.name.split('.')[0]}.{number}.jsonl.gz")

    if not all(part(number).is_file() for number in range(done)):
        done, without = 0, []  # somebody has removed one
    parts: list[Path] = []
    for whole in portioned(cuts):
        some = [cut for cut in whole if ids is None or cut.id in ids]
        if not some:
            continue
        parts.append(part(len(parts)))
        if len(parts) <= done:
            continue
        found, short = answer(CutSet.from_cuts(some), passes)
        write_manifest(parts[-1], found)
        without += short
        progress.update(portions=len(parts), without=without)
        passes.clear()
        keeper.save()
    return Answered(path, parts, without, keeper)


def portioned(cuts: Iterable[Cut]) -> Iterator[list[Cut]]:
    """Cuts in portions of :data:`PORTION`, which end between two speakers where they can."""
    return portions(cuts, lambda cut: cut.duration, _speaker, PORTION)


def _speaker(cut: Cut) -> str | None:
    return cut.supervisions[0].speaker if cut.supervisions else None
