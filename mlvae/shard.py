"""Shards: the work of a stage in parts, ``--shard i/n``, that are done in any order and anywhere.

A shard takes its part of the work by numbers alone, so that it needs to know nothing of the others,
and writes to a folder of its own, ``shards/i-of-n`` in the folder of the stage. It keeps that
folder from another run of the same shard, and the stage's from whoever would join the shards too
early. The stage without ``--shard`` joins what is there; see :func:`found_shards`.
"""

from __future__ import annotations

import contextlib
import heapq
import re
import tempfile
import zlib
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonargparse.typing import register_type

from mlvae.data.manifests import line_of, manifest_lines, read_json, write_lines
from mlvae.made import Record, writing

SHARDS = "shards"
#: Of a shard: what was done of what, and with what; it is written last.
RUN = "run.json"
#: Of the option ``--shard`` of stages.
SHARD_HELP = "one of n parts of the work, as in 3/8; the stage without it joins them"
#: More processes than any array of jobs has.
MOST = 100_000


@dataclass(frozen=True, order=True)
class Shard:
    """One of several parts of the work of a stage."""

    count: int  # how many parts there are
    number: int  # which of them this is, from 1

    @classmethod
    def of(cls, text: str) -> Shard:
        """The shard that an option names, as in ``3/8``; ValueError says what is wrong."""
        found = re.fullmatch(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})", text, re.ASCII)
        if not found or not int(found[1]) <= int(found[2]) <= MOST:
            raise ValueError(
                f"--shard must be i/n, as in 3/8, with i from 1 to n, not {text!r:.40}"
            )
        return cls(int(found[2]), int(found[1]))

    @classmethod
    def of_id(cls, item_id: str, count: int) -> Shard:
        """The shard of an item, wherever it stands."""
        return cls(count, zlib.crc32(item_id.encode("utf-8", "surrogatepass")) % count + 1)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def takes(self, index: int) -> bool:
        """Whether the item of an index, from 0, belongs to this shard."""
        return index % self.count == self.number - 1

    def folder(self, above: Path) -> Path:
        """Where it writes, in the folder of the stage."""
        return Path(above) / SHARDS / f"{self.number}-of-{self.count}"


register_type(Shard, str, Shard.of)


def dealt(items: Iterable[tuple[Hashable, float]], count: int) -> dict[Hashable, int]:
    """Which shard, from 1, each group belongs to, where the items of a group must stay together.

    Groups are dealt out in the order of falling weight, each to the shard that has least.

    Args:
        items: of all shards, each with its group and its weight.
        count: of shards.
    """
    weights: Counter[Hashable] = Counter()
    for group, weight in items:
        weights[group] += weight
    shards = [(0.0, number) for number in range(1, count + 1)]
    found = {}
    for group, weight in weights.most_common():
        load, found[group] = shards[0]
        heapq.heapreplace(shards, (load + weight, found[group]))
    return found


def found_shards(above: Path) -> dict[Shard, Path]:
    """The shards that have written something to the folder of a stage, with their folders.

    Raises:
        ValueError: they are parts of different numbers, as of 3 and of 4.
    """
    found: dict[Shard, Path] = {}
    for path in Path(above).glob(f"{SHARDS}/*-of-*"):
        with contextlib.suppress(ValueError):
            shard = Shard.of(path.name.replace("-of-", "/"))
            if Record(path).names():
                found[shard] = path
    if len(counts := sorted({shard.count for shard in found})) > 1:
        raise ValueError(
            f"{Path(above) / SHARDS} has shards of {' and of '.join(map(str, counts))}: delete "
            "those that are not meant"
        )
    return dict(sorted(found.items()))


def not_done(above: Path, shards: Iterable[Shard]) -> ValueError:
    """The error of shards whose work is not done, or not all of it, by name."""
    names = [str(shard) for shard in sorted(set(shards))]
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ValueError(
        f"{Path(above) / SHARDS}: not done, or not to the end: shard {', '.join(names[:20])}"
        f"{more}; run each again with --shard, then this, or delete the folder to do without"
    )


def check_done(
    shards: Mapping[Shard, Path],
    due: Set[Shard],
    runs: Mapping[str, Mapping[str, Any]],
    above: Path,
) -> None:
    """Check that shards that are due are done, by all that was to answer, and in the same run.

    Args:
        shards: those that have written something, with their folders.
        due: those that have something to do.
        runs: by name of a file in the folder of a shard, what it must say.
        above: the folder of the stage.

    Raises:
        ValueError: they are not; names the shards.
    """
    left = set(due - shards.keys())
    for shard in due & shards.keys():
        for name, run in runs.items():
            file = shards[shard] / name
            if not file.is_file():
                left.add(shard)
            elif read_json(file) != run:
                raise ValueError(
                    f"{file.parent}: of other models, cuts or settings: run it again with --shard "
                    f"{shard}, or delete the folder"
                )
    if left:
        raise not_done(above, left)


def join_manifests(path: Path, answers: Mapping[str, Path]) -> list[str]:
    """Write a manifest of what shards have found, in the order of one process.

    Args:
        path: of the manifest.
        answers: by id of a cut, in this order, the manifest of its shard.

    Returns:
        The ids of the cuts that have no answer.

    Raises:
        ValueError: a manifest of a shard is damaged; names it.
        WriteError: something cannot be written.
    """
    places: dict[str, tuple[int, int]] = {}
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent) as file:  # there may be too many to open all
            for one in dict.fromkeys(answers.values()):
                for _, content in manifest_lines(one):
                    line = line_of(content)
                    places[str(content.get("id"))] = file.tell(), len(line)
                    file.write(line)

            def lines() -> Iterator[bytes]:
                for begin, size in (places[name] for name in answers if name in places):
                    file.seek(begin)
                    yield file.read(size)

            write_lines(path, lines())
    return [name for name in answers if name not in places]


def remove_shards(folders: Iterable[Path]) -> None:
    """Remove the folders of shards that were joined, but for files that were not made there."""
    for folder in folders:
        Record(folder).remove_all()
        with contextlib.suppress(OSError):  # others are left
            folder.parent.rmdir()
