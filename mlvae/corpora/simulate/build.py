"""A stand-in for L2-ARCTIC that anyone can build: its layout, spoken by espeak-ng.

24 speakers (names and first languages as in L2-ARCTIC, all else invented) read sentences of our
own and make the errors that were counted in the real corpus. What is measured on it says little
about people's speech; the file `MARKER` in its root says "simulated", and tables on it should say
so too.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mlvae.corpora.espeak import run_speaker
from mlvae.corpora.simulate.plan import SPEAKERS, Plan, PlannedUtterance, plan_corpus
from mlvae.corpora.simulate.tiers import annotation_tiers, write_tiers
from mlvae.made import Record
from mlvae.stage import made_tree, progress

DEFAULT_SIZE = 720
"""Utterances in all, 30 a speaker; the real corpus has `errors.REAL_UTTERANCES` annotated ones."""

MARKER = "simulated.json"
PORTION = 30
"""Utterances of a process, at most: progress is shown when they are spoken."""

_PROTOCOL = 1  # to be raised with every change that makes another corpus of the same seed


def is_simulated(folder: Path) -> bool:
    """Whether a corpus folder was made by `simulate_l2arctic`."""
    return (Path(folder) / MARKER).is_file()


def simulate_l2arctic(
    folder: Path,
    num_utterances: int = DEFAULT_SIZE,
    seed: int = 0,
    num_jobs: int | None = None,
) -> dict:
    """Build the corpus in the layout of L2-ARCTIC v5.0, unless it is there already.

    For every utterance: ``<speaker>/wav/<id>.wav`` (16 kHz, 16 bit), ``transcript/<id>.txt``,
    ``annotation/<id>.TextGrid`` (see `mlvae.corpora.simulate.tiers`) and ``textgrid/<id>.TextGrid``
    (canonical phones). The file `MARKER` comes last; what was made there with other options is
    replaced. The same seed gives the same files on the same machine; an utterance does not depend
    on how many others there are. ``num_jobs`` processes speak (default: one for each core).

    Returns:
        What the marker file holds: the options, and ``counts`` of speakers, utterances, canonical
        phones, the errors ``s``, ``d``, ``a``, pauses, and ``skipped`` (id and reason: espeak-ng
        spoke other phones than it was given).

    Raises:
        ValueError: if espeakng-loader is not installed, the number of utterances is out of range,
            somebody else uses the folder, or it holds something else.
        RuntimeError: if nothing could be spoken; OSError: if nothing can be written.
    """
    folder = Path(folder)
    made_with = {"protocol": _PROTOCOL, "seed": seed, "num_utterances": num_utterances}
    marker = folder / MARKER
    if marker.is_file():
        content = json.loads(marker.read_text(encoding="utf-8"))
        if all(content.get(key) == value for key, value in made_with.items()):
            return content
    Record(folder).check_tree(folder)
    if importlib.util.find_spec("espeakng_loader") is None:
        raise ValueError(
            "the simulated corpus needs the extra `synthesis`: pip install espeakng-loader"
        )
    plan = plan_corpus(num_utterances, seed)
    with made_tree(folder, "0 prepare", MARKER) as fresh:
        content = {
            "corpus": "l2arctic",
            "simulated": True,
            **made_with,
            **_build(plan, fresh, seed, num_jobs or os.cpu_count() or 1),
        }
        text = json.dumps(content, ensure_ascii=False, indent=2) + "\n"
        (fresh / MARKER).write_text(text, encoding="utf-8")
    return content


def _build(plan: Plan, folder: Path, seed: int, num_jobs: int) -> dict:
    """Speak and write everything: the counted part of the marker."""
    planned = {utterance.spoken.path: utterance for utterance in plan.utterances}
    counts: Counter[str] = Counter()
    skipped = []
    answers = _answers(plan.utterances, folder, seed, num_jobs)
    for answer in progress(answers, "simulate", "utt", len(planned)):
        utterance = planned[answer["path"]]
        if "unwritten" in answer:
            raise OSError(answer["unwritten"])
        if "reason" in answer:
            (folder / answer["path"]).unlink(missing_ok=True)
            key = f"{utterance.speaker.name}-{utterance.sentence.id}"
            skipped.append({"id": key, "reason": answer["reason"]})
            continue
        _write(utterance, answer, folder)
        kinds = Counter(segment.kind for segment in utterance.segments)
        counts["canonical phones"] += sum(kinds[kind] for kind in "csd")
        counts.update({kind: kinds[kind] for kind in "sda"})
        counts["pauses"] += sum(pause > 0 for pause in utterance.spoken.pauses)
        counts["utterances"] += 1
    if not counts["utterances"]:
        raise RuntimeError(f"nothing could be spoken: {skipped[0]['reason']}")
    speakers = {
        speaker.name: {
            "language": speaker.language,
            "voice": f"en-us+{speaker.variant}",
            "habits": {
                f"{canonical},{perceived}": round(plan.rates[speaker.name][canonical, perceived], 3)
                for canonical, perceived in plan.habits[speaker.name]
            },
        }
        for speaker in SPEAKERS
    }
    return {
        "counts": dict(counts),
        "skipped": sorted(skipped, key=lambda item: item["id"]),
        "speakers": speakers,
    }


def _write(utterance: PlannedUtterance, answer: dict, folder: Path) -> None:
    """Transcript and TextGrids of one utterance."""
    sentence, duration = utterance.sentence, answer["duration"]
    annotation, canonical = annotation_tiers(
        sentence.words, utterance.segments, [tuple(time) for time in answer["times"]], duration
    )
    home = folder / utterance.speaker.name
    write_tiers(annotation, duration, home / "annotation" / f"{sentence.id}.TextGrid")
    write_tiers(canonical, duration, home / "textgrid" / f"{sentence.id}.TextGrid")
    transcript = home / "transcript" / f"{sentence.id}.txt"
    transcript.parent.mkdir(exist_ok=True)
    transcript.write_text(sentence.text + "\n", encoding="utf-8")


def _answers(
    utterances: list[PlannedUtterance], folder: Path, seed: int, num_jobs: int
) -> Iterator[dict]:
    """What the speaking processes answer, one for each utterance, in their order."""
    size = min(PORTION, -(-len(utterances) // num_jobs))
    spoken = [asdict(utterance.spoken) for utterance in utterances]
    works = [
        {"seed": seed, "folder": str(folder), "utterances": spoken[first : first + size]}
        for first in range(0, len(spoken), size)
    ]
    pool = ThreadPoolExecutor(num_jobs)
    try:
        for answers in pool.map(_speak, works):
            yield from answers
    finally:  # all is done, unless the caller stops early
        pool.shutdown(cancel_futures=True)


def _speak(work: dict[str, Any]) -> list[dict]:
    """The answers of a process; each utterance gets one, even if the process dies."""
    finished = run_speaker("mlvae.corpora.simulate.voice", work)
    sys.stderr.write(finished.stderr)
    whole = [line for line in finished.stdout.splitlines(True) if line.endswith("\n")]
    answers = {answer["path"]: answer for answer in map(json.loads, whole)}
    reason = f"the process that was to speak it ended with status {finished.returncode}"
    paths = [utterance["path"] for utterance in work["utterances"]]
    return [answers.get(path, {"path": path, "reason": reason}) for path in paths]
