"""Shared by all stages: logging, progress, atomic writes, counts of done and skipped items."""

from __future__ import annotations

import contextlib
import csv
import errno
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

from mlvae.errors import one_line
from mlvae.lock import folder_lock
from mlvae.made import InTheWayError, Record, WriteError, atomic_path, replaced_folder, writing

SKIPPED = "skipped.jsonl"

_Item = TypeVar("_Item")

#: Seconds between two lines of a loop in a log file.
LINE_SECONDS = 30.0


def log(message: str) -> None:
    """Print one line with the local time in front, as Kaldi recipes do."""
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}", flush=True)


class Progress:
    """Shows how far a loop is, with its rate and the time that is left, on standard error.

    On a terminal that is a bar, which goes away at the end. A log file would keep each state of it:
    there it is a line every half minute, so that a loop of a few seconds says nothing.

    Args:
        description: what the loop does.
        unit: what is counted, in the singular.
        total: how many there are; None where nobody knows.
        shown: whether to show anything; of processes that work together one does.
    """

    def __init__(
        self, description: str, unit: str, total: int | None = None, shown: bool = True
    ) -> None:
        self.description = description
        self.unit = unit
        self.total = total
        self.shown = shown
        self.done = self._skipped = 0
        self._began = self._said = time.monotonic()
        self._bar = None
        if shown and sys.stderr.isatty():
            self._bar = tqdm(
                desc=description,
                total=total,
                unit=unit,
                unit_scale=unit == "frame",
                leave=False,
                mininterval=0.5,
            )

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def skip(self, count: int) -> None:
        """Count what an earlier run has done, which tells nothing of the rate."""
        self.done += count
        self._skipped += count
        if self._bar is not None:
            self._bar.initial += count
            self._bar.n += count

    def update(self, count: int = 1) -> None:
        """Count what was done."""
        self.done += count
        if self._bar is not None:
            self._bar.update(count)
        elif self.shown and time.monotonic() - self._said >= LINE_SECONDS:
            self._say()

    def close(self) -> None:
        """End the bar; a loop that had lines has a last one, unless it has just been said."""
        if self._bar is not None:
            self._bar.close()
        elif self._said > self._began and time.monotonic() > self._said:
            self._say()

    def _say(self) -> None:
        self._said = time.monotonic()
        seconds = max(self._said - self._began, 1e-9)
        rate = (self.done - self._skipped) / seconds
        of = left = ""
        if self.total:
            of = f" of {self.total:,} ({self.done / self.total:.0%})"
            if rate > 0:
                left = tqdm.format_interval(max(self.total - self.done, 0) / rate)
                left = f", {left} left"
        each = (
            f"{rate:.1f} {self.unit}s/s"
            if rate >= 1 or not rate
            else f"{1 / rate:.1f} s/{self.unit}"
        )
        line = f"{self.description}: {self.done:,}{of} {self.unit}s, {each}{left}"
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", file=sys.stderr, flush=True)


