"""Words that were given other pronunciations with the same canonical units counted as the same
corpus: training went on from a checkpoint of the former ones, or was taken to be finished.
"""

from __future__ import annotations

from dataclasses import replace

from mlvae.train import Trainer
from tests.train.tiny import spoken_cuts
from tests.train.trainers import CONFIG, kill_at, make_trainer

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
    capsys.readouterr()
    make_trainer(cuts_with([["d"], ["c"]]), tmp_path, ONE).fit()
    assert "is of another seed, configuration or corpus" in capsys.readouterr().out


def test_the_same_pronunciations_are_the_same_run(tmp_path, monkeypatch):
    make_trainer(cuts_with([["d"]]), tmp_path, ONE).fit()
    kill_at(monkeypatch, Trainer, "_iterate", 1)
    make_trainer(cuts_with([["d"]]), tmp_path, ONE).fit()
