"""Stages in shards, joined: what one process gives, whatever was lost in between."""

from __future__ import annotations

import copy
import gzip
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mlvae.data.dataset import load_cuts
from mlvae.data.features import written_files
from mlvae.data.manifests import write_manifest
from mlvae.lock import folder_lock
from mlvae.made import Record, atomic_path
from mlvae.shard import join_manifests
from mlvae.stage import SKIPPED, StageReport
from mlvae.tiers import tier
from tests.answering import make_cut
from tests.data.conftest import ROOT
from tests.recipes.conftest import ANSWERS, Recipe

MANIFEST = "manifests/cuts_train.jsonl.gz"


def counts(text: str) -> list[int]:
    """Sums of what stages print: in, done and skipped."""
    found = re.findall(r"(\d+) in = (\d+) done \+ (\d+) skipped", text)
    return [sum(map(int, some)) for some in zip(*found)]


@pytest.fixture
def localized(finished, tmp_path) -> Recipe:
    """A copy of an experiment, and of its answers only what counts of them."""
    shutil.copytree(finished.exp, tmp_path / "exp")
    for name in ANSWERS:
        shutil.rmtree(tmp_path / "exp" / name / "textgrids")
        (tmp_path / "exp" / name / "cuts_test.jsonl.gz").unlink()
    return Recipe(finished.data, tmp_path / "exp", finished.config)


def leave_parts(recipe: Recipe, path: Path) -> None:
    """As a run without shards does that is killed."""
    with atomic_path(path.with_name("cuts_test.0.jsonl.gz"), Record(recipe.exp)) as temporary:
        temporary.write_bytes(b"")


