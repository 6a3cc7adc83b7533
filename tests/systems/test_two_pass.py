"""Two-Pass-FA on sounds that are easily told apart."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from lhotse import CutSet

from mlvae.config import RecipeConfig
from mlvae.fsa import best_path, unit_loop
from mlvae.nn import NarrowAcousticModelConfig
from mlvae.systems import Setup
from mlvae.systems.align import AlignConfig, Aligner
from mlvae.systems.two_pass import TwoPassFa, load_two_pass, train_two_pass
from mlvae.tiers import DELETED, tier
from tests.systems.small import ALIGN
from tests.train.long import page
from tests.train.tiny import CPU, NUM_FEATURES, TABLE, dataset, make_cut, spoken_cuts


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Folder of the system, beside that of the aligner, and what training returned."""
    experiment = tmp_path_factory.mktemp("exp")
    aligner = Aligner(NUM_FEATURES, len(TABLE), False, ALIGN, CPU)
    aligner.train(spoken_cuts(60)[0], dataset(), seed=0)
    aligner.save(experiment / "fa" / "model.safetensors")
    return experiment / "two-pass-fa", train(spoken_cuts(20, seed=1)[0], experiment)


def setup_of(folder, align=ALIGN) -> Setup:
    return Setup("two-pass-fa", RecipeConfig(align=align), dataset(), CPU, 0, folder)


def train(cuts, experiment, align=ALIGN) -> dict:
    return train_two_pass(setup_of(experiment / "two-pass-fa", align), CutSet(), cuts)


def load(folder, cuts) -> TwoPassFa:
    return load_two_pass(setup_of(folder), cuts)


def test_as_many_units_are_recognised_as_the_text_has(trained):
    folder, training = trained
    cuts = spoken_cuts(20, seed=1)[0]
    assert training["canonical_units"] == sum(len(c.supervisions[0].custom["units"]) for c in cuts)
    assert training["recognised_units"] == pytest.approx(training["canonical_units"], rel=0.03)
    recognised = load(folder, cuts).recognize(cuts)
    assert sum(map(len, recognised.values())) == training["recognised_units"]
    assert training["num_params"] > 0
    json.dumps(training, allow_nan=False)


def said_in(cut) -> list[str]:
    """The sounds of a cut, read off its features."""
    features = cut.load_features()
    middle = [round(100 * (item.start + item.end) / 2) for item in tier(cut, "fa")]
    return [TABLE.symbols[int(features[t, : len(TABLE)].argmax())] for t in middle]


def test_units_said_otherwise_are_found_with_what_was_said(trained):
    cuts, wrong = spoken_cuts(60, seed=2)
    found, short = load(trained[0], cuts).localize(cuts)
    assert short == []
    assert [cut.id for cut in found] == [cut.id for cut in cuts]
    right, named, overlap = [], [], []
    for cut in found:
        units, perceived, true = (tier(cut, name) for name in ("mlvae", "mlvae_perceived", "fa"))
        assert [item.symbol for item in units] == cut.supervisions[0].custom["units"]
        if len(set(said_in(cut))) == 1:
            continue  # without its mean, a cut of one sound says nothing
        for mark, symbol, item, what, place in zip(
            wrong[cut.id], said_in(cut), units, perceived, true
        ):
            right.append((item.symbol != what.symbol) == mark)
            named.append(what.symbol == symbol)
            inside = max(min(item.end, place.end) - max(item.start, place.start), 0)
            overlap.append(inside / (item.duration + place.duration - inside))
    assert np.mean(right) > 0.93
    assert np.mean(named) > 0.93
    assert np.mean(overlap) > 0.85


