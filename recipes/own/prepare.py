#!/usr/bin/env python3
"""Stage 0: from recordings of one's own, each with its text, to cuts of three parts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from jsonargparse import ArgumentParser, Namespace

from mlvae.corpora.own import SAMPLING_RATE, Options, prepare_own
from mlvae.device import Seed
from mlvae.program import start_program
from mlvae.stage import in_one_line


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; returns its exit status."""
    parser = ArgumentParser(prog="prepare.py", description=__doc__)
    parser.add_argument("--corpus", type=str, help="not used here; run.sh gives it")
    parser.add_argument(
        "--corpus-dir",
        type=Path,
        required=True,
        help="folder of recordings and texts, table, Kaldi data directory or manifest of cuts",
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="corpus folder to make")
    parser.add_argument("--seed", type=Seed, default=0, help="not used here: nothing is random")
    parser.add_argument(
        "--unit",
        choices=["phone", "lexicon", "bpe"],
        default="phone",
        help="English phones, the units of --lexicon, or BPE tokens, which need no lexicon",
    )
    parser.add_argument("--lexicon", type=Path, help="pronunciations: lines 'word unit unit ...'")
    parser.add_argument(
        "--unknown-words",
        choices=["skip", "stop"],
        default="skip",
        help="texts with words that cannot be read: skip them, or stop with a list of the words",
    )
    parser.add_argument(
        "--g2p",
        type=Optional[str],
        help="language (of espeak-ng: en-us, de) by whose rules words in no lexicon are read",
    )
    parser.add_argument(
        "--g2p-table",
        type=Optional[Path],
        help="units of espeak-ng's sounds: lines 'symbol unit unit ...', for --unit lexicon",
    )
    parser.add_argument(
        "--allow-commands",
        type=bool,
        default=False,
        help="run the shell commands that manifests name in the place of audio files",
    )
    parser.add_argument(
        "--init",
        type=Optional[Path],
        help="model folder that training begins from: its sampling rate, and with --unit lexicon "
        "its lexicon where none is given",
    )
    args = parser.parse_args(argv)
    return in_one_line("prepare.py", lambda: prepare(args))


def prepare(args: Namespace) -> int:
    """The stage with its options.

    Raises:
        ValueError, OSError: something is missing or cannot be used, see there.
    """
    lexicon, sampling_rate = args.lexicon, SAMPLING_RATE
    if args.init is not None:
        from mlvae.model_folder import LEXICON, Beginning  # brings torch and k2

        beginning = Beginning.of(args.init)
        if beginning.unit != args.unit:
            raise ValueError(f"--unit {args.unit}, but {args.init} is of --unit {beginning.unit}")
        sampling_rate = beginning.about["sampling_rate"]
        if args.unit == "lexicon" and lexicon is None:
            lexicon = args.init / LEXICON
    options = Options(
        args.unit,
        args.unknown_words,
        lexicon,
        args.allow_commands,
        args.g2p,
        args.g2p_table,
        sampling_rate,
    )
    return prepare_own(args.corpus_dir, args.data_dir, options)


if __name__ == "__main__":
    start_program()
    sys.exit(main())
