#!/usr/bin/env python3
"""Stage 0: from speechocean762 to cuts, and the reference of experts' scores."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import PositiveInt

from mlvae.corpora.speechocean762.files import read_corpus
from mlvae.corpora.speechocean762.prepare import PROTOCOLS, build_corpus, choose_options
from mlvae.data.lexicon import Lexicon
from mlvae.data.manifests import SPLITS, corpus_files
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
    outputs = corpus_files(args.data_dir)
    check_apart(args.corpus_dir, *outputs)
    with stage_folder("0 prepare", args.data_dir, outputs):
        report = StageReport(stage="0 prepare", folder=args.data_dir)
        try:
            return prepare(args, report)
        except (ValueError, OSError):
            if report.num_done or report.skipped:
                report.finish()
            raise


def prepare(args: Namespace, report: StageReport) -> int:
    """Build the corpus; returns the exit status of the stage.

    Raises:
        ValueError: the corpus cannot be used; OSError: something cannot be written.
    """
    corpus = read_corpus(args.corpus_dir, report)
    options = choose_options(
        corpus,
        args.protocol,
        args.split,
        unknown_words=args.unknown_words,
        digit_strings=args.digit_strings,
        num_utterances=args.num_utterances,
        seed=args.seed,
    )
    if args.lexicon is not None and options.protocol != "text":
        raise ValueError("--lexicon goes with --protocol text alone")
    lexicon = Lexicon.load(args.lexicon) if options.protocol == "text" else None
    made = build_corpus(corpus, args.data_dir, options, lexicon, report)
    for split in SPLITS:
        cuts = made.cuts[split]
        log(
            f"stage 0 prepare: {split}: {len(cuts)} utterances of "
            f"{len({cut.supervisions[0].speaker for cut in cuts})} speakers, "
            f"{sum(cut.duration for cut in cuts) / 60:.1f} minutes"
        )
    if args.digit_strings:
        log(f"stage 0 prepare: {made.counts['changed']} strings of digits with a changed word")
    if corpus.is_scored:
        log(
            f"stage 0 prepare: protocol {options.protocol}: {made.counts['units']} units, "
            f"{made.counts['unscored']} without a score; {made.counts['unused']} scores of phones "
            "that the units lack"
        )
    else:
        log("stage 0 prepare: no resource/scores.json: no reference, so stage 6 cannot score")
    return report.finish()


def parse(argv: Sequence[str] | None) -> Namespace:
    """Options, with what follows from others filled in."""
    parser = ArgumentParser(prog="prepare.py", description=__doc__)
    parser.add_argument("--corpus", choices=["speechocean762"], default="speechocean762")
    parser.add_argument(
        "--corpus-dir",
        type=Path,
        required=True,
        help="the corpus as published, or a folder with labels.jsonl and flac",
    )
    parser.add_argument(
        "--protocol",
        choices=list(PROTOCOLS),
        help="canonical units of the text by the lexicon, or the corpus's own phones; default: "
        "corpus where there are phones",
    )
    parser.add_argument(
        "--unknown-words",
        choices=["stop", "skip"],
        default="skip",
        help="words without a pronunciation: stop with their list, or skip their utterances",
    )
    parser.add_argument("--lexicon", type=Path, help="pronunciations: lines 'word phone phone ...'")
    parser.add_argument(
        "--split",
        choices=["official", "speakers"],
        help="the corpus's halves, or the last 25 speakers as test; default: official where both "
        "halves are there",
    )
    parser.add_argument(
        "--digit-strings",
        action="store_true",
        help="keep strings of digits from training, and test them with a word of the text changed",
    )
    parser.add_argument("--num-utterances", type=PositiveInt, help="default: all")
    parser.add_argument("--seed", type=Seed, default=0, help="of what is drawn at random")
    parser.add_argument(
        "--data-dir", type=Path, default=Path("data/speechocean762"), help="corpus folder to make"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    start_program()
    sys.exit(main())
