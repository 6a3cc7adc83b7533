#!/usr/bin/env python3
"""Stage 2: the unit table from the canonical units of the training cuts.

Of a corpus whose units are BPE tokens (``"unit": "bpe"`` in its corpus.json), they are
learnt first and written into the cuts of stage 1.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import PositiveInt
from lhotse import CutSet

from mlvae.data.bpe import (
    DEFAULT_SIZE,
    cuts_with_tokens,
    save_bpe,
    sentences_of,
    train_bpe,
)
from mlvae.data.dataset import load_cuts, usable_cuts
from mlvae.data.manifests import SPLITS, about_corpus, parts_apart, write_manifest
from mlvae.data.units import UnitTable, count_units
from mlvae.program import start_program
from mlvae.stage import StageReport, in_one_line, log, stage_folder

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; returns its exit status."""
    parser = ArgumentParser(prog="units.py", description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="corpus folder")
    parser.add_argument(
        "--vocab-size",
        type=PositiveInt,
        default=DEFAULT_SIZE,
        help="number of tokens, where the corpus's units are BPE tokens",
    )
    parser.add_argument(
        "--init",
        type=Optional[Path],
        help="model folder whose units, and BPE model, are taken, as training begins from it",
    )
    args = parser.parse_args(argv)
    return in_one_line("units.py", lambda: units(args))


def units(args: Namespace) -> int:
    """The stage with its options.

    Raises:
        ValueError, OSError: the folder cannot be used, or not be written to.
    """
    report = StageReport(stage="2 units", folder=args.data_dir)
    tokens = args.data_dir / "units" / "tokens.txt"
    outputs = [tokens]
    about = about_corpus(args.data_dir)
    # Of a test part that is everything, each cut counts in the part that it is also of.
    apart = parts_apart(about)
    reports = {split: report if split in apart else report.again() for split in SPLITS}
    if about.get("unit") == "bpe":
        outputs.append(args.data_dir / "units" / "bpe.model")
        outputs += [args.data_dir / "fbank" / f"cuts_{split}.jsonl.gz" for split in SPLITS]
    beginning = None
    if args.init is not None:
        from mlvae.model_folder import Beginning  # brings torch and k2

        beginning = Beginning.of(args.init)
    with stage_folder(report.stage, args.data_dir, outputs):
        cuts = {s: load_cuts(args.data_dir / "fbank" / f"cuts_{s}.jsonl.gz") for s in SPLITS}
        if about.get("unit") == "bpe":
            if beginning is None:
                processor = train_bpe(sentences_of(cuts["train"]), args.vocab_size)
            else:
                processor = beginning.bpe()
            cuts = make_tokens(cuts, args.data_dir, processor, reports)
        counts = count_units(cuts["train"])
        table = UnitTable(tuple(sorted(counts))) if beginning is None else beginning.table()
        if strange := sorted(counts.keys() - set(table.symbols)):
            log(
                f"stage 2 units: {args.init} lacks {' '.join(strange)}: texts with them are skipped"
            )
        table.save(tokens)
        for split in SPLITS:  # names the cuts whose units training text never has
            reports[split].done(len(usable_cuts(cuts[split], table, reports[split])))
        log(f"stage 2 units: {len(table)} units, {sum(counts.values())} in the training text")
        return report.finish()


def make_tokens(
    cuts: dict[str, CutSet],
    data_dir: Path,
    processor: SentencePieceProcessor,
    reports: dict[str, StageReport],
) -> dict[str, CutSet]:
    """Write the BPE model, and the cuts of stage 1 with their tokens as units.

    Cuts that tokens cannot be made of stay in the manifests, so that the stage can be run again.
    """
    save_bpe(processor, data_dir / "units" / "bpe.model")
    usable = {}
    for split, own in cuts.items():
        usable[split], left = cuts_with_tokens(own, processor, reports[split])
        write_manifest(data_dir / "fbank" / f"cuts_{split}.jsonl.gz", [*usable[split], *left])
    return usable


if __name__ == "__main__":
    start_program()
    sys.exit(main())
