"""Writing lhotse manifests so that equal content gives equal bytes, and whole files or none."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from mlvae.stage import atomic_path

SPLITS = ("train", "valid", "test")


class Manifest(Protocol):
    """Whatever lhotse writes as one line: a cut, a recording, a supervision."""

    def to_dict(self) -> dict[str, Any]:
        """The line as a dictionary."""


def write_manifest(path: Path, items: Iterable[Manifest]) -> None:
    """Write items as ``.jsonl.gz``, atomically; lhotse's ``load_manifest`` and others read it.

    lhotse's own writers put the time of day into the gzip header, so that a rerun would differ.
    """
    lines = (json.dumps(item.to_dict(), ensure_ascii=False) for item in items)
    content = "".join(f"{line}\n" for line in lines).encode("utf-8")
    with atomic_path(Path(path)) as temporary:
        temporary.write_bytes(gzip.compress(content, mtime=0))


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a dictionary as indented JSON, atomically."""
    with atomic_path(Path(path)) as temporary:
        text = json.dumps(content, ensure_ascii=False, indent=2) + "\n"
        temporary.write_text(text, encoding="utf-8")