def progress(
    items: Iterable[_Item], description: str, unit: str, total: int | None = None
) -> Iterator[_Item]:
    """Go through ``items`` and show how far; see :class:`Progress`."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with Progress(description, unit, total) as shown:
        for item in items:
            yield item
            shown.update()


def in_one_line(program: str, work: Callable[[], int]) -> int:
    """Do the work of a program, which gives its exit status; that status.

    A ValueError or an OSError is a line on standard error, and the status 1.
    """
    try:
        return work()
    except (ValueError, OSError) as error:
        print(f"{program}: {one_line(error)}", file=sys.stderr, flush=True)
        return 1


@contextlib.contextmanager
def stage_folder(
    stage: str, folder: Path, outputs: Iterable[Path] = (), reads: Iterable[Path] = ()
) -> Iterator[Record]:
    """Have a folder to write to, and see before any work that it can be written; its record.

    It is made where it is not there. Nobody else writes to the folder during the block, or to what
    is read. What a killed run has left is removed.

    Args:
        stage: what runs.
        folder: to write.
        outputs: files that the block writes, or replaces, besides ``skipped.jsonl``.
        reads: folders that others must not write to meanwhile.

    Raises:
        FolderInUseError: somebody else uses one of the folders.
        InTheWayError: where an output goes lies something that was not made here.
        WriteError: the folder cannot be written to, or the disk is full.
    """
    folder = Path(folder)
    check_writable(folder)
    is_new = not folder.exists()
    with writing(folder):
        Path(os.path.realpath(folder)).mkdir(parents=True, exist_ok=True)
    try:
        with contextlib.ExitStack() as stack:
            alone = stack.enter_context(folder_lock(folder, stage))
            for other in reads:
                if os.path.realpath(other) != os.path.realpath(folder):
                    stack.enter_context(folder_lock(other, stage, shared=True))
            record = Record.begin(folder)
            if alone:
                stack.callback(record.tidy)
                record.remove_left_overs()
            outputs = [folder / SKIPPED, *outputs]
            record.check(outputs)
            for path in outputs:
                check_writable(path.parent)
            yield record
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # something was written
                folder.rmdir()


@contextlib.contextmanager
def made_tree(folder: Path, stage: str, marker: str) -> Iterator[Path]:
    """Make a folder of files anew, which has a lock and a record of its own; an empty one for them.

    See `mlvae.made.replaced_folder`, also for errors.
    """
    with stage_folder(stage, folder) as record, replaced_folder(folder, record, marker) as fresh:
        yield fresh


@contextlib.contextmanager
def made_table(path: Path, stage: str, columns: Sequence[str]) -> Iterator[Record]:
    """Have a CSV file to write, and see before any work that it can be; its folder's record.

    Nobody else writes to its folder, which is there, during the block. What was made here with
    other columns is of another command.

    Raises:
        FolderInUseError, InTheWayError, WriteError: as of :func:`stage_folder`.
    """
    path = Path(path)
    check_writable(path.parent)
    with folder_lock(path.parent, stage) as alone:
        record = Record.begin(path.parent)
        try:
            record.check([path])
            if path.is_file():
                with path.open(encoding="utf-8", errors="replace") as file:
                    if file.readline().rstrip("\n") != ",".join(columns):
                        raise InTheWayError(f"{path}: in the way, it is of another command")
            yield record
        finally:
            if alone:
                record.tidy()


def write_csv(
    path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]], record: Record
) -> None:
    """Write a table, whole or not at all; bytes of a file name that are no UTF-8 are escaped."""
    with (
        atomic_path(path, record) as temporary,
        temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def check_writable(folder: Path) -> None:
    """Check that files can be written to a folder, or to where it is to be made.

    Raises:
        WriteError: they cannot; or the disk is full.
    """
    place = Path(os.path.realpath(folder))
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        raise WriteError(folder, NotADirectoryError(f"{place} is not a folder"))
    if not os.access(place, os.W_OK | os.X_OK):
        raise WriteError(folder, PermissionError(f"{place} is read-only, or somebody else's"))
    disk = os.statvfs(place)
    free = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail
    if (disk.f_blocks and not free) or (disk.f_files and not disk.f_ffree):
        raise WriteError(folder, OSError(os.strerror(errno.ENOSPC)))


@dataclass
class StageReport:
    """Counts of one stage over its items; the skipped ones go to ``folder/skipped.jsonl``.

    The file is shared by the stages of a folder: running a stage again replaces its own lines only.

    Example::

        report = StageReport(stage="1 fbank", folder=Path("data/fsdd"))
        report.done(2999)
        report.skip("utt7", "audio is shorter than its header says", place="wav/utt7.wav")
        status = report.finish()  # prints "... 3000 in = 2999 done + 1 skipped (...)"
    """

    stage: str
    folder: Path
    num_done: int = 0
    skipped: list[dict] = field(default_factory=list)

    def done(self, count: int = 1) -> None:
        """Count ``count`` more items as done."""
        self.num_done += count

    def skip(self, item: str, reason: str, place: str | None = None) -> None:
        """Count ``item`` as skipped, and say on standard error why and, if known, where."""
        record = {"stage": self.stage, "id": item, "reason": reason}
        if place is not None:
            record["source"] = place
        self.skipped.append(record)
        where = f" ({place})" if place else ""
        print(f"{self.stage}: skipped {item}{where}: {reason}", file=sys.stderr, flush=True)

    def count(self, item: str, reason: str | None) -> None:
        """Count ``item`` as skipped, or as done where there is no reason."""
        if reason is None:
            self.done()
        else:
            self.skip(item, reason)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Write and print what was skipped where a ValueError or an OSError ends the block."""
        try:
            yield
        except (ValueError, OSError):
            if self.skipped:
                self.finish()
            raise

    def again(self) -> StageReport:
        """A report of items that are counted here already, so that each counts once.

        What is skipped there moves from done to skipped, unless it is skipped already.
        """
        return _Again(self.stage, self.folder, first=self)

    def finish(self) -> int:
        """Write ``skipped.jsonl``, print the counts, and return the exit status of the stage.

        Returns:
            0, or 1 when not a single item was done.
        """
        path = Path(self.folder) / SKIPPED
        others: list[str] = []
        if path.exists():
            # Not splitlines: names of files may hold what Unicode takes for the end of a line.
            lines = path.read_text(encoding="utf-8").split("\n")
            others = [line for line in lines if line and json.loads(line)["stage"] != self.stage]
        with atomic_path(path) as temporary:
            own = [json.dumps(record, ensure_ascii=False) for record in self.skipped]
            text = "".join(f"{line}\n" for line in others + own)
            # Bytes of a file name that are no UTF-8 become escapes, which JSON has as well.
            temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
        total = self.num_done + len(self.skipped)
        see = f" (see {path})" if self.skipped else ""
        log(
            f"stage {self.stage}: {total} in = {self.num_done} done + "
            f"{len(self.skipped)} skipped{see}"
        )
        return 0 if self.num_done else 1


@dataclass
class _Again(StageReport):
    """See :meth:`StageReport.again`."""

    first: StageReport | None = None

    def done(self, count: int = 1) -> None:
        """They are counted already."""

    def skip(self, item: str, reason: str, place: str | None = None) -> None:
        """Move an item from done to skipped."""
        if item not in {record["id"] for record in self.first.skipped}:
            self.first.num_done -= 1
            self.first.skip(item, reason, place)
