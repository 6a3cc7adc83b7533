"""What is killed again and again in stages 3, 4 and 5 gives the answers of an undisturbed run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lhotse import CutSet
from safetensors.torch import load_file

import tests.systems.small as small
import tests.systems.sounds as sounds
from mlvae.config import System
from mlvae.systems import load_localizers
from mlvae.systems.align import MAX_CELLS_WHOLE, Aligner
from mlvae.systems.ml_vae import train_ml_vae
from mlvae.systems.two_pass import load_two_pass, train_two_pass
from mlvae.systems.w2v_ctc import load_w2v, train_w2v
from mlvae.train.loop import keep_passes
from tests.systems.test_ml_vae import CONFIG, SUB, setup_of, with_settings
from tests.systems.test_w2v_ctc import RANDOM
from tests.systems.test_w2v_ctc import setup_of as w2v_setup
from tests.train.long import page
from tests.train.tiny import CPU, NUM_FEATURES, TABLE, dataset, spoken_cuts
from tests.train.trainers import Killer, figures, until_done

ALIGN = replace(small.ALIGN, rounds=2, epochs_per_round=2, search_frames=150)


@pytest.fixture(autouse=True)
def small_searches(monkeypatch):
    """Several batches a search."""
    monkeypatch.setattr("mlvae.train.algorithms.Algorithm.search_frames", lambda self: 150)


@pytest.fixture(scope="module")
def cuts():
    return spoken_cuts(12)[0], spoken_cuts(6, seed=1)[0]


def answers(localizer, cuts, folder) -> list[dict]:
    """As stage 5 has them."""

    def run():
        keeper = keep_passes(folder / "localize-checkpoint.safetensors", {}, 0, [cuts])
        found = localizer(cuts, passes=keeper.state.passes)
        keeper.remove()
        return found

    found, short = until_done(run)
    assert short == []
    return [cut.to_dict()["supervisions"] for cut in found]


def compare(run, tmp_path, monkeypatch, every: int, between: int) -> None:
    """Run undisturbed and with kills; the same files and the same values must come out."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with monkeypatch.context() as patch:
        undisturbed = Killer(patch, every=0)
        expected = run(whole)
    with monkeypatch.context() as patch:
        kills = tuple(range(every + 1, 2 * undisturbed.count, between))
        killer = Killer(patch, every, kills)
        found = run(killed)
    assert undisturbed.count < killer.count < 1.5 * undisturbed.count
    assert found == expected
    # Of checkpoints of what has come to its end nothing is left.
    files = {path.relative_to(whole) for path in whole.rglob("*.safetensors")}
    assert files == {path.relative_to(killed) for path in killed.rglob("*.safetensors")}
    for path in files:
        mine, theirs = load_file(killed / path), load_file(whole / path)
        assert mine.keys() == theirs.keys()
        assert all(mine[key].equal(theirs[key]) for key in mine), path


@pytest.mark.parametrize("long", [0, 2])
def test_the_aligner(cuts, tmp_path, monkeypatch, long):
    """Some recordings are searched in stretches, which follow what the round before found."""
    monkeypatch.setattr("mlvae.systems.align.FLAT_FRAMES", 200)
    cuts = [
        CutSet.from_cuts([*part, *(page(f"long{n}", 40, n)[0] for n in range(long))])
        for part in cuts
    ]

    def align(folder):
        cells = 20_000 if long else MAX_CELLS_WHOLE
        aligner = Aligner(NUM_FEATURES, len(TABLE), True, ALIGN, CPU, cells)
        training = aligner.train(cuts[0], dataset(), 3, folder / "checkpoint.safetensors", init)
        aligned = [aligner.align(part, dataset(), aligner.passes) for part in cuts]
        aligner.save(folder / "model.safetensors")
        (folder / "checkpoint.safetensors").unlink(missing_ok=True)
        assert all(len(found) == len(part) for (found, _), part in zip(aligned, cuts))
        return figures(training), [[c.to_dict()["supervisions"] for c in a] for a, _ in aligned]

    def run(folder):
        return until_done(lambda: align(folder))

    init = None
    compare(run, tmp_path, monkeypatch, every=3, between=10)
    if long:  # a trained one goes on from kills, too, and makes half the rounds
        init = tmp_path / "whole" / "model.safetensors"
        compare(run, tmp_path / "again", monkeypatch, every=3, between=10)


def test_a_system_with_its_scale_and_its_edges(cuts, tmp_path, monkeypatch):
    settings = replace(
        SUB,
        train=replace(SUB.train, iterations=1, pseudo_labels_after=1),
        calibration=replace(SUB.calibration, scales=[0.1, 0.5], max_frames=80),
    )
    config = with_settings("ml-vae-sub", settings, replace(CONFIG, align=ALIGN))
    config.systems["gop"] = System("gop", "gop", model_of="ml-vae-sub")

    def run(folder):
        (folder / "ml-vae-sub").mkdir(parents=True, exist_ok=True)
        setup = setup_of("ml-vae-sub", folder / "ml-vae-sub", config)
        training = until_done(lambda: train_ml_vae(setup, *cuts))
        assert "acoustic scale" in training["warnings"][0]  # there are but two of them
        loaded = load_localizers(setup, cuts[1])
        assert list(loaded) == ["ml-vae-sub", "gop"]
        return figures(training), [answers(way, cuts[1], folder) for way in loaded.values()]

    compare(run, tmp_path, monkeypatch, every=3, between=11)


def test_two_pass_fa(cuts, tmp_path, monkeypatch):
    monkeypatch.setattr("mlvae.systems.two_pass.STEPS", 4)
    config = replace(CONFIG, align=ALIGN)
    aligner = Aligner(NUM_FEATURES, len(TABLE), False, ALIGN, CPU)
    aligner.train(cuts[0], dataset(), 0)

    def run(folder):
        aligner.save(folder / "fa" / "model.safetensors")
        setup = setup_of("two-pass-fa", folder / "two-pass-fa", config)
        training = until_done(lambda: train_two_pass(setup, *cuts[::-1]))
        return figures(training), answers(load_two_pass(setup, cuts[1]).localize, cuts[1], folder)

    compare(run, tmp_path, monkeypatch, every=2, between=7)


def test_w2v_ctc(tmp_path, monkeypatch):
    sounds.write_checkpoint(tmp_path / "tiny.pth")
    tones = [sounds.tone_cuts(tmp_path / "wav", count, seed=count) for count in (6, 3)]
    config = replace(RANDOM, epochs=2, batch_cuts=2, checkpoint=str(tmp_path / "tiny.pth"))

    def run(folder):
        setup = w2v_setup(config, folder)
        training = until_done(lambda: train_w2v(setup, *tones))
        return figures(training), answers(load_w2v(setup, tones[1]).localize, tones[1], folder)

    compare(run, tmp_path, monkeypatch, every=2, between=7)
