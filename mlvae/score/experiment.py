"""Stage 6 as a function: score the hypotheses of an experiment folder, and write tables and plots.

Example::

    systems = load_config(Path("recipes/audiomnist/conf/small.yaml")).systems.values()
    status = score_experiment(Path("data/fsdd"), Path("exp/audiomnist/fsdd/small"), systems)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from lhotse import MonoCut
from lhotse.supervision import AlignmentItem

from mlvae.config import System, flag_all_label
from mlvae.data.dataset import FeaturesError, load_cuts
from mlvae.data.manifests import read_json, write_json
from mlvae.environment import versions
from mlvae.plausibility import FlaggedUnits, count_flagged, training_warnings
from mlvae.report.plots import (
    LEARNING_CURVES,
    TRAINING,
    Panel,
    draw_reliability,
    draw_utterance,
    write_learning_curves,
)
from mlvae.score.calibration import CALIBRATION_METRICS, reliability_curve
from mlvae.score.graded import (
    GradedHypothesis,
    GradedReference,
    changed_on_top,
    evaluate_graded,
    is_graded,
    read_graded,
    read_graded_hypothesis,
    trivial_hypotheses,
)
from mlvae.score.graded_table import ChangedWords, format_graded, graded_panels, graded_results
from mlvae.score.hypotheses import (
    Evaluation,
    Hypothesis,
    evaluate,
    flag_all_hypothesis,
    known_probabilities,
    oracle_hypothesis,
    tier_hypothesis,
)
from mlvae.score.intervals import LEVEL, difference_fields
from mlvae.score.reference import Reference, read_reference
from mlvae.score.tables import details_of, format_details, format_table, heading, title_of
from mlvae.score.words import word_cuts, word_metrics
from mlvae.stage import StageReport, atomic_path, log, stage_folder
from mlvae.systems import KINDS
from mlvae.tiers import has_tier, tier

STAGE = "6 score"
CUTS = "cuts_test.jsonl.gz"
MIN_UNITS = 5  # of the utterance that is drawn
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
    """Write ``results.json``, ``table.txt`` and plots of an experiment, and print the table.

    Of a corpus with annotators there is ``details.txt`` as well: metrics by error type, of times,
    by word and by unit. Where units are BPE tokens, all metrics are of words. Where the reference
    holds scores of experts, metrics are those of `mlvae.score.graded`, over speakers whatever
    ``cluster`` says.

    The plots are ``utterance.png``, unless no utterance has a hypothesis of all systems,
    ``reliability.png``, unless no system gives P(mispronounced), and ``learning_curves.png`` in the
    folder of each system whose training left a history.

    Args:
        data_dir: folder of the corpus, with ``corpus.json`` and ``reference.jsonl.gz``.
        exp_dir: folder of the experiment, with a folder for each system.
        declared: the systems of the configuration, in the order of the rows.
        seed: of the intervals, recorded as the seed of the run.
        num_resamples: behind each interval.
        cluster: what intervals are over: ``"recording"`` or ``"speaker"``.
        utterance: id of the test utterance in the plot; None: chosen by a rule that does not look
            at the hypotheses.

    Returns:
        The stage's exit status: 1 when no utterance has a hypothesis of all systems.

    Raises:
        FileNotFoundError: an input is missing; names the stage that makes it.
        ValueError: hypotheses and reference are not of the same units, or ``utterance`` cannot be
            drawn; names the utterance. Somebody else uses the folder, or something that was not
            made here is in the way.
        OSError: something cannot be written; names it.
    """
    for path in (data_dir / "corpus.json", data_dir / "reference.jsonl.gz"):
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing; stage 0 (prepare) makes it")
    systems = find_systems(declared, exp_dir)
    with stage_folder(STAGE, exp_dir, made_files(MADE, systems, exp_dir), reads=[data_dir]):
        corpus = read_json(data_dir / "corpus.json")
        run = _Run(exp_dir, declared, systems, corpus, seed, num_resamples)
        path = data_dir / "reference.jsonl.gz"
        if not is_graded(path):
            return _score(run, path, cluster, utterance)
        if utterance is not None:
            raise ValueError("a reference of scores has no times: no utterance is drawn")
        return _score_graded(run, path)


@dataclass(frozen=True)
class _Run:
    """What is scored, and how."""

    exp_dir: Path
    declared: Sequence[System]
    systems: list[System]  # those with hypotheses
    corpus: dict  # content of ``corpus.json``
    seed: int
    num_resamples: int

    def texts(self) -> dict[str, dict[str, str]]:
        """Reasons and notes of an evaluation."""
        return {
            "unavailable": find_unavailable(self.declared, self.exp_dir),
            "notes": {system.label: system.note for system in self.declared},
        }

    def write(
        self,
        texts: Mapping[str, str],
        metrics: dict[str, Any],
        flagged: Mapping[str, FlaggedUnits],
        **more: Any,
    ) -> dict[str, Any]:
        """Write and print the texts, by their files, and write ``results.json``; its content."""
        others = other_seeds(self.systems, self.exp_dir, self.seed)
        for name, other in others.items():
            log(f"{name} was trained with seed {other}, not {self.seed}")
        results = {
            "seed": self.seed,
            "versions": versions(),
            "corpus": self.corpus,
            **metrics,
            "flagged": {name: counts.as_dict() for name, counts in flagged.items()},
            "warnings": warnings_of(self.systems, flagged, self.exp_dir),
            "other_seeds": others,
            **more,
        }
        write_json(self.exp_dir / "results.json", results)
        write_and_print(self.exp_dir, texts)
        return results


def _score(run: _Run, path: Path, cluster: str, utterance: str | None) -> int:
    reference = read_reference(path)
    if utterance is not None and utterance not in reference.utterances:
        raise ValueError(f"there is no test utterance {utterance!r} to draw")
    systems, corpus, exp_dir = run.systems, run.corpus, run.exp_dir
    cuts = read_cuts(systems, exp_dir)
    flagged = flagged_units(systems, cuts)
    of_words = word_cuts(systems, cuts) if reference.annotation else {}
    results_of_words = word_metrics(reference, cuts) if corpus.get("unit") != "bpe" else {}
    if corpus.get("unit") == "bpe":
        cuts = of_words  # there is no reference of tokens
    hypotheses = read_hypotheses(reference, systems, cuts, exp_dir)
    evaluation = evaluate(
        reference,
        hypotheses,
        compared_rows(run.declared),
        cluster,
        run.num_resamples,
        run.seed,
        **run.texts(),
    )
    texts, more = {"table.txt": format_table(evaluation, corpus)}, {}
    if reference.annotation is not None:
        word_reference = reference.annotation.words
        word_hypotheses = []
        if word_reference is not None and any(of_words.values()):
            word_hypotheses = read_hypotheses(word_reference, systems, of_words, exp_dir)
        more["details"] = details_of(reference, hypotheses, word_hypotheses)
        texts["details.txt"] = format_details(more["details"], heading(reference, corpus))
    metrics = {**results_of(evaluation, run.num_resamples), "words": results_of_words}
    results = run.write(texts, metrics, flagged, **more)
    written = ["results.json", *texts]

    report = StageReport(stage=STAGE, folder=exp_dir)
    of_systems = [hypothesis for hypothesis in hypotheses if hypothesis.name in cuts]
    missing = {name for hypothesis in hypotheses for name in hypothesis.missing}
    for name in reference.utterances:
        lacking = "; ".join(one.name for one in of_systems if name in one.missing)
        report.count(name, f"no hypothesis of {lacking}; scored as missed" if lacking else None)
    if report.num_done:
        plot = exp_dir / "utterance.png"
        try:
            draw_example(reference, systems, cuts, missing, corpus, plot, utterance)
            written.append("utterance.png")
        except FeaturesError as error:
            log(f"stage {STAGE}: no plot of an utterance: {error}")
    if evaluation.calibrations:
        panels = reliability_panels(evaluation)
        draw_reliability(panels, heading(reference, corpus), exp_dir / "reliability.png")
        written.append("reliability.png")
    finish(systems, flagged, results["warnings"], written, exp_dir)
    return report.finish()


def _score_graded(run: _Run, path: Path) -> int:
    """The same where the reference holds scores of experts; intervals are over speakers."""
    reference, changed_reference = read_graded(path)
    systems, exp_dir, seed = run.systems, run.exp_dir, run.seed
    cuts, changed_cuts = read_cuts(systems, exp_dir), {}
    changed = None
    if changed_reference is not None:
        ids = changed_reference.units.units_of
        for name, own in cuts.items():
            changed_cuts[name] = [cut for cut in own if cut.id in ids]
            cuts[name] = [cut for cut in own if cut.id not in ids]
        changed_rows = graded_rows(changed_reference, systems, changed_cuts, exp_dir, seed)
        on_top = changed_on_top(changed_reference, changed_rows, run.num_resamples, seed)
        changed = ChangedWords(changed_reference, changed_rows, on_top)
    flagged = flagged_units(systems, cuts)
    rows = graded_rows(reference, systems, cuts, exp_dir, seed)
    evaluation = evaluate_graded(
        reference, rows, compared_rows(run.declared), run.num_resamples, seed, **run.texts()
    )
    texts = {"table.txt": format_graded(evaluation, run.corpus, changed)}
    results = run.write(texts, graded_results(evaluation, changed), flagged)
    written = ["results.json", *texts]
    panels = graded_panels(evaluation)
    if panels:
        draw_reliability(panels, title_of(run.corpus), exp_dir / "reliability.png")
        written.append("reliability.png")

    report = StageReport(stage=STAGE, folder=exp_dir)
    for one, own in [(reference, rows)] + ([(changed_reference, changed_rows)] if changed else []):
        for name in one.units.utterances:
            lacking = "; ".join(row.name for row in own if name in row.missing)
            reason = f"no hypothesis of {lacking}; scored with P = 0" if lacking else None
            report.count(name, reason)
    finish(systems, flagged, results["warnings"], written, exp_dir)
    return report.finish()


def made_files(names: Iterable[str], systems: Iterable[System], exp_dir: Path) -> list[Path]:
    """Files of an experiment, and the learning curves of its systems."""
    curves = [training_path(system, exp_dir).parent / LEARNING_CURVES for system in systems]
    return [*(exp_dir / name for name in names), *curves]


def write_and_print(folder: Path, texts: Mapping[str, str]) -> None:
    """Write texts, by their files in a folder, and print them."""
    for name, text in texts.items():
        with atomic_path(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    print("", *texts.values(), sep="\n", flush=True)


def graded_rows(
    reference: GradedReference,
    systems: Sequence[System],
    cuts: Mapping[str, list[MonoCut]],
    exp_dir: Path,
    seed: int = 0,
) -> list[GradedHypothesis]:
    """The trivial rows, and all systems that give P(mispronounced); the log names the others."""
    rows = trivial_hypotheses(reference, seed)
    for system in systems:
        kind = KINDS[system.kind]
        if not kind.load:
            continue  # forced alignment judges nothing
        row = read_graded_hypothesis(
            system.label, reference, cuts[system.label], kind.spans, kind.perceived
        )
        if row is None:
            log(f"no row for {system.label}: it gives no P(mispronounced)")
            continue
        rows.append(replace(row, **_trained(system, exp_dir)))
    return rows


def flagged_units(
    systems: Sequence[System], cuts: Mapping[str, list[MonoCut]]
) -> dict[str, FlaggedUnits]:
    """By label how many units each system flags, of those that flag any."""
    return {
        system.label: count_flagged(cuts[system.label], kind.spans, kind.perceived)
        for system in systems
        if (kind := KINDS[system.kind]).perceived is not None
    }


def finish(
    systems: Sequence[System],
    flagged: Mapping[str, FlaggedUnits],
    warnings: Mapping[str, list[str]],
    written: list[str],
    exp_dir: Path,
) -> None:
    """Draw learning curves, and say what is flagged and what was written."""
    for folder in sorted({training_path(system, exp_dir).parent for system in systems}):
        if write_learning_curves(folder):
            written.append(f"{folder.name}/{LEARNING_CURVES}")

    for name, counts in flagged.items():
        log(f"stage {STAGE}: {name}: {counts.line()}")
        for warning in warnings.get(name, []):
            log(f"stage {STAGE}: {name}: warning: {warning}")
    log(f"stage {STAGE}: wrote {', '.join(written)} in {exp_dir}")


def warnings_of(
    systems: Sequence[System], flagged: Mapping[str, FlaggedUnits], exp_dir: Path
) -> dict[str, list[str]]:
    """By label of the system what a user should look at; systems without warnings are omitted.

    Goodness of pronunciation, which has the model of another system, ranks: nobody relies on its
    flags, and the other system has warnings of its own.
    """
    found = {}
    for system in systems:
        if system.model_of:
            continue
        sentences = flagged[system.label].warnings() if system.label in flagged else []
        sentences += training_warnings(training_path(system, exp_dir).parent)
        if sentences:
            found[system.label] = sentences
    return found


def results_of(evaluation: Evaluation, num_resamples: int) -> dict[str, Any]:
    """What ``results.json`` has of metrics and intervals, which are fractions.

    Only ``training_seconds`` may differ between two runs of the same command on one machine.
    """
    reference, intervals = evaluation.reference, evaluation.intervals
    systems = {}
    for hypothesis in evaluation.hypotheses:
        scores = intervals.scores[hypothesis.name].as_dict()
        calibration = evaluation.calibrations.get(hypothesis.name)
        perceived = evaluation.perceived.get(hypothesis.name)
        systems[hypothesis.name] = {
            **scores,
            **{
                f"{metric}_interval": intervals.interval(hypothesis.name, metric)
                for metric in scores
            },
            **{
                metric: calibration and getattr(calibration, metric)
                for metric in CALIBRATION_METRICS
            },
            "perceived_accuracy": perceived and perceived.fraction,
            "num_perceived": perceived and perceived.num_named,
            "num_params": hypothesis.num_params,
            "training_seconds": hypothesis.training_seconds,
            "num_missing": len(hypothesis.missing),
        }
    differences: dict[str, dict[str, Any]] = {}
    for (first, second), by_metric in evaluation.differences.items():
        row = differences[f"{first} minus {second}"] = {}
        for metric, difference in by_metric.items():
            row.update(difference_fields(metric, difference))
    return {
        "counts": {
            "num_utterances": len(reference.utterances),
            "num_units": len(reference.canonical),
            "num_mismatched": int(reference.positive.sum()),
            "mismatch_rate": float(np.mean(reference.positive)),
        },
        "intervals": {
            "level": LEVEL,
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
    for hypothesis in evaluation.hypotheses:
        known = known_probabilities(evaluation.reference, hypothesis)
        if known is None:
            continue
        metrics = evaluation.calibrations[hypothesis.name]
        note = f"calibration error {metrics.expected_calibration_error:.3f}"
        if metrics.brier_skill is not None:
            note += f", Brier skill {metrics.brier_skill:.3f}"
        title = f"{hypothesis.name}\n{note}"
        panels.append(Panel(title, known[0], reliability_curve(*known)))
    return panels


# ---- The systems of a folder ------------------------------------------------------------------


def cuts_path(system: System, exp_dir: Path) -> Path:
    """The manifest with the hypotheses of a system; the system is there when this file is."""
    return exp_dir / system.name / CUTS


def training_path(system: System, exp_dir: Path) -> Path:
    """The file with the size and the training time of a system's model."""
    return exp_dir / (system.model_of or system.name) / TRAINING


