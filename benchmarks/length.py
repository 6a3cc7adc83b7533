#!/usr/bin/env python3
"""What a recording costs by its length: 10 s, a minute, ten minutes and an hour of the same speech.

    python benchmarks/length.py --corpus-dir /path/to/fsdd

Spoken digits are joined to parts of about ten seconds, with a pause before and after each, and the
parts to longer recordings. One digit in ten of the text is another one than was said. A small
ML-VAE-sub and the aligner of stage 3 are trained on short utterances of the same speakers; then
each length is aligned and localised, in a process of its own, as stages 3 and 5 do it. The parts of
ten seconds are so one by one; what they are told alone is what longer recordings are compared with.

* Seconds are those that the process computes (of all threads together), as what else the machine
  does would be another share of each length. They are of alignment and localisation, and not of
  starting, of reading the model and of what is compiled or loaded at the first call, which is made
  on another part.
* Memory is the largest resident size of the process, with Python and its libraries.
* A unit agrees where the same is perceived, is it flagged or not, and both of its edges are within
  two frames. Features are normalised by the mean of a whole recording. The mean of ten seconds of
  it is another one, which has nothing to do with the search, so that the parts are given one mean
  before they are joined. With --own-means they keep their own, and the figure is that of both
  effects.

Without --corpus-dir the digits are tones. The exit status is 1 if the hour (or what --lengths ends
with) takes more than one and a half times as long a second as ten seconds do, or any length more
than 4 GB, or if less than 99 % of the units agree.
"""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs without being installed

import numpy as np
import torch
from jsonargparse import ArgumentParser
from jsonargparse.typing import NonNegativeInt, PositiveInt
from lhotse import CutSet, MonoCut, SupervisionSegment
from lhotse.features import Features
from lhotse.features.io import NumpyFilesWriter
from tabulate import tabulate

from benchmarks.estep import keep_freed_memory, machine
from mlvae.config import RecipeConfig, load_config
from mlvae.data.dataset import UnitDataset, load_cuts
from mlvae.data.features import fbank_extractor
from mlvae.data.manifests import write_json, write_manifest
from mlvae.data.units import UnitTable
from mlvae.program import start_program
from mlvae.stage import log
from mlvae.systems import Setup, load_localizers
from mlvae.systems.align import Aligner
from mlvae.systems.ml_vae import train_ml_vae
from mlvae.tiers import tier

ROOT = Path(__file__).resolve().parents[1]
SYSTEM = "ml-vae-sub"
RATE, FRAME = 8000, 80
#: Frames of a part: ten seconds. Of these a pause before and after the speech.
PART, PAUSE = 1000, 25
WRONG_RATE = 0.1
NAMES = {1: "10 s", 6: "1 min", 60: "10 min", 360: "1 h"}
#: What is promised: time a second of audio against ten seconds, bytes, and share of units.
MOST_TIME, MOST_MEMORY, LEAST_AGREEMENT = 1.5, 4e9, 0.99
CPU = torch.device("cpu")


