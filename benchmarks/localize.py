#!/usr/bin/env python3
"""What `mlvae localize` costs: seconds of work per second of audio, and memory, by processes.

    python benchmarks/localize.py models/learners recordings --few 250 --jobs 1 2

Runs the command on a few of the recordings and on all of them, with one process and with several,
and says of each how long it took and how much memory it had: the sum over its processes of the
largest resident size of each. Starting and reading the model are within. Memory is that of the
largest portion of recordings, and must not grow with their number: the exit status is 1 where all
of them take more than a sixth more than the few, with as many processes. (The few have to be
enough to have large ones among them: 250, say.)

Where pocketsphinx is installed (pip install pocketsphinx), it aligns the same recordings in the
same run, in one process; recordings that it cannot align are counted.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs without being installed

import soundfile
from jsonargparse import ArgumentParser
from jsonargparse.typing import PositiveInt
from tabulate import tabulate

from mlvae.data.manifests import write_json
from mlvae.data.recordings import Utterance, find_recordings
from mlvae.program import start_program

ROOT = Path(__file__).resolve().parents[1]
#: Most memory of all recordings, as a multiple of that of a few.
MOST = 7 / 6


def write_table(utterances: Iterable[Utterance], path: Path) -> float:
    """Write a table of recordings; the seconds of audio in it."""
    seconds = 0.0
    with path.open("w", encoding="utf-8") as file:
        file.write("path\ttext\tspeaker\tid\n")
        for utterance in utterances:
            cut = utterance.cut()
            seconds += cut.duration
            audio, text = Path(utterance.audio).absolute(), cut.supervisions[0].text
            file.write(f"{audio}\t{' '.join(text.split())}\t{cut.supervisions[0].speaker or ''}\t")
            file.write(f"{utterance.id}\n")
    return seconds


def localize(model: Path, table: Path, out: Path, num_jobs: int) -> dict:
    """Run the command; its seconds, megabytes, and how many were skipped."""
    command = [sys.executable, "-m", "mlvae.cli", "localize", str(model), str(table), str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(
        [*command, "--num-jobs", str(num_jobs)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    peaks: dict[int, int] = {}
    while process.poll() is None:
        for pid in family(process.pid):
            peaks[pid] = max(peaks.get(pid, 0), peak_of(pid))
        time.sleep(0.1)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode not in (0, 1):
        raise ValueError(f"mlvae localize ended with exit status {process.returncode}")
    return {
        "seconds": time.monotonic() - began,
        "work": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "megabytes": sum(peaks.values()) / 1024,
        "skipped": len((out / "skipped.jsonl").read_text(encoding="utf-8").splitlines()),
    }


def family(pid: int) -> list[int]:
    """A process and all that it has begun."""
    found = [pid]
    for one in found:
        try:
            for task in Path(f"/proc/{one}/task").iterdir():
                found += map(int, (task / "children").read_text(encoding="utf-8").split())
        except OSError:
            continue  # it has just ended
    return found


def peak_of(pid: int) -> int:
    """The largest resident size of a process up to now, in KB."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def pocketsphinx(table: Path) -> dict | None:
    """Align with pocketsphinx, in a process of its own; None where it is not installed."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, __file__, "--aligner", str(table)], capture_output=True, encoding="utf-8"
    )
    if done.returncode:
        print(f"no pocketsphinx: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return {"seconds": time.monotonic() - began, **json.loads(done.stdout)}


def align(table: Path) -> dict:
    """Align the recordings of a table with pocketsphinx in this process."""
    from pocketsphinx import Decoder

    decoder = Decoder(lm=None, loglevel="FATAL")
    skipped = 0
    for utterance in find_recordings(table).items():
        samples, rate = soundfile.read(utterance.audio, dtype="int16")
        if rate != 16000:
            raise ValueError(f"{utterance.audio} has {rate} Hz, pocketsphinx wants 16000")
        try:
            decoder.set_align_text(utterance.text.lower())
            for second in (False, True):
                if second:  # words first, then the phones of these words
                    decoder.set_alignment()
                decoder.start_utt()
                decoder.process_raw(samples.tobytes(), full_utt=True)
                decoder.end_utt()
            if not [phone for word in decoder.get_alignment() for phone in word]:
                skipped += 1
        except RuntimeError:
            skipped += 1
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "work": used.ru_utime + used.ru_stime,
        "megabytes": used.ru_maxrss / 1024,
        "skipped": skipped,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the exit status."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if argv[:1] == ["--aligner"]:
        print(json.dumps(align(Path(argv[1]))))
        return 0
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="model folder")
    parser.add_argument("recordings", type=Path, help="as `mlvae localize` takes them, no cuts")
    parser.add_argument("--few", type=PositiveInt, default=250, help="recordings of the short run")
    parser.add_argument("--jobs", type=PositiveInt, nargs="+", default=[1, 2], help="processes")
    parser.add_argument("--json", type=Path, help="file for the figures")
    args = parser.parse_args(argv)
    utterances = list(find_recordings(args.recordings).items())
    rows = []
    with tempfile.TemporaryDirectory() as home:
        tables = {}
        for some in (utterances[: args.few], utterances):
            path = Path(home, f"{len(some)}.tsv")
            tables[len(some)] = path, write_table(some, path)
        for num_jobs in args.jobs:
            for count, (path, audio) in tables.items():
                found = localize(args.model, path, Path(home, f"{count}-{num_jobs}"), num_jobs)
                rows.append({"what": "mlvae localize", "jobs": num_jobs, "count": count, **found})
                rows[-1]["audio"] = audio
        path, audio = tables[len(utterances)]
        found = pocketsphinx(path)
        if found is not None:
            rows.append({"what": "pocketsphinx", "jobs": 1, "count": len(utterances), **found})
            rows[-1]["audio"] = audio
    if args.json:
        write_json(args.json, rows)
    print(table_of(rows))
    return 0 if all(bounded(rows, num_jobs) for num_jobs in args.jobs) else 1


def table_of(rows: Sequence[dict]) -> str:
    """The rows for a reader."""
    lines = [
        {
            "": row["what"],
            "jobs": row["jobs"],
            "recordings": row["count"],
            "skipped": row["skipped"],
            "audio, s": round(row["audio"]),
            "wall, s": round(row["seconds"], 1),
            "wall / audio": round(row["seconds"] / row["audio"], 4),
            "CPU / audio": round(row["work"] / row["audio"], 4),
            "memory, MB": round(row["megabytes"]),
        }
        for row in rows
    ]
    return tabulate(lines, headers="keys")


def bounded(rows: Sequence[dict], num_jobs: int) -> bool:
    """Whether all recordings take hardly more memory than a few."""
    few, *_, most = (r["megabytes"] for r in rows if r["jobs"] == num_jobs and "mlvae" in r["what"])
    return most <= MOST * few


if __name__ == "__main__":
    start_program()
    sys.exit(main())