def stage_of(system: System) -> str:
    """The stage that makes the cuts, for messages."""
    return "stage 5 (localize)" if KINDS[system.kind].load else "stage 3 (align)"


def compared_rows(systems: Iterable[System]) -> list[tuple[str, str]]:
    """Pairs of rows whose difference is shown where both are there.

    All first comparisons come before all second ones.
    """
    systems = list(systems)
    labels = {system.name: system.label for system in systems}
    most = max((len(system.compare) for system in systems), default=0)
    return [
        (system.label, labels.get(other, other))
        for index in range(most)
        for system in systems
        for other in system.compare[index : index + 1]
    ]


def find_systems(declared: Iterable[System], exp_dir: Path) -> list[System]:
    """Find the systems that have hypotheses in an experiment folder, in the order of the rows.

    A system whose folder is there without hypotheses gets a line in the log, unless its training
    said that it is not available; see ``find_unavailable``.

    Raises:
        FileNotFoundError: no system has hypotheses, or the ``training.json`` of one that has is
            missing; names the stage that makes it.
    """
    found, declared = [], list(declared)
    unavailable = find_unavailable(declared, exp_dir)
    for system in declared:
        if system.label in unavailable:
            continue
        path = cuts_path(system, exp_dir)
        if path.exists():
            found.append(system)
        elif (exp_dir / system.name).exists():
            log(f"no row for {system.label}: {path} is missing; {stage_of(system)} makes it")
    if not found:
        folders = ", ".join(system.name for system in declared)
        raise FileNotFoundError(
            f"no {CUTS} in any of the folders {folders} of {exp_dir}; "
            "stages 3 (align) and 5 (localize) make them"
        )
    kinds = {system.name: KINDS[system.kind] for system in declared}
    for system in found:
        path = training_path(system, exp_dir)
        if not path.exists():
            trained = kinds[system.model_of or system.name].train
            maker = "stage 4 (train)" if trained else "stage 3 (align)"
            raise FileNotFoundError(f"{path} is missing; {maker} makes it")
    return found


