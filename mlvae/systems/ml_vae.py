"""ML-VAE from training to answers: the networks, the scale, and the aligner of its boundaries."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from lhotse import CutSet
from lhotse.utils import fastcopy

from mlvae.bounds import Settings
from mlvae.data.dataset import FRAME_SHIFT, UnitDataset
from mlvae.data.units import canonical_units
from mlvae.device import give_back_memory, num_parameters, seed_everything
from mlvae.made import file_digest, remove_made
from mlvae.nn import MlVae, MlVaeConfig
from mlvae.stage import log
from mlvae.systems.align import Aligner, drawn, load_aligner, new_aligner
from mlvae.systems.base import Setup
from mlvae.systems.judge import (
    JUDGE,
    AlignerName,
    JudgeConfig,
    SearchedModel,
    Trusted,
    fit_judge,
    keep_judge,
    load_judge,
    scale_report,
    some_cuts,
)
from mlvae.systems.localize import TrainedMlVae
from mlvae.tiers import tier, with_units
from mlvae.train import Decoding, EStep, TrainConfig, Trainer, distributed
from mlvae.train.estep import search_compiler
from mlvae.train.loop import (
    Passes,
    keep_passes,
    load_model,
    read_metadata,
    save_model,
    weights_digest,
)
from mlvae.train.selection import choose_scale
from mlvae.train.settings import CalibrationConfig
from mlvae.train.splices import Finder, Found, Lateness, fit_lateness, spliced

#: Cuts that recordings are spliced of, at most.
SPLICED_CUTS = 2000


@dataclass
class MlVaeSettings(Settings):
    """Settings of a system of kind ``ml_vae``."""

    model: MlVaeConfig = field(default_factory=MlVaeConfig)  # sizes of the networks
    #: training, and the acceptor that is searched.
    train: TrainConfig = field(default_factory=TrainConfig)
    #: How the acoustic scale is chosen after training.
    calibration: CalibrationConfig = field(default_factory=CalibrationConfig)
    #: Whether P(mispronounced) and what is flagged are a judge's, see :mod:`mlvae.systems.judge`;
    #: otherwise they are those of the acceptor, as in the paper. A judge is fitted to the model's
    #: own answers where ``train.trusted_f1`` trusts them, and to units that are replaced elsewhere.
    judged: bool = False
    judge: JudgeConfig = field(default_factory=JudgeConfig)  # how it is fitted
    #: Whether features are adapted to each speaker after training, without annotation, where the
    #: judge is fitted and in localisation; see :mod:`mlvae.train.adaptation`.
    adapted: bool = False
    #: Whose boundaries units get: the best ``path``'s; those of an ``aligner``, a narrow model that
    #: aligns what was perceived once more; or of ``both``: the path's, and the aligner's beside
    #: units that were left out, where the path has none.
    boundaries: Literal["path", "aligner", "both"] = "path"
    #: Whether boundaries are moved by how late they are found in spliced recordings, see
    #: :mod:`mlvae.train.splices`.
    in_time: bool = False


def train_ml_vae(setup: Setup, train_cuts: CutSet, valid_cuts: CutSet) -> dict:
    """Train a system, choose its scale, and train its boundary aligner.

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
    init = None if setup.init is None else setup.init / "model.safetensors"
    if init is not None:
        fixed["init"] = file_digest(init)
    # Boundaries of another run must not be taken for those of this one if it is killed.
    remove_made(folder / "boundaries.safetensors")
    training = Trainer(  # what it holds is of no use from here on, and large
        model,
        train_cuts,
        valid_cuts,
        dataset,
        settings.train,
        folder,
        device,
        seed,
        fixed,
        init,
    ).fit()
    give_back_memory()
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
    as_it_was = init is not None and training["best_iteration"] == 0
    if as_it_was and (kept := read_metadata(init).get("decoding")):
        decoding, losses = Decoding(**kept), {}  # what a few recordings say is less
    metadata["decoding"] = asdict(decoding)
    save_model(path, model, metadata)
    training.update(scale_report(decoding, losses, setup))
    system = SearchedModel(
        model.to(device), settings.train.topology, decoding, dataset, device, settings.adapted
    )
    boundary_aligner = None
    if settings.boundaries != "path":
        checkpoint = folder / "boundaries-checkpoint.safetensors"
        boundary_aligner, its_training = train_boundary_aligner(
            system, setup, train_cuts, keeper.state.passes, checkpoint
        )
        boundary_aligner.save(folder / "boundaries.safetensors")
        remove_made(checkpoint)
        for name in ("num_params", "training_seconds"):
            training[name] += its_training[name]
    if settings.in_time:
        kept = read_metadata(init).get("late") if as_it_was else None
        if kept is None:
            late = measure_lateness(system, boundary_aligner, setup, train_cuts)
            kept = {finder: asdict(one) for finder, one in late.items()}
        metadata["late"] = kept
        save_model(path, model, metadata)
        training["late"] = {finder: one["constant"] for finder, one in kept.items()}
    if settings.judged:
        aligner = load_aligner(setup, train_cuts)
        if as_it_was and (setup.init / JUDGE).is_file():
            aligners = _aligners(aligner, boundary_aligner)
            judge = load_judge(setup.init / JUDGE, system, aligners, setup.table)
        else:
            trusted = Trusted(train_cuts, boundary_aligner) if training["trusted"] else None
            judge = fit_judge(system, valid_cuts, aligner, settings.judge, seed, trusted)
        training["judge"] = keep_judge(judge, setup)
    keeper.remove()
    return training


