#!/usr/bin/env python3
"""Run the experiments of a recipe that are not done yet, and compose RESULTS.md of them.

    python recipes/results.py audiomnist --corpus-dir /path/to/fsdd
    python recipes/results.py l2arctic
    python recipes/results.py speechocean762 --corpus-dir /path/to/speechocean762

A recipe is a list of parts; a part is a section of the page with the commands that make it. What a
command has printed, its time, machine and commit are kept in EXP_DIR/results/RECIPE/PART.json, so
that it is not run again while that file is there and the command is the same. To run a part again,
remove its file; to train anew, the folders of the models as well. A command that was interrupted
goes on where it was. RESULTS.md holds the parts that are done, with the numbers of their files.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs without being installed

import yaml

from mlvae.made import Record, atomic_path
from mlvae.program import start_program
from mlvae.score.tables import format_count
from mlvae.stage import in_one_line, log

ROOT = Path(__file__).resolve().parents[1]
UTTERANCE, RELIABILITY = "utterance.png", "reliability.png"
# Where the explanation of the columns begins in a table.txt.
NOTES = "\n\nMetrics are "
W2V = "/path/to/wav2vec2"
MACHINE = "from mlvae.environment import machine_line; print(machine_line())"

SYSTEMS = "fa two-pass-fa w2v-ctc ml-vae ml-vae-rl ablation-1 ablation-2 ablation-3 ml-vae-sub"
#: Options of all recipes: default and help.
OPTIONS = {
    "corpus_dir": ("", "folder of the corpus"),
    "config": ("small", "a file of conf, without .yaml"),
    "systems": (SYSTEMS, "systems of the main part"),
    "w2v_checkpoint": ("", "weights for w2v-ctc, if not those in torchaudio's cache"),
    "utterance": ("", "test utterance in the plot, if not chosen by the rule"),
    "seed": (0, "of everything random"),
    "device": ("auto", "auto, cpu or cuda"),
}
#: Those that say where files lie and what to do this time, not what is measured.
LOCAL_OPTIONS = {
    "parts": ("all", "names of the parts to run; '' runs none, and composes only"),
    "data_dir": ("data", "as for run.sh"),
    "exp_dir": ("exp", "as for run.sh"),
    "machine_note": ("", "what else runs on the machine, to be recorded"),
    "out": ("", "file to write (default: EXP_DIR/results/RECIPE/RESULTS.md)"),
}


@dataclass(frozen=True)
class Part:
    """A section of the page."""

    name: str  # for ``--parts`` and for the file of its record
    title: str  # heading; ``{corpus}`` stands for title and size of the corpus
    # As a person types them in the project's folder, with the folders ``data`` and ``exp`` and the
    # corpus in the recipe's ``corpus_path``. That of the table is the last.
    commands: Sequence[str]
    text: str = ""  # what is to be said about it
    # experiment folder of run.sh, below ``exp``, whose tables are shown; empty where the output of
    # the last command is
    folder: str = ""
    # makes the end of the section, of the runs of all parts that are done
    more: Callable[[dict[str, Run]], str] | None = None


@dataclass(frozen=True)
class Page:
    """A recipe: its name, a heading, the corpus's folder as a person writes it, and its parts.

    The plot and the explanations of columns are those of part ``main``; ``plot`` is its file.
    """

    name: str
    heading: str
    corpus_path: str
    introduction: str
    main: str
    parts: Sequence[Part]
    plot: str = UTTERANCE


class Run:
    """What run.sh has left in an experiment folder.

    Raises:
        OSError: the folder lacks something.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table, self.notes = _read_table(folder / "table.txt")
        self.results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        self.systems: dict[str, dict] = self.results["systems"]
        paths = sorted(folder.glob("*/training.json"))
        self.training = {path.parent.name: json.loads(path.read_bytes()) for path in paths}
        self.details = ""
        if (folder / "details.txt").exists():
            details, notes = _read_table(folder / "details.txt")
            self.details = details.split("\n\n", 1)[-1]  # without its heading
            self.notes += f"\n\n{notes}"

    def metric(self, system: str, name: str) -> str:
        """A metric in percent, with its interval."""
        row = self.systems[system]
        ends = row[f"{name}_interval"]
        return percent(row[name]) + (f" [{percent(ends[0])} {percent(ends[1])}]" if ends else "")

    def criterion(self, folder: str) -> float:
        """F1 on units corrupted at random, of the iteration that a system kept."""
        training = self.training[folder]
        return training["history"][training["best_iteration"] - 1]["corrupted_f1"]


def other_seeds(o: Namespace) -> list[str]:
    """The seeds of part ``seeds``; ValueError where they are none."""
    seeds = o.seeds.split()
    if not all(re.fullmatch("[0-9]+", seed) for seed in seeds):
        raise ValueError(f"--seeds must be whole numbers, not '{o.seeds}'")
    return seeds


