#!/usr/bin/env python3
"""Stage 1: FBANK features of every cut of a corpus folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import torch
from jsonargparse import ArgumentParser, Namespace

from mlvae.data.features import compute_fbank, written_files
from mlvae.program import start_program
from mlvae.shard import SHARD_HELP, Shard, found_shards, remove_shards
from mlvae.stage import StageReport, log, stage_folder
from mlvae.train.distributed import in_shards


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; returns its exit status."""
    parser = ArgumentParser(prog="fbank.py", description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="corpus folder")
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
    parser.add_argument("--shard", type=Optional[Shard], help=SHARD_HELP)
    args = parser.parse_args(argv)
    return in_shards("fbank.py", lambda shard: fbank(args, shard), args.shard)


def fbank(args: Namespace, shard: Shard | None) -> int:
    """The stage with its options, or a shard of it.

    Raises:
        ValueError, OSError: the folder cannot be used, or not be written to.
    """
    torch.set_num_threads(1)  # one cut is too small to share among threads
    home, stage, reads = args.data_dir, "1 fbank", []
    if shard is not None:
        home, reads = shard.folder(home), [home]
        stage = f"{stage} --shard {shard}"
    report = StageReport(stage="1 fbank", folder=home)
    with stage_folder(stage, home, written_files(home), reads):
        with report.kept():
            counts = compute_fbank(
                args.data_dir,
                report,
                allow_commands=args.allow_commands,
                allow_shared=args.allow_shared_recordings,
                shard=shard,
            )
        if shard is not None:
            return 0 if report.num_done or not report.skipped else 1
        status = report.finish()
        for split in (split for split, count in counts.items() if not count):
            log(f"stage 1 fbank: no cut of split {split} is left")
            status = 1
        if not status:  # they are not needed any more
            remove_shards(found_shards(home).values())
        return status


if __name__ == "__main__":
    start_program()
    sys.exit(main())