def _aligners(forced: Aligner, boundary: Aligner | None) -> dict[AlignerName, Aligner]:
    return {"fa": forced} if boundary is None else {"fa": forced, "boundaries": boundary}


def train_boundary_aligner(
    system: SearchedModel,
    setup: Setup,
    cuts: CutSet,
    passes: Passes | None = None,
    checkpoint: Path | None = None,
) -> tuple[Aligner, dict]:
    """Train an aligner on what the system perceived in the training cuts.

    Args:
        system: whose boundaries it is for.
        setup: where it is trained.
        cuts: training cuts with features.
        passes: what an earlier run has done of the search; None: nothing.
        checkpoint: of the aligner's training, see there.

    Returns:
        The aligner, and what :meth:`Aligner.train` returns.

    Raises:
        ValueError: in no cut was anything perceived that is long enough.
    """
    config, dataset, device = setup.config, setup.dataset, setup.device
    chosen = drawn({cut.id: cut.num_frames for cut in cuts}, setup.seed)
    cuts = CutSet.from_cuts(cut for cut in cuts if cut.id in chosen)
    compiler = search_compiler(system.model, system.topology, system.decoding)
    # Its graphs are of no use while the aligner is trained.
    found = (
        EStep(compiler, cuts, dataset, config.align.search_frames)
        .run(system.model, system.decoding, device, passes=passes)
        .spans
    )
    perceived = []
    for cut in cuts:
        spoken = [s for s in found.get(cut.id, []) if s.kind == "unit" and not s.is_deletion]
        if spoken:
            units = [s.perceived if s.perceived >= 0 else s.unit for s in spoken]
            words = [s.word for s in spoken]
            perceived.append(with_units(cut, dataset.table.units(units), words))
    give_back_memory()
    states = config.align.model.states_per_unit
    long_enough = CutSet.from_cuts(
        cut for cut in perceived if states * len(canonical_units(cut)) <= cut.num_frames
    )
    if not len(long_enough):
        raise ValueError(
            f"no training cut has {states} frames for each unit that was perceived in it: there is "
            "nothing to train the boundary aligner on"
        )
    aligner = new_aligner(setup, cuts)
    init = None if setup.init is None else setup.init / "boundaries.safetensors"
    if init is not None and not init.is_file():
        init = None
    return aligner, aligner.train(long_enough, dataset.plain(), setup.seed, checkpoint, init)


