#!/usr/bin/env python3
"""Stage 2: the unit table from the canonical units of the training cuts.

Of a corpus whose units are pieces of words (``"unit": "bpe"`` in its corpus.json), pieces are
learnt first and written into the cuts of stage 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import PositiveInt
from lhotse import CutSet

from mlvae.data.dataset import load_cuts, usable_cuts
from mlvae.data.manifests import SPLITS, write_manifest
from mlvae.data.pieces import (
    DEFAULT_SIZE,
    cuts_with_pieces,
    save_pieces,
    sentences_of,
    train_pieces,
)
from mlvae.data.units import UnitTable, count_units
from mlvae.program import start_program
from mlvae.stage import StageReport, in_one_line, log, stage_folder


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; returns its exit status."""
    parser = ArgumentParser(prog="units.py", description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="corpus folder")
    parser.add_argument(
        "--num-pieces",
        type=PositiveInt,
        default=DEFAULT_SIZE,
        help="of words, where the corpus's units are pieces",
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
    if unit_of_corpus(args.data_dir) == "bpe":
        outputs.append(args.data_dir / "units" / "pieces.model")
        outputs += [args.data_dir / "fbank" / f"cuts_{split}.jsonl.gz" for split in SPLITS]
    with stage_folder(report.stage, args.data_dir, outputs):
        cuts = {s: load_cuts(args.data_dir / "fbank" / f"cuts_{s}.jsonl.gz") for s in SPLITS}
        if unit_of_corpus(args.data_dir) == "bpe":
            cuts = make_pieces(cuts, args.data_dir, args.num_pieces, report)
        counts = count_units(cuts["train"])
        table = UnitTable(tuple(sorted(counts)))
        table.save(tokens)
        for split in SPLITS:  # names the cuts whose units training text never has
            report.done(len(usable_cuts(cuts[split], table, report)))
        log(f"stage 2 units: {len(table)} units, {sum(counts.values())} in the training text")
        return report.finish()


def unit_of_corpus(data_dir: Path) -> str:
    """What ``corpus.json`` says that units are; digits and phones come with the cuts."""
    path = data_dir / "corpus.json"
    if not path.is_file():
        return "given"
    return json.loads(path.read_text(encoding="utf-8")).get("unit", "given")


def make_pieces(
    cuts: dict[str, CutSet], data_dir: Path, num_pieces: int, report: StageReport
) -> dict[str, CutSet]:
    """Learn pieces, write the model and the cuts of stage 1 with their pieces as units.

    Cuts that pieces cannot be made of stay in the manifests, so that the stage can be run again.

    Raises:
        ValueError: if the training text does not give that many pieces.
    """
    processor = train_pieces(sentences_of(cuts["train"]), num_pieces)
    save_pieces(processor, data_dir / "units" / "pieces.model")
    usable = {}
    for split, own in cuts.items():
        usable[split], left = cuts_with_pieces(own, processor, report)
        write_manifest(data_dir / "fbank" / f"cuts_{split}.jsonl.gz", [*usable[split], *left])
    return usable


if __name__ == "__main__":
    start_program()
    sys.exit(main())
