#!/usr/bin/env python3
"""Stage 1: FBANK features of every cut of a corpus folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from jsonargparse import ArgumentParser
from jsonargparse.typing import PositiveInt

from mlvae.data.features import compute_fbank
from mlvae.program import start_program
from mlvae.stage import StageReport, log


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; returns its exit status."""
    parser = ArgumentParser(prog="fbank.py", description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="corpus folder")
    parser.add_argument("--num-jobs", type=PositiveInt, default=1, help="number of processes")
    parser.add_argument(
        "--allow-commands",
        type=bool,
        default=False,
        help="run the shell commands that manifests name in the place of audio files",
    )
    parser.add_argument(
        "--allow-shared-recordings",
        type=bool,
        default=False,
        help="go on where a recording is in several of train, valid and test",
    )
    args = parser.parse_args(argv)
    torch.set_num_threads(1)  # one cut is too small to share among threads
    report = StageReport(stage="1 fbank", folder=args.data_dir)
    try:
        counts = compute_fbank(
            args.data_dir,
            report,
            num_jobs=args.num_jobs,
            allow_commands=args.allow_commands,
            allow_shared=args.allow_shared_recordings,
        )
    except ValueError as error:
        if report.skipped:
            report.finish()
        print(f"fbank.py: {error}", file=sys.stderr)
        return 1
    status = report.finish()
    for split, count in counts.items():
        if count == 0:
            log(f"stage 1 fbank: no cut of split {split} is left")
            status = 1
    return status


if __name__ == "__main__":
    start_program()
    sys.exit(main())