def find_unavailable(declared: Iterable[System], exp_dir: Path) -> dict[str, str]:
    """By label of the system why it could not be trained, from ``training.json``.

    Hypotheses that lie in the folder of such a system are of an earlier training and do not count.
    """
    reasons = {}
    for system in declared:
        path = exp_dir / system.name / TRAINING
        if path.exists() and "unavailable" in (content := read_json(path)):
            reasons[system.label] = content["unavailable"]
    return reasons


def read_cuts(systems: Sequence[System], exp_dir: Path) -> dict[str, list[MonoCut]]:
    """The cuts with the hypotheses of each system, by the system's label."""
    return {system.label: list(load_cuts(cuts_path(system, exp_dir))) for system in systems}


def read_hypotheses(
    reference: Reference, systems: Sequence[System], cuts: dict[str, list[MonoCut]], exp_dir: Path
) -> list[Hypothesis]:
    """All rows of the table: oracle, flag-all, and each system; ``cuts`` are of `read_cuts`.

    Raises:
        ValueError: hypotheses are not of the units of the reference, or a ``training.json`` lacks a
            key.
    """
    flag_all, rows = [], []
    for system in systems:
        kind, own = KINDS[system.kind], cuts[system.label]
        hypothesis = tier_hypothesis(system.label, reference, own, kind.spans, kind.perceived)
        hypothesis = replace(hypothesis, **_trained(system, exp_dir))
        rows.append(hypothesis)
        if system.flag_all:
            flag_all.append(flag_all_hypothesis(flag_all_label(system), reference, hypothesis))
    return [oracle_hypothesis(reference), *flag_all, *rows]


