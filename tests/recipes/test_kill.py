"""Stage 4 is killed for good, and started again with the same command."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from safetensors.torch import load_file

from tests.data.conftest import ROOT
from tests.recipes.conftest import QUICK, Recipe


@pytest.mark.parametrize("system", ["ml-vae", "ml-vae-rl", "ml-vae-sub"])
def test_a_killed_training_goes_on_to_the_same_weights(prepared, tmp_path, system):
    """The last system is killed after it has begun to pseudo-label."""
    prepared.config = tmp_path / "conf.yaml"
    prepared.systems = system
    prepared.config.write_text(QUICK.replace("iterations: 2", "iterations: 4"))
    assert prepared.run(3, 4) == [0, 0]
    killed = Recipe(prepared.data, tmp_path / "killed", prepared.config, systems=system)
    (killed.exp / "fa").parent.mkdir()
    (killed.exp / "fa").symlink_to(prepared.exp / "fa")

    command = [sys.executable, str(ROOT / "local" / "train.py"), "--data-dir", str(killed.data)]
    command += ["--exp-dir", str(killed.exp), "--config", str(killed.config), "--device", "cpu"]
    command += ["--systems", system]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    checkpoint = killed.exp / system / "checkpoint.safetensors"
    with subprocess.Popen(
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            deadline = time.monotonic() + 100
            while not checkpoint.exists() and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        finally:
            process.kill()
    assert process.returncode == -9  # it had not come to its end
    assert not (killed.exp / system / "training.json").exists()

    assert killed.stage(4) == 0
    pseudo = system == "ml-vae-sub"
    assert pseudo is ("tensor.targets.rows" in load_file(prepared.exp / system / checkpoint.name))
    for name in ["checkpoint", "model", *(["boundaries"] if pseudo else [])]:
        mine, theirs = (
            load_file(recipe.exp / system / f"{name}.safetensors") for recipe in (killed, prepared)
        )
        assert mine.keys() == theirs.keys()
        assert all(mine[key].equal(theirs[key]) for key in mine), name