def test_answers_of_shards_are_those_of_one_process(finished, localized, capsys):
    answers = localized.exp / "ml-vae-sub" / "cuts_test.jsonl.gz"
    with folder_lock(localized.exp, "6 score"):
        assert localized.stage(5, "--shard", "1/3") == 1
    assert "is in use (stage 6 score" in capsys.readouterr().err
    for shard in ("3/3", "1/3"):  # of two speakers the third has none
        assert localized.stage(5, "--shard", shard) == 0
    said = capsys.readouterr().out
    assert "there is nothing for shard 3/3" in said
    assert localized.stage(5) == 1
    assert "not done, or not to the end: shard 2/3; run" in capsys.readouterr().err
    assert not answers.exists()
    assert localized.stage(5, "--shard", "2/3") == 0
    said += capsys.readouterr().out
    part = localized.exp / "shards" / "2-of-3" / "ml-vae-sub" / answers.name
    content = part.read_bytes()
    part.write_bytes(content[: len(content) // 2])
    assert localized.stage(5) == 1
    assert f"{part} is damaged" in capsys.readouterr().err
    assert not answers.exists()
    part.write_bytes(content)
    leave_parts(localized, answers)
    assert localized.stage(5) == 0
    assert sorted(answers.parent.glob("cuts_test.*")) == [answers]
    assert counts(capsys.readouterr().out) == counts(said)
    assert not (localized.exp / "shards").exists()
    for name in ANSWERS:
        grids = [recipe.exp / name / "textgrids" for recipe in (finished, localized)]
        assert len(os.listdir(grids[0])) == len(os.listdir(grids[1])) > 0
        for path in grids[0].iterdir():
            assert path.read_bytes() == (grids[1] / path.name).read_bytes()
        ours, theirs = (
            list(load_cuts(recipe.exp / name / "cuts_test.jsonl.gz"))
            for recipe in (localized, finished)
        )
        assert [cut.id for cut in ours] == [cut.id for cut in theirs]
        for mine, their in zip(ours, theirs):
            tiers = their.supervisions[0].alignment
            assert mine.supervisions[0].alignment.keys() == tiers.keys()
            for kind in tiers:
                for one, other in zip(tier(mine, kind), tier(their, kind)):
                    assert one[:3] == other[:3]
                    assert one.score == pytest.approx(other.score, abs=1e-6)


def aligned(recipe: Recipe) -> dict[str, bytes]:
    """What stage 3 has left; of its training not how long it took."""
    folder = recipe.exp / "fa"
    paths = [*folder.glob("*.gz"), *folder.glob("*.safetensors")]
    found = {path.name: path.read_bytes() for path in paths}
    training = json.loads((folder / "training.json").read_bytes())
    del training["training_seconds"]
    return {**found, "training": json.dumps(training).encode()}


@pytest.mark.parametrize("count", [2, 3])
def test_alignments_of_shards_are_the_bytes_of_one_process(count, prepared, monkeypatch, capsys):
    monkeypatch.setattr("mlvae.portions.MANY", (3, 3600.0))
    cuts = list(load_cuts(manifest := prepared.data / "fbank" / "cuts_train.jsonl.gz"))
    short, unknown = (copy.deepcopy(cut) for cut in cuts[:2])
    short.id, unknown.id = "short", "unknown"
    short.supervisions[0].custom.update(units=["0"] * 100, words=["0"] * 100)
    short.supervisions[0].custom["word_of_unit"] = list(range(100))
    unknown.supervisions[0].custom.update(units=["eleven"], words=["eleven"], word_of_unit=[0])
    write_manifest(manifest, [*cuts[:4], short, unknown, *cuts[4:]])
    assert prepared.stage(3) == 0
    counted = counts(capsys.readouterr().out)
    assert counted[2] == 2
    whole, skipped = aligned(prepared), prepared.skipped()
    shutil.rmtree(prepared.exp)

    assert prepared.stage(3, "--shard", f"2/{count}") == 1
    assert f"the aligner is not trained yet, which --shard 1/{count} does" in (
        capsys.readouterr().err
    )
    for number in range(1, count):
        assert prepared.stage(3, "--shard", f"{number}/{count}") == 0
    said = capsys.readouterr().out
    assert prepared.stage(3) == 1
    assert f"not done, or not to the end: shard {count}/{count}; run" in capsys.readouterr().err
    assert "cuts_train.jsonl.gz" not in os.listdir(prepared.exp / "fa")
    # Shards go on where others are at work, too: the aligner is trained.
    with folder_lock(prepared.exp, "3 align", shared=True):
        assert prepared.stage(3, "--shard", f"1/{count}") == 0
    capsys.readouterr()
    assert prepared.stage(3, "--shard", f"{count}/{count}") == 0
    assert counts(said + capsys.readouterr().out) == counted
    part = prepared.exp / "fa" / "shards" / f"2-of-{count}" / "cuts_valid.jsonl.gz"
    content = part.read_bytes()
    part.write_bytes(content[: len(content) // 2])
    assert prepared.stage(3) == 1
    assert f"{part} is damaged" in capsys.readouterr().err
    assert "cuts_train.jsonl.gz" not in os.listdir(prepared.exp / "fa")
    part.write_bytes(content)
    assert prepared.stage(3) == 0
    assert counts(capsys.readouterr().out) == counted
    assert aligned(prepared) == whole
    assert prepared.skipped() == skipped
    assert not (prepared.exp / "fa" / "shards").exists()

    assert prepared.stage(3, "--shard", "1/1") == 0
    prepared.seed = 1
    assert prepared.stage(3) == 1
    assert "1-of-1: of other models, cuts or settings: run it again" in capsys.readouterr().err
    assert aligned(prepared).keys() - whole.keys() == {"trained.safetensors"}


@pytest.mark.parametrize("count", [2, 3])
def test_features_of_shards_are_the_bytes_of_one_process(
    count, prepared, tones, monkeypatch, capsys
):
    lines = gzip.decompress((manifest := prepared.data / MANIFEST).read_bytes()).splitlines()
    broken = json.loads(lines[0])
    broken["id"], broken["supervisions"] = "broken", []
    silent = json.loads(lines[0])
    silent["id"] = "silent"
    silent["recording"]["sources"][0]["source"] = str(prepared.data / "nowhere.wav")
    lines += [json.dumps(line).encode() for line in (broken, silent)]
    manifest.write_bytes(gzip.compress(b"\n".join(lines)))
    assert prepared.stage(1) == 0
    counted = counts(capsys.readouterr().out)
    names = [*written_files(prepared.data), prepared.data / SKIPPED]
    whole = {path: path.read_bytes() for path in names}
    for number in range(2, count + 1):
        assert prepared.stage(1, "--shard", f"{number}/{count}") == 0
    said = capsys.readouterr().out
    assert prepared.stage(1) == 1
    assert f"not done, or not to the end: shard 1/{count}; run" in capsys.readouterr().err
    assert prepared.stage(1, "--shard", f"1/{count}") == 0
    assert counts(said + capsys.readouterr().out) == counted
    for path in written_files(prepared.data):
        path.unlink()
    folder = prepared.data / "shards" / f"2-of-{count}"
    for part, why in ((SKIPPED, "is damaged"), ("fbank/feats_train.lca", "ends")):
        content = (folder / part).read_bytes()
        (folder / part).unlink()
        if part != SKIPPED:
            (folder / part).write_bytes(content[:-1])
        assert prepared.stage(1) == 1
        assert f"{folder / part} {why}" in capsys.readouterr().err
        (folder / part).write_bytes(content)
    with monkeypatch.context() as patch:
        patch.setattr(StageReport, "finish", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):  # as a kill does
            prepared.stage(1)
    assert prepared.stage(1) == 0
    assert counts(capsys.readouterr().out) == counted
    assert {path: path.read_bytes() for path in names} == whole
    assert not (prepared.data / "shards").exists()
    assert prepared.stage(1, "--shard", "1/2") == 0
    manifest.write_bytes(gzip.compress(b"\n".join(lines[:-1])))
    assert prepared.stage(1, "--shard", "2/2") == 0
    assert prepared.stage(1) == 1
    assert "1-of-2: of other models, cuts or settings: run it" in capsys.readouterr().err


def test_processes_that_torchrun_starts_are_shards(prepared, finished, localized):
    whole = {path: path.read_bytes() for path in written_files(prepared.data)}
    for path in whole:
        path.unlink()
    options = ["--data-dir", prepared.data]
    assert together(3, "local/fbank.py", *options).count(" in = ") == 4
    assert {path: path.read_bytes() for path in whole} == whole
    options = ["--data-dir", localized.data, "--exp-dir", localized.exp, "--device", "cpu"]
    options += ["--config", localized.config]
    whole = aligned(localized)
    shutil.rmtree(localized.exp / "fa")
    assert together(2, "local/align.py", *options).count(" in = ") == 3
    assert aligned(localized) == whole
    options += ["--systems", "ml-vae"]
    assert together(2, "local/localize.py", *options).count(" in = ") == 3
    ours, theirs = (
        list(load_cuts(recipe.exp / "ml-vae" / "cuts_test.jsonl.gz"))
        for recipe in (localized, finished)
    )
    assert [cut.id for cut in ours] == [cut.id for cut in theirs]
    for mine, their in zip(ours, theirs):
        assert tier(mine, "mlvae_perceived") == [
            item._replace(score=pytest.approx(item.score, abs=1e-6))
            for item in tier(their, "mlvae_perceived")
        ]


def together(count: int, program: str, *options: object) -> str:
    """What a stage says when ``torchrun`` starts it."""
    command = [sys.executable, "-m", "torch.distributed.run", "--rdzv_backend", "c10d"]
    command += ["--rdzv_endpoint", "localhost:0", "--nproc_per_node", str(count), program]
    result = subprocess.run(
        [*command, *map(str, options)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def test_shards_of_another_training_are_not_joined(localized, capsys):
    localized.systems = "ml-vae"
    assert localized.stage(5, "--shard", "1/2") == 0
    config = localized.config.read_text()
    localized.config = localized.exp / "other.yaml"
    localized.config.write_text(f"{config}# another\n")
    assert localized.stage(5) == 1
    assert "fa: of other models, cuts or settings: run it again with" in capsys.readouterr().err


def test_more_shards_are_joined_than_files_may_be_open(tmp_path):
    answers = {f"cut{number}": tmp_path / f"{number % 40}.jsonl.gz" for number in range(82)}
    for number in range(40):
        cuts = [make_cut(f"cut{one}") for one in range(80) if one % 40 == number]
        write_manifest(tmp_path / f"{number}.jsonl.gz", cuts)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, limits[1]))
    try:
        assert join_manifests(tmp_path / "joined.jsonl.gz", answers) == ["cut80", "cut81"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert list(load_cuts(tmp_path / "joined.jsonl.gz").ids) == list(answers)[:80]