def other_seeds(systems: Sequence[System], exp_dir: Path, seed: int) -> dict[str, int]:
    """By label the seeds of systems that were trained with another one than ``seed``."""
    found = {}
    for system in systems:
        content = read_json(training_path(system, exp_dir))
        if content.get("seed", seed) != seed:
            found[system.label] = content["seed"]
    return found


def _trained(system: System, exp_dir: Path) -> dict[str, Any]:
    """Number of parameters and training time, as the stage that trained the model wrote them."""
    path = training_path(system, exp_dir)
    content = read_json(path)
    try:
        return {name: content[name] for name in ("num_params", "training_seconds")}
    except KeyError as error:
        raise ValueError(f"{path} has no {error}") from error


# ---- The utterance that is drawn --------------------------------------------------------------


def choose_example(reference: Reference, missing: set[str]) -> tuple[str, str]:
    """The utterance of the plot and the rule in words, which does not use the hypotheses.

    Raises:
        ValueError: no utterance has a hypothesis: all are ``missing``.
    """
    positive, rows = reference.positive, range(len(reference.utterances))
    spans = [slice(*reference.first[row : row + 2]) for row in rows]
    covered = [row for row in rows if reference.utterances[row] not in missing]
    mismatched = [row for row in covered if positive[spans[row]].any()]
    long = [row for row in mismatched if len(positive[spans[row]]) >= MIN_UNITS]
    choices = [
        (long, f"with a mismatch and at least {MIN_UNITS} units"),
        (mismatched, "with a mismatch"),
        (covered, "with a hypothesis (none has a mismatch)"),
    ]
    for found, rule in choices:
        if found:
            return reference.utterances[found[0]], f"the first test utterance {rule}"
    raise ValueError("no test utterance has a hypothesis")


