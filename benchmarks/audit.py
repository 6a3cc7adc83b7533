#!/usr/bin/env python3
"""How many wrong texts `mlvae audit` puts on top, of corpora whose texts were made wrong by a seed.

    python benchmarks/audit.py digits --corpus-dir /path/to/fsdd --seed 1 --work exp/audit
    python benchmarks/audit.py learners --seed 1 --work exp/audit
    python benchmarks/audit.py own --model MODEL --corpus-dir RECORDINGS --seed 1 --work exp/audit

* digits: utterances of 3 to 7 recordings of FSDD, as recipes/audiomnist joins them; one recording
  in a hundred has the label of another digit (--rate). An utterance is wrong that has such a one.
* learners: the simulated learners of recipes/l2arctic; the texts of one utterance in twenty
  (--rate) are exchanged among each other. The learners' own errors stay.
* own: recordings with texts of the same names, answered by a model folder that is there already.
  Of one in twenty the text is exchanged (--errors exchanged); or in turn, where --errors names
  several: it lacks the last two fifths of its words (missing), has as many words of another text
  at its end (added), the recording ends after three fifths (cut), or is faint noise (silence).

Without --model, digits and learners are trained from nothing on the wrong texts, and answer for
every utterance, as recipes/own does: all but the validation part is trained on. What was changed is
read when the audit is written, and by nobody else. Of n wrong utterances it is said how many are
among the first n of the audit, with own by the kind of the error.
"""

from __future__ import annotations

import csv
import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs without being installed

import numpy as np
import soundfile
from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import NonNegativeInt, PositiveInt
from lhotse import MonoCut

from mlvae.cli import main as mlvae
from mlvae.corpora.digits.clips import parse_clip_id, source_clips, split_function
from mlvae.corpora.digits.fsdd import NUM_RECORDINGS, SAMPLING_RATE, prepare_fsdd
from mlvae.corpora.digits.mismatch import CorpusOptions, build_mismatch_corpus
from mlvae.data.audio import is_recording
from mlvae.data.dataset import load_cuts
from mlvae.data.manifests import SPLITS, load_supervisions, read_json, write_json, write_manifest
from mlvae.data.recordings import TEXT_SUFFIXES
from mlvae.data.text import decode_text
from mlvae.program import start_program
from mlvae.stage import StageReport, in_one_line, log

REPOSITORY = Path(__file__).resolve().parents[1]
SYSTEM = "ml-vae-sub"
ERRORS = ("exchanged", "missing", "added", "cut", "silence")
RATES = {"digits": 0.01, "learners": 0.05, "own": 0.05}


def exchanged(texts: dict[str, str], rate: float, seed: int) -> dict[str, str]:
    """By id of some utterances the one whose text they get; no two of these texts are equal.

    Args:
        texts: by id.
        rate: fraction of the utterances that get another text, at least two of them.
        seed: of the choice.
    """
    rng = random.Random(f"{seed}/exchange")
    ids = sorted(texts)
    rng.shuffle(ids)
    chosen: dict[str, str] = {}
    for name in ids:
        if len(chosen) < max(2, round(rate * len(ids))):
            chosen.setdefault(texts[name], name)
    ring = list(chosen.values())
    return dict(zip(ring, [*ring[1:], ring[0]]))


def make_digits(args: Namespace, data: Path) -> set[str]:
    """Write a corpus of digits; the ids of utterances with a wrong label."""
    report = StageReport("0 prepare", data)
    recordings = prepare_fsdd(args.corpus_dir, report)["recordings"]
    speakers = {parse_clip_id(recording.id)[1] for recording in recordings}
    clips = source_clips(recordings, split_function("recordings", speakers, NUM_RECORDINGS))
    options = CorpusOptions(
        corpus="fsdd",
        title="FSDD",
        split="recordings",
        num_utterances=args.num_utterances,
        sampling_rate=SAMPLING_RATE,
        seed=args.seed,
        mismatch_rate=args.rate,
    )
    build_mismatch_corpus(clips, data, options)
    everything_is_test(data, {})
    tiers = [item.alignment for item in load_supervisions(data / "reference.jsonl.gz")]
    ids = [item.id for item in load_supervisions(data / "reference.jsonl.gz")]
    said = [
        [a.symbol for a in tier["canonical"]] == [b.symbol for b in tier["perceived"]]
        for tier in tiers
    ]
    return {name for name, same in zip(ids, said) if not same}


