#!/usr/bin/env python3
"""Stage 6: score the hypotheses of an experiment against the reference of its corpus.

Of a corpus without a reference, it says what can be said without one. Both end with a report.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import PositiveInt

from mlvae.config import load_config
from mlvae.device import Seed
from mlvae.program import start_program
from mlvae.score.experiment import find_systems, score_experiment
from mlvae.score.overview import has_reference, write_overview
from mlvae.score.report import find_sources, report
from mlvae.stage import in_one_line


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; returns its exit status."""
    parser = ArgumentParser(prog="score.py", description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of the corpus")
    parser.add_argument("--exp-dir", type=Path, required=True, help="folder of the experiment")
    parser.add_argument("--config", type=Path, required=True, help="that declares the systems")
    parser.add_argument("--seed", type=Seed, default=0, help="seed of the intervals")
    parser.add_argument(
        "--num-resamples", type=PositiveInt, default=1000, help="resamples behind each interval"
    )
    parser.add_argument(
        "--cluster",
        type=str,
        choices=["recording", "speaker"],
        default="recording",
        help="what the intervals are over; those of experts' scores are always over speakers",
    )
    parser.add_argument(
        "--utterance",
        type=Optional[str],
        help="test utterance in the plot (default: the first with a mismatch and 5 units)",
    )
    parser.add_argument(
        "--report",
        type=bool,
        default=True,
        help="whether to make report/, pages to see and hear the answers in a browser",
    )
    options = parser.parse_args(argv)
    return in_one_line("score.py", lambda: score(options))


def score(options: Namespace) -> int:
    """The stage with its options.

    Raises:
        ValueError, OSError: something is missing or cannot be used, see there.
    """
    systems = list(load_config(options.config).systems.values())
    if has_reference(options.data_dir):
        status = score_experiment(
            options.data_dir,
            options.exp_dir,
            systems,
            seed=options.seed,
            num_resamples=options.num_resamples,
            cluster=options.cluster,
            utterance=options.utterance,
        )
    else:
        if options.utterance is not None:
            raise ValueError("there is no reference: no utterance is drawn (--utterance)")
        status = write_overview(options.data_dir, options.exp_dir, systems, options.seed)
    labels = {system.name: system.label for system in find_systems(systems, options.exp_dir)}
    if status == 0 and options.report and find_sources(options.exp_dir, labels):
        # People take the report of their own recordings elsewhere; a corpus stays where it is.
        audio = "link" if has_reference(options.data_dir) else "copy"
        report(options.exp_dir, options.exp_dir / "report", audio, options.data_dir, labels)
    return status


if __name__ == "__main__":
    start_program()
    sys.exit(main())