def runs_of_seeds(runs: dict[str, Run], o: Namespace, folder: str) -> dict[str, Run]:
    """The run of part ``corpus`` and those of part ``seeds``, by seed."""
    found = {str(o.seed): runs["corpus"]} if "corpus" in runs else {}
    others = {seed: Run(Path(o.exp_dir, f"seed-{seed}", folder)) for seed in other_seeds(o)}
    return found | others


def _read_table(path: Path) -> tuple[str, str]:
    """A table and the explanations below it."""
    table, _, notes = path.read_text(encoding="utf-8").partition(NOTES)
    return table.rstrip(), (NOTES + notes).strip()


def percent(fraction: float) -> str:
    """A fraction in percent with one decimal."""
    return f"{100 * fraction:.1f}"


def block(text: str, language: str = "") -> str:
    """A block of code."""
    return f"```{language}\n{text}\n```\n\n"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines) + "\n"


def training_table(run: Run) -> str:
    """Parameters, training time and the iteration that was kept, of each system."""
    rows = []
    for name, one in run.training.items():
        if "unavailable" in one:
            rows.append((name, "-", one["unavailable"], "-"))
        else:
            kept = f"{one['best_iteration']} of {one['iterations']}" if "iterations" in one else "-"
            seconds = f"{one['training_seconds']:.0f}"
            rows.append((name, format_count(one["num_params"]), seconds, kept))
    return table(["system", "parameters", "training, seconds", "iteration kept"], rows)


def beside_the_paper(runs: dict[str, Run], corpora: dict[str, str], kind: str) -> str:
    """A table of the systems of the paper: what it prints, and what was measured here.

    Args:
        runs: By heading of their column.
        corpora: Corpora of recipes/paper.yaml, and the headings of their columns.
        kind: ``macro`` or ``pooled``: which precision, recall and F1 are shown of the runs.
    """
    paper = yaml.safe_load((ROOT / "recipes" / "paper.yaml").read_text(encoding="utf-8"))
    first, rows = next(iter(runs.values())), []
    for name, printed in paper.items():
        row = [name, printed.get("params", "-")]
        row.append(format_count(first.systems.get(name, {}).get("num_params")))
        for corpus in corpora:
            row.append(" / ".join(f"{value:.2f}" for value in printed.get(corpus, [])) or "-")
        for run in runs.values():
            here = run.results["unavailable"].get(name, "not run")
            if name in run.systems:
                two = [percent(run.systems[name][f"{kind}_{m}"]) for m in ("precision", "recall")]
                here = " / ".join([*two, run.metric(name, f"{kind}_f1")])
            row.append(here)
        row.append(printed.get("average_iou", "-"))
        row.append(first.metric(name, "average_iou") if name in first.systems else "-")
        rows.append(row)
    head = ["system", "parameters, paper", "parameters here", *corpora.values(), *runs]
    return table([*head, "paper, average IoU on L2-ARCTIC", "average IoU here"], rows)


def plot_and(text: str) -> str:
    """The plot of one utterance before a text."""
    return f"""\
One test utterance, chosen by a rule that does not use the hypotheses (given in the caption):

![FBANK of one utterance, its text, the reference, and the hypothesis of each system]({UTTERANCE})

{text}"""


# ---- The recipes ------------------------------------------------------------------------------

SYNTHETIC = """\
The speech is synthetic: the metrics check that everything works and compare systems on it;
performance on real speech does not follow from them.
"""

DIGITS_OPTIONS = {
    "num_utterances": (3000, "to build from FSDD"),
    "seeds": ("1 2", "of part seeds, beside --seed"),
    "seed_systems": ("ml-vae-rl ml-vae", "of part seeds: the first minus the second"),
    "speakers": ("george jackson lucas nicolas theo yweweler", "of part speakers, one at a time"),
    "speaker_systems": ("two-pass-fa ml-vae-sub", "of part speakers"),
    "variants": ("", "of part variants: names of further files of conf"),
}


