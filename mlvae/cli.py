"""The command ``mlvae``; it imports nothing heavy, so that ``mlvae env`` works anywhere."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import mlvae
from mlvae.errors import one_line
from mlvae.program import start_program


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with ``arguments``, by default those of the process.

    What the user can mend (a wrong value, a file, a missing package) is one line on standard error.

    Returns:
        The exit status: 0, or 1 after an error. Wrong options exit with 2, as is usual.
    """
    if arguments is None:
        start_program()
    options = _parsed(_parser(), arguments)
    try:
        return options.run(options)
    except ImportError as error:
        return _fail(_missing(error))
    except (ValueError, OSError) as error:
        return _fail(str(error))


def _parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options; argparse takes no paths of a varying number after an option by itself."""
    options, left = parser.parse_known_args(arguments)
    if hasattr(options, "paths"):
        options.paths += [Path(path) for path in left if not path.startswith("-")]
        left = [path for path in left if path.startswith("-")]
    if left:
        parser.error(f"unrecognized arguments: {' '.join(left)}")
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mlvae", description=mlvae.__doc__)
    parser.add_argument("--version", action="version", version=f"mlvae {mlvae.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    env = commands.add_parser(
        "env", help="print the versions of what is installed, and in one line what is wrong"
    )
    env.add_argument(
        "--require",
        choices=("cuda",),
        help="what else has to be there, as the exit status shall tell; else a machine without a "
        "GPU is as good",
    )
    env.set_defaults(run=_env)

    graph = commands.add_parser("graph", help="draw the ML-FSA of a few units")
    graph.add_argument(
        "--units", required=True, help='symbols of the units, with spaces between: "n aa t"'
    )
    graph.add_argument("--svg", required=True, type=Path, metavar="PATH", help="file to write")
    graph.add_argument(
        "--form",
        choices=("figure", "frames"),
        default="figure",
        help="figure: as the paper draws it; frames: as it is decoded, an arc a frame "
        "(default: figure)",
    )
    graph.add_argument(
        "--topology",
        default="ml",
        metavar="NAME",
        help="single: the canonical units only; ml: each may be mispronounced; substitution, with "
        "the form frames: and what is perceived instead is told (default: ml)",
    )
    graph.set_defaults(run=_graph)

    pack = commands.add_parser("pack", help="make a model folder of a trained system")
    pack.add_argument(
        "system", type=Path, metavar="SYSTEM", help="EXP_DIR/RECIPE/CORPUS/CONFIG/SYSTEM"
    )
    pack.add_argument("out", type=Path, metavar="OUT", help="folder to write")
    pack.add_argument(
        "--data-dir",
        type=Path,
        help="data folder of the corpus (default: where the features of the training cuts lie)",
    )
    pack.add_argument(
        "--config", type=Path, help="YAML file of the training (default: SYSTEM/config.yaml)"
    )
    pack.add_argument(
        "--lexicon", type=Path, help="pronunciations besides those of the training text"
    )
    pack.add_argument("--licence", help="of the data, in words")
    pack.add_argument(
        "--g2p",
        metavar="LANGUAGE",
        help="in which `localize --g2p` reads words in no lexicon, as espeak-ng calls it: en-us, "
        "de (default: that of stage 0; en-us for English phones)",
    )
    pack.add_argument(
        "--g2p-table",
        type=Path,
        help="units of espeak-ng's sounds: lines 'symbol unit unit ...', with --g2p",
    )
    pack.set_defaults(run=_pack)

    localize = commands.add_parser(
        "localize", help="find what does not match its text in recordings, by a model folder"
    )
    localize.add_argument("model", type=Path, metavar="MODEL", help="folder that `pack` wrote")
    localize.add_argument(
        "paths",
        type=Path,
        nargs="*",
        metavar="INPUT OUT",
        help="INPUT: a folder of recordings with texts of the same names (.txt, .lab), a table "
        "(.csv, .tsv: path, text, speaker), a Kaldi data directory, cuts of lhotse (.jsonl.gz), or "
        "a folder of lhotse Shar; OUT: folder to write. With --audio: OUT alone, or nothing to "
        "print the answer",
    )
    localize.add_argument("--audio", type=Path, help="a single recording in the place of INPUT")
    localize.add_argument("--text", help="what should be said in it")
    localize.add_argument(
        "--format",
        default="textgrid,csv,cuts",
        help="what to write, of textgrid, ctm, json, csv and cuts, with commas between "
        "(default: textgrid,csv,cuts)",
    )
    localize.add_argument("--num-jobs", type=int, default=1, help="processes (default: 1)")
    localize.add_argument(
        "--shard",
        metavar="I/N",
        help="one of N parts of the work, as in 3/8, for arrays of jobs; the command without it "
        "joins them, see docs/scale.md",
    )
    localize.add_argument(
        "--channel",
        type=int,
        default=0,
        help="of recordings of several channels, the first being 0 (default: 0)",
    )
    localize.add_argument("--lexicon", type=Path, help="pronunciations besides those of the model")
    localize.add_argument(
        "--g2p",
        action="store_true",
        help="read words in no lexicon by espeak-ng's rules, in the language of the model",
    )
    localize.add_argument(
        "--allow-commands",
        action="store_true",
        help="run the shell commands that INPUT names in the place of audio files",
    )
    localize.add_argument("--device", default="cpu", help="auto, cpu or cuda (default: cpu)")
    localize.set_defaults(run=_localize)

    audit = commands.add_parser(
        "audit", help="rank utterances whose text does not belong to their audio, the worst first"
    )
    audit.add_argument(
        "answers",
        type=Path,
        metavar="ANSWERS",
        help="folder that `localize` wrote, or of a system after stage 5",
    )
    audit.add_argument("out", type=Path, metavar="OUT.csv", help="table to write")
    audit.set_defaults(run=_audit)

    compare = commands.add_parser(
        "compare",
        help="score answers against what a person has corrected, and say where they differ",
    )
    compare.add_argument("answers", type=Path, metavar="ANSWERS", help="as for `audit`")
    compare.add_argument(
        "corrected",
        type=Path,
        metavar="CORRECTED",
        help="folder of TextGrids whose tier `perceived` was corrected in Praat, or a table (.csv, "
        ".tsv: utterance, index or start, verdict: right, wrong or unsure)",
    )
    compare.add_argument(
        "out", type=Path, metavar="OUT.csv", nargs="?", help="table to write of all differences"
    )
    compare.set_defaults(run=_compare)

    report = commands.add_parser(
        "report", help="make pages of answers, to see and hear them in a browser"
    )
    report.add_argument(
        "answers",
        type=Path,
        metavar="ANSWERS",
        help="folder that `localize` wrote (--format cuts), of a system of stage 5, or of an "
        "experiment with several systems: EXP_DIR/RECIPE/CORPUS/CONFIG",
    )
    report.add_argument("out", type=Path, metavar="OUT", help="folder to write")
    report.add_argument(
        "--audio",
        default="copy",
        metavar="HOW",
        help="copy: into OUT, which can then be given away; link: wav files are played from where "
        "they lie, others copied; none (default: copy)",
    )
    report.add_argument(
        "--data-dir",
        type=Path,
        help="data folder of the corpus, for its reference (default: where the features lie)",
    )
    report.set_defaults(run=_report)
    return parser


def _env(options: argparse.Namespace) -> int:
    from mlvae.environment import describe, diagnose, gather

    facts, need_cuda = gather(), options.require == "cuda"
    print(describe(facts, need_cuda))
    return 1 if diagnose(facts, need_cuda) else 0


def _graph(options: argparse.Namespace) -> int:
    units = options.units.split()
    if not units:
        raise ValueError("--units holds no unit")
    from mlvae.fsa.draw import draw_graph
    from mlvae.made import atomic_path

    with atomic_path(options.svg) as temporary:
        draw_graph(units, temporary, options.form, topology=options.topology)
    print(options.svg)
    return 0


def _pack(options: argparse.Namespace) -> int:
    if options.g2p_table is not None and options.g2p is None:
        raise ValueError("--g2p-table goes with --g2p LANGUAGE")
    from mlvae.model_folder import pack

    about = pack(
        options.system,
        options.out,
        data_dir=options.data_dir,
        config=options.config,
        lexicon=options.lexicon,
        licence=options.licence,
        g2p=options.g2p,
        g2p_table=options.g2p_table,
    )
    size = sum(file["size"] for file in about["files"].values())
    print(f"{options.out}: {about['label']}, {size / 1e6:.1f} MB")
    return 0


def _localize(options: argparse.Namespace) -> int:
    return _done_or_2(lambda: _localized(options))


def _audit(options: argparse.Namespace) -> int:
    from mlvae.audit import audit

    return _done_or_2(lambda: audit(options.answers, options.out))


def _compare(options: argparse.Namespace) -> int:
    from mlvae.compare import compare

    return _done_or_2(lambda: compare(options.answers, options.corrected, options.out))


def _done_or_2(work: Callable[[], int]) -> int:
    """The exit status of work: its own, or 2 where nothing was done."""
    try:
        return work()
    except (ValueError, OSError) as error:
        _fail(one_line(error))
        return 2


def _localized(options: argparse.Namespace) -> int:
    """The command; what cannot be done at all raises ValueError or OSError."""
    single = options.audio is not None
    if single != (options.text is not None):
        raise ValueError("--audio and --text go together")
    most = 1 if single else 2
    if len(options.paths) > most or (len(options.paths) < most and not single):
        raise ValueError("MODEL INPUT OUT are needed, or MODEL --audio FILE --text TEXT [OUT]")
    if not 1 <= options.num_jobs <= 1000:
        raise ValueError(f"--num-jobs must be from 1 to 1000, not {options.num_jobs}")
    if single and options.shard is not None:
        raise ValueError("--shard is of no use with --audio: there is one recording")
    if options.channel < 0:
        raise ValueError(f"--channel must be 0 or more, not {options.channel}")
    from mlvae.data.recordings import find_recordings, single_recording
    from mlvae.localization import Options, answer_one, describe, localize
    from mlvae.report.exports import FORMATS
    from mlvae.shard import Shard

    formats = tuple(dict.fromkeys(options.format.split(",")))
    for name in formats:
        if name not in FORMATS:
            raise ValueError(f"--format: {name!r} is none of {', '.join(FORMATS)}")
    chosen = Options(
        formats=formats,
        num_jobs=options.num_jobs,
        channel=options.channel,
        allow_commands=options.allow_commands,
        lexicon=options.lexicon,
        device=options.device,
        g2p=options.g2p,
        shard=None if options.shard is None else Shard.of(options.shard),
    )
    if single:
        found = single_recording(options.audio, options.text)
    else:
        found = find_recordings(options.paths[0])
    if not options.paths:
        print(describe(answer_one(options.model, found, chosen)))
        return 0
    return localize(options.model, found, options.paths[-1], chosen)


def _report(options: argparse.Namespace) -> int:
    from mlvae.score.report import report

    return report(options.answers, options.out, options.audio, options.data_dir)


def _missing(error: ImportError) -> str:
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{first_line} (`mlvae env` says what is wrong with the environment)"


def _fail(message: str) -> int:
    print(f"mlvae: error: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
