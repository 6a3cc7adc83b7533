"""The stages 0 to 6 on tones: what they leave behind, and that they find what is wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
from lhotse import CutSet, SupervisionSet
from praatio import textgrid
from safetensors.torch import load_file

from mlvae.data.dataset import load_cuts
from mlvae.data.manifests import SPLITS
from mlvae.data.units import UnitTable
from mlvae.made import RECORD
from mlvae.tiers import UNKNOWN, has_tier, tier
from tests.data.conftest import ROOT
from tests.formats import check_run
from tests.recipes.conftest import ANSWERS, TINY, Recipe

FIGURES = (
    *("pooled_precision", "pooled_recall", "pooled_f1"),
    *("macro_f1", "hard_f1", "average_iou"),
)
ROWS = [
    *("oracle", "flag-all (FA)", "flag-all (ours)", "flag-all (sub)", "FA"),
    *("GOP-FA", "GOP-FA-ratio", "ML-VAE", "ML-VAE-sub", "GOP-sub", "GOP-sub-ratio"),
]


def results(recipe: Recipe) -> dict:
    return json.loads((recipe.exp / "results.json").read_text(encoding="utf-8"))


def answers(recipe: Recipe, system: str) -> CutSet:
    return load_cuts(recipe.exp / system / "cuts_test.jsonl.gz")


def bytes_of(recipe: Recipe, pattern: str) -> dict[str, bytes]:
    found = {
        str(path.relative_to(recipe.exp)): path.read_bytes() for path in recipe.exp.glob(pattern)
    }
    assert found
    return found


def test_every_stage_leaves_its_files(finished):
    expected = [
        *(f"fa/cuts_{split}.jsonl.gz" for split in SPLITS),
        *("fa/model.safetensors", "fa/training.json"),
        *("ml-vae/model.safetensors", "ml-vae/checkpoint.safetensors", "ml-vae/training.json"),
        *("ml-vae-sub/model.safetensors", "ml-vae-sub/checkpoint.safetensors"),
        *("ml-vae-sub/training.json", "ml-vae-sub/boundaries.safetensors"),
        *(f"{system}/learning_curves.png" for system in ("fa", "ml-vae", "ml-vae-sub")),
        *(f"{system}/cuts_test.jsonl.gz" for system in ANSWERS),
        *("results.json", "table.txt", "utterance.png", "reliability.png", "skipped.jsonl"),
    ]
    for name in expected:
        assert (finished.exp / name).is_file(), name
    assert (finished.exp / "skipped.jsonl").read_text() == ""
    assert {path.name for path in finished.exp.rglob(".*")} == {RECORD}
    pickles = [path for path in finished.exp.rglob("*") if path.suffix in (".pt", ".pkl", ".ckpt")]
    assert pickles == []


def test_files_and_fields_are_those_of_the_page(finished):
    check_run(finished.data, finished.exp)


@pytest.mark.parametrize("system", ANSWERS)
def test_tiers_tile_the_utterances(finished, system):
    cuts = answers(finished, system)
    digits = UnitTable.load(finished.data / "units" / "tokens.txt").symbols
    given = load_cuts(finished.data / "manifests" / "cuts_test.jsonl.gz")
    assert {cut.id for cut in cuts} == {cut.id for cut in given}
    for cut in cuts:
        units = cut.supervisions[0].custom["units"]
        assert units == given[cut.id].supervisions[0].custom["units"]
        for name in ("fa", "mlvae", "mlvae_perceived"):
            items = tier(cut, name)
            edges = [0.0, *(item.end for item in items)]
            assert edges[:-1] == pytest.approx([item.start for item in items], abs=1e-5)
            assert edges[-1] == pytest.approx(cut.duration, abs=1e-5)
            assert all(item.duration > 0 and item.score is not None for item in items)
        for name in ("fa", "mlvae"):
            assert [item.symbol for item in tier(cut, name)] == units
        for item, perceived in zip(tier(cut, "mlvae"), tier(cut, "mlvae_perceived")):
            assert perceived.symbol in ((item.symbol, UNKNOWN) if system == "ml-vae" else digits)
            assert (perceived.start, perceived.duration, perceived.score) == item[1:]
            assert 0 <= item.score <= 1
    for split in SPLITS:
        for cut in load_cuts(finished.exp / "fa" / f"cuts_{split}.jsonl.gz"):
            assert has_tier(cut, "fa")
            assert set(cut.supervisions[0].alignment) == {"fa"}  # no reference on the way


@pytest.mark.parametrize("system", ANSWERS)
def test_textgrids_say_the_same(finished, system):
    cuts = answers(finished, system)
    folder = finished.exp / system / "textgrids"
    assert {path.stem for path in folder.iterdir()} == {c.id for c in cuts}
    for cut in cuts:
        path = folder / f"{cut.id}.TextGrid"
        grid = textgrid.openTextgrid(str(path), includeEmptyIntervals=False)
        assert list(grid.tierNames) == ["fa", "mlvae", "mlvae_perceived"]
        for name in grid.tierNames:
            entries = grid.getTier(name).entries
            assert [entry.label for entry in entries] == [item.symbol for item in tier(cut, name)]
            starts = [item.start for item in tier(cut, name)]
            assert [entry.start for entry in entries] == pytest.approx(starts, abs=1e-5)


def test_results_have_what_was_asked_for(finished):
    found = results(finished)
    assert list(found["systems"]) == ROWS
    assert found["seed"] == 0
    assert {"python", "torch", "k2", "lhotse"} <= set(found["versions"])
    for name, row in found["systems"].items():
        for figure in FIGURES:
            low, high = row[f"{figure}_interval"]
            assert 0 <= low <= row[figure] <= high <= 1, (name, figure)
        trained = name != "oracle"
        assert (row["num_params"] is not None) is trained
        assert (row["training_seconds"] is not None) is trained
    for row, model in (
        ("FA", "fa"),
        ("GOP-FA", "fa"),
        ("ML-VAE", "ml-vae"),
        ("ML-VAE-sub", "ml-vae-sub"),
        ("GOP-sub-ratio", "ml-vae-sub"),
    ):
        training = json.loads((finished.exp / model / "training.json").read_text())
        assert training["num_params"] == found["systems"][row]["num_params"]
    table = (finished.exp / "table.txt").read_text()
    assert table.startswith("Mismatch-FSDD: 12 test utterances")
    for name in ROWS:
        assert f"\n{name}" in table


def test_what_is_found_is_mostly_right(finished):
    """Tones are easily told apart: without this the stages would be proven to run, not to work."""
    systems = results(finished)["systems"]
    ours, all_flagged = systems["ML-VAE"], systems["flag-all (ours)"]
    assert ours["hard_f1"] > all_flagged["hard_f1"] + 0.2
    assert ours["pooled_f1"] > all_flagged["pooled_f1"] + 0.2
    assert ours["macro_f1"] > all_flagged["macro_f1"]
    for name in ("FA", "ML-VAE", "ML-VAE-sub"):
        assert systems[name]["average_iou"] > 0.7
    assert systems["ML-VAE-sub"]["average_iou"] > systems["ML-VAE"]["average_iou"] + 0.02
    sub = systems["ML-VAE-sub"]
    assert sub["hard_f1"] > 0.65
    assert sub["pooled_f1"] > 0.6
    assert sub["perceived_accuracy"] >= 0.6  # of ten digits one is right by chance
    assert sub["num_perceived"] >= 6
    assert sub["brier_skill"] > 0.3
    for name in ("GOP-FA", "GOP-FA-ratio", "GOP-sub", "GOP-sub-ratio"):
        assert systems[name]["average_iou"] == systems["FA"]["average_iou"]
        assert systems[name]["hard_f1"] > 0.4
        assert systems[name]["average_precision"] > 0.7
        assert systems[name]["area_under_curve"] > 0.85
    assert systems["FA"]["hard_f1"] == 0
    assert systems["oracle"]["pooled_f1"] == 1


def test_what_was_perceived_is_what_was_said(finished):
    """By hand from reference and tiers, for found substitutions and for units that are right."""
    reference = SupervisionSet.from_file(finished.data / "reference.jsonl.gz")
    said = {item.id: [unit.symbol for unit in item.alignment["perceived"]] for item in reference}
    pairs = [
        (item.symbol, perceived.symbol, true)
        for cut in answers(finished, "ml-vae-sub")
        for item, perceived, true in zip(
            tier(cut, "mlvae"), tier(cut, "mlvae_perceived"), said[cut.id]
        )
    ]
    found = [(perceived, true) for told, perceived, true in pairs if told not in (perceived, true)]
    assert len(found) >= 6
    assert sum(perceived == true for perceived, true in found) / len(found) >= 0.6  # by chance 0.1
    assert sum(perceived == true for _, perceived, true in pairs) / len(pairs) >= 0.9


def test_training_says_how_the_scale_was_chosen_and_how_large_the_parts_are(finished):
    training = json.loads((finished.exp / "ml-vae-sub" / "training.json").read_text())
    losses = training["scale_log_loss"]
    assert set(losses) == {"0.1", "0.3", "1.0"}
    assert losses[str(training["acoustic_scale"])] == min(losses.values())
    changed = [scalars.get("changed_units") for scalars in training["history"]]
    assert [value is None for value in changed] == [True] * 5 + [False] * 5
    paper = json.loads((finished.exp / "ml-vae" / "training.json").read_text())
    assert paper["acoustic_scale"] == 1.0
    assert "scale_log_loss" not in paper
    assert all("changed_units" not in scalars for scalars in paper["history"])

    stored = {"log_prior", "log_correctness", "log_confusion", "scale.inverse_std"}

    def size(name: str) -> int:
        """Parameters, without what is only stored with them."""
        tensors = load_file(finished.exp / name)
        return sum(value.numel() for key, value in tensors.items() if key not in stored)

    everything = size("ml-vae-sub/model.safetensors") + size("ml-vae-sub/boundaries.safetensors")
    assert training["num_params"] == everything
    assert paper["num_params"] == size("ml-vae/model.safetensors")


@pytest.mark.parametrize("system", ANSWERS)
def test_a_high_score_is_more_often_a_wrong_label(finished, system):
    reference = SupervisionSet.from_file(finished.data / "reference.jsonl.gz")
    reference = {item.id: item for item in reference if item.custom["split"] == "test"}
    scores: dict[bool, list[float]] = {True: [], False: []}
    for cut in answers(finished, system):
        tiers = reference[cut.id].alignment
        for item, told, said in zip(tier(cut, "mlvae"), tiers["canonical"], tiers["perceived"]):
            scores[told.symbol != said.symbol].append(item.score)
    pairs = [(wrong, right) for wrong in scores[True] for right in scores[False]]
    assert sum(wrong > right for wrong, right in pairs) / len(pairs) > 0.85


def test_each_stage_runs_again(finished, tmp_path, capsys):
    """Over what it left before, with the same result; training is not done twice."""
    again = Recipe(finished.data, tmp_path / "exp", finished.config)
    shutil.copytree(finished.exp, again.exp)
    before = bytes_of(again, "**/*.gz") | bytes_of(again, "**/*.TextGrid")
    before |= bytes_of(again, "*/*.safetensors") | bytes_of(again, "table.txt")
    assert again.run(3, 4, 5, 6) == [0] * 4
    out = capsys.readouterr().out
    for count in (8, 10):
        assert out.count(f"going on after iteration {count} of {count}") == 1
    assert "iteration 1:" not in out
    for count in ("60 in = 60 done", "48 in = 48 done", "12 in = 12 done"):
        assert f"{count} + 0 skipped" in out
    after = bytes_of(again, "**/*.gz") | bytes_of(again, "**/*.TextGrid")
    after |= bytes_of(again, "*/*.safetensors") | bytes_of(again, "table.txt")
    assert after == before


def test_the_same_options_into_a_new_folder_give_the_same_features(finished, tmp_path):
    again = Recipe(tmp_path / "elsewhere", tmp_path / "exp", finished.config, finished.options)
    assert again.run(0, 1, 2) == [0] * 3
    for split in SPLITS:
        mine, theirs = (
            load_cuts(recipe.data / "fbank" / f"cuts_{split}.jsonl.gz")
            for recipe in (again, finished)
        )
        assert [cut.id for cut in mine] == [cut.id for cut in theirs]
        for cut, other in zip(mine, theirs):
            assert cut.supervisions == other.supervisions
            assert (cut.load_features() == other.load_features()).all()


def test_the_shell_into_a_new_folder_gives_the_same_figures(finished, tmp_path):
    """run.sh itself, in a copy that has this configuration; each stage is a process of its own.

    With one system alone, which finds what it found beside the other, and without keeping any
    features in memory.
    """
    project = tmp_path / "project"
    for name in ("local", "recipes"):
        shutil.copytree(ROOT / name, project / name)
    shutil.copy(ROOT / "run.sh", project)
    (project / "recipes" / "audiomnist" / "conf" / "tiny.yaml").write_text(TINY)
    options = ["--corpus", finished.data.name, "--data-dir", str(finished.data.parent)]
    options += ["--config", "tiny", "--device", "cpu", "--stage", "3"]
    options += ["--systems", "ml-vae-sub", "--cache-mb", "0"]
    environment = {"PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["bash", str(project / "run.sh"), *options],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    exp = tmp_path / "exp" / "audiomnist" / "fsdd" / "tiny"
    table = (exp / "table.txt").read_text()
    assert table in done.stdout
    mine, theirs = (
        json.loads((folder / "results.json").read_text()) for folder in (exp, finished.exp)
    )
    assert list(mine["systems"]) == [
        name for name in ROWS if name not in ("flag-all (ours)", "ML-VAE")
    ]
    for name, row in mine["systems"].items():
        for figures in (row, theirs["systems"][name]):
            figures.pop("training_seconds")
        assert row == theirs["systems"][name]
        assert f"\n{name}" in table
    assert not (exp / "ml-vae").exists()
    names = ("model.safetensors", "boundaries.safetensors", "cuts_test.jsonl.gz")
    for path in ("fa/cuts_test.jsonl.gz", *(f"ml-vae-sub/{name}" for name in names)):
        assert (exp / path).read_bytes() == (finished.exp / path).read_bytes()
    assert not (project / ".venv").exists()
    for number, name in ((3, "align"), (4, "train"), (5, "localize"), (6, "score")):
        assert f"stage {number} {name}: end" in done.stdout