def digits(o: Namespace) -> Page:
    """Spoken digits: FSDD, and synthetic speech.

    Raises:
        ValueError: an option is of no use.
    """
    seeds, compared, variants = other_seeds(o), o.seed_systems.split(), o.variants.split()
    if len(compared) != 2:
        raise ValueError(f"--seed-systems must name two, not '{o.seed_systems}'")
    corpus_path = "/path/to/fsdd"
    corpus = f" --corpus-dir {corpus_path}" if o.corpus_dir else ""
    digits = f"./run.sh --corpus fsdd{corpus} --num-utterances {o.num_utterances}"
    further = "./run.sh --corpus fsdd --stage 3"  # on the data of part fsdd
    device = "" if o.device == "auto" else f" --device {o.device}"
    end = f" --seed {o.seed}{device}"
    folder = f"audiomnist/fsdd/{o.config}"
    exp_dirs = [f"exp/{folder}", *(f"exp/seed-{seed}/{folder}" for seed in seeds)]
    speakers = o.speakers.split()

    def compare_with_paper(runs: dict[str, Run]) -> str:
        here = f"here, {runs['fsdd'].results['corpus']['title']}"
        corpora = {"mismatch_audiomnist": "paper, Mismatch-AudioMNIST"}
        corpora["l2_arctic"] = "paper, L2-ARCTIC"
        return plot_and(f"""\
Beside the paper: precision, recall and F1 in percent, here *macro*. The corpora and the sizes of
the models differ, so only the order of the systems can be compared. The paper's ablations are of
ML-VAE-RL, and on L2-ARCTIC only.

{beside_the_paper({here: runs["fsdd"]}, corpora, "macro")}""")

    def variants_table(runs: dict[str, Run]) -> str:
        found = {o.config: runs["fsdd"]} if "fsdd" in runs else {}
        found |= {name: Run(Path(o.exp_dir, "audiomnist/fsdd", name)) for name in variants}
        rows = []
        for name, run in found.items():
            row = run.systems.get("ML-VAE-sub")
            if row is not None:
                names = ("pooled_f1", "macro_f1", "hard_f1", "average_iou")
                metrics = [run.metric("ML-VAE-sub", metric) for metric in names]
                perceived = row["perceived_accuracy"]
                metrics.append("-" if perceived is None else percent(perceived))
                metrics.append(f"{row['training_seconds']:.0f}")
                criterion = percent(run.criterion("ml-vae-sub"))
                rows.append((f"`{name}`", criterion, *metrics, first_comment(name)))
        head = ["configuration", "criterion", "pooled F1", "macro F1", "hard F1", "average IoU"]
        return table([*head, "perceived", "training, seconds", "difference to the default"], rows)

    def speakers_table(runs: dict[str, Run]) -> str:
        found = [Run(Path(o.exp_dir, f"speaker-{name}", folder)).systems for name in speakers]
        rows = []
        for system in found[0]:
            if system not in ("oracle", "FA") and not system.startswith("flag-all"):
                for metric in ("pooled F1", "hard F1", "average IoU"):
                    key = metric.lower().replace(" ", "_")
                    values = [systems[system][key] for systems in found]
                    cells = map(percent, (*values, sum(values) / len(values)))
                    rows.append((system, metric, *cells))
        return table(["system", "metric", *speakers, "mean"], rows)

    parts = [
        Part(
            "fsdd",
            "{corpus}",
            [
                f"{digits} --config {o.config} --systems {quote(o.systems)}"
                + given(w2v_checkpoint=W2V if o.w2v_checkpoint else "", utterance=o.utterance)
                + end
            ],
            folder=folder,
            more=compare_with_paper,
        ),
        Part(
            "seeds",
            f"{compared[0]} minus {compared[1]} over {len(exp_dirs)} seeds",
            [
                f"{further} --config {o.config} --systems {quote(o.seed_systems)} "
                f"--exp-dir exp/seed-{seed} --seed {seed}{device}"
                for seed in seeds
            ]
            + [
                "python benchmarks/seeds.py --data-dir data/fsdd --exp-dirs "
                f"{' '.join(exp_dirs)} --config recipes/audiomnist/conf/{o.config}.yaml "
                f"--first {compared[0]} --second {compared[1]}"
            ],
            f"Seeds {' '.join([str(o.seed), *seeds])} on the same data. The variances over "
            "training and over test recordings are\nadded (`benchmarks/seeds.py` says how). "
            "Where an interval includes 0, no difference is shown.\n",
        ),
        Part(
            "correctness",
            "q(π) and the gain that its reward depends on",
            [
                f"python benchmarks/correctness.py --data-dir data/fsdd --exp-dir exp/{folder} "
                f"--config recipes/audiomnist/conf/{o.config}.yaml --systems ml-vae-rl ml-vae"
            ],
            CORRECTNESS,
        ),
        Part(
            "speakers",
            "FSDD, each speaker in turn unseen in training",
            [
                f"{digits} --split speaker:{name} --config {o.config} "
                f"--data-dir data/speaker-{name} --exp-dir exp/speaker-{name} "
                f"--systems {quote(o.speaker_systems)}{end}"
                for name in speakers
            ],
            "A column is of one speaker's recordings, of which nothing was trained or chosen.\n",
            more=speakers_table,
        ),
        Part(
            "variants",
            "ML-VAE-sub in other configurations",
            [f"{further} --config {name} --systems ml-vae-sub{end}" for name in variants],
            "All are trained on the data of the first table. The criterion is F1 on validation "
            "units that were\ncorrupted at random, of the iteration that was kept. It is the only "
            "column that does not use the\nreference, so a configuration may be chosen by it.\n",
            more=variants_table,
        ),
        Part(
            "espeak",
            "{corpus}: synthetic",
            [f"./run.sh{device}"],
            SYNTHETIC,
            "audiomnist/espeak/small",
        ),
        Part(
            "estep",
            "One E-step",
            ["python benchmarks/estep.py --threads 2 --repeats 40"],
            "The loop DP is the textbook algorithm on numpy arrays, with its scores as functions; "
            "its speed\ndepends on how the loop is written. Batched torch knows this graph only.\n",
        ),
        adaptation("audiomnist", "fsdd", folder, o),
        Part(
            "competitors",
            "Cost of competitors",
            ["python benchmarks/competitors.py --num-utterances 32 --repeats 5"],
        ),
        Part(
            "length",
            "Long recordings",
            [f"python benchmarks/length.py{corpus}"],
            "The same speech, joined. Recordings of a minute and more are too long for one search "
            "over twelve\ncompetitors or over phones: they are aligned, searched in stretches and "
            "put together.\n",
        ),
    ]
    # Without speakers or variants there is no such part.
    parts = [part for part in parts if part.commands]
    return Page("audiomnist", "spoken digits", corpus_path, DIGITS, "fsdd", parts)


