#!/usr/bin/env python3
"""What each part of a judge is good for: measures, corruption, speakers and the chain of rates.

    python benchmarks/judge.py --data-dir data/CORPUS --exp-dir exp/RECIPE/CORPUS/CONFIG \
        --config recipes/RECIPE/conf/CONFIG.yaml

The experiment has been trained (stages 0 to 4). Each row fits a judge to the held-out part in
another way, and scores its P(mispronounced) of the test part; nothing is trained again. References
are read for the scores alone. Of a corpus with graded scores a unit is wrong below ``--threshold``.

The column *replaced* needs no reference: it is the AP of held-out units in whose text some were
replaced at random, by what the measures say of them. A trusted model has rows of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs without being installed

import numpy as np
from tabulate import tabulate

from benchmarks.experiment import METRICS, experiment_parser, metrics, read_experiment
from mlvae.program import start_program
from mlvae.score.ranking import average_precision
from mlvae.systems import Setup
from mlvae.systems.judge import (
    HeldOut,
    hold_out,
    measure,
    relative_rates,
    sequences_of,
    some_cuts,
)
from mlvae.train.evidence import (
    MEDIAN_PART,
    Evidence,
    fit_evidence,
    fit_to_answers,
    trusted_weights,
)
from mlvae.train.rates import Rates, UnitSequences, fit_rates

#: Columns of :func:`mlvae.systems.judge.measure`.
GRAPH, ESTIMATOR, ALIGNER = [0], [1, 2], [3, 4]
ALL = GRAPH + ESTIMATOR + ALIGNER
#: Those of a trusted model: its second model is the boundary aligner's.
BOTH_ALIGNERS = [*ALL, 5, 6]
OF_TRUSTED = [*GRAPH, *ESTIMATOR, 5, 6]


@dataclass(frozen=True)
class Variant:
    """A judge that differs from the shipped one."""

    name: str  # its name in the table
    columns: Sequence[int] = tuple(ALL)  # measures that it has
    #: See :class:`mlvae.train.evidence.Evidence`; None: the shipped one.
    median_part: float | None = None
    alone: bool = False  # whether each recording is judged by itself, whoever speaks
    even: bool = False  # whether replaced units are drawn evenly
    chain: bool = True  # whether errors cluster; otherwise every unit is for itself
    # see :class:`mlvae.train.rates.RatesConfig`; None: the shipped one
    speaker_std: float | None = None
    unit_std: float | None = None  # as speaker_std
    expected: float | None = None  # as speaker_std
    # of the measures, in the judge of a trusted model; None: of one that is not
    weights: Sequence[float] | None = None
    one_rate: bool = False  # whether no unit of a trusted model is wrong more often than others


NONE = 1e-3
VARIANTS = (
    Variant("shipped"),
    Variant("acceptor alone", GRAPH),
    Variant("goodness of the estimator alone", ESTIMATOR),
    Variant("goodness of the aligner alone", ALIGNER),
    Variant("goodness of both, no acceptor", ESTIMATOR + ALIGNER),
    Variant("replaced units drawn evenly", even=True),
    Variant("no chain, no effects", chain=False, speaker_std=NONE, unit_std=NONE),
    Variant("chain, no effects", speaker_std=NONE, unit_std=NONE),
    Variant("chain, effects of units alone", speaker_std=NONE),
    Variant("effects of units run free", unit_std=5.0),
    Variant("recordings' medians kept", median_part=0.0),
    Variant("recordings' medians taken away", median_part=1.0),
    Variant("each recording by itself", alone=True),
    Variant("expected rate 0.02", expected=0.02),
    Variant("expected rate 0.15", expected=0.15),
)
SHIPPED = tuple(trusted_weights(len(OF_TRUSTED)))
#: Of a trusted model.
TRUSTED = (
    Variant("shipped", OF_TRUSTED, weights=SHIPPED),
    Variant("the forced aligner's model as the second", ALL, weights=SHIPPED),
    Variant("both aligners' models", BOTH_ALIGNERS, weights=trusted_weights(len(BOTH_ALIGNERS))),
    Variant("one rate of all units", OF_TRUSTED, weights=SHIPPED, one_rate=True),
    Variant("acceptor alone", OF_TRUSTED, weights=(1, 0, 0, 0, 0)),
    Variant("log ratios alone", OF_TRUSTED, weights=(0, 0, 1 / 2, 0, 1 / 2)),
    Variant("acceptor and log ratios alike", OF_TRUSTED, weights=(1 / 3, 0, 1 / 3, 0, 1 / 3)),
    Variant("acceptor and log ratio of the estimator", OF_TRUSTED, weights=(0.5, 0, 0.5, 0, 0)),
    Variant("acceptor and log ratio of the aligner", OF_TRUSTED, weights=(0.5, 0, 0, 0, 0.5)),
    Variant("acceptor and mean log posteriors", OF_TRUSTED, weights=(0.5, 0.25, 0, 0.25, 0)),
    Variant("all measures alike", OF_TRUSTED, weights=(1 / 5,) * 5),
    Variant("recordings' medians kept", OF_TRUSTED, weights=SHIPPED, median_part=0.0),
    Variant("half of recordings' medians kept", OF_TRUSTED, weights=SHIPPED, median_part=0.5),
)


def judged(
    variant: Variant,
    held_out: HeldOut,
    test: np.ndarray,
    units: UnitSequences,
    setup: Setup,
    relative: Mapping[int, np.ndarray],
    rate: float | None = None,
) -> tuple[np.ndarray, float]:
    """P(mispronounced) of the test part by a variant, and its AP of replaced units.

    Args:
        variant: of the judge.
        held_out: what it is fitted to.
        test: measures (n, M) of the test part.
        units: of the test part.
        setup: of the system.
        relative: by the column of its log ratio, how much more often than all units an acoustic
            model hears each as another; for variants of a trusted model.
        rate: of mispronounced units that a trusted model finds before it is adapted.
    """
    sequences, corrupted = held_out.sequences, held_out.corrupted
    if variant.alone:
        sequences, corrupted, units = (
            replace(some, speaker=some.utterance) for some in (sequences, corrupted, units)
        )
    config = setup.settings.judge.rates
    for name in ("speaker_std", "unit_std", "expected"):
        if getattr(variant, name) is not None:
            config = replace(config, **{name: getattr(variant, name)})
    columns, num_units = list(variant.columns), len(setup.table)
    held_out = replace(
        held_out,
        measures=held_out.measures[:, columns],
        corrupted_measures=held_out.corrupted_measures[:, columns],
    )
    if variant.weights is not None:
        of_units = np.ones(num_units) if variant.one_rate else relative[columns[-1]]
        evidence, of_units = fit_to_answers(
            held_out.measures, sequences, of_units, np.array(variant.weights), rate
        )
        if variant.median_part is not None:
            evidence = replace(evidence, median_part=variant.median_part)
        rates = Rates.independent(evidence.rate, of_units, config)
        return _answers(evidence, rates, held_out, test[:, columns], units)
    evidence = fit_evidence(
        held_out.measures,
        sequences,
        held_out.corrupted_measures,
        corrupted,
        held_out.replaced,
        num_units,
        config.expected,
        MEDIAN_PART if variant.median_part is None else variant.median_part,
    )
    ratio = evidence.log_ratio(held_out.measures, sequences)
    rates = fit_rates(sequences, ratio, num_units, config)
    if not variant.chain:
        rates = replace(rates, within_word=0.0, across_words=0.0)
    return _answers(evidence, rates, held_out, test[:, columns], units)


def _answers(
    evidence: Evidence, rates: Rates, held_out: HeldOut, test: np.ndarray, units: UnitSequences
) -> tuple[np.ndarray, float]:
    replaced = evidence.log_ratio(held_out.corrupted_measures, held_out.corrupted)
    found = rates.correctness(units, evidence.log_ratio(test, units)).mispronounced
    return found, average_precision(replaced, held_out.replaced)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; returns the exit status."""
    args = experiment_parser("judge.py", __doc__).parse_args(argv)
    trained = read_experiment(args)
    system, aligner = trained.system, trained.aligner
    config, table = trained.setup.settings.judge, trained.setup.table
    trusted = json.loads((trained.setup.folder / "training.json").read_bytes())["trusted"]
    others = [system.boundary_aligner] if trusted else []
    held_out = {
        even: hold_out(system, trained.valid, aligner, config, args.seed, confusable, others)
        for even, confusable in ((False, 0.25), (True, 1.0))
    }
    rate, relative = None, {}
    if trusted:
        valid, _ = aligner.align(trained.valid, system.dataset.plain())
        rate, heard = (
            system.unadapted_rate(valid),
            [*some_cuts(trained.train, config.max_cuts), *valid],
        )
        _, *models = system.unit_models(aligner, *others)
        relative = {
            columns[-1]: relative_rates(heard, model, table)
            for columns, model in zip((ALL, OF_TRUSTED), models)
        }
    system = system.adapted_to(trained.test)
    wrong = system.wrong_units(trained.test)
    known = trained.known(wrong)
    measures = measure(known, wrong, system.unit_models(aligner, *others))
    sequences = sequences_of(known, table)
    rows: list[list] = []

    def add(name: str, values: np.ndarray, replaced: float | None = None) -> None:
        rows.append([name, replaced, *metrics(*trained.scored(known, values))])

    add("P of the acceptor", 1 / (1 + np.exp(-measures[:, 0])))
    for name, column in (("GOP of the estimator", 1), ("GOP of the aligner", 3)):
        add(name, -np.expm1(-np.nan_to_num(measures[:, column])))
    for variant in TRUSTED if trusted else VARIANTS:
        found, replaced = judged(
            variant, held_out[variant.even], measures, sequences, trained.setup, relative, rate
        )
        add(variant.name, found, replaced)
    trained.describe(known)
    print(tabulate(rows, ["answer", "replaced", *METRICS], floatfmt=".3f"))
    return 0


if __name__ == "__main__":
    start_program()
    sys.exit(main())
