#!/usr/bin/env python3
"""Stage 0 for English recordings of one's own: copy it to recipes/NAME/prepare.py.

The folder that --corpus-dir names has ``train``, ``valid`` and ``test``, each with pairs of a mono
recording (``NAME.wav``, ``NAME.FLAC``, ...) and ``NAME.txt`` in UTF-8, the sentence that was
supposed to be read; in subfolders, too. Words that no lexicon has, numbers and signs are named:
write them as words, or give their pronunciations. There is no reference, so stage 6, which scores,
is left out. For other layouts, or cuts that you have already, see docs/formats.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

from jsonargparse import ArgumentParser

from mlvae.corpora.own import prepare_own
from mlvae.program import start_program
from mlvae.stage import in_one_line


def main() -> int:
    """Run the stage; returns its exit status."""
    parser = ArgumentParser(prog="prepare.py", description=__doc__)
    parser.add_argument("--corpus-dir", type=Path, required=True, help="folder of the recordings")
    parser.add_argument("--data-dir", type=Path, required=True, help="corpus folder to make")
    parser.add_argument("--lexicon", type=Path, help="pronunciations: lines 'word phone phone ...'")
    parser.add_argument(
        "--unknown-words",
        choices=["skip", "stop"],
        default="skip",
        help="texts with words without a pronunciation: skip them, or stop with their list",
    )
    parser.add_argument("--corpus", type=str, help="not used here; run.sh gives it")
    parser.add_argument("--seed", type=int, help="not used here; run.sh gives it")
    args = parser.parse_args()
    return in_one_line(
        "prepare.py",
        lambda: prepare_own(args.corpus_dir, args.data_dir, args.lexicon, args.unknown_words),
    )


if __name__ == "__main__":
    start_program()
    sys.exit(main())