DIGITS = """\
Tables are copied from the `table.txt` that stage 6 writes; `results.json` beside it has the same
metrics as fractions. Training, the choice of an iteration and localisation do not use the
reference; scoring and the part on q(π) do.

*pooled* is the main metric. *macro* is the mean per utterance, as in the paper's table on digits;
its upper bound is the row *oracle*. *flag-all* is the trivial baseline: every unit flagged. The
columns are explained [at the end](#columns).
"""

CORRECTNESS = """\
*right* are correct, *wrong* mispronounced test units. *area* is the area under the ROC curve: the
probability that a mispronounced unit has the higher value than a correct one (0.5: no information).
The *gain* of π = 1, in nats per frame, is how much it lowers the KL divergence, which is all that
the reward of REINFORCE depends on. Where it is positive in correct units as well, several variants
of a mispronunciation fit speech better than the single component of the correct one. The printed
objective has no KL divergence of q(π) to p(π) to counter it, so REINFORCE raises q(π = 1)
everywhere, and more units are flagged, mispronounced or not.
"""

L2ARCTIC_OPTIONS = {
    "other_systems": ("two-pass-fa ml-vae ml-vae-sub", "systems of the other parts"),
    "num_utterances": (3599, "of part full"),
    "seeds": ("1 2", "of part seeds, beside --seed"),
    "seed_systems": ("two-pass-fa ml-vae-sub", "of part seeds"),
}


