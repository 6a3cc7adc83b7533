"""What a stage of a recipe owes its user: log lines, counts that add up, whole files or none."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

_Item = TypeVar("_Item")


def log(message: str) -> None:
    """Print one line with the local time in front, as Kaldi recipes do."""
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}", flush=True)


def progress(
    items: Iterable[_Item], description: str, unit: str, total: int | None = None
) -> Iterable[_Item]:
    """Go through ``items`` with a progress bar on standard error.

    A log file keeps each state of the bar that a terminal writes over: there it is written twice a
    minute at most.
    """
    seconds = 0.5 if sys.stderr.isatty() else 30.0
    return tqdm(
        items, description, total, unit=unit, mininterval=seconds, maxinterval=max(10.0, seconds)
    )


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
