"""Kinds of systems: how a system is trained in its folder, and how it answers with what lies there.

:data:`KINDS` says for each kind how. Which systems there are, and of which kind each is, the
configuration says: :class:`mlvae.config.System`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from lhotse import CutSet

from mlvae.align import Aligner
from mlvae.baselines.two_pass import load_two_pass, train_two_pass
from mlvae.baselines.w2v_ctc import W2vCtcConfig, load_w2v
from mlvae.baselines.w2v_train import MODEL, train_w2v
from mlvae.bounds import Settings
from mlvae.data.dataset import UnitDataset
from mlvae.data.units import UnitTable
from mlvae.device import num_parameters, seed_everything
from mlvae.localize import localize
from mlvae.made import remove_made
from mlvae.nn import MlVae, MlVaeConfig
from mlvae.plausibility import edge_warnings
from mlvae.stage import log
from mlvae.tiers import with_units
from mlvae.train import Decoding, EStep, TrainConfig, Trainer, distributed
from mlvae.train.estep import search_compiler
from mlvae.train.loop import Passes, keep_passes, load_model, save_model, weights_digest
from mlvae.train.selection import CalibrationConfig, choose_scale

if TYPE_CHECKING:
    from mlvae.config import RecipeConfig


@dataclass
class NoSettings(Settings):
    """Of a kind that has nothing of its own to be told."""


@dataclass
class MlVaeSettings(Settings):
    """What a system of kind ``ml_vae`` is told.

    Attributes:
        model: sizes of the networks.
        train: training, and the acceptor that is searched.
        calibration: how the acoustic scale is chosen after training.
        edges: whose edges units get: the best ``path``'s, or those of an ``aligner``, a narrow
            model that aligns what was heard once more.
    """

    model: MlVaeConfig = field(default_factory=MlVaeConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    calibration: CalibrationConfig = field(default_factory=CalibrationConfig)
    edges: Literal["path", "aligner"] = "path"


@dataclass(frozen=True)
class Setup:
    """What training or loading a system goes by.

    Attributes:
        name: of the system, as the configuration declares it.
        config: of the recipe.
        dataset: gives features and units.
        device: where to run.
        seed: of everything random.
        folder: of the system; that of the aligner, ``fa``, lies beside it.
    """

    name: str
    config: RecipeConfig
    dataset: UnitDataset
    device: torch.device
    seed: int
    folder: Path

    @property
    def table(self) -> UnitTable:
        """Symbols and ids of the units."""
        return self.dataset.table

    @property
    def settings(self) -> Any:
        """The system's settings, of its kind's type."""
        return self.config.systems[self.name].settings


#: Adds the tiers of a system to cuts; also gives the ids of those without an answer. The keyword
#: ``passes`` may say what an earlier run has done.
Localizer = Callable[..., "tuple[CutSet, list[str]]"]


@dataclass
class TrainedMlVae:
    """A trained system of kind ``ml_vae``.

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

    def localize(
        self,
        cuts: CutSet,
        dataset: UnitDataset,
        device: torch.device,
        passes: Passes | None = None,
    ) -> tuple[CutSet, list[str]]:
        """Add the tiers of a system; see :func:`mlvae.localize.localize`."""
        return localize(
            self.model,
            cuts,
            dataset,
            self.decoding,
            device,
            topology=self.topology,
            edges=self.edges,
            passes=passes,
        )


def train_ml_vae(setup: Setup, train_cuts: CutSet, valid_cuts: CutSet) -> dict:
    """Train a system, choose its scale, and train the aligner of its edges.

    The processes of a run train together; the first does the rest alone, and only what it returns
    is whole. A killed training goes on from what lies in the folder.

    Args:
        setup: the system and where it is trained.
        train_cuts: training cuts with features and the tier ``fa``.
        valid_cuts: held-out cuts with features.

    Returns:
        What ``training.json`` says.
    """
    config, settings, dataset = setup.config, setup.settings, setup.dataset
    name, folder, device, seed = setup.name, setup.folder, setup.device, setup.seed
    model = new_model(setup, train_cuts)
    log(f"{name}: {num_parameters(model)} parameters on {device}")
    fixed = {
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
        fixed,
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
            "acoustic scale", decoding.acoustic_scale, scales, f"systems.{name}.calibration.scales"
        )
    training["acoustic_scale"] = decoding.acoustic_scale
    training["num_params_without_generator"] = num_parameters(model) - num_parameters(
        model.generator
    )
    if settings.edges == "aligner":
        system = TrainedMlVae(model.to(device), settings.train.topology, decoding, None)
        checkpoint = folder / "edges-checkpoint.safetensors"
        edges = train_edges(system, setup, train_cuts, keeper.state.passes, checkpoint)
        edges["aligner"].save(folder / "edges.safetensors")
        remove_made(checkpoint)
        training["num_params"] += edges["num_params"]
        training["num_params_without_generator"] += edges["num_params"]
        training["training_seconds"] += edges["training_seconds"]
    keeper.remove()
    return training


def train_edges(
    system: TrainedMlVae,
    setup: Setup,
    cuts: CutSet,
    passes: Passes | None = None,
    checkpoint: Path | None = None,
) -> dict:
    """Train an aligner on what the system heard in the training cuts.

    Args:
        system: whose edges it is for.
        setup: where it is trained.
        cuts: training cuts with features.
        passes: what an earlier run has done of the search; None: nothing.
        checkpoint: of the aligner's training, see there.

    Returns:
        The ``aligner``, its ``num_params`` and ``training_seconds``.

    Raises:
        ValueError: in no cut was anything heard that is long enough.
    """
    config, dataset, device = setup.config, setup.dataset, setup.device
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
    training = aligner.train(long_enough, plain, setup.seed, checkpoint)
    return {
        "aligner": aligner,
        "num_params": training["num_params"],
        "training_seconds": training["training_seconds"],
    }