def l2arctic(o: Namespace) -> Page:
    """Learners' English: L2-ARCTIC, or what is simulated in its place.

    Raises:
        ValueError: an option is of no use.
    """
    seeds = other_seeds(o)
    corpus_path, corpus = "/path/to/l2arctic_release_v5.0", "simulate"
    start = "./run.sh --recipe l2arctic"
    if o.corpus_dir:
        corpus, start = "l2arctic", f"{start} --corpus-dir {corpus_path}"
    given_too = given(
        w2v_checkpoint=W2V if o.w2v_checkpoint else "",
        device="" if o.device == "auto" else o.device,
    )
    end = f" --config {o.config} --seed {o.seed}{given_too}"
    others = f" --systems {quote(o.other_systems)}{end}"
    folder = f"l2arctic/{corpus}/{o.config}"

    def compare_with_paper(runs: dict[str, Run]) -> str:
        here = {}
        for name in ("corpus", "annotation", "full"):
            if name in runs:
                size = runs[name].results["corpus"]["num_utterances"]
                here[f"here, part `{name}`, {size:,} utterances"] = runs[name]
        return plot_and(f"""\
Beside the paper: precision, recall and F1, *pooled*, and average IoU over all units (the paper's
appendix), in percent. The paper's numbers are on L2-ARCTIC, those measured here on
{runs["corpus"].results["corpus"]["title"]}. The paper's canonical units are the annotators', with
their silences: compare its column with part `annotation`.

{beside_the_paper(here, {"l2_arctic": "paper, L2-ARCTIC"}, "pooled")}""")

    def seeds_table(runs: dict[str, Run]) -> str:
        rows = []
        for seed, run in runs_of_seeds(runs, o, folder).items():
            for name, row in run.systems.items():
                if row["training_seconds"] and name in ("Two-Pass-FA", "ML-VAE-sub"):
                    names = ("pooled_f1", "hard_f1", "average_iou")
                    cells = [run.metric(name, metric) for metric in names]
                    ranked = [row.get(key) for key in ("average_precision", "brier_skill")]
                    cells += ["-" if value is None else f"{value:.3f}" for value in ranked]
                    rows.append((name, seed, *cells, percent(row["perceived_accuracy"])))
        head = ["system", "seed", "pooled F1", "hard F1", "average IoU", "AP", "Brier skill"]
        return table([*head, "perceived"], sorted(rows))

    parts = [
        Part(
            "corpus",
            "{corpus}",
            [f"{start} --systems {quote(o.systems)}{given(utterance=o.utterance)}{end}"],
            folder=folder,
            more=compare_with_paper,
        ),
        Part(
            "full",
            "{corpus}, as many as L2-ARCTIC has",
            [
                f"{start} --num-utterances {o.num_utterances} --data-dir data/full "
                f"--exp-dir exp/full{others}"
            ],
            folder=f"full/l2arctic/{corpus}/{o.config}",
        ),
        Part(
            "annotation",
            "The annotators' canonical units instead of the text's",
            [f"{start} --protocol annotation{others}"],
            "Protocol `annotation`, as first published: canonical units are the annotators', with "
            "their silences.\nIt leaks annotation into training, so it is not the default.\n",
            f"l2arctic/{corpus}-annotation/{o.config}",
        ),
        Part(
            "bpe",
            "BPE tokens instead of phones",
            [f"{start} --unit bpe{others}"],
            "No lexicon is needed: SentencePiece learns the units from the texts. There is no "
            "reference of BPE\ntokens, so all metrics are per word. Those of phones are in the "
            "details above, under *words*.\n",
            f"l2arctic/{corpus}-bpe/{o.config}",
        ),
        Part(
            "judge",
            "What each part of the judge is good for",
            [
                f"python benchmarks/judge.py --data-dir data/{corpus} --exp-dir exp/{folder} "
                f"--config recipes/l2arctic/conf/{o.config}.yaml --seed {o.seed}"
            ],
            TRUSTED_JUDGE,
        ),
        adaptation("l2arctic", corpus, folder, o),
        Part(
            "boundaries",
            "Whose boundaries are best",
            [
                f"python benchmarks/boundaries.py --data-dir data/{corpus} --exp-dir exp/{folder} "
                f"--config recipes/l2arctic/conf/{o.config}.yaml"
            ],
            BOUNDARIES,
        ),
        Part(
            "seeds",
            "Other seeds of the training",
            [
                f"{start} --stage 3 --systems {quote(o.seed_systems)} --config {o.config} "
                f"--exp-dir exp/seed-{seed} --seed {seed}{given_too}"
                for seed in seeds
            ],
            "The data are those of the first table.\n",
            more=seeds_table,
        ),
    ]
    # The real corpus has its full size anyway; without seeds there is no part of them.
    parts = [p for p in parts if p.commands and (p.name != "full" or not o.corpus_dir)]
    introduction = LEARNERS if o.corpus_dir else SIMULATED + LEARNERS
    return Page("l2arctic", "learners' English", corpus_path, introduction, "corpus", parts)


SIMULATED = """\
**The speech is simulated**: a synthesiser spoke phone strings with errors drawn from counts of the
real corpus (see the recipe's README.md). The metrics check that everything works and compare
systems; performance on learners does not follow from them. With the real corpus, the command is

```bash
python recipes/results.py l2arctic --corpus-dir /path/to/l2arctic_release_v5.0
```

"""

LEARNERS = """\
Tables are copied from the `table.txt` and `details.txt` that stage 6 writes; `results.json` beside
them has the same metrics as fractions. Training, the choice of an iteration and localisation do not
use the reference; only scoring does.

The context of the aligner, the number of epochs of the phoneme estimator, pseudo-labelling with the
iteration chosen by the held-out path score, spans of deletions, and whose boundaries units get were
chosen on the simulated corpus, whose errors are known, with its results in view. No human
annotation was used for them.
"""

TRUSTED_JUDGE = """\
Each row fits the judge of the trained ml-vae-sub to the validation part in another way; nothing is
trained again. The column *replaced* needs no reference: it is the AP of validation units in whose
text some were replaced at random. The weights of the measures were chosen by it, by a person who
saw the other columns, too. Rates by unit, which it does not show, and whose model is the second,
were taken in view of the others, of this corpus at both sizes.
"""

BOUNDARIES = """\
The same answers of ml-vae-sub with boundaries from elsewhere. *both* is the path's boundaries, and
the aligner's beside units that were left out. *in time*: less how late they are found in spliced
recordings. A person chose *both* in view of this corpus.
"""

SPEECHOCEAN_OPTIONS = {
    "seeds": ("1 2", "of part seeds, beside --seed"),
    "seed_systems": ("ml-vae-sub", "of part seeds"),
    "split": ("", "official or speakers (default: the recipe decides)"),
}