def make_learners(args: Namespace, data: Path) -> set[str]:
    """Simulate learners, and exchange some texts; the ids of the utterances that have another."""
    run_recipe(args, "l2arctic", "simulate", 0, 0)
    texts = {
        cut.id: cut.supervisions[0].text
        for split in SPLITS
        for cut in load_cuts(data / "manifests" / f"cuts_{split}.jsonl.gz")
    }
    other = exchanged(texts, args.rate, args.seed)
    everything_is_test(data, other)
    return set(other)


def everything_is_test(data: Path, other: dict[str, str]) -> None:
    """Make the test part every utterance, which valid and train share, with some texts exchanged.

    Args:
        data: folder of the corpus, after stage 0.
        other: by id of an utterance the one whose text it gets.
    """
    folder = data / "manifests"
    parts = {split: list(load_cuts(folder / f"cuts_{split}.jsonl.gz")) for split in SPLITS}
    said = {cut.id: cut.supervisions[0] for cuts in parts.values() for cut in cuts}

    def with_text(cut: MonoCut) -> MonoCut:
        text = said[other.get(cut.id, cut.id)]
        (own,) = cut.supervisions
        return replace(cut, supervisions=[replace(own, text=text.text, custom=text.custom)])

    parts = {split: [with_text(cut) for cut in cuts] for split, cuts in parts.items()}
    train = parts["train"] + parts["test"]
    for split, cuts in {**parts, "train": train, "test": train + parts["valid"]}.items():
        write_manifest(folder / f"cuts_{split}.jsonl.gz", cuts)
    about = {**read_json(data / "corpus.json"), "test": "all", "reference": False}
    write_json(data / "corpus.json", about)


def make_own(args: Namespace, folder: Path) -> dict[str, str]:
    """Copy recordings and texts to a folder, some of them wrong; by id of these the error."""
    files = sorted(path for path in args.corpus_dir.rglob("*") if path.suffix in TEXT_SUFFIXES)
    texts = {path.stem: decode_text(path.read_bytes()).strip() for path in files}
    other = exchanged(texts, args.rate, args.seed)
    errors = args.errors.split(",")
    if unknown := set(errors) - set(ERRORS):
        raise ValueError(f"--errors: {', '.join(sorted(unknown))}: none of {', '.join(ERRORS)}")
    wrong = {name: errors[place % len(errors)] for place, name in enumerate(other)}
    folder.mkdir(parents=True)
    for path in files:
        name = path.stem
        audio = next(one for one in path.parent.glob(f"{name}.*") if is_recording(one))
        words, more = texts[name].split(), texts[other.get(name, name)].split()
        part = max(1, round(0.4 * len(words)))
        samples, rate = soundfile.read(audio, dtype="float32")
        error = wrong.get(name)
        if error == "exchanged":
            words = more
        elif error == "missing":
            words = words[: len(words) - part]
        elif error == "added":
            words = [*words, *more[:part]]
        elif error == "cut":
            samples = samples[: round(0.6 * len(samples))]
        elif error == "silence":
            samples = np.random.default_rng(args.seed).normal(0, 1e-3, len(samples))
        (folder / f"{name}.txt").write_text(" ".join(words), encoding="utf-8")
        soundfile.write(folder / f"{name}.wav", samples, rate)
    return wrong


def run_recipe(args: Namespace, recipe: str, corpus: str, first: int, last: int) -> None:
    """Run stages of a recipe on the corpus.

    Raises:
        ValueError: a stage has failed.
    """
    command = [str(REPOSITORY / "run.sh"), "--recipe", recipe, "--corpus", corpus]
    command += ["--data-dir", str(args.work / "data"), "--exp-dir", str(args.work / "exp")]
    command += ["--stage", str(first), "--stop-stage", str(last), "--systems", SYSTEM]
    command += ["--num-utterances", str(args.num_utterances), "--seed", str(args.seed)]
    if args.corpus_dir:
        command += ["--corpus-dir", str(args.corpus_dir)]
    environment = {**os.environ, "PYTHON": sys.executable}
    if subprocess.run(command, env=environment, check=False).returncode:
        raise ValueError(f"{' '.join(command)} has failed")


