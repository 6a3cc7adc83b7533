"""One bad utterance never ends a run, and a run in which everything failed does not exit with 0."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from lhotse import SupervisionSet

from mlvae.data.audio import file_recording, write_wav
from mlvae.data.dataset import load_cuts
from mlvae.data.manifests import SPLITS, write_manifest
from mlvae.stage import atomic_path
from tests.data.conftest import sine
from tests.recipes.conftest import ANSWERS, Recipe
from tests.score.experiments import SYSTEMS_FILE

TOO_SHORT = {"states": "too short: fewer than 3 frames per unit", "units": "2 frames for 6 units"}


def shorten(recipe: Recipe, split: str, wanted: dict[int, tuple[int, list[str]]]) -> list[str]:
    """Give some cuts of a prepared corpus other audio and units: frames and units by index."""
    path = recipe.data / "manifests" / f"cuts_{split}.jsonl.gz"
    cuts = list(load_cuts(path))
    reference = {
        item.id: item for item in SupervisionSet.from_file(recipe.data / "reference.jsonl.gz")
    }
    for index, (num_frames, units) in wanted.items():
        cut = cuts[index]
        wav = recipe.data / f"{cut.id}.wav"
        write_wav(wav, sine(num_frames / 100, pitch=300.0 + 20.0 * len(split)), 8000)
        recording = file_recording(cut.id, wav, 80 * num_frames, 8000)
        supervision = replace(
            cut.supervisions[0], duration=recording.duration, custom={"units": units}
        )
        cuts[index] = replace(
            cut, duration=recording.duration, recording=recording, supervisions=[supervision]
        )
        item = reference[cut.id]
        items = [
            replace_item(item.alignment["canonical"][0], unit, number)
            for number, unit in enumerate(units)
        ]
        reference[cut.id] = replace(
            item,
            alignment={"canonical": items, "perceived": items},
            custom={**item.custom, "units_from": [item.custom["units_from"][0]] * len(units)},
        )
    write_manifest(path, cuts)
    write_manifest(recipe.data / "reference.jsonl.gz", reference.values())
    return [cuts[index].id for index in wanted]


def replace_item(item, symbol: str, number: int):
    return item._replace(symbol=symbol, start=number * 0.001, duration=0.001)


@pytest.mark.filterwarnings("ignore:.*too few frames.*")
def test_an_utterance_too_short_for_its_units_is_skipped_and_the_rest_goes_on(prepared, capsys):
    units = ["1", "2", "3", "4", "5", "6"]
    short = {
        split: shorten(prepared, split, {1: (8, units), 2: (2, units)})
        for split in ("train", "test")
    }
    capsys.readouterr()
    assert prepared.run(1, 2) == [0, 0]
    assert "stage 2 units: 20 in = 18 done + 2 skipped" in capsys.readouterr().out
    assert prepared.run(3, 4) == [0] * 2
    textgrids = prepared.exp / "ml-vae" / "textgrids"
    textgrids.mkdir()
    with atomic_path(textgrids / f"{short['test'][0]}.TextGrid") as earlier:
        earlier.write_text("of an earlier answer")
    assert prepared.run(5, 6) == [0] * 2
    captured = capsys.readouterr()
    assert "stage 3 align: 20 in = 16 done + 4 skipped" in captured.out
    assert "stage 4 train: 14 in = 14 done + 0 skipped" in captured.out
    assert "stage 5 localize: 2 in = 2 done + 0 skipped" in captured.out
    assert "stage 6 score: 4 in = 2 done + 2 skipped" in captured.out
    for stage in ("5 localize: ml-vae", "6 score: ML-VAE"):
        assert re.search(rf"stage {stage}: \d+\.\d % of \d+ units flagged, ", captured.out)
    skipped = prepared.skipped()
    for few_states, few_frames in short.values():
        assert skipped["3 align", few_states] == TOO_SHORT["states"]
        assert TOO_SHORT["units"] in skipped["3 align", few_frames]
        assert few_states in captured.err
    for name in short["test"]:
        assert ("6 score", name) in skipped
    results = json.loads((prepared.exp / "results.json").read_text())
    assert results["counts"]["num_utterances"] == 4
    names = ("ML-VAE", "ML-VAE-sub", "GOP-FA", "GOP-sub-ratio")
    for name, system in zip(names, ANSWERS):
        assert results["systems"][name]["num_missing"] == 2
        left = load_cuts(prepared.exp / system / "cuts_test.jsonl.gz")
        assert len(left) == 2
        assert not {cut.id for cut in left} & set(short["test"])
    assert {path.stem for path in textgrids.iterdir()} == {cut.id for cut in left}


@pytest.mark.filterwarnings("ignore:.*too few frames.*")
@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_a_split_that_is_lost_is_not_passed_over(prepared, capsys, split):
    count = len(load_cuts(prepared.data / "manifests" / f"cuts_{split}.jsonl.gz"))
    shorten(prepared, split, {index: (8, [*"123456"]) for index in range(count)})
    assert prepared.stage(1) == 0
    capsys.readouterr()
    assert prepared.stage(3) == 1
    captured = capsys.readouterr()
    if split == "train":
        assert captured.err.startswith("align.py: no training cut has 3 frames per unit")
    else:
        assert f"no cut of split {split} is left" in captured.out
    assert prepared.stage(4) == (0 if split == "test" else 1)
    assert prepared.stage(5) == 1


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_split_without_a_usable_cut_ends_the_stage_in_a_line(prepared, capsys, split):
    count = len(load_cuts(prepared.data / "manifests" / f"cuts_{split}.jsonl.gz"))
    shorten(prepared, split, {index: (2, [*"123456"]) for index in range(count)})
    assert prepared.stage(1) == 0
    capsys.readouterr()
    assert prepared.stage(3) == 1
    err = capsys.readouterr().err.splitlines()
    assert [line for line in err if line.startswith("align.py")] == [
        f"align.py: no usable cut in split {split}: look at stages 1 and 2"
    ]
    reasons = [reason for (stage, _), reason in prepared.skipped().items() if stage == "3 align"]
    assert len(reasons) == count
    assert not (prepared.exp / "fa").exists()


def test_stages_want_the_one_before(prepared, tmp_path, capsys):
    for number, program, reason in [
        (4, "train.py", "run the stage before this one"),
        (5, "localize.py", "run the stage before this one"),
        (6, "score.py", "stages 3 (align) and 5 (localize) make them"),
    ]:
        assert prepared.stage(number) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"{program}: ")
        assert reason in line
    assert prepared.stage(3) == 0
    assert prepared.stage(5) == 1
    assert "ml-vae is not trained to its end: run stage 4 (train)" in capsys.readouterr().err
    empty = Recipe(tmp_path / "nothing", prepared.exp, prepared.config)
    for number in (3, 4, 5):
        assert empty.stage(number) == 1
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_what_is_wrong_with_files_is_said_in_a_line(prepared, tmp_path, capsys):
    def said(number: int) -> str:
        assert prepared.stage(number) == 1
        (line,) = capsys.readouterr().err.splitlines()
        return line

    assert prepared.run(3, 4) == [0, 0]
    capsys.readouterr()
    config = prepared.config
    model, edges, checkpoint = (
        prepared.exp / "ml-vae-sub" / f"{name}.safetensors"
        for name in ("model", "boundaries", "checkpoint")
    )
    for path, number in ((model, 5), (edges, 5), (checkpoint, 4)):
        good = path.read_bytes()
        path.write_bytes(good[:1000])
        assert str(path) in said(number)
        path.unlink()
        if number == 5:
            assert f"there is no model {path}: run the stage that trains it" in said(number)
        path.write_bytes(good)
    model = prepared.exp / "ml-vae" / "model.safetensors"

    other = tmp_path / "other.yaml"
    other.write_text(config.read_text().replace("lstm_size: 24", "lstm_size: 12"))
    prepared.config = other
    assert f"{model} is not of this configuration" in said(5)
    other.write_text("systems: {ml-vae: {kind: ml_vae, train: {iterations: -x}}}\n")
    for number in (3, 4, 5):
        assert "other.yaml" in said(number)
    prepared.config = tmp_path / "gone.yaml"
    for number in (3, 4, 5):
        assert "there is no configuration" in said(number)


@pytest.mark.parametrize(
    ("systems", "reason"),
    [
        ("ml-vae-top", "there is no system 'ml-vae-top'; there are: fa, two-pass-fa"),
        ("ml-vae gop-sub", "there is no system 'gop-sub'"),
        (" ", "no system is named"),
    ],
)
def test_systems_that_do_not_exist_are_refused_before_any_work(tmp_path, capsys, systems, reason):
    recipe = Recipe(tmp_path, tmp_path, tmp_path / "conf.yaml", systems=systems)
    recipe.config.write_text(f"base: {SYSTEMS_FILE}\ndeltas: false\n")
    for number, program in ((4, "train.py"), (5, "localize.py")):
        assert recipe.stage(number) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"{program}: {recipe.config}: {reason}")
    assert list(tmp_path.iterdir()) == [recipe.config]


def test_cuts_without_an_alignment_are_refused(prepared, capsys):
    assert prepared.stage(3) == 0
    for split in SPLITS:
        cuts = [
            replace(cut, supervisions=[replace(cut.supervisions[0], alignment=None)])
            for cut in load_cuts(prepared.exp / "fa" / f"cuts_{split}.jsonl.gz")
        ]
        write_manifest(prepared.exp / "fa" / f"cuts_{split}.jsonl.gz", cuts)
    capsys.readouterr()
    assert prepared.stage(4) == 1
    assert "no tier fa, run the stage" in capsys.readouterr().err