def load_ml_vae(setup: Setup, cuts: CutSet) -> TrainedMlVae:
    """Read a trained system.

    Args:
        setup: the system, and where it was trained.
        cuts: some cuts with features; their dimension counts.

    Raises:
        ValueError: it has not been trained, or with another configuration; names the file.
    """
    settings, config, device = setup.settings, setup.config, setup.device
    model = new_model(setup, cuts)
    metadata = load_model(setup.folder / "model.safetensors", model)
    decoding = Decoding(**metadata.get("decoding", asdict(settings.train.decoding)))
    decoding = replace(decoding, use_correctness=settings.train.decoding.use_correctness)
    edges = None
    if settings.edges == "aligner":
        num_features = UnitDataset(setup.table).features(cuts[0]).shape[1]
        edges = Aligner(num_features, len(setup.table), config.silence, config.align, device)
        edges.load(setup.folder / "edges.safetensors")
    return TrainedMlVae(model.to(device), settings.train.topology, decoding, edges)


def new_model(setup: Setup, cuts: CutSet) -> MlVae:
    """The networks of a system, initialised by the seed."""
    seed_everything(setup.seed)
    return MlVae(
        setup.dataset.features(cuts[0]).shape[1],
        len(setup.table),
        setup.config.silence,
        setup.settings.model,
        setup.settings.train.states_per_unit,
    )


def _ml_vae(setup: Setup, cuts: CutSet) -> Localizer:
    system = load_ml_vae(setup, cuts)
    return partial(system.localize, dataset=setup.dataset, device=setup.device)


def _train_two_pass(setup: Setup, train_cuts: CutSet, valid_cuts: CutSet) -> dict:
    config = setup.config
    return train_two_pass(
        config.align, config.silence, valid_cuts, setup.table, setup.folder, setup.device
    )


def _two_pass(setup: Setup, cuts: CutSet) -> Localizer:
    config, table = setup.config, setup.table
    system = load_two_pass(config.align, config.silence, cuts, table, setup.folder, setup.device)
    return partial(system.localize, dataset=UnitDataset(table))


def _train_w2v(setup: Setup, train_cuts: CutSet, valid_cuts: CutSet) -> dict:
    where = setup.folder, setup.device, setup.seed
    return train_w2v(setup.settings, train_cuts, valid_cuts, setup.table, *where)


def _w2v(setup: Setup, cuts: CutSet) -> Localizer | None:
    path = setup.folder / "training.json"
    training = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if "unavailable" in training:
        log(f"{setup.name}: no answers: {training['unavailable']}")
        return None
    return load_w2v(setup.folder / MODEL, setup.table, setup.settings.margin, setup.device).localize


@dataclass(frozen=True)
class SystemKind:
    """How systems of a kind are trained and answer.

    Attributes:
        settings: type of what the configuration may say of one.
        train: trains one on training and held-out cuts, which have the tier ``fa``; returns what
            ``training.json`` says, with the key ``unavailable`` and the reason where it cannot be
            trained. None where stage 3 has done everything.
        load: reads a trained one for some cuts, whose dimension counts; None where it is
            unavailable. Raises ValueError where it is not trained, or otherwise; names the file.
        together: whether the processes of a run all call ``train``; otherwise the first alone does.
        required: sections that the configuration must say of one that is trained, as their
            defaults are the paper's 24 M parameters, which nobody wants by mistake.
        spans: the tier with the answer's spans.
        heard: the tier with what was heard, or None where nothing is flagged.
    """

    settings: type[Settings]
    train: Callable[[Setup, CutSet, CutSet], dict] | None = None
    load: Callable[[Setup, CutSet], Localizer | None] | None = None
    together: bool = False
    required: tuple[str, ...] = ()
    spans: str = "mlvae"
    heard: str | None = "mlvae_heard"


#: What a system of the configuration may be of.
KINDS: dict[str, SystemKind] = {
    "align": SystemKind(NoSettings, spans="fa", heard=None),
    "two_pass": SystemKind(NoSettings, _train_two_pass, _two_pass),
    "w2v_ctc": SystemKind(W2vCtcConfig, _train_w2v, _w2v),
    "ml_vae": SystemKind(MlVaeSettings, train_ml_vae, _ml_vae, together=True, required=("model",)),
}


def load_localizers(setup: Setup, cuts: CutSet) -> dict[str, Localizer]:
    """Read a trained system.

    Returns:
        By name how it answers, and how those do that the configuration declares to answer with its
        model. Nothing of what is unavailable, or was done by stage 3.
    """
    load = KINDS[setup.config.system(setup.name).kind].load
    found = {}
    for name in setup.config.answering(setup.name) if load else ():
        localizer = load(replace(setup, name=name), cuts)
        if localizer is not None:
            found[name] = localizer
    return found


def models_digest(folder: Path) -> str:
    """64 hexadecimal digits of what a system's folder has been trained to: model and edges."""
    digest = hashlib.sha256()
    for name in ("model.safetensors", "edges.safetensors"):
        path = folder / name
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


#: Files that training a system writes to its folder, whichever it is.
MADE_BY_SYSTEMS = (
    "checkpoint.safetensors",
    "model.safetensors",
    "scale-checkpoint.safetensors",
    "edges.safetensors",
    "edges-checkpoint.safetensors",
)
