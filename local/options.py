"""Options that the stages 3 to 5 share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from jsonargparse import ArgumentParser
from jsonargparse.typing import NonNegativeInt, PositiveInt

from mlvae.data.dataset import CACHE_MB
from mlvae.device import Seed
from mlvae.shard import SHARD_HELP, Shard, found_shards, remove_shards
from mlvae.stage import stage_folder


@dataclass
class ModelOptions:
    """Folders, configuration, device, seed and systems of a stage that uses a model."""

    data_dir: Path
    exp_dir: Path
    config: Path
    device: str
    seed: int
    cache_mb: int
    systems: list[str]
    init: Path | None = None
    w2v_checkpoint: str = ""
    num_processes: int | None = None
    shard: Shard | None = None


def in_folder(
    stage: str,
    options: ModelOptions,
    folder: Path,
    work: Callable[[ModelOptions, Mapping[Shard, Path]], int],
    outputs: Iterable[Path] = (),
) -> int:
    """Do a stage, or a shard of it, while nobody else writes to its folders.

    Args:
        stage: its number and name.
        options: of the stage; a shard has a folder of its own and only reads the others.
        folder: that of the shards is in it.
        work: does it, given the options and the shards to join, with their folders, which are
            removed afterwards; returns the exit status.
        outputs: files that the stage without shards writes to the experiment folder.

    Raises:
        ValueError, OSError: the folders cannot be used, or not be written to.
    """
    if options.shard is not None:
        home, reads = options.shard.folder(folder), [options.data_dir, options.exp_dir]
        with stage_folder(f"{stage} --shard {options.shard}", home, reads=reads):
            return work(options, {})
    with stage_folder(stage, options.exp_dir, outputs, [options.data_dir]):
        shards = found_shards(folder)
        status = work(options, shards)
        if shards and not status:
            remove_shards(shards.values())
        return status


def parse_model_options(
    program: str,
    description: str | None,
    argv: Sequence[str] | None,
    with_systems: bool = True,
    trains: bool = False,
) -> ModelOptions:
    """Parse the command line of a stage; one ``with_systems`` is told which of them.

    One that ``trains`` systems has no shards. It may begin from a model folder, as stage 3 may,
    which has no systems.
    """
    parser = ArgumentParser(prog=program, description=description)
    parser.add_argument("--data-dir", type=Path, required=True, help="corpus folder")
    parser.add_argument("--exp-dir", type=Path, required=True, help="experiment folder")
    parser.add_argument("--config", type=Path, required=True, help="YAML file of the recipe")
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu or cuda")
    parser.add_argument("--seed", type=Seed, default=0, help="of everything random")
    parser.add_argument(
        "--cache-mb",
        type=NonNegativeInt,
        default=CACHE_MB,
        help="most memory, in MB, of features that are kept for the next time",
    )
    if with_systems:
        parser.add_argument(
            "--systems", type=str, required=True, help="names of systems, separated by spaces"
        )
    if trains or not with_systems:
        parser.add_argument(
            "--init", type=Optional[Path], help="model folder whose weights training begins from"
        )
    if trains:
        parser.add_argument(
            "--w2v-checkpoint",
            type=str,
            default="",
            help="weights of wav2vec 2.0 for w2v-ctc (default: torchaudio's, if at hand)",
        )
        parser.add_argument(
            "--num-processes",
            type=Optional[PositiveInt],
            help="processes that train together; this is one of them (default: as torchrun says)",
        )
    if not trains:
        parser.add_argument("--shard", type=Optional[Shard], help=SHARD_HELP)
    found = parser.parse_args(argv).as_dict()
    return ModelOptions(**{**found, "systems": found.get("systems", "").split()})
