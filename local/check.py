#!/usr/bin/env python3
"""Before all stages: see that the configuration can be read and has the systems that are named."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentParser

from mlvae.config import load_config
from mlvae.program import start_program
from mlvae.stage import in_one_line


def main(argv: Sequence[str] | None = None) -> int:
    """Check; returns the exit status."""
    parser = ArgumentParser(prog="check.py", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="YAML file of the recipe")
    parser.add_argument("--systems", type=str, required=True, help="names, separated by spaces")
    options = parser.parse_args(argv)

    def check() -> int:
        load_config(options.config, options.systems.split())
        return 0

    return in_one_line("check.py", check)


if __name__ == "__main__":
    start_program()
    sys.exit(main())
