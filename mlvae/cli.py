"""The command ``mlvae``; it imports nothing heavy, so that ``mlvae env`` works anywhere."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import mlvae
from mlvae.program import start_program

#: the package that brings each optional module
PACKAGES = {"pygraphviz": "pygraphviz", "espeakng_loader": "espeakng-loader", "numba": "numba"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with ``arguments``, by default those of the process.

    What the user can mend (a wrong value, a file, a missing package) is one line on standard error.

    Returns:
        The exit status: 0, or 1 after an error. Wrong options exit with 2, as is usual.
    """
    if arguments is None:
        start_program()
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except ImportError as error:
        return _fail(_missing(error))
    except (ValueError, OSError) as error:
        return _fail(str(error))


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


def _missing(error: ImportError) -> str:
    module = (error.name or "").split(".")[0]
    if module in PACKAGES:
        return f"{module} is not installed: pip install {PACKAGES[module]}"
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{first_line} (`mlvae env` says what is wrong with the environment)"


def _fail(message: str) -> int:
    print(f"mlvae: error: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
