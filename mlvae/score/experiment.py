"""Stage 6 as a function: score the answers of one experiment folder and write what is shown of it.

Example:
    >>> systems = load_config(Path("recipes/audiomnist/conf/small.yaml")).systems.values()
    >>> status = score_experiment(Path("data/fsdd"), Path("exp/audiomnist/fsdd/small"), systems)
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

import numpy as np

import mlvae
from mlvae.config import System
from mlvae.data.dataset import FeaturesError
from mlvae.plausibility import FlaggedUnits, count_flagged, training_warnings
from mlvae.report import learning
from mlvae.report.learning import write_learning_curves
from mlvae.report.reliability import Panel, draw_reliability
from mlvae.score.answers import known_probabilities
from mlvae.score.calibration import reliability_curve
from mlvae.score.details import details_of, format_details
from mlvae.score.evaluation import Evaluation, evaluate
from mlvae.score.example import check_example, draw_example
from mlvae.score.systems import (
    compared_rows,
    find_systems,
    find_unavailable,
    other_seeds,
    read_answers,
    read_cuts,
    training_path,
)
from mlvae.score.table import format_table, heading
from mlvae.score.truth import read_truth
from mlvae.score.words import word_cuts, word_figures
from mlvae.stage import StageReport, atomic_path, log, stage_folder
from mlvae.systems import KINDS

STAGE = "6 score"
#: What is written to the folder of an experiment.
MADE = ("results.json", "table.txt", "details.txt", "utterance.png", "reliability.png")


def score_experiment(
    data_dir: Path,
    exp_dir: Path,
    declared: Sequence[System],
    seed: int = 0,
    num_resamples: int = 1000,
    cluster: str = "recording",
    utterance: str | None = None,
) -> int:
    """Write ``results.json``, ``table.txt`` and pictures of an experiment, and print the table.

    Of a corpus with annotators there is ``details.txt`` as well: figures by error type, of times,
    by word and by unit. Where units are BPE tokens, all figures are of words.

    The pictures are ``utterance.png``, unless no utterance has an answer of all systems,
    ``reliability.png``, unless no system gives P(mispronounced), and ``learning_curves.png`` in the
    folder of each system whose training left a history.

    Args:
        data_dir: Folder of the corpus, with ``corpus.json`` and ``truth.jsonl.gz``.
        exp_dir: Folder of the experiment, with a folder for each system.
        declared: The systems of the configuration, in the order of the rows.
        seed: Seed of the intervals, recorded as the seed of the run.
        num_resamples: Number of resamples for the intervals.
        cluster: What intervals are over: ``"recording"`` or ``"speaker"``.
        utterance: Id of the test utterance in the picture; None: chosen by a rule that does not
            look at the answers.

    Returns:
        The stage's exit status: 1 when no utterance has an answer of all systems.

    Raises:
        FileNotFoundError: An input is missing; names the stage that makes it.
        ValueError: Answers and truth are not of the same units, or ``utterance`` cannot be drawn;
            names the utterance. Somebody else uses the folder, or something that was not made here
            is in the way.
        OSError: Something cannot be written; names it.
    """
    for path in (data_dir / "corpus.json", data_dir / "truth.jsonl.gz"):
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing; stage 0 (prepare) makes it")
    systems = find_systems(declared, exp_dir)
    outputs = [exp_dir / name for name in MADE]
    outputs += [training_path(system, exp_dir).parent / learning.FILE for system in systems]
    with stage_folder(STAGE, exp_dir, outputs, reads=[data_dir]):
        return _score(data_dir, exp_dir, declared, systems, seed, num_resamples, cluster, utterance)


def _score(
    data_dir: Path,
    exp_dir: Path,
    declared: Sequence[System],
    systems: list[System],
    seed: int,
    num_resamples: int,
    cluster: str,
    utterance: str | None,
) -> int:
    corpus = json.loads((data_dir / "corpus.json").read_text(encoding="utf-8"))
    truth = read_truth(data_dir / "truth.jsonl.gz", split="test")
    check_example(truth, utterance)
    cuts = read_cuts(systems, exp_dir)
    flagged = {
        system.label: count_flagged(cuts[system.label], kind.spans, kind.heard)
        for system in systems
        if (kind := KINDS[system.kind]).heard is not None
    }
    of_words = word_cuts(systems, cuts) if truth.annotation else {}
    results_of_words = word_figures(truth, cuts) if corpus.get("unit") != "bpe" else {}
    if corpus.get("unit") == "bpe":
        cuts = of_words  # there is no truth of tokens
    answers = read_answers(truth, systems, cuts, exp_dir)
    evaluation = evaluate(
        truth,
        answers,
        compared_rows(declared),
        cluster,
        num_resamples,
        seed,
        find_unavailable(declared, exp_dir),
        {system.label: system.note for system in declared},
    )

    table = format_table(evaluation, corpus)
    with atomic_path(exp_dir / "table.txt") as temporary:
        temporary.write_text(table, encoding="utf-8")
    results = results_of(evaluation, corpus, seed, num_resamples)
    results["words"] = results_of_words
    results["flagged"] = {name: counts.as_dict() for name, counts in flagged.items()}
    results["warnings"] = warnings_of(systems, flagged, exp_dir)
    results["other_seeds"] = other_seeds(systems, exp_dir, seed)
    for name, other in results["other_seeds"].items():
        log(f"{name} was trained with seed {other}, not {seed}")
    details = None
    if truth.annotation is not None:
        word_truth = truth.annotation.words
        word_answers = []
        if word_truth is not None and any(of_words.values()):
            word_answers = read_answers(word_truth, systems, of_words, exp_dir)
        details = details_of(truth, answers, word_answers)
        results["details"] = details
    with atomic_path(exp_dir / "results.json") as temporary:
        text = json.dumps(results, indent=2, ensure_ascii=False, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")
    written = ["results.json", "table.txt"]
    print(f"\n{table}", flush=True)
    if details is not None:
        text = format_details(details, heading(truth, corpus))
        with atomic_path(exp_dir / "details.txt") as temporary:
            temporary.write_text(text, encoding="utf-8")
        written.append("details.txt")
        print(text, flush=True)

    report = StageReport(stage=STAGE, folder=exp_dir)
    missing = {name for answer in answers for name in answer.missing}
    report.done(len(truth.utterances) - len(missing))
    of_systems = [answer for answer in answers if answer.name in cuts]
    for name in (name for name in truth.utterances if name in missing):
        lacking = "; ".join(answer.name for answer in of_systems if name in answer.missing)
        report.skip(name, f"no answer of {lacking}; scored as missed")
    if report.num_done:
        picture = exp_dir / "utterance.png"
        try:
            draw_example(truth, systems, cuts, missing, corpus, picture, utterance)
            written.append("utterance.png")
        except FeaturesError as error:
            log(f"stage {STAGE}: no picture of an utterance: {error}")
    if evaluation.calibrations:
        panels = reliability_panels(evaluation)
        draw_reliability(panels, heading(truth, corpus), exp_dir / "reliability.png")
        written.append("reliability.png")

    for folder in sorted({training_path(system, exp_dir).parent for system in systems}):
        if write_learning_curves(folder):
            written.append(f"{folder.name}/{learning.FILE}")

    for name, counts in flagged.items():
        log(f"stage {STAGE}: {name}: {counts.line()}")
        for warning in results["warnings"].get(name, []):
            log(f"stage {STAGE}: {name}: warning: {warning}")
    log(f"stage {STAGE}: wrote {', '.join(written)} in {exp_dir}")
    return report.finish()


def warnings_of(
    systems: Sequence[System], flagged: Mapping[str, FlaggedUnits], exp_dir: Path
) -> dict[str, list[str]]:
    """By label of the system what a user should look at; systems without are left out."""
    found = {}
    for system in systems:
        sentences = flagged[system.label].warnings() if system.label in flagged else []
        if not system.model_of:
            sentences += training_warnings(training_path(system, exp_dir).parent)
        if sentences:
            found[system.label] = sentences
    return found


def results_of(evaluation: Evaluation, corpus: dict, seed: int, num_resamples: int) -> dict:
    """The content of ``results.json``; figures and intervals are fractions.

    Only ``training_seconds`` may differ between two runs of the same command on one machine.
    """
    truth, intervals = evaluation.truth, evaluation.intervals
    systems = {}
    for answer in evaluation.answers:
        scores = intervals.scores[answer.name].as_dict()
        calibration = evaluation.calibrations.get(answer.name)
        heard = evaluation.heard.get(answer.name)
        systems[answer.name] = {
            **scores,
            **{f"{figure}_interval": intervals.interval(answer.name, figure) for figure in scores},
            **{
                figure: calibration and getattr(calibration, figure)
                for figure in ("brier_score", "brier_skill", "expected_calibration_error")
            },
            "heard_accuracy": heard and heard.share,
            "num_heard": heard and heard.num_named,
            "num_params": answer.num_params,
            "training_seconds": answer.training_seconds,
            "num_missing": len(answer.missing),
        }
    differences = {}
    for (first, second), by_figure in evaluation.differences.items():
        row = differences[f"{first} minus {second}"] = {}
        for figure, difference in by_figure.items():
            row[figure] = difference.estimate
            ends = None if difference.low is None else (difference.low, difference.high)
            row[f"{figure}_interval"] = ends
            row[f"{figure}_excludes_zero"] = difference.excludes_zero
    return {
        "seed": seed,
        "versions": versions(),
        "corpus": corpus,
        "counts": {
            "num_utterances": len(truth.utterances),
            "num_units": len(truth.canonical),
            "num_mismatched": int(truth.positive.sum()),
            "mismatch_rate": float(np.mean(truth.positive)),
        },
        "intervals": {
            "level": intervals.level,
            "over": evaluation.cluster,
            "num_clusters": intervals.num_clusters,
            "num_resamples": num_resamples,
        },
        "systems": systems,
        "unavailable": evaluation.unavailable,
        "differences": differences,
    }


def reliability_panels(evaluation: Evaluation) -> list[Panel]:
    """What the reliability plot shows, one panel for each system with P(mispronounced)."""
    panels = []
    for answer in evaluation.answers:
        known = known_probabilities(evaluation.truth, answer)
        if known is None:
            continue
        curve = reliability_curve(*known)
        figures = evaluation.calibrations[answer.name]
        note = f"calibration error {figures.expected_calibration_error:.3f}"
        if figures.brier_skill is not None:
            note += f", Brier skill {figures.brier_skill:.3f}"
        panels.append(
            Panel(
                title=f"{answer.name}\n{note}",
                probabilities=known[0],
                said=curve.probability,
                share=curve.share,
                low=curve.low,
                high=curve.high,
            )
        )
    return panels


def versions() -> dict[str, str | None]:
    """Versions of Python, this package and the libraries that results depend on."""
    found: dict[str, str | None] = {
        "python": platform.python_version(),
        "mlvae": mlvae.__version__,
    }
    for name in ("torch", "k2", "lhotse", "numpy", "scipy"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found
