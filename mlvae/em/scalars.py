"""Scalars of a training for TensorBoard.

torch's own writer writes in a thread, whose error on a full disk is a traceback, names no file, and
comes up at some later call.
"""

from __future__ import annotations

import errno
import io
import os
import socket
import time
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from mlvae.made import writing


class ScalarWriter:
    """Adds a file of events to a folder; those of earlier runs stay.

    Args:
        folder: it is made where it is not there.
        purge_step: what earlier files hold of this step and later ones is not shown.

    Raises:
        WriteError: the file cannot be written.

    Example:
        >>> with ScalarWriter(Path("exp/tensorboard"), purge_step=1) as scalars:
        ...     scalars.add_scalar("loss/train", 0.5, step=1)
    """

    def __init__(self, folder: Path, purge_step: int) -> None:
        name = f"events.out.tfevents.{time.time_ns():020d}.{socket.gethostname()}.{os.getpid()}"
        self.path = Path(folder) / name
        with writing(self.path):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "xb", buffering=0)  # noqa: SIM115
        try:
            self._write(Event(file_version="brain.Event:2", step=purge_step))
            self._write(Event(session_log=SessionLog(status=SessionLog.START), step=purge_step))
        except OSError:
            self._file.close()
            raise

    def __enter__(self) -> ScalarWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """Write a scalar, whole or not at all.

        Raises:
            WriteError: it cannot be written.
        """
        scalar = Summary.Value(tag=name, simple_value=value)
        self._write(Event(summary=Summary(value=[scalar]), step=step))

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        record = io.BytesIO()
        RecordWriter(record).write(event.SerializeToString())
        size = self._file.tell()
        with writing(self.path):
            try:
                if self._file.write(record.getvalue()) < len(record.getvalue()):
                    raise OSError(os.strerror(errno.ENOSPC))
            except OSError:
                self._file.truncate(size)
                self._file.seek(size)
                raise
