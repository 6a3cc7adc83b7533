"""Somebody's CTC model, in several forms, as a system: stages 4 to 6, a model folder, a command."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
from pathlib import Path

import pytest
import torch
from lhotse import CutSet
from lhotse.features.io import NumpyFilesWriter

import mlvae
from mlvae import cli
from mlvae.acoustic.models import Onnx
from mlvae.acoustic.posteriors import read_waveform
from mlvae.data.dataset import load_cuts
from mlvae.data.manifests import load_supervisions, write_manifest
from mlvae.model_folder import other_versions
from mlvae.tiers import tier
from tests.formats import PAGE, check_folder, check_records, read_page
from tests.recipes import somebodys_model
from tests.recipes.conftest import TINY, Recipe, options
from tests.recipes.test_model_folder import plain, sign

SYSTEM = """\
  acoustic:
    kind: acoustic
    label: Somebody's
    flag_all: somebody's
    adapter: {}
  gop-acoustic:
    base: gop-fa-ratio
    label: GOP of somebody's
    compare: [flag-all (FA)]
    model_of: acoustic
"""


@pytest.fixture(scope="module")
def aligned(tmp_path_factory, tones, config) -> Recipe:
    """Stages 0 to 3."""
    folder = tmp_path_factory.mktemp("aligned")
    recipe = Recipe(folder / "fsdd", folder / "exp", config, options(tones))
    assert recipe.run(0, 1, 2, 3) == [0] * 4
    return recipe


@pytest.fixture(scope="module")
def somebodys(tmp_path_factory, tones) -> Path:
    """A folder with the model in each form, and the table of its symbols."""
    folder = tmp_path_factory.mktemp("somebodys")
    model = somebodys_model.train(tones)
    somebodys_model.write_transformers(folder / "transformers", model)
    somebodys_model.write_onnx(folder / "onnx", model)
    lines = [f"D{digit}\t{digit}\n" for digit in range(10)]
    (folder / "map.tsv").write_text("".join(lines))
    return folder


def recipe(aligned, somebodys, folder: Path, form: str, settings: list[str]) -> Recipe:
    """The corpus and its forced alignment, with a system more."""
    if not any(line.startswith("map") for line in settings):
        settings = [*settings, f"map: {somebodys / 'map.tsv'}"]
    (folder / "config.yaml").write_text(TINY + SYSTEM.format("\n    ".join([form, *settings])))
    (folder / "exp" / "fa").mkdir(parents=True)
    for path in (aligned.exp / "fa").iterdir():
        if path.suffix in (".json", ".safetensors", ".gz"):  # and no plots, which others made
            shutil.copy(path, folder / "exp" / "fa")
    return Recipe(aligned.data, folder / "exp", folder / "config.yaml", systems="acoustic")


def reference(aligned) -> dict[str, list[bool]]:
    """By utterance which of its units are wrong."""
    return {
        one.id: [
            a.symbol != b.symbol
            for a, b in zip(one.alignment["canonical"], one.alignment["perceived"])
        ]
        for one in load_supervisions(aligned.data / "reference.jsonl.gz")
    }


def flagged(cut) -> list[bool]:
    return [a.symbol != b.symbol for a, b in zip(tier(cut, "mlvae"), tier(cut, "mlvae_perceived"))]


def f1(flags: list[bool], wrong: list[bool]) -> float:
    hits = sum(flag and mark for flag, mark in zip(flags, wrong))
    return 2 * hits / max(sum(flags) + sum(wrong), 1)


def write_recordings(cuts: CutSet, folder: Path) -> Path:
    folder.mkdir()
    for cut in cuts:
        shutil.copy(cut.recording.sources[0].source, folder / f"{cut.id}.wav")
        (folder / f"{cut.id}.txt").write_text(cut.supervisions[0].text)
    return folder


def settings_of(form: str, somebodys: Path) -> list[str]:
    if form == "onnx":
        return [f"path: {somebodys / form / 'model.onnx'}", "sampling_rate: 8000"]
    return [f"path: {somebodys / form}"]


@pytest.mark.parametrize("form", ["onnx", "transformers"])
def test_from_training_to_answers_for_other_recordings(aligned, somebodys, tmp_path, form):
    own = recipe(aligned, somebodys, tmp_path, form, settings_of(form, somebodys))
    assert own.run(4, 5, 6) == [0, 0, 0]
    training = json.loads((own.exp / "acoustic" / "training.json").read_text())
    assert training["symbols_of_no_unit"] == ["|"] and training["units_without_symbol"] == []
    assert training["num_params"] > 20_000
    rows = json.loads((own.exp / "results.json").read_text())["systems"]
    assert {"Somebody's", "GOP of somebody's", "flag-all (somebody's)"} <= set(rows)

    packed = tmp_path / "packed"
    assert cli.main(["pack", str(own.exp / "acoustic"), str(packed)]) == 0
    moved = Path(shutil.move(packed, tmp_path / "moved"))
    content = b"".join(one.read_bytes() for one in moved.rglob("*.*"))
    for place in (somebodys, own.exp, aligned.data):
        assert str(place).encode() not in content
    about = json.loads((moved / "model.json").read_text())
    package = {"onnx": "onnxruntime"}.get(form, form)
    assert about["acoustic"] == {"adapter": form, "package": package}
    assert about["versions"][package] == importlib.metadata.version(package)
    assert other_versions({**about["versions"], package: "0"}).startswith(
        f"packed with {package} 0"
    )
    page = read_page(PAGE.read_text(encoding="utf-8"))
    check_folder(moved, page["Model folder"])
    check_records(moved / "model.json", page["model.json"])
    check_records(moved / "acoustic" / "training.json", page["training.json"])
    answered = load_cuts(own.exp / "acoustic" / "cuts_test.jsonl.gz")
    found = mlvae.load(moved).localize(plain(answered))
    for answer, cut in zip(found.answers, answered):
        assert answer.cut.supervisions[0].alignment == cut.supervisions[0].alignment

    recordings = write_recordings(answered, tmp_path / "recordings")
    (recordings / "short.wav").write_bytes((recordings / f"{answered[0].id}.wav").read_bytes()[:60])
    (recordings / "short.txt").write_text("one")
    assert cli.main(["localize", str(moved), str(recordings), str(tmp_path / "out")]) == 1
    localized = {cut.id: cut for cut in load_cuts(tmp_path / "out" / "cuts.jsonl.gz")}
    assert sorted(localized) == sorted(answered.ids)
    flags = [flag for cut in answered for flag in flagged(localized[cut.id])]
    truth = reference(aligned)
    wrong = [mark for cut in answered for mark in truth[cut.id]]
    assert len(flags) == len(wrong) > 50
    assert f1(flags, wrong) > f1([True] * len(wrong), wrong) + 0.2


def test_posteriors_that_lie_with_the_cuts_answer_alike(aligned, somebodys, tmp_path):
    network = Onnx(somebodys / "onnx" / "model.onnx", somebodys_model.SYMBOLS, 8000)
    tokens = somebodys / "onnx" / "tokens.txt"
    settings = {"onnx": settings_of("onnx", somebodys), "stored": [f"tokens: {tokens}"]}
    answers = {}
    for form in settings:
        (tmp_path / form).mkdir()
        own = recipe(aligned, somebodys, tmp_path / form, form, [*settings[form], "judged: true"])
        for part in ("train", "valid", "test"):
            path = own.exp / "fa" / f"cuts_{part}.jsonl.gz"
            if form == "stored":
                write_manifest(path, with_posteriors(load_cuts(path), network, tmp_path / part))
        assert own.run(4, 5) == [0, 0]
        answers[form] = load_cuts(own.exp / "acoustic" / "cuts_test.jsonl.gz")
    for one, other in zip(answers["onnx"], answers["stored"]):
        for name in ("mlvae", "mlvae_perceived"):
            for a, b in zip(tier(one, name), tier(other, name)):
                assert a._replace(score=0) == b._replace(score=0)
                assert a.score == pytest.approx(b.score, abs=1e-3)
    assert cli.main(["pack", str(own.exp / "acoustic"), str(tmp_path / "model")]) == 0
    cuts = plain(answers["stored"])
    cuts = [*list(cuts)[:2], list(cuts)[2].drop_custom("posteriors")]
    found = mlvae.load(tmp_path / "model").localize(cuts)
    assert [answer.id for answer in found.answers] == [cut.id for cut in cuts[:2]]
    (reason,) = found.skipped.values()
    assert "no temporal array 'posteriors' in its custom fields" in reason


def with_posteriors(cuts: CutSet, network: Onnx, folder: Path) -> CutSet:
    """Cuts with what a network says of them."""
    with NumpyFilesWriter(folder) as storage:
        for cut in cuts:
            samples, _ = read_waveform(cut, network.sampling_rate)
            found, _ = network(samples[None], torch.tensor([len(samples)]))
            cut.posteriors = storage.store_array(
                cut.id, found[0].exp().numpy(), network.frame_shift, 0, 0.0
            )
    return cuts


def test_a_packed_model_may_come_from_anybody(aligned, somebodys, tmp_path):
    folders = {}
    for form in ("onnx", "transformers"):
        (tmp_path / form).mkdir()
        own = recipe(aligned, somebodys, tmp_path / form, form, settings_of(form, somebodys))
        assert own.stage(4) == 0
        folders[form] = tmp_path / form / "model"
        assert cli.main(["pack", str(own.exp / "acoustic"), str(folders[form])]) == 0

    def refused(form: str, file: str, change, match: str) -> None:
        path = folders[form] / file
        before = path.read_bytes()
        path.write_bytes(change(before))
        sign(folders[form])
        with pytest.raises(ValueError, match=match) as caught:
            mlvae.load(folders[form])
        assert "\n" not in str(caught.value)
        path.write_bytes(before)
        sign(folders[form])

    outside = f"path: {somebodys}/onnx/model.onnx".encode()
    model, network = "acoustic/acoustic/model.onnx", "acoustic/acoustic/config.json"
    for form, *broken in (
        ("onnx", "config.yaml", lambda text: text.replace(b"path: ''", outside), "path leads out"),
        ("onnx", model, lambda _: b"nothing", "model.onnx cannot be read as ONNX"),
        (
            *("transformers", network),
            lambda text: text.replace(b'"hidden_size": 32', b'"hidden_size": 320000'),
            "larger than the weights in the folder",
        ),
        (
            *("transformers", "acoustic/acoustic/vocab.json"),
            lambda text: text.replace(b'"D0"', b'"D00"'),
            "has other symbols than in training",
        ),
    ):
        refused(form, *broken)
    assert mlvae.load(folders["onnx"]).table.symbols


def test_what_cannot_be_used_ends_the_stage_in_one_line(aligned, somebodys, tmp_path, capsys):
    for number, (settings, match) in enumerate(
        [
            ([], "adapter onnx wants a model: say its path"),
            ([f"path: {tmp_path}/none.onnx"], "tokens.txt cannot be read"),
            ([f"path: {somebodys}/onnx/model.onnx", "map: ipa"], "stands for a unit"),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        own = recipe(aligned, somebodys, folder, "onnx", settings)
        assert own.stage(4) == 1
        assert match in capsys.readouterr().err.splitlines()[-1]