def speechocean762(o: Namespace) -> Page:
    """Mandarin speakers' English with experts' scores: speechocean762.

    Raises:
        ValueError: an option is of no use.
    """
    corpus_path, seeds = "/path/to/speechocean762", other_seeds(o)
    start = f"./run.sh --recipe speechocean762 --corpus-dir {corpus_path}{given(split=o.split)}"
    start += " --digit-strings true"
    device = "" if o.device == "auto" else f" --device {o.device}"
    end = f" --config {o.config}"
    split = f"-{o.split}" if o.split else ""
    folder = f"speechocean762/speechocean762{split}-digits/{o.config}"

    def seeds_table(runs: dict[str, Run]) -> str:
        rows = []
        for seed, run in runs_of_seeds(runs, o, folder).items():
            changed = run.results["changed_words"]["systems"]
            for name, row in run.systems.items():
                wrong, accented = row["below"]["0.5"], row["below"]["1"]
                metrics = (
                    *(wrong[metric] for metric in ("average_precision", "auc", "brier_skill")),
                    *(accented[metric] for metric in ("hard_f1", "hard_flagged")),
                    row["correlation"]["unit"],
                    changed[name]["on_top"],
                    changed[name]["on_top_by_evidence"],
                )
                cells = ["-" if value is None else f"{value:.3f}" for value in metrics]
                if row["num_params"] is not None:
                    rows.append((name, seed, *cells))
        head = ["system", "seed", "AP below 0.5", "AUC", "Brier skill", "hard F1 below 1"]
        head += ["hard flags", "correlation", "on top by P", "by evidence"]
        return table(head, sorted(rows))

    parts = [
        Part(
            "corpus",
            "{corpus}",
            [
                f"{start} --systems {quote(o.systems)}{end} --seed {o.seed}{device}"
                + given(w2v_checkpoint=W2V if o.w2v_checkpoint else "")
            ],
            folder=folder,
            more=lambda _: (
                "How P(mispronounced) compares with what is wrong:\n\n"
                f"![Reliability of P of each system]({RELIABILITY})\n"
            ),
        ),
        Part(
            "judge",
            "What each part of the judge is good for",
            [
                f"python benchmarks/judge.py --data-dir data/speechocean762{split}-digits "
                f"--exp-dir exp/{folder} --config recipes/speechocean762/conf/{o.config}.yaml "
                f"--seed {o.seed}"
            ],
            JUDGE_CHOICES,
        ),
        adaptation("speechocean762", f"speechocean762{split}-digits", folder, o),
        Part(
            "seeds",
            "Other seeds of the training",
            [
                f"{start} --stage 3 --systems {quote(o.seed_systems)}{end} "
                f"--exp-dir exp/seed-{seed} --seed {seed}{device}"
                for seed in seeds
            ],
            "The data are those of the first table.\n",
            more=seeds_table,
        ),
        Part(
            "text",
            "Units of the text and the lexicon in place of the corpus's own phones",
            [
                f"{start} --protocol text --systems {quote(o.seed_systems)}{end} "
                f"--seed {o.seed}{device}"
            ],
            folder=f"speechocean762/speechocean762-text{split}-digits/{o.config}",
        ),
    ]
    # Without seeds there is no such part.
    parts = [part for part in parts if part.commands]
    return Page(
        *("speechocean762", "experts' scores", corpus_path, SCORED, "corpus", parts), RELIABILITY
    )


SCORED = """\
Tables are copied from the `table.txt` that stage 6 writes; `results.json` beside it has the same
metrics. Training, the choice of an iteration and localisation do not use the scores; stage 6 does.
"""

JUDGE_CHOICES = """\
Each row fits the judge of the trained ml-vae-sub to the held-out part in another way; nothing is
trained again. A phone is wrong below 0.5. Which measures there are, that they are averaged, what
part of a recording's median is taken away, how confusable replaced units are, and the standard
deviations of effects were chosen by a person who had seen such scores of the last 25 speakers;
which rows are good on other speakers is not known.
"""


def adaptation(recipe: str, corpus: str, folder: str, o: Namespace) -> Part:
    """What adaptation to speakers is good for in a trained experiment."""
    return Part(
        "adaptation",
        "What adaptation to speakers is good for",
        [
            f"python benchmarks/adaptation.py --data-dir data/{corpus} --exp-dir exp/{folder} "
            f"--config recipes/{recipe}/conf/{o.config}.yaml --seed {o.seed}"
        ],
        ADAPTATION,
    )


ADAPTATION = """\
Nothing but the judge of ml-vae-sub is fitted again. In each row the recordings of a speaker are
adapted to and judged in groups, as if each group were by another speaker. *text* is the estimator's
mean log posterior of the text as aligned, which adaptation raises; the last columns are seconds of
work, on one thread, for a second of speech.
"""

RECIPES = {
    "audiomnist": (digits, DIGITS_OPTIONS),
    "l2arctic": (l2arctic, L2ARCTIC_OPTIONS),
    "speechocean762": (speechocean762, SPEECHOCEAN_OPTIONS),
}

