"""What a stage of a recipe owes its user: log lines, counts that add up, whole files or none."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

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


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary sibling of ``path`` that replaces it when the block succeeds.

    The temporary name keeps all suffixes, because writers choose their format (``.jsonl.gz``) by
    them. After an error the temporary file is removed and ``path`` is what it was before.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@dataclass
class StageReport:
    """Counts of one stage over its items; the skipped ones go to ``folder/skipped.jsonl``.

    The file is shared by the stages of a folder: running a stage again replaces its own lines only.

    Example:
        >>> report = StageReport(stage="1 fbank", folder=Path("data/fsdd"))
        >>> report.done(2999)
        >>> report.skip("utt7", "audio is shorter than its header says", place="wav/utt7.wav")
        >>> status = report.finish()  # prints "... 3000 in = 2999 done + 1 skipped (...)"
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
            record["place"] = place
        self.skipped.append(record)
        where = f" ({place})" if place else ""
        print(f"{self.stage}: skipped {item}{where}: {reason}", file=sys.stderr, flush=True)

    def finish(self) -> int:
        """Write ``skipped.jsonl``, print the counts, and return the exit status of the stage.

        Returns:
            0, or 1 when not a single item was done.
        """
        path = Path(self.folder) / "skipped.jsonl"
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
