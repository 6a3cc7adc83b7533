"""A tiny corpus and experiment folders as the stages before scoring leave them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from lhotse import CutSet
from lhotse.features import Features
from lhotse.supervision import AlignmentItem

from mlvae.config import load_config
from mlvae.tiers import with_tiers

SYSTEMS_FILE = Path(__file__).resolve().parents[2] / "recipes" / "systems.yaml"
SYSTEMS = list(load_config(SYSTEMS_FILE).systems.values())

TEXTS = {"t0": "312", "t1": "35467", "t2": "90121", "t3": "4455"}
SAID = {"t0": "312", "t1": "35467", "t2": "94121", "t3": "4415"}
# What each system perceived, and how late it puts every start but the first, in seconds.
PERCEIVED = {
    "fa": ({}, 0.1),
    "ml-vae": ({"t0": "312", "t1": "35*67", "t2": "9*121", "t3": "44*5"}, 0.1),
    "ml-vae-sub": ({"t0": "312", "t1": "35467", "t2": "94121", "t3": "4425"}, 0.0),
    "gop-sub": ({"t0": "312", "t1": "3546-", "t2": "94121", "t3": "4455"}, 0.0),
}
# All systems of the paper; where hypotheses of those that ``PERCEIVED`` lacks are taken from.
LIKE = {
    "two-pass-fa": "ml-vae-sub",
    "w2v-ctc": "ml-vae-sub",
    **{name: "ml-vae" for name in ("ml-vae-rl", "ablation-1", "ablation-2", "ablation-3")},
}
UNIT = 0.5


def with_features(cut, writer):
    frames = np.random.default_rng(0).standard_normal((round(cut.duration * 100), 40))
    key = writer.write(cut.id, frames.astype(np.float32))
    features = Features(
        type="fbank",
        num_frames=len(frames),
        num_features=40,
        frame_shift=0.01,
        sampling_rate=8000,
        start=0,
        duration=cut.duration,
        storage_type=writer.name,
        storage_path=str(writer.storage_path),
        storage_key=key,
        recording_id=cut.id,
        channels=0,
    )
    cut.features = features
    return cut


def probability(symbol, perceived):
    """Sure of what it perceived, but for the unit 7, of which it thinks the opposite."""
    return 0.9 if (symbol != perceived) != (symbol == "7") else 0.1


def tiers_of(name, system):
    text = TEXTS[name]
    perceived, late = PERCEIVED[LIKE.get(system, system)]
    starts = [UNIT * i + (late if i else 0) for i in range(len(text))]
    spans = list(zip(starts, [*starts[1:], UNIT * len(text)]))
    tiers = {"fa": [AlignmentItem(s, b, e - b, 3.0) for s, (b, e) in zip(text, spans)]}
    if perceived:
        scores = [probability(s, h) for s, h in zip(text, perceived[name])]
        for tier, symbols in (("mlvae", text), ("mlvae_perceived", perceived[name])):
            tiers[tier] = [
                AlignmentItem(s, b, e - b, p) for s, (b, e), p in zip(symbols, spans, scores)
            ]
    return tiers


def make_experiment(exp, cuts, systems):
    """An experiment folder as stages 3 to 5 leave it."""
    for system in systems:
        (exp / system).mkdir(parents=True)
        hypotheses = [with_tiers(cut, tiers_of(cut.id, system)) for cut in cuts]
        CutSet.from_cuts(hypotheses).to_file(exp / system / "cuts_test.jsonl.gz")
        training = {"num_params": 20_000, "training_seconds": 1.5, "rounds": 8}
        if system != "fa":
            training["num_params"] = 1_500_000
        if system != "gop-sub":
            (exp / system / "training.json").write_text(json.dumps(training))