def test_the_second_pass_finds_the_times_of_the_first(trained):
    """It searches a part of what the first searched, by the same model."""
    cuts = spoken_cuts(12, seed=3)[0]
    system = load(trained[0], cuts)
    first = {}
    for batch in system.batches(cuts):
        emissions = system.emissions(batch)
        loops = unit_loop(emissions.layout, len(emissions.names), system.insertion_score)
        for name, spans in zip(emissions.names, best_path(loops, emissions)):
            first[name] = [(TABLE.symbols[s.unit], s.start, s.end) for s in spans]
    same = 0
    for cut in system.localize(cuts)[0]:
        perceived = [
            (item.symbol, round(100 * item.start), round(100 * item.end))
            for item in tier(cut, "mlvae_perceived")
        ]
        if DELETED not in [symbol for symbol, _, _ in perceived]:
            assert set(perceived) <= set(first[cut.id])
            same += perceived == first[cut.id]
    assert same > 6


def test_the_answer_is_that_of_the_files_and_not_of_the_batch(trained, tmp_path):
    cuts = spoken_cuts(6, seed=4)[0]
    together, _ = load(trained[0], cuts).localize(cuts)
    folder = tmp_path / "two-pass-fa"
    shutil.copytree(trained[0], folder)  # without the aligner beside it
    system = load(folder, cuts)
    for cut, expected in zip(cuts, together):
        (alone,), _ = system.localize(CutSet.from_cuts([cut]))
        assert tier(alone, "mlvae_perceived") == tier(expected, "mlvae_perceived")


@pytest.mark.filterwarnings("ignore:.*too few frames.*")
def test_a_cut_without_room_for_a_unit_is_named(trained):
    cuts = spoken_cuts(3, seed=5)[0]
    short = make_cut("short", np.zeros((1, NUM_FEATURES)), ["a"])
    found, names = load(trained[0], cuts).localize(CutSet.from_cuts([short, *cuts]))
    assert (len(found), names) == (3, ["short"])


def test_all_silence_leaves_every_unit_unrecognised():
    """The silence column always wins; there is no unit to align."""
    config = AlignConfig(NarrowAcousticModelConfig(states_per_unit=2, hidden_size=8))
    aligner = Aligner(NUM_FEATURES, len(TABLE), True, config, CPU)
    with torch.no_grad():
        aligner.model.output.weight.zero_()
        aligner.model.output.bias.copy_(torch.tensor([0.0] * 8 + [9.0]))
    cut = make_cut("x", np.ones((20, NUM_FEATURES)), ["a", "b"])
    system = TwoPassFa(aligner, 0.0, dataset())
    (found,), short = system.localize(CutSet.from_cuts([cut]))
    assert short == []
    assert [item.symbol for item in tier(found, "mlvae_perceived")] == [DELETED] * 2


def test_what_is_missing_or_does_not_fit_is_named(trained, tmp_path):
    cuts = spoken_cuts(3)[0]
    with pytest.raises(ValueError, match="there is no model .*fa/model.safetensors"):
        train(cuts, tmp_path)
    with pytest.raises(ValueError, match="there is no model .*two-pass-fa/model.safetensors"):
        load(tmp_path / "two-pass-fa", cuts)
    other = AlignConfig(NarrowAcousticModelConfig(states_per_unit=3, hidden_size=32))
    with pytest.raises(ValueError, match="fa/model.safetensors is not of this configuration"):
        train(cuts, trained[0].parent, align=other)


def test_a_long_recording_is_recognised_in_sections_as_it_would_be_whole(trained, monkeypatch):
    monkeypatch.setattr("mlvae.systems.two_pass.SECTION", 400)
    monkeypatch.setattr("mlvae.systems.two_pass.OVERLAP", 60)
    cuts = CutSet.from_cuts([page("long", 250, 5, pause_rate=0.0)[0], *spoken_cuts(3, seed=3)[0]])
    system = load(trained[0], cuts)
    whole = system.recognize(cuts)
    system.aligner.max_cells = 20_000
    parts = [section.cut_id for batch in system.batches(cuts) for _, section in batch]
    assert parts.count("long") > 3
    assert system.recognize(cuts) == whole
    assert len(whole["long"]) > 200
    found, short = system.localize(cuts)
    assert short == [] and len(found) == len(cuts)
