"""Small trees of both layouts of speechocean762; each phone is a tone of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

RATE = 16000
PHONES = {"SEE": ["S", "IY1"], "TWO": ["T", "UW1"], "SHOE": ["SH", "UW1"], "TEA": ["T", "IY1"]}
DIGITS = {"TWO": PHONES["TWO"], "ONE": ["SH", "IY1"]}
"""Of phones that the other words have, which are all that is trained on."""
PITCH = {"S": 3000, "IY1": 400, "T": 2000, "UW1": 800, "SH": 1400}
SCORED = [2.0, 1.8, 2.0, 0.4, 1.2, 2.0]
"""Which units get, one after the other."""


def speakers(count: int) -> list[str]:
    """Ids of speakers."""
    return [f"{number:04d}" for number in range(1, count + 1)]


def sentences(speaker: str, digits: bool = False) -> dict[str, list[str]]:
    """By id the words of a speaker's two utterances, and of a string of digits."""
    shift = int(speaker) % 4
    words = [*PHONES, *PHONES]
    found = {f"{speaker}{n}": words[shift + n : shift + n + 3] for n in range(2)}
    return {**found, f"{speaker}9": ["TWO", "ONE", "TWO"]} if digits else found


def spoken(words: Sequence[str], speaker: str) -> np.ndarray:
    """A tone a phone, each as long as a phone lasts."""
    rng = np.random.default_rng(int(speaker))
    parts = []
    for phone in (phone for word in words for phone in {**PHONES, **DIGITS}[word]):
        times = np.arange(int(RATE * rng.uniform(0.09, 0.15))) / RATE
        parts.append(0.2 * np.sin(2 * np.pi * PITCH[phone] * times))
    return np.concatenate(parts) + rng.normal(0, 1e-3, sum(map(len, parts)))


def scored_words(words: Sequence[str]) -> list[dict[str, Any]]:
    """The words as ``labels.jsonl`` has them."""
    scores, known = cycle(SCORED), {**PHONES, **DIGITS}
    return [
        {"text": word, "phones": known[word], "scores": [next(scores) for _ in known[word]]}
        for word in words
    ]


def write_labels(root: Path, num_speakers: int = 12, digits: bool = False) -> Path:
    """A folder with ``labels.jsonl`` and ``flac``; with strings of digits or without."""
    (root / "flac").mkdir(parents=True)
    lines = []
    for speaker in speakers(num_speakers):
        for name, words in sentences(speaker, digits).items():
            soundfile.write(root / "flac" / f"{name}.flac", spoken(words, speaker), RATE)
            record = {"id": name, "speaker": speaker, "age": 20, "gender": "f"}
            lines.append(json.dumps({**record, "words": scored_words(words)}))
    (root / "labels.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return root


def write_published(root: Path, halves: Mapping[str, Sequence[str]], scores: bool = True) -> Path:
    """The corpus as published, by half its speakers."""
    records = {}
    for half, names in halves.items():
        tables: dict[str, list[str]] = {"wav.scp": [], "text": [], "utt2spk": [], "spk2age": []}
        for speaker in names:
            folder = root / "WAVE" / f"SPEAKER{speaker}"
            folder.mkdir(parents=True)
            tables["spk2age"].append(f"{speaker} 20")
            for name, words in sentences(speaker).items():
                soundfile.write(folder / f"{name}.WAV", spoken(words, speaker), RATE, format="WAV")
                tables["wav.scp"].append(f"{name}\tWAVE/SPEAKER{speaker}/{name}.WAV")
                tables["text"].append(f"{name}\t{' '.join(words)}")
                tables["utt2spk"].append(f"{name} {speaker}")
                records[name] = {
                    "text": " ".join(words),
                    "accuracy": 8,
                    "total": 7.5,
                    "words": [
                        {
                            "text": word["text"],
                            "accuracy": 9.0,
                            "total": 9.0,
                            "stress": 10,
                            "phones": word["phones"],
                            "phones-accuracy": word["scores"],
                        }
                        for word in scored_words(words)
                    ],
                }
        (root / half).mkdir()
        for file, lines in tables.items():
            (root / half / file).write_text("".join(f"{line}\n" for line in lines))
    if scores:
        (root / "resource").mkdir()
        (root / "resource" / "scores.json").write_text(json.dumps(records, indent=1))
    return root