def measure(audit: Path, wrong: Mapping[str, str]) -> list[str]:
    """Of n wrong utterances, how many are among the first n of an audit, in words.

    Args:
        audit: what `mlvae audit` has written.
        wrong: by id of an utterance the kind of its error.
    """
    with audit.open(encoding="utf-8", newline="") as file:
        ranks = {row["utterance"]: int(row["rank"]) for row in csv.DictReader(file)}
    missed = sorted(rank for name, rank in ranks.items() if name in wrong and rank > len(wrong))
    lines = []
    for kind in dict.fromkeys(["", *sorted(wrong.values())]):
        mine = [name for name, error in wrong.items() if kind in ("", error)]
        hits = sum(ranks.get(name, len(ranks)) <= len(wrong) for name in mine)
        lines.append(f"{kind or 'all'}: {hits} of {len(mine)} ({100 * hits / len(mine):.1f} %)")
    return [
        f"of {len(ranks)} utterances {len(wrong)} are wrong; among the first {len(wrong)} are",
        *lines,
        f"ranks of the others: {' '.join(map(str, missed)) or 'none'}",
    ]


def benchmark(args: Namespace) -> int:
    """Make the errors, answer, audit and count; returns the exit status.

    Raises:
        ValueError: the folder is not empty, or a program has failed.
    """
    args.work = args.work.resolve()
    args.rate = RATES[args.what] if args.rate is None else args.rate
    if args.what == "own" and not args.model:
        raise ValueError("own goes with --model")
    if args.work.exists() and any(args.work.iterdir()):
        raise ValueError(f"{args.work} is not empty")
    if args.what == "own":
        wrong, recordings = make_own(args, args.work / "recordings"), args.work / "recordings"
    else:
        recipe, corpus, make = {
            "digits": ("audiomnist", "fsdd", make_digits),
            "learners": ("l2arctic", "simulate", make_learners),
        }[args.what]
        wrong = dict.fromkeys(make(args, args.work / "data" / corpus), "exchanged")
        recordings = args.work / "data" / corpus / "manifests" / "cuts_test.jsonl.gz"
    if args.model:
        answers = args.work / "answers"
        mlvae(["localize", str(args.model), str(recordings), str(answers), "--format", "cuts"])
    else:
        run_recipe(args, recipe, corpus, 1, 5)
        answers = args.work / "exp" / recipe / corpus / "small" / SYSTEM
    write_json(args.work / "wrong.json", {"seed": args.seed, "wrong": wrong})
    audit = args.work / "audit.csv"
    if mlvae(["audit", str(answers), str(audit)]) == 2:
        return 1
    for line in measure(audit, wrong):
        log(f"{args.what}, seed {args.seed}: {line}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the exit status."""
    parser = ArgumentParser(prog="audit.py", description=__doc__)
    parser.add_argument("what", choices=list(RATES))
    parser.add_argument("--work", type=Path, required=True, help="folder for all that is made")
    parser.add_argument("--corpus-dir", type=Path, help="FSDD, or with own: the recordings")
    parser.add_argument(
        "--model", type=Path, help="model folder that answers; without one it is trained"
    )
    parser.add_argument("--errors", default="exchanged", help="with own: see above, with commas")
    parser.add_argument("--seed", type=NonNegativeInt, default=1, help="of what is made wrong")
    parser.add_argument("--num-utterances", type=PositiveInt, default=720)
    parser.add_argument("--rate", type=float, help="fraction that is made wrong (default: above)")
    args = parser.parse_args(argv)
    return in_one_line("audit.py", lambda: benchmark(args))


if __name__ == "__main__":
    start_program()
    sys.exit(main())
