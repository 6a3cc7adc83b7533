"""The recipe speechocean762 from a tiny tree to its table."""

from __future__ import annotations

import json

import pytest
from lhotse import CutSet

from tests.corpora.speechocean762.tree import write_labels
from tests.data.conftest import load_script
from tests.formats import check_run
from tests.recipes.conftest import QUICK, Recipe


class Speechocean(Recipe):
    def stage(self, number: int) -> int:
        if number == 0:
            options = [*self.options, "--data-dir", self.data, "--seed", self.seed]
            prepare = load_script("recipes/speechocean762/prepare.py")
            return prepare([str(option) for option in options])
        return super().stage(number)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Speechocean:
    folder = tmp_path_factory.mktemp("speechocean762")
    write_labels(folder / "corpus", num_speakers=15, digits=True)
    config = folder / "tiny.yaml"
    config.write_text("silence: true\n" + QUICK)
    options = ["--corpus-dir", folder / "corpus", "--digit-strings"]
    made = Speechocean(folder / "data", folder / "exp", config, options)
    assert made.run(*range(7)) == [0] * 7
    return made


def results_of(recipe):
    return json.loads((recipe.exp / "results.json").read_text(encoding="utf-8"))


def test_files_and_fields_are_those_of_the_page(recipe):
    check_run(recipe.data, recipe.exp)


def test_every_system_with_a_probability_has_a_row(recipe):
    results = results_of(recipe)
    gop = ["GOP-FA", "GOP-FA-ratio"]
    subs = ["ML-VAE-sub", "GOP-sub", "GOP-sub-ratio"]
    rows = ["random", "flag-all", *gop, "ML-VAE", *subs]
    assert list(results["systems"]) == rows
    assert list(results["changed_words"]["systems"]) == rows
    assert set(results["differences"]) == {
        "GOP-sub minus GOP-FA",
        "ML-VAE-sub minus ML-VAE",
        "ML-VAE-sub minus GOP-FA",
        "ML-VAE-sub minus GOP-sub",
    }
    counts = results["counts"]
    assert (counts["num_utterances"], counts["num_unscored"]) == (9, 0)
    assert results["changed_words"]["num_utterances"] == 15
    assert results["intervals"]["over"] == "speaker"
    assert results["intervals"]["num_clusters"] == 3
    for name in ("table.txt", "reliability.png"):
        assert (recipe.exp / name).stat().st_size > 1000


def test_missing_utterances_are_named_and_count(recipe):
    before = results_of(recipe)
    path = recipe.exp / "ml-vae" / "cuts_test.jsonl.gz"
    cuts = list(CutSet.from_file(path))
    lost = next(cut.id for cut in cuts if not cut.id.endswith("-changed"))
    kept = path.read_bytes()
    try:
        CutSet.from_cuts(cut for cut in cuts if cut.id != lost).to_file(path)
        assert recipe.stage(6) == 0
        lacking = recipe.skipped()["6 score", lost]
        assert lacking == "no hypothesis of ML-VAE; scored with P = 0"
        assert "no hypothesis for 1 of" in (recipe.exp / "table.txt").read_text()
        after = results_of(recipe)["systems"]["ML-VAE"]
        assert after["num_missing"] == 1
        assert after != before["systems"]["ML-VAE"]
    finally:
        path.write_bytes(kept)
    assert recipe.stage(6) == 0
    assert results_of(recipe) == before


def test_an_utterance_cannot_be_drawn(recipe, capsys):
    options = ["--data-dir", recipe.data, "--exp-dir", recipe.exp, "--config", recipe.config]
    score = load_script("local/score.py")
    assert score([*map(str, options), "--utterance", "00130"]) == 1
    assert "no utterance is drawn" in capsys.readouterr().err
