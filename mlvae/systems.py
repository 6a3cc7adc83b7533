"""A system from end to end: train it in its folder, and localise with what lies there.

:data:`SYSTEMS` says for each name how.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch
from lhotse import CutSet

from mlvae.align import Aligner
from mlvae.baselines.systems import BASELINES, load_baseline, train_baseline
from mlvae.config import TRAINED, RecipeConfig
from mlvae.data.dataset import UnitDataset
from mlvae.device import num_parameters, seed_everything
from mlvae.em import Decoding, EStep, Trainer, distributed
from mlvae.em.calibration import choose_scale
from mlvae.em.checkpoint import keep_passes, load_model, save_model, weights_digest
from mlvae.em.estep import search_compiler
from mlvae.em.passes import Passes
from mlvae.localize import localize
from mlvae.made import remove_made
from mlvae.nn import MlVae
from mlvae.plausibility import edge_warnings
from mlvae.stage import log
from mlvae.tiers import with_units


@dataclass
class System:
    """A trained system.

    Attributes:
        model: the networks.
        topology: the acceptor that is searched.
        decoding: how posteriors become scores.
        edges: aligns what was heard; None where it is not aligned once more.
    """

    model: MlVae
    topology: str
    decoding: Decoding
    edges: Aligner | None


def train_system(
    name: str,
    config: RecipeConfig,
    train_cuts: CutSet,
    valid_cuts: CutSet,
    dataset: UnitDataset,
    folder: Path,
    device: torch.device,
    seed: int,
) -> dict:
    """Train a system, choose its scale, and train the aligner of its edges.

    The processes of a run train together; the first does the rest alone, and only what it returns
    is whole.

    Args:
        name: one of ``config.TRAINED``.
        config: of the recipe.
        train_cuts: training cuts with features and the tier ``fa``.
        valid_cuts: held-out cuts with features.
        dataset: gives features and units.
        folder: where to write; a killed training goes on from what lies there.
        device: where to run.
        seed: of everything random.

    Returns:
        What ``training.json`` says.

    Raises:
        ValueError: there is no such system.
    """
    settings = config.system(name)
    model = new_model(name, config, train_cuts, dataset, seed)
    log(f"{name}: {num_parameters(model)} parameters on {device}")
    setup = {
        "deltas": config.deltas,
        "silence": config.silence,
        "align": asdict(config.align),
        "model": asdict(settings.model),
    }
    trainer = Trainer(
        model,
        train_cuts,
        valid_cuts,
        dataset,
        dataset.table,
        settings.train,
        folder,
        device,
        seed,
        setup,
    )
    # Edges of another run must not be taken for those of this one if it is killed.
    remove_made(folder / "edges.safetensors")
    training = trainer.fit()
    if not distributed.is_main():
        return training
    path = folder / "model.safetensors"
    metadata = load_model(path, model)
    keeper = keep_passes(
        folder / "scale-checkpoint.safetensors",
        {**asdict(settings), "weights": weights_digest(model)},
        seed,
        [train_cuts, valid_cuts],
    )
    decoding, losses = choose_scale(
        model,
        valid_cuts,
        dataset,
        settings.train.topology,
        settings.train.decoding,
        settings.calibration,
        device,
        seed,
        keeper.state.passes,
    )
    metadata["decoding"] = asdict(decoding)
    save_model(path, model, metadata)
    if losses:
        log(f"{name}: acoustic scale {decoding.acoustic_scale} by log loss {losses}")
        training["scale_log_loss"] = losses
        scales = settings.calibration.scales
        training["warnings"] = edge_warnings(
            "acoustic scale", decoding.acoustic_scale, scales, "calibration.scales"
        )
    training["acoustic_scale"] = decoding.acoustic_scale
    training["num_params_without_generator"] = num_parameters(model) - num_parameters(
        model.generator
    )
    if settings.edges == "aligner":
        system = System(model.to(device), settings.train.topology, decoding, None)
        checkpoint = folder / "edges-checkpoint.safetensors"
        edges = train_edges(
            system, config, train_cuts, dataset, device, seed, keeper.state.passes, checkpoint
        )
        edges["aligner"].save(folder / "edges.safetensors")
        remove_made(checkpoint)
        training["num_params"] += edges["num_params"]
        training["num_params_without_generator"] += edges["num_params"]
        training["training_seconds"] += edges["training_seconds"]
    keeper.remove()
    return training


def train_edges(
    system: System,
    config: RecipeConfig,
    cuts: CutSet,
    dataset: UnitDataset,
    device: torch.device,
    seed: int,
    passes: Passes | None = None,
    checkpoint: Path | None = None,
) -> dict:
    """Train an aligner on what the system heard in the training cuts.

    Args:
        system: whose edges it is for.
        config: of the recipe.
        cuts: training cuts with features.
        dataset: gives features and units.
        device: where to run.
        seed: of everything random.
        passes: what an earlier run has done of the search; None: nothing.
        checkpoint: of the aligner's training, see there.

    Returns:
        The ``aligner``, its ``num_params`` and ``training_seconds``.

    Raises:
        ValueError: in no cut was anything heard that is long enough.
    """
    search = EStep(
        search_compiler(system.model, system.topology, system.decoding),
        cuts,
        dataset,
        config.align.search_frames,
    )
    found = search.run(system.model, system.decoding, device, passes=passes).spans
    heard = []
    for cut in cuts:
        spoken = [s for s in found.get(cut.id, []) if s.kind == "unit" and not s.is_deletion]
        if spoken:
            units = [s.perceived if s.perceived >= 0 else s.unit for s in spoken]
            words = [s.word for s in spoken]
            heard.append(with_units(cut, dataset.table.units(units), words))
    states = config.align.model.states_per_unit
    long_enough = CutSet.from_cuts(
        cut for cut in heard if states * len(cut.supervisions[0].custom["units"]) <= cut.num_frames
    )
    if not len(long_enough):
        raise ValueError(
            f"no training cut has {states} frames for each unit that was heard in it: there is "
            "nothing to train the aligner of edges on"
        )
    plain = UnitDataset(dataset.table)
    num_features = plain.features(cuts[0]).shape[1]
    aligner = Aligner(num_features, len(dataset.table), config.silence, config.align, device)
    training = aligner.train(long_enough, plain, seed, checkpoint)
    return {
        "aligner": aligner,
        "num_params": training["num_params"],
        "training_seconds": training["training_seconds"],
    }


def load_system(
    name: str,
    config: RecipeConfig,
    cuts: CutSet,
    dataset: UnitDataset,
    folder: Path,
    device: torch.device,
) -> System:
    """Read a trained system.

    Raises:
        ValueError: it has not been trained, or with another configuration; names the file.
    """
    settings = config.system(name)
    model = new_model(name, config, cuts, dataset, seed=0)
    metadata = load_model(folder / "model.safetensors", model)
    decoding = Decoding(**metadata.get("decoding", asdict(settings.train.decoding)))
    edges = None
    if settings.edges == "aligner":
        num_features = UnitDataset(dataset.table).features(cuts[0]).shape[1]
        edges = Aligner(num_features, len(dataset.table), config.silence, config.align, device)
        edges.load(folder / "edges.safetensors")
    return System(model.to(device), settings.train.topology, decoding, edges)


def localize_with(
    system: System,
    cuts: CutSet,
    dataset: UnitDataset,
    device: torch.device,
    passes: Passes | None = None,
) -> tuple[CutSet, list[str]]:
    """Add the tiers of a system; see :func:`mlvae.localize.localize`."""
    return localize(
        system.model,
        cuts,
        dataset,
        system.decoding,
        device,
        topology=system.topology,
        edges=system.edges,
        passes=passes,
    )


def without_generator(system: System) -> System:
    """The same system with the stored rate of mispronunciations in place of q(pi)."""
    return replace(system, decoding=replace(system.decoding, use_correctness=False))


def new_model(
    name: str, config: RecipeConfig, cuts: CutSet, dataset: UnitDataset, seed: int
) -> MlVae:
    """The networks of a system, initialised by the seed."""
    settings = config.system(name)
    seed_everything(seed)
    return MlVae(
        dataset.features(cuts[0]).shape[1],
        len(dataset.table),
        config.silence,
        settings.model,
        settings.train.states_per_unit,
    )


#: Adds the tiers of a system to cuts; also gives the ids of those too short for their units. The
#: keyword ``passes`` may say what an earlier run has done.
Localizer = Callable[..., "tuple[CutSet, list[str]]"]


def load_localizers(
    name: str,
    config: RecipeConfig,
    cuts: CutSet,
    dataset: UnitDataset,
    folder: Path,
    device: torch.device,
) -> dict[str, Localizer]:
    """Read a trained system; what it answers, by the name of the folder of the answers."""
    system = load_system(name, config, cuts, dataset, folder, device)
    answers = {name: system}
    if name == "ml-vae-sub":
        answers["ml-vae-sub-no-generator"] = without_generator(system)
    return {
        answer: partial(localize_with, way, dataset=dataset, device=device)
        for answer, way in answers.items()
    }


def models_digest(folder: Path) -> str:
    """64 hexadecimal digits of what a system's folder has been trained to: model and edges."""
    digest = hashlib.sha256()
    for name in ("model.safetensors", "edges.safetensors"):
        path = folder / name
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class SystemKind:
    """How a system is trained and read.

    Attributes:
        train: as :func:`train_system`; returns what ``training.json`` says.
        load: as :func:`load_localizers`.
        together: whether the processes of a run all call ``train``; otherwise the first alone does.
    """

    train: Callable[..., dict]
    load: Callable[..., dict[str, Localizer]]
    together: bool = False


#: Files that training a system writes to its folder, whichever it is.
MADE_BY_SYSTEMS = (
    "checkpoint.safetensors",
    "model.safetensors",
    "scale-checkpoint.safetensors",
    "edges.safetensors",
    "edges-checkpoint.safetensors",
)

_ML_VAE = SystemKind(train_system, load_localizers, together=True)

#: What ``--systems`` may name, in the order of the table; None where stage 3 has done everything.
#: To add a system, add a line.
SYSTEMS: dict[str, SystemKind | None] = {
    "fa": None,
    **dict.fromkeys(BASELINES, SystemKind(train_baseline, load_baseline)),
    **dict.fromkeys(TRAINED, _ML_VAE),
}


def check_systems(names: list[str]) -> None:
    """Raise ValueError unless at least one system is named and all of them exist."""
    known = ", ".join(SYSTEMS)
    if not names:
        raise ValueError(f"no system is named; there are: {known}")
    for name in names:
        if name not in SYSTEMS:
            raise ValueError(f"there is no system {name!r}; there are: {known}")
