"""The recipe own that begins from a model folder: what is taken over, and that it is of use."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from mlvae.data.dataset import load_cuts
from mlvae.model_folder import Beginning
from mlvae.tiers import tier
from tests.data.conftest import sine
from tests.recipes.conftest import Own
from tests.recipes.test_model_folder import models

__all__ = ["models"]  # a fixture

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@pytest.fixture(scope="session")
def little(tmp_path_factory) -> tuple[Path, dict[str, tuple[int, np.ndarray]]]:
    """Two recordings; by name which digit is another one in the text, and where each begins."""
    folder, rng = tmp_path_factory.mktemp("little"), np.random.default_rng(1)
    truth = {}
    for number in range(2):
        said = rng.permutation(10)
        wrong, shift = int(rng.integers(10)), int(rng.integers(1, 9))
        tones = [sine(rng.uniform(0.102, 0.18), 8000, 200 + 100 * digit) for digit in said]
        soundfile.write(folder / f"r{number}.wav", np.concatenate(tones), 8000)
        due = [DIGITS[(digit + shift * (i == wrong)) % 10] for i, digit in enumerate(said)]
        (folder / f"r{number}.txt").write_text(" ".join(due))
        starts = np.cumsum([0, *map(len, tones)])[:-1] / 8000
        truth[f"r{number}"] = wrong, starts
    return folder, truth


@pytest.fixture(scope="session")
def recipes(little, models, config, tmp_path_factory) -> dict[str, Own]:
    """The same data, trained from a flat start and from a model of other recordings."""
    folder, model = tmp_path_factory.mktemp("own"), models["ml-vae-sub"]
    said, found = ["--corpus-dir", little[0], "--unit", "lexicon"], {}
    for name in ("init", "flat"):
        exp, data = folder / name, folder / "data"
        found[name] = Own(data, exp, config, said, 0, "ml-vae-sub", model)
        if name == "init":
            assert found[name].run(0, 1, 2) == [0] * 3
        else:
            found[name].init = None
        assert found[name].run(3, 4, 5) == [0] * 3
    return found


def test_little_data_is_enough_for_a_model_that_was_trained_before(recipes, little):
    errors, areas = {}, {}
    for name, recipe in recipes.items():
        right, wrong, distances = [], [], []
        for cut in load_cuts(recipe.exp / "ml-vae-sub" / "cuts_test.jsonl.gz"):
            place, starts = little[1][cut.id]
            for number, unit in enumerate(tier(cut, "mlvae")):
                (wrong if number == place else right).append(unit.score)
            distances += [abs(a.start - b) for a, b in zip(tier(cut, "fa"), starts)]
        errors[name] = np.mean(distances)
        pairs = np.subtract.outer(wrong, right)
        areas[name] = np.mean((pairs > 0) + 0.5 * (pairs == 0))
    assert errors["init"] < errors["flat"] / 3
    assert areas["init"] > areas["flat"] + 0.2


def test_its_units_are_those_of_the_model_and_half_the_iterations_are_made(recipes, models):
    own, model = recipes["init"], models["ml-vae-sub"]
    assert (own.data / "units/tokens.txt").read_bytes() == (model / "tokens.txt").read_bytes()
    training = json.loads((own.exp / "ml-vae-sub" / "training.json").read_text())
    flat = json.loads((recipes["flat"].exp / "ml-vae-sub" / "training.json").read_text())
    assert (flat["iterations"], training["iterations"]) == (10, 5)
    before, best = training["before_adaptation"]["corrupted_f1"], training["best_iteration"]
    scores = [before, *(scalars["corrupted_f1"] for scalars in training["history"])]
    assert best == scores.index(max(scores))
    rounds = json.loads((own.exp / "fa" / "training.json").read_text())["path_scores"]
    assert len(rounds) == 3
    about = json.loads((own.data / "corpus.json").read_text())
    assert about["sampling_rate"] == 8000  # as that of the model; the recipe's own is 16000


def test_what_does_not_fit_is_one_line(recipes, models, little, config, tmp_path, capsys):
    own, model = recipes["init"], models["ml-vae-sub"]
    other = tmp_path / "wide.yaml"
    other.write_text(config.read_text().replace("48", "50").replace("fc_size: 24,", "fc_size: 25,"))
    recipe = Own(own.data, tmp_path / "exp", other, (), 0, "ml-vae ml-vae-sub", model)
    assert recipe.run(3, 4) == [0, 0]
    lines = capsys.readouterr().out.splitlines()
    flat = [line for line in lines if "flat start: other sizes than in" in line]
    assert len(flat) == 2  # the second is the aligner of boundaries
    assert str(model / "fa") in flat[0] and "window.weight [50, 40, 3]" in flat[0]
    (taken,) = [line for line in lines if "but for other sizes" in line]
    assert str(model / "ml-vae-sub") in taken and "log_prior" not in taken
    (system,) = [line for line in lines if "ml-vae does not begin from" in line]
    assert system.endswith("which is of ml-vae-sub")


def test_what_cannot_be_begun_from_is_refused(recipes, models, little, tmp_path, capsys):
    model = models["ml-vae-sub"]
    own = recipes["init"]
    said = ["--corpus-dir", little[0]]
    other = Own(tmp_path / "data", tmp_path / "exp", own.config, said, 0, "ml-vae-sub", model)
    assert other.stage(0) == 1
    assert f"--unit phone, but {model} is of --unit lexicon" in capsys.readouterr().err
    shutil.copytree(recipes["flat"].data, tmp_path / "data", dirs_exist_ok=True)
    (tmp_path / "data" / "units" / "tokens.txt").write_text("0 0\n1 1\n")
    assert other.stage(3) == 1
    assert f"units are not those of {model}: run stage 2 with --init" in capsys.readouterr().err
    other.init = tmp_path
    assert other.run(0, 2, 3, 4) == [1] * 4
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4 and all(
        "is no model folder: it has no model.json" in one for one in lines
    )
    with pytest.raises(ValueError, match="are no BPE tokens"):
        Beginning.of(model).bpe()
