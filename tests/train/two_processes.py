"""What each of two processes does in the tests of distributed training; started by torchrun.

Arguments: a folder to write to, and ``train`` or ``fail``.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mlvae.train import distributed, loop
from mlvae.train.algorithms import Algorithm
from mlvae.train.estep import EStep
from mlvae.train.loop import read_tensors
from tests.train.tiny import CPU, spoken_cuts
from tests.train.trainers import CONFIG, Kill, Killer, make_trainer

#: Training that each kind of algorithm is tried in.
SMALL = replace(CONFIG, max_frames=70)
CONFIGS = {
    "whole": SMALL,
    "resumed": SMALL,
    "killed": SMALL,
    "reinforce": replace(SMALL, algorithm="reinforce", iterations=1),
    "joint": replace(SMALL, algorithm="joint", iterations=1),
    # Batches of one cut, which do not come out even for two processes.
    "pseudo-labelling": replace(
        CONFIG, iterations=1, max_frames=10, topology="substitution", pseudo_labels_after=1
    ),
}


def all_cuts():
    """Training cuts whose batches do not come out even for two processes, and validation cuts."""
    return spoken_cuts(13)[0], spoken_cuts(5, seed=1)[0]


def kill_within_iterations(cuts, folder: Path, config) -> None:
    """Kill both, in epochs and in searches, of which one has more batches than the other."""
    within: list[set[str]] = []
    for kill in (3, 5, 5, 5, 5):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Kill):
            patch.setattr(loop, "ASK_EVERY", 2)
            Killer(patch, every=1, kills=(kill,))
            make_trainer(cuts, folder, config).fit()
        distributed.barrier()
        names = read_tensors(folder / "checkpoint.safetensors")[0]
        within += [{name.split(".")[1] for name in names if name.startswith("pass.")}]
        distributed.barrier()
    # Most kills came within an iteration, and then both have something in the checkpoint.
    assert within.count({"0", "1"}) >= 3


def train(folder: Path) -> dict:
    cuts, rank, said = all_cuts(), distributed.rank(), {}
    for name, config in CONFIGS.items():
        if name == "resumed":
            make_trainer(cuts, folder / name, replace(config, iterations=1)).fit()
            torch.manual_seed(99)  # a new process
        if name == "killed":
            kill_within_iterations(cuts, folder / name, config)
        trainer = make_trainer(cuts, folder / name, config)
        said[f"history {name}"] = trainer.fit()["history"]
        algorithm = trainer.algorithm
        tensors = {
            f"{module}.{key}": value.clone()
            for module, owner in algorithm.modules.items()
            for key, value in owner.state_dict().items()
        }
        tensors["rng"] = torch.get_rng_state()
        save_file(tensors, folder / f"{name}.{rank}.safetensors")
        batches = algorithm.batches.epoch(5, algorithm.aligned, "")
        said[f"batches {name}"] = [batch.cut_ids for batch in batches]
        if name == "whole":
            args = algorithm.compiler, cuts[0], algorithm.dataset, 60
            shared, alone = (EStep(*args, shared=shared) for shared in (True, False))
            said["searched"] = len(shared.cuts), len(alone.cuts)
            found = [e.run(trainer.model, config.decoding, CPU) for e in (shared, alone)]
            said["same answers"] = found[0] == found[1] and list(found[0].spans) == list(
                found[1].spans
            )
    return said


def main(folder: Path, task: str) -> None:
    torch.set_num_threads(1)
    Algorithm.search_frames = lambda self: 60
    with distributed.process_group("cpu"):
        if task == "fail" and distributed.rank() == 1:
            raise ValueError("cut17 is damaged")
        said = train(folder)
        (folder / f"said.{distributed.rank()}.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