def measure_lateness(
    system: SearchedModel, boundary_aligner: Aligner | None, setup: Setup, cuts: CutSet
) -> dict[Finder, Lateness]:
    """How late a system finds boundaries, by who finds those that are used.

    Args:
        system: whose paths are searched.
        boundary_aligner: of the system; None: it has none.
        setup: the system and where it is trained.
        cuts: with features, audio and the tier ``fa``. Without audio nothing is measured.
    """
    joints, made = {}, []
    for cut, own in spliced(some_cuts(cuts, SPLICED_CUTS), setup.seed):
        joints[cut.id] = own
        made.append(fastcopy(cut, recording=None))  # its audio is of no more use, and large
    if not made:
        log(f"{setup.name}: no audio can be read: boundaries are taken to be in time")
        return {}
    recordings = CutSet.from_cuts(made)
    dataset = UnitDataset(setup.table, setup.dataset.deltas, setup.dataset.cache_mb)
    found: dict[Finder, list[Found]] = {}
    if setup.settings.boundaries != "aligner":
        compiler = search_compiler(system.model, system.topology, system.decoding)
        search = EStep(compiler, recordings, dataset, setup.config.align.search_frames)
        found["path"] = []
        for name, spans in search.run(system.model, system.decoding, system.device).spans.items():
            units = [span for span in spans if span.kind == "unit"]
            symbols = setup.table.units(span.unit for span in units)
            for place, seconds in joints[name]:
                if not (units[place - 1].mispronounced or units[place].mispronounced):
                    late = units[place].start * FRAME_SHIFT - seconds
                    found["path"].append(Found(symbols[place - 1], symbols[place], late))
    if boundary_aligner is not None:
        found["aligner"] = []
        for cut in boundary_aligner.align(recordings, dataset.plain())[0]:
            items = tier(cut, "fa")
            for place, seconds in joints[cut.id]:
                before, after = items[place - 1], items[place]
                found["aligner"].append(Found(before.symbol, after.symbol, after.start - seconds))
    late = {finder: fit_lateness(some) for finder, some in found.items()}
    for finder, one in late.items():
        log(
            f"{setup.name}: boundaries of the {finder} are late by {1000 * one.constant:.1f} ms at "
            f"{one.joints} joints of {len(made)} spliced recordings"
        )
    return late


def load_ml_vae(setup: Setup, cuts: CutSet) -> TrainedMlVae:
    """Read a trained system.

    Args:
        setup: the system, and where it was trained.
        cuts: some cuts with features; their dimension counts.

    Raises:
        ValueError: it has not been trained, or with another configuration; names the file.
    """
    settings, device = setup.settings, setup.device
    model = new_model(setup, cuts)
    metadata = load_model(setup.folder / "model.safetensors", model)
    decoding = Decoding(**metadata.get("decoding", asdict(settings.train.decoding)))
    aligner = None
    if settings.boundaries != "path":
        aligner = new_aligner(setup, cuts)
        aligner.load(setup.folder / "boundaries.safetensors")
    system = TrainedMlVae(
        model.to(device),
        settings.train.topology,
        decoding,
        setup.dataset,
        device,
        settings.adapted,
        boundary_aligner=aligner,
        only_left_out=settings.boundaries == "both",
        late={finder: Lateness(**one) for finder, one in metadata.get("late", {}).items()},
    )
    if settings.judged:
        aligners = _aligners(load_aligner(setup, cuts), aligner)
        judge = load_judge(setup.folder / JUDGE, system, aligners, setup.table)
        system = replace(system, judge=judge)
    return system


def new_model(setup: Setup, cuts: CutSet) -> MlVae:
    """The networks of a system, initialised by the seed."""
    seed_everything(setup.seed)
    return MlVae(
        setup.dataset.features(cuts[0]).shape[1],
        len(setup.table),
        setup.config.silence,
        setup.settings.model,
        setup.settings.train.states_per_unit,
        setup.settings.train.generator,
        setup.settings.train.boundary_detector,
    )
