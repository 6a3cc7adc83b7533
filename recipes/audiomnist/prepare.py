#!/usr/bin/env python3
"""Stage 0: from a corpus of spoken digits, the mismatch corpus of joined and mislabelled clips."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import PositiveInt

from mlvae.corpora.digits import audiomnist, espeak, fsdd
from mlvae.corpora.digits.clips import (
    SourceClip,
    check_split_name,
    parse_clip_id,
    source_clips,
    split_function,
)
from mlvae.corpora.digits.mismatch import CorpusOptions, build_mismatch_corpus
from mlvae.data.manifests import corpus_files
from mlvae.device import Seed
from mlvae.made import check_apart
from mlvae.program import start_program
from mlvae.stage import StageReport, in_one_line, log, stage_folder

TITLES = {
    "espeak": "Mismatch-espeak",
    "fsdd": "Mismatch-FSDD",
    "audiomnist": "Mismatch-AudioMNIST",
}
DEFAULT_SPLIT = {"espeak": "recordings", "fsdd": "recordings", "audiomnist": "official"}
DEFAULT_UTTERANCES = {"espeak": 1000, "fsdd": 3000, "audiomnist": 3000}
MODULES = {"espeak": espeak, "fsdd": fsdd, "audiomnist": audiomnist}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; returns its exit status."""
    args = parse(argv)
    return in_one_line("prepare.py", lambda: in_folder(args))


def in_folder(args: Namespace) -> int:
    """The stage, while nobody else writes to its folder.

    Raises:
        ValueError, OSError: it cannot be used, or not be written to.
    """
    outputs, wav_dir = corpus_files(args.data_dir), args.data_dir / "wav"
    check_apart(args.corpus_dir or args.download_dir, wav_dir, *outputs)
    with stage_folder("0 prepare", args.data_dir, outputs) as record:
        record.check_tree(wav_dir)
        return prepare(args)


def prepare(args: Namespace) -> int:
    """Build the corpus; returns the exit status of the stage."""
    torch.set_num_threads(1)  # a clip is too small to share the resampling among threads
    report = StageReport(stage="0 prepare", folder=args.data_dir)
    try:
        options = CorpusOptions(
            corpus=args.corpus,
            title=TITLES[args.corpus],
            split=args.split,
            num_utterances=args.num_utterances,
            sampling_rate=MODULES[args.corpus].SAMPLING_RATE,
            seed=args.seed,
            synthetic=args.corpus == "espeak",
        )
        clips = find_clips(args, report)
        counts = build_mismatch_corpus(clips, args.data_dir, options)
    except (ValueError, OSError, RuntimeError) as error:
        if report.num_done or report.skipped:
            report.finish()
        print(f"prepare.py: {error}", file=sys.stderr)
        return 1
    for split, count in counts.items():
        log(
            f"stage 0 prepare: {split}: {count['utterances']} utterances, {count['units']} units "
            f"from {count['recordings']} recordings, {count['seconds'] / 60:.1f} minutes"
        )
    return report.finish()


def parse(argv: Sequence[str] | None) -> Namespace:
    """Options, with the corpus's own defaults filled in."""
    parser = ArgumentParser(prog="prepare.py", description=__doc__)
    parser.add_argument("--corpus", choices=list(TITLES), default="espeak", help="source of clips")
    parser.add_argument(
        "--corpus-dir",
        type=Path,
        help="folder of the corpus; without it fsdd and audiomnist are downloaded, and espeak "
        "is synthesised into <data-dir>/clips",
    )
    parser.add_argument(
        "--split",
        help="recordings | speaker:<name> | official (audiomnist only); "
        "default: official for audiomnist, recordings for the others",
    )
    parser.add_argument(
        "--num-utterances",
        type=PositiveInt,
        help="default: 3000, for espeak 1000; 60:20:20 over the splits",
    )
    parser.add_argument("--seed", type=Seed, default=0, help="of all that is drawn at random")
    parser.add_argument(
        "--data-dir", type=Path, help="corpus folder to make; default data/<corpus>"
    )
    parser.add_argument(
        "--download-dir", type=Path, help="where downloads go; default <data-dir>/download"
    )
    args = parser.parse_args(argv)
    args.split = args.split or DEFAULT_SPLIT[args.corpus]
    if args.num_utterances is None:
        args.num_utterances = DEFAULT_UTTERANCES[args.corpus]
    args.data_dir = args.data_dir or Path("data") / args.corpus
    args.download_dir = args.download_dir or args.data_dir / "download"
    return args


def find_clips(args: Namespace, report: StageReport) -> list[SourceClip]:
    """The checked clips of the corpus, each in its split.

    Raises:
        ValueError: if the corpus cannot be used or has no such split; OSError: if a download
            fails; RuntimeError: if the synthesis fails.
    """
    module = MODULES[args.corpus]
    official = args.corpus == "audiomnist" and args.split == "official"
    if not official:
        check_split_name(args.split)  # before long work
    corpus_dir = args.corpus_dir
    if args.corpus == "fsdd":
        pair = fsdd.prepare_fsdd(corpus_dir or fsdd.download_fsdd(args.download_dir), report)
    elif args.corpus == "audiomnist":
        corpus_dir = corpus_dir or audiomnist.download_audiomnist(args.download_dir)
        pair = audiomnist.prepare_audiomnist(corpus_dir, report)
    else:
        corpus_dir = corpus_dir or args.data_dir / "clips"
        espeak.synthesize_clips(corpus_dir, seed=args.seed)
        pair = espeak.prepare_espeak(corpus_dir, report)
    if official:
        return source_clips(pair["recordings"], audiomnist.official_split)
    speakers = {parse_clip_id(recording.id)[1] for recording in pair["recordings"]}
    split = split_function(args.split, speakers, module.NUM_RECORDINGS)
    return source_clips(pair["recordings"], split)


if __name__ == "__main__":
    start_program()
    sys.exit(main())
