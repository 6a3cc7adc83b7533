#!/usr/bin/env python3
"""Stage 0: from L2-ARCTIC, or a simulated corpus of its layout, to cuts and the reference."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import PositiveInt

from mlvae.corpora.l2arctic.files import Listing, list_corpus
from mlvae.corpora.l2arctic.prepare import CorpusOptions, build_corpus, written_files
from mlvae.corpora.simulate import build as simulate
from mlvae.data.lexicon import Lexicon
from mlvae.device import Seed
from mlvae.made import check_apart
from mlvae.program import start_program
from mlvae.stage import StageReport, in_one_line, log, stage_folder


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; returns its exit status."""
    args = parse(argv)
    return in_one_line("prepare.py", lambda: in_folder(args))


def in_folder(args: Namespace) -> int:
    """The stage, while nobody else writes to its folder.

    Raises:
        ValueError, OSError: it cannot be used, or not be written to.
    """
    outputs = written_files(args.data_dir)
    check_apart(args.corpus_dir or args.data_dir / "corpus", *outputs)
    with stage_folder("0 prepare", args.data_dir, outputs):
        return prepare(args)


def prepare(args: Namespace) -> int:
    """Build the corpus; returns the exit status of the stage."""
    report = StageReport(stage="0 prepare", folder=args.data_dir)
    try:
        simulated = args.corpus == "simulate"
        synthetic = simulated or (
            args.corpus_dir is not None and simulate.is_simulated(args.corpus_dir)
        )
        options = CorpusOptions(
            title="L2-ARCTIC (simulated)" if synthetic else "L2-ARCTIC",
            synthetic=synthetic,
            protocol=args.protocol,
            unit=args.unit,
            unknown_words=args.unknown_words,
            split=args.split,
            num_utterances=None if simulated else args.num_utterances,
            seed=args.seed,
        )
        by_lexicon = args.protocol == "text" and args.unit == "phone"
        if args.lexicon is not None and not by_lexicon:
            raise ValueError("--lexicon goes with --protocol text and --unit phone alone")
        lexicon = Lexicon.load(args.lexicon) if by_lexicon else None
        listing = find_utterances(args, report)
        counts = build_corpus(listing.utterances, args.data_dir, options, lexicon, report)
    except (ValueError, OSError, RuntimeError) as error:
        if report.num_done or report.skipped:
            report.finish()
        print(f"prepare.py: {error}", file=sys.stderr)
        return 1
    log(
        f"stage 0 prepare: not used: {listing.num_unannotated} recordings without annotation, "
        f"{0 if args.suitcase else listing.num_suitcase} of the suitcase corpus"
    )
    for split, count in counts.items():
        log(
            f"stage 0 prepare: {split}: {count['utterances']} utterances, {count['units']} units "
            f"of {count['speakers']} speakers, {count['seconds'] / 60:.1f} minutes"
        )
    status = report.finish()
    empty = [split for split, count in counts.items() if not count["utterances"]]
    if empty:
        print(f"prepare.py: no utterance for {' and '.join(empty)}", file=sys.stderr)
    return 1 if empty else status


def parse(argv: Sequence[str] | None) -> Namespace:
    """Options, with what follows from others filled in."""
    parser = ArgumentParser(prog="prepare.py", description=__doc__)
    parser.add_argument(
        "--corpus",
        choices=["simulate", "l2arctic"],
        help="default: l2arctic where --corpus-dir is given, else simulate",
    )
    parser.add_argument(
        "--corpus-dir",
        type=Path,
        help="root of L2-ARCTIC v5.0; for simulate, where it goes (default <data-dir>/corpus)",
    )
    parser.add_argument(
        "--protocol",
        choices=["text", "annotation"],
        default="text",
        help="canonical units of the transcript and lexicon, or the annotators' own",
    )
    parser.add_argument(
        "--unit",
        choices=["phone", "bpe"],
        default="phone",
        help="phones, or BPE tokens that stage 2 learns, which need no lexicon",
    )
    parser.add_argument(
        "--unknown-words",
        choices=["stop", "skip"],
        default="stop",
        help="words without a pronunciation: stop with their list, or skip their utterances",
    )
    parser.add_argument("--lexicon", type=Path, help="pronunciations: lines 'word phone phone ...'")
    parser.add_argument(
        "--suitcase", action="store_true", help="take the spontaneous recordings as well"
    )
    parser.add_argument(
        "--split", default="official", help="official | speaker:<NAME>, who is then the test set"
    )
    parser.add_argument(
        "--num-utterances",
        type=PositiveInt,
        help=f"default: all that are annotated; simulate speaks {simulate.DEFAULT_SIZE}",
    )
    parser.add_argument("--seed", type=Seed, default=0, help="of all that is drawn at random")
    parser.add_argument(
        "--data-dir", type=Path, help="corpus folder to make; default data/<corpus>"
    )
    args = parser.parse_args(argv)
    args.corpus = args.corpus or ("l2arctic" if args.corpus_dir else "simulate")
    args.data_dir = args.data_dir or Path("data") / args.corpus
    return args


def find_utterances(args: Namespace, report: StageReport) -> Listing:
    """The annotated utterances of the corpus; one that is to be simulated is made first.

    Raises:
        ValueError: if the corpus cannot be used; OSError, RuntimeError: if the synthesis fails.
    """
    corpus_dir = args.corpus_dir
    if args.corpus == "simulate":
        corpus_dir = corpus_dir or args.data_dir / "corpus"
        size = simulate.DEFAULT_SIZE if args.num_utterances is None else args.num_utterances
        made = simulate.simulate_l2arctic(corpus_dir, size, seed=args.seed)
        for item in made["skipped"]:
            report.skip(item["id"], item["reason"], place=str(corpus_dir))
    elif corpus_dir is None:
        raise ValueError("--corpus l2arctic needs --corpus-dir: the corpus is given by its authors")
    return list_corpus(corpus_dir, report, suitcase=args.suitcase)


if __name__ == "__main__":
    start_program()
    sys.exit(main())