@dataclass
class Speech:
    """Single digits to join."""

    clips: dict[str, list[np.ndarray]]  # samples by digit, float32, at 8 kHz

    def utterance(self, num_frames: int | None, num_digits: int, rng: np.random.Generator):
        """Some digits, one after the other, in a background of noise.

        Args:
            num_frames: of the utterance, pauses included; digits are drawn while there is room.
                None: as many as ``num_digits`` take.
            num_digits: how many at most.
            rng: draws them.

        Returns:
            float32 samples and the digits.
        """
        pause, said, chosen, size = PAUSE * FRAME, [], [], 0
        while len(said) < num_digits:
            digit = str(rng.choice(sorted(self.clips)))
            clip = self.clips[digit][rng.integers(len(self.clips[digit]))]
            if num_frames is not None and size + len(clip) + 2 * pause > num_frames * FRAME:
                break
            said.append(digit)
            chosen.append(clip)
            size += len(clip)
        num_frames = num_frames or -(-(size + 2 * pause) // FRAME)
        samples = 3e-4 * rng.standard_normal(num_frames * FRAME).astype(np.float32)
        samples[pause : pause + size] += np.concatenate(chosen)
        return samples, said


def fsdd(folder: Path, speaker: str) -> Speech:
    """Recordings of FSDD, ``digit_speaker_index.wav``.

    Raises:
        ValueError: there are none of a digit.
    """
    import soundfile

    clips: dict[str, list[np.ndarray]] = {str(digit): [] for digit in range(10)}
    for path in sorted(folder.glob(f"?_{speaker or '*'}_*.wav")):
        samples, rate = soundfile.read(str(path), dtype="float32")
        if rate == RATE and samples.ndim == 1:
            clips[path.name[0]].append(samples)
    if not all(clips.values()):
        raise ValueError(f"{folder} has no recordings of all digits (0_NAME_0.wav) at {RATE} Hz")
    return Speech(clips)


def tones(seed: int) -> Speech:
    """Each digit is a tone of its own pitch, with overtones, that rises and falls."""
    rng = np.random.default_rng(seed)
    clips: dict[str, list[np.ndarray]] = {}
    for digit in range(10):
        clips[str(digit)] = []
        for _ in range(20):
            size = int(rng.integers(2400, 4800))
            phase = 2 * np.pi * (200 + 120 * digit) * np.arange(size) / RATE
            wave = (np.sin(phase) + 0.5 * np.sin(2 * phase)) * np.hanning(size) ** 0.3
            clips[str(digit)].append((0.1 * wave).astype(np.float32))
    return Speech(clips)


def make_cut(name: str, features: np.ndarray, units: list[str], folder: Path) -> MonoCut:
    """A cut with its features in a file."""
    duration = len(features) * FRAME / RATE
    writer = NumpyFilesWriter(folder)
    stored = Features(
        type="fbank",
        num_frames=len(features),
        num_features=features.shape[1],
        frame_shift=FRAME / RATE,
        sampling_rate=RATE,
        start=0,
        duration=duration,
        storage_type=writer.name,
        storage_path=str(folder),
        storage_key=writer.write(name, features.astype(np.float32)),
        recording_id=name,
        channels=0,
    )
    supervision = SupervisionSegment(name, name, 0.0, duration, custom={"units": units})
    return MonoCut(name, 0.0, duration, 0, supervisions=[supervision], features=stored)


def prepare(
    speech: Speech,
    lengths: Sequence[int],
    num_train: int,
    seed: int,
    own_means: bool,
    work: Path,
) -> None:
    """Write the cuts to train on, and those of each length, of which longer ones are the parts."""
    rng = np.random.default_rng(seed)
    extractor = fbank_extractor(RATE)

    def written(said: Sequence[str]) -> list[str]:
        """The text: what was said, but for some errors."""
        digits = sorted(speech.clips)
        return [str(rng.choice(digits)) if rng.random() < WRONG_RATE else digit for digit in said]

    def cut_of(name: str, num_frames: int | None, num_digits: int) -> MonoCut:
        samples, said = speech.utterance(num_frames, num_digits, rng)
        features = extractor.extract(samples, RATE)
        if num_frames is not None and not own_means:
            features = features - features.mean(axis=0)
        return make_cut(name, features, written(said), work / "features")

    for split, count in (("train", num_train), ("valid", max(num_train // 10, 2))):
        cuts = [cut_of(f"{split}{number}", None, 5) for number in range(count)]
        write_manifest(work / f"{split}.jsonl.gz", CutSet.from_cuts(cuts))
    parts = [cut_of(f"part{number:03d}", PART, 1000) for number in range(max(lengths) + 1)]
    write_manifest(work / "first.jsonl.gz", CutSet.from_cuts(parts[-1:]))
    for length in lengths:
        cuts = parts[:-1]
        if length > 1:
            cuts = [
                make_cut(
                    f"length{length}",
                    np.concatenate([part.load_features() for part in parts[:length]]),
                    [u for part in parts[:length] for u in part.supervisions[0].custom["units"]],
                    work / "features",
                )
            ]
        write_manifest(work / f"length{length}.jsonl.gz", CutSet.from_cuts(cuts))


def recipe(iterations: int) -> RecipeConfig:
    """The recipe's small configuration, with silence, for a few iterations."""
    config = load_config(ROOT / "recipes/audiomnist/conf/small.yaml")
    config.silence = True
    config.systems[SYSTEM].settings.train.iterations = iterations
    return config


def new_aligner(config: RecipeConfig, table: UnitTable, cuts: CutSet) -> Aligner:
    """The aligner of stage 3."""
    num_features = UnitDataset(table).features(cuts[0]).shape[1]
    return Aligner(num_features, len(table), config.silence, config.align, CPU)


def train(config: RecipeConfig, work: Path, seed: int) -> None:
    """Train the aligner and the system on the short utterances."""
    table = UnitTable.load(work / "tokens.txt")
    dataset = UnitDataset(table)
    cuts = {split: load_cuts(work / f"{split}.jsonl.gz") for split in ("train", "valid")}
    aligner = new_aligner(config, table, cuts["train"])
    aligner.train(cuts["train"], dataset, seed)
    aligner.save(work / "fa" / "model.safetensors")
    aligned = [aligner.align(cuts[split], dataset)[0] for split in ("train", "valid")]
    train_ml_vae(Setup(SYSTEM, config, dataset, CPU, seed, work / SYSTEM), *aligned)


def measure(config: RecipeConfig, work: Path, length: int) -> None:
    """Align and localise the recordings of one length, one by one, and write what that took."""
    keep_freed_memory()
    table = UnitTable.load(work / "tokens.txt")
    dataset = UnitDataset(table, cache_mb=0)
    first = load_cuts(work / "first.jsonl.gz")
    cuts = load_cuts(work / f"length{length}.jsonl.gz")
    aligner = new_aligner(config, table, first)
    aligner.load(work / "fa" / "model.safetensors")
    localize = load_localizers(Setup(SYSTEM, config, dataset, CPU, 0, work / SYSTEM), first)[SYSTEM]

    def answered(cut: MonoCut) -> tuple[MonoCut, list[float]]:
        times = [time.process_time()]
        aligned, short = aligner.align(CutSet.from_cuts([cut]), dataset)
        times.append(time.process_time())
        localized, without = localize(aligned)
        times.append(time.process_time())
        if short or without:
            raise ValueError(f"{cut.id} has no answer")
        return localized[0], np.diff(times).tolist()

    answered(first[0])
    answers, seconds = zip(*(answered(cut) for cut in cuts))
    write_manifest(work / f"answers{length}.jsonl.gz", CutSet.from_cuts(answers))
    report = {
        "audio_seconds": cuts[0].duration,
        "recordings": len(cuts),
        "align_seconds": median(pair[0] for pair in seconds),
        "localize_seconds": median(pair[1] for pair in seconds),
        "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
    write_json(work / f"measured{length}.json", report)


def agreement(work: Path, length: int) -> tuple[int, int]:
    """Units of a long recording that agree with its parts' own answers, and how many there are."""
    long = load_cuts(work / f"answers{length}.jsonl.gz")[0]
    units = zip(tier(long, "mlvae"), tier(long, "mlvae_perceived"))
    alike = total = 0
    for number, part in enumerate(load_cuts(work / "answers1.jsonl.gz").subset(first=length)):
        late = number * PART * FRAME / RATE
        for mine, perceived in zip(tier(part, "mlvae"), tier(part, "mlvae_perceived")):
            theirs, theirs_perceived = next(units)
            near = (abs(a - b - late) < 0.0205 for a, b in zip(_edges(theirs), _edges(mine)))
            same = (mine.symbol, perceived.symbol) == (theirs.symbol, theirs_perceived.symbol)
            alike += same and all(near)
            total += 1
    return alike, total


def _edges(item) -> tuple[float, float]:
    return item.start, item.end


def print_report(report: dict) -> None:
    """A table with a row a length."""
    settings, hardware = report["settings"], report["machine"]
    print("speech of {speech}, seed {seed}, {threads} thread(s)".format(**settings))
    print(
        f"{hardware['cpu']}, {hardware['cores']} cores, load {hardware['load_average']:.1f} before "
        f"and {report['load_after']:.1f} after"
    )
    rows = []
    for one in report["lengths"]:
        each = 1e3 / one["audio_seconds"]
        rows.append(
            (
                one["name"],
                one["units"],
                each * one["align_seconds"],
                each * one["localize_seconds"],
                one["time_ratio"],
                one["peak_bytes"] / 1e6,
                "" if one["agreement"] is None else f"{100 * one['agreement']:.2f}",
            )
        )
    headers = ("", "units", "align", "localise", "of 10 s", "MB", "units agree %")
    print("\n" + tabulate(rows, headers, floatfmt=("", "", ".2f", ".2f", ".2f", ".0f", "")))
    print("\nalign, localise: milliseconds of CPU a second of audio; of 10 s: both, as a ratio.")
    means = "a mean of its own" if settings["own_means"] else "the same mean"
    print(f"units agree: with what ten seconds are told alone, each of {means}.")


def make_parser() -> ArgumentParser:
    """The options."""
    parser = ArgumentParser(prog="length.py", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--corpus-dir", type=Path, help="folder of FSDD (default: tones)")
    parser.add_argument("--speaker", type=str, default="george", help="of FSDD; empty: all")
    parser.add_argument(
        "--lengths",
        type=list[PositiveInt],
        default=[1, 6, 60, 360],
        help="of the recordings, in parts of ten seconds, the first being 1",
    )
    parser.add_argument(
        "--own-means",
        action="store_true",
        help="leave each part its own mean, by which it is normalised alone and not when joined",
    )
    parser.add_argument("--num-train", type=PositiveInt, default=200, help="utterances to train on")
    parser.add_argument("--iterations", type=PositiveInt, default=4, help="of training")
    parser.add_argument("--seed", type=NonNegativeInt, default=0, help="of everything random")
    parser.add_argument("--threads", type=PositiveInt, default=1, help="of torch")
    parser.add_argument("--json", type=Path, help="file to write all figures to")
    parser.add_argument("--work", type=Path, help="folder for what is made (default: temporary)")
    parser.add_argument("--measure", type=PositiveInt, help="of --work, one length (for itself)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; returns 1 where a bound is passed, or the options do not fit."""
    options = make_parser().parse_args(argv)
    torch.set_num_threads(options.threads)
    config = recipe(options.iterations)
    if options.measure is not None:
        measure(config, options.work, options.measure)
        return 0
    try:
        if options.lengths != sorted(set(options.lengths)) or options.lengths[0] != 1:
            raise ValueError(f"--lengths must rise from 1, not be {options.lengths}")
        speech = tones(options.seed)
        if options.corpus_dir is not None:
            speech = fsdd(options.corpus_dir, options.speaker)
    except ValueError as error:
        print(f"length.py: {error}", file=sys.stderr)
        return 1
    # What training says is not part of the table.
    with tempfile.TemporaryDirectory() as temporary, contextlib.redirect_stdout(sys.stderr):
        report = measured(options, config, speech, options.work or Path(temporary))
    print_report(report)
    if options.json is not None:
        write_json(options.json, report)
    if report["failed"]:
        print("length.py: " + "; ".join(report["failed"]), file=sys.stderr)
        return 1
    return 0


def measured(options, config: RecipeConfig, speech: Speech, work: Path) -> dict:
    """Prepare, train, and measure each length in a process of its own."""
    work.mkdir(parents=True, exist_ok=True)
    UnitTable(tuple(sorted(speech.clips))).save(work / "tokens.txt")
    log("length: preparing and training")
    prepare(speech, options.lengths, options.num_train, options.seed, options.own_means, work)
    train(config, work, options.seed)
    hardware = machine()
    lengths = []
    for length in options.lengths:
        name = NAMES.get(length, f"{10 * length} s")
        log(f"length: measuring {name}")
        command = [sys.executable, __file__, "--work", str(work), "--measure", str(length)]
        command += ["--threads", str(options.threads)]
        subprocess.run(command, check=True, stdout=sys.stderr)
        one = json.loads((work / f"measured{length}.json").read_text(encoding="utf-8"))
        seconds = (one["align_seconds"] + one["localize_seconds"]) / one["audio_seconds"]
        first = lengths[0]["seconds"] if lengths else seconds
        alike, total = agreement(work, length)
        share = None if length == 1 else alike / total
        lengths.append(
            {
                **one,
                "name": name,
                "units": total,
                "seconds": seconds,
                "time_ratio": seconds / first,
                "agreement": share,
            }
        )
    failed = [
        f"{one['name']}: {what}"
        for one in lengths
        for what, wrong in (
            (f"{one['time_ratio']:.2f} times the time a second", one["time_ratio"] > MOST_TIME),
            (f"{one['peak_bytes'] / 1e9:.1f} GB", one["peak_bytes"] > MOST_MEMORY),
            ("units differ from the parts'", (one["agreement"] or 1.0) < LEAST_AGREEMENT),
        )
        if wrong
    ]
    speech_name = "tones"
    if options.corpus_dir is not None:
        speech_name = f"FSDD ({options.speaker or 'all speakers'})"
    return {
        "settings": {
            "speech": speech_name,
            "seed": options.seed,
            "threads": options.threads,
            "own_means": options.own_means,
        },
        "machine": hardware,
        "load_after": machine()["load_average"],
        "lengths": lengths,
        "failed": failed,
    }


if __name__ == "__main__":
    start_program()
    sys.exit(main())