quote = shlex.quote


def given(**options: str) -> str:
    """Options of a command, without those that are empty."""
    pairs = [(name.replace("_", "-"), value) for name, value in options.items() if value]
    return "".join(f" --{name} {quote(value)}" for name, value in pairs)


def first_comment(config: str) -> str:
    """The first comment of a configuration of digits, which says what is particular to it."""
    path = ROOT / "recipes" / "audiomnist" / "conf" / f"{config}.yaml"
    first = path.read_text(encoding="utf-8").split("\n", 1)[0] if path.exists() else ""
    return first.lstrip("# ") if first.startswith("#") else ""


# ---- Running and composing --------------------------------------------------------------------


def words_here(command: str, page: Page, o: Namespace) -> list[str]:
    """The words of a part's command with the folders and the interpreter of this machine."""
    folders = {"data": o.data_dir, "exp": o.exp_dir}
    names = {"python": sys.executable, page.corpus_path: o.corpus_dir, W2V: o.w2v_checkpoint}
    words = []
    for word in shlex.split(command):
        first, slash, rest = word.partition("/")
        if first in folders and slash:
            word = str(Path(folders[first], rest))
        elif first in ("benchmarks", "recipes") or word == "./run.sh":
            word = str(ROOT / word)
        words.append(names.get(word, word))
    if words[0] == str(ROOT / "run.sh"):
        for option, folder in (("--data-dir", o.data_dir), ("--exp-dir", o.exp_dir)):
            words += [] if option in words else [option, folder]
    return words


def record_path(part: Part, page: Page, o: Namespace) -> Path:
    """The file of what was recorded of the commands of a part."""
    return Path(o.exp_dir) / "results" / page.name / f"{part.name}.json"


def read_records(part: Part, page: Page, o: Namespace) -> list[dict]:
    """What was recorded of each command that is done, in their order."""
    path = record_path(part, page, o)
    records = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return [one for command in part.commands for one in records if one["command"] == command]


def run_part(part: Part, page: Page, o: Namespace) -> int:
    """Run the commands of a part that are not done; returns the exit status of the last one.

    Raises:
        InTheWayError: where the record goes lies something that was not made here.
    """
    path = record_path(part, page, o)
    made = Record.begin(path.parent)
    made.check([path])
    records = read_records(part, page, o)
    done = {record["command"] for record in records}
    here = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": here}
    for command in part.commands:
        if command in done:
            log(f"results {part.name}: done before: {command}")
            continue
        log(f"results {part.name}: {command}")
        began = time.monotonic()
        words = words_here(command, page, o)
        # What run.sh prints is for whoever waits; what a benchmark prints is kept.
        printed = subprocess.PIPE if command.startswith("python ") else None
        process = subprocess.run(words, env=environment, stdout=printed, encoding="utf-8")
        seconds = round(time.monotonic() - began)
        if process.returncode:
            log(f"results {part.name}: failed after {seconds} s (status {process.returncode})")
            return process.returncode
        records.append(
            {
                "command": command,
                "seconds": seconds,
                "machine": output_of([sys.executable, "-c", MACHINE]),
                "threads": os.environ.get("OMP_NUM_THREADS", ""),
                "machine_note": o.machine_note,
                "commit": output_of(["git", "describe", "--always", "--dirty"]),
                "output": (process.stdout or "").rstrip(),
            }
        )
        with atomic_path(path, made) as temporary:
            temporary.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
        log(f"results {part.name}: end, {seconds} s")
    return 0


def output_of(command: Sequence[str]) -> str:
    """What a command prints, ``unknown`` where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=ROOT, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def section(part: Part, records: Sequence[dict], runs: dict[str, Run]) -> str:
    """The text of a part that is done."""
    run, last = runs.get(part.name), records[-1]
    corpus, made = "", [last["machine"]]
    if run is not None:
        about = run.results["corpus"]
        corpus = f"{about['title']}, {about['num_utterances']:,} utterances"
    if last["threads"]:
        made.append(f"OMP_NUM_THREADS={last['threads']}")
    made += [one for one in [last["machine_note"]] if one]
    made += [f"{sum(one['seconds'] for one in records)} s", f"commit `{last['commit']}`"]
    if run is not None:
        over = run.results["intervals"]
        kind = "speakers" if over["over"] == "speaker" else "source recordings"
        made.append(f"intervals over {over['num_clusters']} {kind}")
    text = f"## {part.title.replace('{corpus}', corpus)}\n\n"
    text += block("\n".join(one["command"] for one in records), "bash")
    text += f"{'; '.join(made)}.\n\n{part.text}\n"
    shown = last["output"] if run is None else run.table
    text += block(shown) if shown else ""
    if run is not None:
        text += "Training; all systems start from the forced alignment, `fa`:\n\n"
        text += training_table(run)
        if run.details:
            text += f"By error type, boundaries, per word and per unit:\n\n{block(run.details)}"
    return text + (part.more(runs) if part.more else "")


def compose(page: Page, o: Namespace, out: Path) -> int:
    """Write the page of the parts that are done, and its plot; returns the exit status.

    Raises:
        InTheWayError: where they go lies something that was not made here.
        ValueError: no part is done, or results are of another version.
        OSError: results are missing, or the page cannot be written.
    """
    records = {part.name: read_records(part, page, o) for part in page.parts}
    done = [part for part in page.parts if len(records[part.name]) == len(part.commands)]
    absent = ", ".join(part.name for part in page.parts if part not in done)
    if not done:
        raise ValueError(f"nothing to compose, as these parts were not run: {absent}")
    try:
        runs = {part.name: Run(Path(o.exp_dir, part.folder)) for part in done if part.folder}
        sections = [section(part, records[part.name], runs) for part in done]
        shown = next((runs[name] for name in (page.main, *runs) if name in runs), None)
        versions = shown.results["versions"].items() if shown else ()
    except KeyError as error:
        raise ValueError(f"results of another version: they lack {error}") from error
    text = f"""\
