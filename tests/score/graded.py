"""Tiny references of scores, hypotheses for them, and an experiment folder of both."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from lhotse import CutSet, MonoCut, Recording, SupervisionSegment, SupervisionSet
from lhotse.audio import AudioSource
from lhotse.supervision import AlignmentItem


def line(name, scores, words=None, speaker="anna", word_scores=None, score=None):
    """An utterance of units a, b, c, ...; words are numbers of units."""
    words = words or [len(scores)]
    word_scores = word_scores or [None] * len(words)
    custom = {
        "split": "test",
        "units": [chr(ord("a") + i) for i in range(len(scores))],
        "scores": scores,
        "word_of_unit": [word for word, size in enumerate(words) for _ in range(size)],
        "words": [{"word": f"w{i}", "score": s} for i, s in enumerate(word_scores)],
        "score": score,
    }
    return SupervisionSegment(name, name, 0.0, 1.0, speaker=speaker, custom=custom)


def cut(name, probabilities, flagged=(), words=None):
    units = [chr(ord("a") + i) for i in range(len(probabilities))]
    tiers = {
        "mlvae": [
            AlignmentItem(u, i / 10, 0.1, p) for i, (u, p) in enumerate(zip(units, probabilities))
        ]
    }
    tiers["mlvae_perceived"] = [
        item._replace(symbol="*") if i in flagged else item for i, item in enumerate(tiers["mlvae"])
    ]
    if words is not None:
        tiers["mlvae_word"] = [AlignmentItem(f"w{i}", 0.0, 0.1, p) for i, p in enumerate(words)]
    spoken = SupervisionSegment(name, name, 0.0, 1.0, alignment=tiers)
    source = AudioSource("file", [0], "none.wav")
    recording = Recording(name, [source], 8000, 8000, 1.0)
    return MonoCut(name, 0.0, 1.0, 0, supervisions=[spoken], recording=recording)


def make_graded(data: Path, exp: Path) -> None:
    """Folders of a corpus and of an experiment as stages 0 to 5 leave them."""
    rng = np.random.default_rng(0)
    items, cuts = [], []
    for index in range(8):
        scores = rng.integers(0, 11, 6) / 5
        items.append(line(f"u{index}", scores.tolist(), [2, 4], f"s{index % 4}"))
        probabilities = np.clip(rng.normal(0.8 - scores / 3, 0.2), 0, 1).round(2).tolist()
        cuts.append(cut(f"u{index}", probabilities, np.flatnonzero(scores < 0.5), [0.5, 0.6]))
        changed = line(f"u{index}-changed", [None] * 6, [2, 4], f"s{index % 4}")
        changed.custom["changed_word"] = index % 2
        items.append(changed)
        cuts.append(cut(changed.id, probabilities, (), [0.5, 0.6]))
    data.mkdir(parents=True)
    SupervisionSet.from_segments(items).to_file(data / "reference.jsonl.gz")
    corpus = {"title": "Tiny", "num_utterances": 1234, "sampling_rate": 16000}
    (data / "corpus.json").write_text(json.dumps(corpus))
    for name in ("fa", "ml-vae", "ml-vae-sub"):
        (exp / name).mkdir(parents=True)
        CutSet.from_cuts(cuts).to_file(exp / name / "cuts_test.jsonl.gz")
        training = {"num_params": 20_000, "training_seconds": 1.5, "seed": 0}
        (exp / name / "training.json").write_text(json.dumps(training))
