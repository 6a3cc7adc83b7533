"""What a kill that runs no clean-up leaves in a folder that stages write to."""

from __future__ import annotations

import json
from pathlib import Path

from mlvae.made import Record


def of_a_harder_kill(folder: Path) -> Path:
    """A scratch folder, half filled, which the record above the folder knows of."""
    record = Record.above(folder / "anything")
    scratch = folder / ".mlvae-tmp-0123456789abcdef"
    with open(record.path, "a") as file:
        file.write(json.dumps({"scratch": str(scratch.relative_to(record.folder))}) + "\n")
    scratch.mkdir()
    (scratch / "new.lca").write_bytes(b"half")
    return scratch