# Results: {page.heading}

This command runs all parts of this page and composes it; no number is typed by hand. Each part
names its commands, the machine, what else ran there, and the commit.

{block(whole_command(page, o), "bash")}\
{f"Parts that were not run: {absent}." if absent else ""}

{"Versions: " + ", ".join(f"{n} {v}" for n, v in versions) + "." if versions else ""}

{page.introduction}
"""
    text += "\n".join(sections)
    text += f"\n## Columns\n\n{block(shown.notes)}" if shown else ""
    made = check_place(out, page.plot)
    with atomic_path(out, made) as temporary:
        temporary.write_text(re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n", encoding="utf-8")
    if page.main in runs:
        with atomic_path(out.parent / page.plot, made) as temporary:
            shutil.copyfile(runs[page.main].folder / page.plot, temporary)
    made.tidy()
    log(f"results: wrote {out}" + (f"; without {absent}, which were not run" if absent else ""))
    return 0


def check_place(out: Path, plot: str) -> Record:
    """Check that a page replaces nothing but what was composed; returns the record of its folder.

    Raises:
        InTheWayError: where it goes lies something that was not made here, or was changed since.
    """
    made = Record.begin(out.parent)
    made.check([out, out.parent / plot])
    return made


def whole_command(page: Page, o: Namespace) -> str:
    """The command that makes the page, without what is of this machine only."""
    options = {}
    for name, (default, _) in {**OPTIONS, **RECIPES[page.name][1]}.items():
        value = str(getattr(o, name))
        options[name] = value if value != str(default) else ""
    options["corpus_dir"] = page.corpus_path if o.corpus_dir else ""
    options["w2v_checkpoint"] = W2V if o.w2v_checkpoint else ""
    return f"python recipes/results.py {page.name}{given(**options)}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is not done, and write the page; returns the exit status."""
    parser = argparse.ArgumentParser(prog="results.py", description=__doc__.split("\n", 1)[0])
    recipes = parser.add_subparsers(dest="recipe", required=True, metavar="RECIPE")
    for name, (recipe, more) in RECIPES.items():
        about = recipe.__doc__.split("\n", 1)[0]
        of_recipe = recipes.add_parser(name, help=about, description=about)
        for option, (default, text) in {**OPTIONS, **more, **LOCAL_OPTIONS}.items():
            shown = f"{text} (default: {default})" if default != "" else text
            flag = f"--{option.replace('_', '-')}"
            of_recipe.add_argument(flag, type=type(default), default=default, help=shown)
    o = parser.parse_args(argv)
    try:
        page = RECIPES[o.recipe][0](o)
        known = [part.name for part in page.parts]
        wanted = known if o.parts == "all" else o.parts.split()
        for name in wanted:
            if name not in known:
                raise ValueError(f"there is no part '{name}' (there are: {' '.join(known)})")
        if o.corpus_dir and not Path(o.corpus_dir).is_dir():
            raise ValueError(f"--corpus-dir {o.corpus_dir} is not a folder")
        if not o.data_dir or not o.exp_dir:
            raise ValueError("--data-dir and --exp-dir must not be empty")
    except ValueError as error:
        parser.error(str(error))
    out = Path(o.out or Path(o.exp_dir, "results", page.name, "RESULTS.md"))

    def work() -> int:
        check_place(out, page.plot)  # better now than after hours
        for part in page.parts:
            status = run_part(part, page, o) if part.name in wanted else 0
            if status:
                return status
        return compose(page, o, out)

    return in_one_line("results.py", work)


if __name__ == "__main__":
    start_program()
    sys.exit(main())
