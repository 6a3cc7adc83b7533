#!/usr/bin/env python3
"""RESULTS.md out of its template and of what the parts of results.sh left; no figure is typed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import yaml
from jinja2 import TemplateError
from jsonargparse import ArgumentParser

from mlvae.program import start_program
from mlvae.report.results import (
    PICTURE,
    beside_the_paper,
    compose,
    composer_parser,
    description,
    read_part,
    read_record,
    read_run,
    write_results,
)
from mlvae.stage import log

HERE = Path(__file__).resolve().parent
PARTS = ("seeds", "correctness", "estep", "competitors", "length")
COMMAND = "recipes/audiomnist/results.sh --corpus-dir /path/to/fsdd"


def make_parser() -> ArgumentParser:
    """The options."""
    parser = composer_parser(HERE, __doc__, COMMAND)
    parser.add_argument("--speaker", type=str, default="theo", help="of the part speaker")
    parser.add_argument("--seeds", type=str, default="0 1 2", help="of the part seeds")
    parser.add_argument("--variants", type=str, default="", help="of the part variants")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Write RESULTS.md and the picture of one utterance beside it; returns the exit status."""
    options = make_parser().parse_args(argv)
    exp, records = options.exp_dir, options.exp_dir / "results"
    fsdd, here = Path("audiomnist/fsdd"), exp / "audiomnist/fsdd" / options.config
    try:
        runs = {
            "fsdd": read_run("fsdd", records, here),
            "speaker": read_run(
                "speaker", records, exp / f"speaker-{options.speaker}" / fsdd / options.config
            ),
            "espeak": read_run("espeak", records, exp / "audiomnist/espeak/small"),
        }
        variants = {
            name: read_run(f"variant-{name}", records, exp / fsdd / name)
            for name in options.variants.split()
        }
        parts = {name: read_part(name, records) for name in PARTS}
        further_seeds = [
            read_record(records / f"seed-{seed}.txt") for seed in options.seeds.split()
        ]
        if runs["fsdd"] is None:
            raise FileNotFoundError(f"{records / 'fsdd.txt'} is missing; results.sh makes it")
        paper = yaml.safe_load((HERE.parent / "paper.yaml").read_text(encoding="utf-8"))
        values = {
            **runs,
            **parts,
            "variants": {name: run for name, run in variants.items() if run is not None},
            "description": {name: description(HERE / "conf" / f"{name}.yaml") for name in variants},
            "beside_the_paper": beside_the_paper(runs["fsdd"], paper),
            "held_out": options.speaker,
            "seed_names": options.seeds.split(),
            "further_seeds": [record for record in further_seeds if record is not None],
            "config": options.config,
            "whole": options.command,
        }
        text = compose(options.template, values)
    except (OSError, ValueError, KeyError, TemplateError) as error:
        print(f"compose_results.py: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    write_results(text, here / PICTURE, options.out)
    absent = [name for name, part in {**runs, **variants, **parts}.items() if part is None]
    note = f"; without {', '.join(absent)}, which were not done" if absent else ""
    log(f"results compose: wrote {options.out} and {PICTURE} beside it{note}")
    return 0


if __name__ == "__main__":
    start_program()
    sys.exit(main())
