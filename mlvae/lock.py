"""A folder has one writer at a time, or readers: a lock that says who holds it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from mlvae.made import LOCK, WriteError

#: Seconds that a reader waits for another one, who is alone while it signs or leaves.
PATIENCE = 2.0
#: What flock says where the file system has no locks.
_NO_LOCKS = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS, errno.EINVAL, errno.EBADF)


class FolderInUseError(ValueError):
    """Somebody else writes to a folder, or reads what is to be written; says who."""


@contextlib.contextmanager
def folder_lock(folder: Path, stage: str, shared: bool = False) -> Iterator[bool]:
    """Keep others from a folder during the block.

    The lock ends with the process, however that ends. A file of the name `LOCK` that a killed
    process left keeps nobody away.

    Args:
        folder: it must be there for a writer. A reader of one that is not there, or that cannot be
            written to, needs no lock.
        stage: what runs, for others to read.
        shared: for a reader, who keeps away writers only.

    Yields:
        Whether others are kept away: False, with a warning, where the file system has no locks.

    Raises:
        FolderInUseError: the folder is in use; names host, process, stage and since when.
        WriteError: a writer cannot write to the folder.
    """
    path = Path(folder) / LOCK
    file = _open(path, shared)
    try:
        held = file is None or _acquire(file, path, shared)
        while file is not None and held and not _is_at(file, path):
            os.close(file)  # of one that its last holder has just removed
            file = _open(path, shared)
            held = file is None or _acquire(file, path, shared)
        if file is not None and held:
            _sign(file, path, stage, shared)
        if not held:
            print(
                f"{folder}: this file system has no locks; nobody else must run here meanwhile",
                file=sys.stderr,
                flush=True,
            )
        try:
            yield held
        finally:
            # Another reader may be left, who still needs it.
            if file is not None and held and _flock(file, fcntl.LOCK_EX) and _is_at(file, path):
                with contextlib.suppress(OSError):
                    path.unlink()
    finally:
        if file is not None:
            os.close(file)


def _open(path: Path, shared: bool) -> int | None:
    """The lock file; None where a reader can do without."""
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | flags, 0o666)
    except OSError as error:
        if not shared:
            raise WriteError(path, error) from error
    with contextlib.suppress(OSError):
        return os.open(path, os.O_RDONLY | flags)
    return None


def _acquire(file: int, path: Path, shared: bool) -> bool:
    """Lock the file; False where there are no locks.

    A reader who is alone gets it for itself at first, see `_sign`.
    """
    try:
        if _flock(file, fcntl.LOCK_EX):
            os.ftruncate(file, 0)
            return True
        if shared and _flock(file, fcntl.LOCK_SH, PATIENCE):
            return True
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise
    holders = _holders(file)
    who = "; ".join(
        f"stage {holder['stage']} on {holder['host']}, process {holder['pid']}, since "
        f"{holder['since']}"
        for holder in holders
    )
    raise FolderInUseError(
        f"{path.parent} is in use ({who or 'by another process'}): wait for its end, or take "
        "another folder"
    )


def _sign(file: int, path: Path, stage: str, shared: bool) -> None:
    """Say in the lock file who holds it, and let other readers in."""
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    holder = {"stage": stage, "host": socket.gethostname(), "pid": os.getpid(), "since": now}
    try:
        os.write(file, json.dumps(holder).encode("ascii") + b"\n")
    except OSError as error:
        if not shared:
            with contextlib.suppress(OSError):
                path.unlink()
            raise WriteError(path.parent, error) from error
    if shared and not _flock(file, fcntl.LOCK_SH, PATIENCE):
        raise FolderInUseError(f"{path.parent} is in use (by another process): try again")


def _flock(file: int, kind: int, patience: float = 0.0) -> bool:
    """Try to lock for some seconds; False where somebody else holds it."""
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.02)
        else:
            return True


def _is_at(file: int, path: Path) -> bool:
    """Whether a path leads to an open file still."""
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except FileNotFoundError:
        return False


def _holders(file: int) -> list[dict]:
    """Who has signed, without those of this machine that have ended."""
    holders = []
    for line in os.pread(file, 1 << 16, 0).splitlines():
        with contextlib.suppress(ValueError, TypeError):
            holder = json.loads(line)
            if {"stage", "host", "pid", "since"} <= set(holder) and _lives(holder):
                holders.append(holder)
    return holders


def _lives(holder: dict) -> bool:
    if holder["host"] != socket.gethostname():
        return True  # as far as is known here
    try:
        os.kill(int(holder["pid"]), 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        pass
    return True
