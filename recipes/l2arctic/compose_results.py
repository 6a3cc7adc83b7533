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
    read_run,
    write_results,
)
from mlvae.stage import log

HERE = Path(__file__).resolve().parent
COMMAND = "recipes/l2arctic/results.sh"


def make_parser() -> ArgumentParser:
    """The options."""
    parser = composer_parser(HERE, __doc__, COMMAND)
    parser.add_argument("--corpus", type=str, default="simulate", help="simulate or l2arctic")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Write RESULTS.md and the picture of one utterance beside it; returns the exit status."""
    options = make_parser().parse_args(argv)
    records, corpus = options.exp_dir / "results", options.corpus

    def folder(exp_dir: Path, name: str) -> Path:
        return exp_dir / "l2arctic" / name / options.config

    folders = {
        "corpus": folder(options.exp_dir, corpus),
        "annotation": folder(options.exp_dir, f"{corpus}-annotation"),
        "bpe": folder(options.exp_dir, f"{corpus}-bpe"),
        "full": folder(options.exp_dir / "full", corpus),
    }
    try:
        runs = {name: read_run(name, records, path) for name, path in folders.items()}
        if runs["corpus"] is None:
            raise FileNotFoundError(f"{records / 'corpus.txt'} is missing; results.sh makes it")
        paper = yaml.safe_load((HERE.parent / "paper.yaml").read_text(encoding="utf-8"))
        values = {
            **runs,
            "simulated": corpus == "simulate",
            "beside_the_paper": {
                name: beside_the_paper(run, paper, "pooled") if run else []
                for name, run in runs.items()
            },
            "whole": options.command,
        }
        text = compose(options.template, values)
        write_results(text, folders["corpus"] / PICTURE, options.out)
    except (OSError, ValueError, KeyError, TemplateError) as error:
        print(f"compose_results.py: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    absent = [name for name, run in runs.items() if run is None]
    note = f"; without {', '.join(absent)}, which were not done" if absent else ""
    log(f"results compose: wrote {options.out} and {PICTURE} beside it{note}")
    return 0


if __name__ == "__main__":
    start_program()
    sys.exit(main())
