"""Stage 6 as a function: score the answers of one experiment folder and write what is shown of it.

Example:
    >>> status = score_experiment(Path("data/fsdd"), Path("exp/audiomnist/fsdd/small"), seed=0)
"""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import numpy as np
from lhotse import CutSet, MonoCut

import mlvae
from mlvae.report.picture import draw_answer
from mlvae.score.answers import (
    SystemAnswer,
    Truth,
    oracle_answer,
    outcomes,
    read_truth,
    tier_answer,
)
from mlvae.score.bootstrap import Intervals, bootstrap_intervals
from mlvae.score.table import format_table
from mlvae.stage import StageReport, atomic_path, log

STAGE = "6 score"
PICTURE_MIN_UNITS = 5


def check_inputs(data_dir: Path, exp_dir: Path) -> None:
    """Check that the files that scoring reads exist.

    Raises:
        FileNotFoundError: One does not; names it and the stage that makes it.
    """
    needed = {
        data_dir / "corpus.json": "stage 0 (prepare)",
        data_dir / "truth.jsonl.gz": "stage 0 (prepare)",
        exp_dir / "fa" / "training.json": "stage 3 (align)",
        exp_dir / "ml-vae" / "training.json": "stage 4 (train)",
        exp_dir / "cuts_test.jsonl.gz": "stage 5 (localize)",
    }
    for path, stage in needed.items():
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing; {stage} makes it")


def score_experiment(
    data_dir: Path,
    exp_dir: Path,
    seed: int = 0,
    num_resamples: int = 1000,
    cluster: str = "recording",
) -> int:
    """Write ``results.json``, ``table.txt`` and ``utterance.png`` of an experiment, and print.

    Args:
        data_dir: Folder of the corpus, with ``corpus.json`` and ``truth.jsonl.gz``.
        exp_dir: Folder of the experiment, with ``cuts_test.jsonl.gz`` and the ``training.json`` of
            ``fa`` and ``ml-vae``.
        seed: Seed of the intervals, recorded as the seed of the run.
        num_resamples: Number of resamples for the intervals.
        cluster: What intervals are over: ``"recording"`` or ``"speaker"``.

    Returns:
        The stage's exit status: 1 when no utterance has an answer.

    Raises:
        FileNotFoundError: An input is missing; names the stage that makes it.
        ValueError: Answers and truth are not of the same units; names the utterance.
    """
    check_inputs(data_dir, exp_dir)
    corpus = json.loads((data_dir / "corpus.json").read_text(encoding="utf-8"))
    truth = read_truth(data_dir / "truth.jsonl.gz", split="test")
    cuts = list(CutSet.from_file(exp_dir / "cuts_test.jsonl.gz"))
    answers = read_answers(truth, cuts, exp_dir)
    intervals = bootstrap_intervals(
        {answer.name: outcomes(truth, answer) for answer in answers},
        truth.clusters(cluster),
        num_resamples=num_resamples,
        seed=seed,
    )

    table = format_table(truth, answers, intervals, corpus, cluster)
    with atomic_path(exp_dir / "table.txt") as temporary:
        temporary.write_text(table, encoding="utf-8")
    results = results_of(truth, answers, intervals, corpus, seed, num_resamples, cluster)
    with atomic_path(exp_dir / "results.json") as temporary:
        text = json.dumps(results, indent=2, ensure_ascii=False, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")

    print(f"\n{table}", flush=True)

    report = StageReport(stage=STAGE, folder=exp_dir)
    missing = {name for answer in answers for name in answer.missing}
    report.done(len(truth.utterances) - len(missing))
    for name in (name for name in truth.utterances if name in missing):
        systems = ", ".join(answer.name for answer in answers if name in answer.missing)
        report.skip(name, f"no answer of {systems}; scored as missed")
    draw_example(truth, cuts, missing, corpus, exp_dir / "utterance.png")

    log(f"stage {STAGE}: wrote results.json, table.txt and utterance.png in {exp_dir}")
    return report.finish()


def read_answers(truth: Truth, cuts: Sequence[MonoCut], exp_dir: Path) -> list[SystemAnswer]:
    """The rows of every table: oracle, flag-all twice, FA and ML-VAE."""
    fa, ours = _trained(exp_dir / "fa"), _trained(exp_dir / "ml-vae")
    heard = "mlvae_heard"
    return [
        oracle_answer(truth),
        tier_answer("flag-all (FA)", truth, cuts, "fa", flag_all=True, **fa),
        tier_answer("flag-all (ours)", truth, cuts, "mlvae", heard, flag_all=True, **ours),
        tier_answer("FA", truth, cuts, "fa", **fa),
        tier_answer("ML-VAE", truth, cuts, "mlvae", heard, **ours),
    ]


def _trained(folder: Path) -> dict:
    """Size and training time of a model, as the stage that trained it wrote them."""
    path = folder / "training.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    try:
        return {key: content[key] for key in ("num_params", "training_seconds")}
    except KeyError as error:
        raise ValueError(f"{path} has no {error}") from error


def results_of(
    truth: Truth,
    answers: Sequence[SystemAnswer],
    intervals: Intervals,
    corpus: dict,
    seed: int,
    num_resamples: int,
    cluster: str,
) -> dict:
    """The content of ``results.json``; figures and intervals are fractions.

    Only ``training_seconds`` may differ between two runs of the same command on one machine.
    """
    systems = {}
    for answer in answers:
        scores = intervals.scores[answer.name].as_dict()
        systems[answer.name] = {
            **scores,
            **{f"{figure}_interval": intervals.interval(answer.name, figure) for figure in scores},
            "num_params": answer.num_params,
            "training_seconds": answer.training_seconds,
            "num_missing": len(answer.missing),
        }
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
            "over": cluster,
            "num_clusters": intervals.num_clusters,
            "num_resamples": num_resamples,
        },
        "systems": systems,
    }


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


