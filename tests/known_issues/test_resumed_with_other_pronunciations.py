"""Words that were given other pronunciations with the same canonical units counted as the same
corpus: training went on from a checkpoint of the former ones, or was taken to be finished.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import mlvae.em.trainer
from mlvae.em import Trainer
from mlvae.em.checkpoint import read_metadata
from tests.em.tiny import spoken_cuts
from tests.em.trainers import CONFIG, kill_at, make_trainer

CHECKPOINT = "checkpoint.safetensors"
ONE = replace(CONFIG, iterations=1)


def cuts_with(alternatives):
    """Cuts whose words have a unit each; the first word of each has alternatives."""
    sets = spoken_cuts(12)[0], spoken_cuts(4, seed=1)[0]
    for cut in [cut for cuts in sets for cut in cuts]:
        custom = cut.supervisions[0].custom
        custom["words"] = [unit.upper() for unit in custom["units"]]
        custom["pronunciations"] = [[[unit]] for unit in custom["units"]]
        custom["pronunciations"][0] += alternatives
    return sets


def test_other_pronunciations_are_another_run(tmp_path, capsys):
    make_trainer(cuts_with([["d"]]), tmp_path, ONE).fit()
    before = read_metadata(tmp_path / CHECKPOINT)
    capsys.readouterr()
    make_trainer(cuts_with([["d"], ["c"]]), tmp_path, ONE).fit()
    assert "is of another seed, configuration or corpus" in capsys.readouterr().out
    after = read_metadata(tmp_path / CHECKPOINT)
    assert after["identity"] == before["identity"] and after["words"] != before["words"]


def test_the_same_pronunciations_are_the_same_run(tmp_path, monkeypatch):
    make_trainer(cuts_with([["d"]]), tmp_path, ONE).fit()
    kill_at(monkeypatch, Trainer, "_iterate", 1)
    make_trainer(cuts_with([["d"]]), tmp_path, ONE).fit()


@pytest.mark.parametrize("iterations", [1, 2])
def test_an_earlier_checkpoint_is_gone_on_from(tmp_path, monkeypatch, iterations):
    cuts = cuts_with([["d"]])
    original = mlvae.em.trainer.save_checkpoint

    def without_words(path, state):
        state.progress.pop("words")
        original(path, state)

    with monkeypatch.context() as patch:
        patch.setattr(mlvae.em.trainer, "save_checkpoint", without_words)
        make_trainer(cuts, tmp_path, ONE).fit()
    assert "words" not in read_metadata(tmp_path / CHECKPOINT)
    kill_at(monkeypatch, Trainer, "_iterate", iterations)  # so many are not done again
    found = make_trainer(cuts, tmp_path, replace(CONFIG, iterations=iterations)).fit()
    assert found["iterations"] == iterations
    assert ("words" in read_metadata(tmp_path / CHECKPOINT)) is (iterations == 2)
