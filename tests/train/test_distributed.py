"""Training by two processes on the CPU, started as run.sh starts them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lhotse import CutSet
from safetensors.torch import load_file

from mlvae.data.dataset import make_sampler
from mlvae.train import distributed
from tests.train.tiny import spoken_cuts
from tests.train.trainers import make_trainer
from tests.train.two_processes import CONFIGS, SMALL, all_cuts

ROOT = Path(__file__).resolve().parents[2]
#: Two processes train on the CPU, also where other tests do not.
SETTINGS = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "MLVAE_TEST_DEVICE": "cpu"}


def start(folder: Path, task: str) -> subprocess.CompletedProcess:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--rdzv_backend", "c10d"]
    launcher += ["--rdzv_endpoint", "localhost:0", "--nproc_per_node", "2"]
    return subprocess.run(
        [*launcher, "-m", "tests.train.two_processes", str(folder), task],
        cwd=ROOT,
        env={**os.environ, **SETTINGS},
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, list[dict]]:
    """The folder of a run, and what each process said."""
    folder = tmp_path_factory.mktemp("two")
    result = start(folder, "train")
    assert result.returncode == 0, result.stderr[-3000:]
    return folder, [json.loads((folder / f"said.{rank}.json").read_text()) for rank in range(2)]


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


@pytest.mark.parametrize("name", CONFIGS)
def test_both_have_the_same_weights_and_figures_after_other_batches(trained, name):
    folder, said = trained
    weights = [load_file(folder / f"{name}.{rank}.safetensors") for rank in range(2)]
    random = [own.pop("rng") for own in weights]
    assert same(*weights)
    assert not torch.equal(*random)
    assert said[0][f"history {name}"] == said[1][f"history {name}"]
    batches = [own[f"batches {name}"] for own in said]
    assert len(batches[0]) == len(batches[1]) > 1
    names = Counter(cut_id for own in batches for batch in own for cut_id in batch)
    assert set(names) == set(all_cuts()[0].ids)
    # Two get equally many batches. Where one cut is left for both, it comes again.
    repeated = names.total() - len(names)
    assert repeated == 1 if name == "pseudo-labelling" else repeated <= 1


def test_training_by_two_moves_weights_otherwise_than_by_one(trained, tmp_path):
    """The weights of two processes are theirs together, not those of one on its half."""
    make_trainer(all_cuts(), tmp_path, SMALL).fit()
    alone = load_file(tmp_path / "checkpoint.safetensors")
    together = load_file(trained[0] / "whole" / "checkpoint.safetensors")
    assert alone.keys() == together.keys() - {"rng.cpu.1"}
    assert not same(alone, {key: together[key] for key in alone})


def test_the_e_step_divides_the_cuts_and_answers_as_one_process_does(trained):
    _, said = trained
    (mine, whole), (theirs, _) = (own["searched"] for own in said)
    assert mine + theirs == whole > 3
    assert all(own["same answers"] for own in said)


@pytest.mark.parametrize("name", ["resumed", "killed"])
def test_a_run_of_two_goes_on_bit_for_bit(trained, name):
    """Both between two iterations and from within."""
    folder, said = trained
    for rank in range(2):
        whole, resumed = (
            load_file(folder / f"{run}.{rank}.safetensors") for run in ("whole", name)
        )
        assert same(whole, resumed)
        assert said[rank]["history whole"] == said[rank][f"history {name}"]
    for file in ("checkpoint", "model"):
        whole, resumed = (
            load_file(folder / run / f"{file}.safetensors") for run in ("whole", name)
        )
        assert same(whole, resumed)


def test_one_process_goes_on_where_two_stopped(trained, tmp_path, capsys):
    shutil.copytree(trained[0] / "whole", tmp_path / "run")
    training = make_trainer(all_cuts(), tmp_path / "run", replace(SMALL, iterations=3)).fit()
    assert training["history"][:2] == trained[1][0]["history whole"]
    assert len(training["history"]) == 3
    assert "now with 1 processes instead of 2" in capsys.readouterr().out
    assert "rng.cpu.1" not in load_file(tmp_path / "run" / "checkpoint.safetensors")


def test_an_error_of_one_ends_both(tmp_path):
    """The other one would wait for it in the first exchange."""
    result = start(tmp_path, "fail")
    assert result.returncode != 0
    assert "ValueError: cut17 is damaged" in result.stderr
    assert not list(tmp_path.glob("said.*"))


@pytest.mark.parametrize("count", [1, 2, 3, 25, 61])
@pytest.mark.parametrize("max_frames", [10, 150])
@pytest.mark.parametrize("processes", [2, 3])
def test_batches_are_divided_evenly(count, max_frames, processes):
    cuts = spoken_cuts(count)[0]
    epochs = []
    for rank in range(processes):
        sampler = make_sampler(cuts, max_frames, True, 0, world_size=processes, rank=rank)
        sampler.set_epoch(3)
        epochs.append([[cut.id for cut in batch] for batch in sampler])
    assert len({len(own) for own in epochs}) == 1
    assert all(batch for own in epochs for batch in own)
    names = Counter(cut_id for own in epochs for batch in own for cut_id in batch)
    repeated = [name for name in names if name not in cuts.ids]
    assert {name: names[name] for name in cuts.ids} == dict.fromkeys(cuts.ids, 1)
    assert len(repeated) < processes and all("_dup" in name for name in repeated)


def test_other_samplers_do_not_look_at_the_environment(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    cuts: CutSet = spoken_cuts(30)[0]
    for shuffle in (True, False):
        names = [cut.id for batch in make_sampler(cuts, 100, shuffle) for cut in batch]
        assert sorted(names) == sorted(cuts.ids)


@pytest.mark.parametrize("count", [0, 1, 5, 6])
def test_shares_are_put_together_again(count, monkeypatch):
    monkeypatch.setattr(distributed, "world_size", lambda: 3)
    shares = []
    for rank in range(3):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        shares.append(distributed.shard(range(count)))
    assert distributed.merge_shards(shares) == list(range(count))


def test_more_processes_than_gpus_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for name, value in {
        **{"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"},
        **{"MASTER_ADDR": "localhost", "MASTER_PORT": "1"},
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="process 2 of this machine has no GPU of its own"):
        distributed.process_group("cuda", 2).__enter__()


def test_where_the_first_process_fails_before_the_shards_all_end(monkeypatch):
    monkeypatch.setattr(distributed, "process_group", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(distributed, "gather", lambda value: [3, 0])  # as the first one's status
    worked: list[object] = []
    status = distributed.in_shards(
        "align.py", lambda shard: worked.append(shard) or 0, first=lambda: 3
    )
    assert status == 3
    assert worked == []