def choose_example(truth: Truth, missing: set[str]) -> tuple[str, str]:
    """Choose the utterance of the picture by a rule that does not look at how well it went.

    Returns:
        The utterance's id and the rule as words for the caption.

    Raises:
        ValueError: No utterance has an answer.
    """
    positive, rows = truth.positive, range(len(truth.utterances))
    spans = [slice(*truth.first[row : row + 2]) for row in rows]
    answered = [row for row in rows if truth.utterances[row] not in missing]
    mismatched = [row for row in answered if positive[spans[row]].any()]
    long = [row for row in mismatched if len(positive[spans[row]]) >= PICTURE_MIN_UNITS]
    choices = [
        (long, f"with a mismatch and at least {PICTURE_MIN_UNITS} units"),
        (mismatched, "with a mismatch"),
        (answered, "with an answer (none has a mismatch)"),
    ]
    for found, rule in choices:
        if found:
            return truth.utterances[found[0]], f"the first test utterance {rule}"
    raise ValueError("no test utterance has an answer")


def draw_example(
    truth: Truth, cuts: Sequence[MonoCut], missing: set[str], corpus: dict, path: Path
) -> None:
    """Draw the picture of the example utterance; none when no utterance has an answer."""
    if len(missing) == len(truth.utterances):
        log(f"stage {STAGE}: no utterance has an answer, no picture")
        return
    chosen, rule = choose_example(truth, missing)
    row = truth.utterances.index(chosen)
    units = slice(*truth.first[row : row + 2])
    cut = next(cut for cut in cuts if cut.id == chosen)
    synthetic = ", synthetic speech" if corpus["synthetic"] else ""
    draw_answer(
        cut,
        perceived=truth.perceived[units],
        true_starts=truth.starts[units],
        true_ends=truth.ends[units],
        title=f"{corpus['title']}{synthetic}: utterance {chosen}",
        caption=f"Shown is {rule}.",
        path=path,
    )