def draw_example(
    reference: Reference,
    systems: Sequence[System],
    cuts: dict[str, list[MonoCut]],
    missing: set[str],
    corpus: dict,
    path: Path,
    utterance: str | None = None,
) -> None:
    """Draw the hypotheses of the systems with ``in_plot`` for one utterance, one below another.

    The cuts, by label of their system, have the tier ``fa`` and features. The utterance is that of
    `choose_example` unless it is named.

    Raises:
        ValueError: no utterance has a hypothesis, or this one has none of any system.
    """
    if utterance is None:
        chosen, rule = choose_example(reference, missing)
        rule = f"Shown is {rule}."
    else:
        chosen, rule = utterance, "Shown is the utterance that was asked for."
    row = reference.utterances.index(chosen)
    units = slice(*reference.first[row : row + 2])
    own = {name: cut for name, some in cuts.items() for cut in some if cut.id == chosen}
    if not own:
        raise ValueError(f"no system has a hypothesis for utterance {chosen!r}")
    draw_utterance(
        next(iter(own.values())),
        perceived=reference.perceived[units],
        true_starts=reference.starts[units],
        true_ends=reference.ends[units],
        found={
            system.label: _hypothesis(system, own.get(system.label))
            for system in systems
            if system.in_plot
        },
        title=f"{title_of(corpus)}: utterance {chosen}",
        caption=rule,
        path=path,
        inserted=[] if reference.annotation is None else reference.annotation.insertions[row],
    )


def _hypothesis(
    system: System, cut: MonoCut | None
) -> tuple[list[AlignmentItem], list[AlignmentItem]] | None:
    """Canonical and perceived units; None where the system has no hypothesis."""
    kind = KINDS[system.kind]
    perceived = kind.perceived or kind.spans
    if cut is None or not (has_tier(cut, kind.spans) and has_tier(cut, perceived)):
        return None
    return tier(cut, kind.spans), tier(cut, perceived)
