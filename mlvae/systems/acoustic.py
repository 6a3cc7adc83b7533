"""Acoustic models of other people as systems: a CTC model, or any that gives posteriors of phones.

No network is trained. The posteriors of a model (:mod:`mlvae.acoustic`) take the place of the
phoneme estimator's in an ML-VAE of topology ``substitution`` with units of one state. What is
estimated are its prior, how many units there are a second, how often units are mispronounced and as
what (:mod:`mlvae.train.confusion`), the acoustic scale (:mod:`mlvae.train.selection`) and, where it
is wanted, a judge (:mod:`mlvae.systems.judge`).

CTC says each unit for a frame or two and *blank* in between. Blank, with all that is no unit, is a
column of its own, which the acceptor may read between any two units, as CTC itself does: as
``silence="everywhere"`` of :class:`mlvae.fsa.MlFsaCompiler`. So a unit must have a frame in which
the model says it, or another unit in its place, and blank frames count neither way. Units of the
best path are as short as what the model says of them. Their times are therefore those of forced
alignment of what was perceived, by the aligner of stage 3 (``boundaries: aligner``). Where a model
says units as long as they last, ``path`` keeps its own.

Where one needs posteriors of units alone, as goodness of pronunciation does, they are those given
that the frame is of a unit; in frames in which hardly any unit is likely they tend to the prior.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from lhotse import CutSet
from lhotse.cut import Cut
from safetensors.torch import save_file
from torch import nn

from mlvae.acoustic.models import Onnx, StoredPosteriors, Transformers, Wav2Vec, folder_files
from mlvae.acoustic.posteriors import PosteriorDataset
from mlvae.acoustic.symbols import IPA, IPA_TABLE, SymbolMap, map_symbols, read_map, read_tokens
from mlvae.bounds import Bounds, Count, Settings
from mlvae.data.units import UnitTable, canonical_units
from mlvae.made import file_digest
from mlvae.nn import Posteriors, wav2vec
from mlvae.stage import log, progress
from mlvae.systems.align import load_aligner
from mlvae.systems.base import Setup
from mlvae.systems.judge import (
    JUDGE,
    JudgeConfig,
    SearchedModel,
    fit_judge,
    keep_judge,
    load_judge,
    scale_report,
)
from mlvae.systems.localize import TrainedMlVae
from mlvae.train import Decoding, EStep
from mlvae.train.confusion import acoustic_confusions, estimate_confusions
from mlvae.train.estep import search_compiler
from mlvae.train.loop import MODEL, Passes, keep_passes, load_model, read_metadata, save_model
from mlvae.train.selection import choose_scale
from mlvae.train.settings import CalibrationConfig
from mlvae.train.targets import spans_of_tier

TOPOLOGY = "substitution"
#: Of audio, in Hz.
SamplingRate = Annotated[int, Bounds(1000, 384_000)]
#: Where in the folder of a system its acoustic model lies once it is packed.
OWN = "acoustic"
_NAMES = {"wav2vec2": "model.safetensors", "onnx": "model.onnx", "transformers": ""}
#: Packages that read a model, on whose versions answers depend.
_PACKAGES = {"onnx": "onnxruntime", "transformers": "transformers"}
#: Least prior of a unit, and of nothing: a model without a blank must not be free to say nothing.
LEAST_UNIT, LEAST_NOTHING = 1e-4, 0.01
#: Posterior of all units together that counts as much as the prior of each, where posteriors given
#: that a frame is of a unit are wanted.
ANY_UNIT = 1e-2


@dataclass
class AcousticSettings(Settings):
    """Settings of a system of kind ``acoustic``."""

    #: How the model is read; see :mod:`mlvae.acoustic.models`.
    adapter: Literal["wav2vec2", "transformers", "onnx", "stored"] = "transformers"
    #: File or folder of the model; empty: as packing has left it in the system's folder. Of no use
    #: to ``stored``.
    path: str = ""
    #: File with the symbols of its outputs; empty: ``tokens.txt`` beside the model. A folder of
    #: ``transformers`` has its own.
    tokens: str = ""
    #: Table of symbols and units, see :func:`mlvae.acoustic.symbols.read_map`; ``ipa``: the one
    #: that comes along; empty: by name.
    map: str = ""
    #: Of ``onnx``: of the audio that the model was trained on, in Hz.
    sampling_rate: SamplingRate = 16000
    array: str = "posteriors"  # of ``stored``: the custom field of the cuts that has the posteriors
    #: Training cuts that are used, the first ones in the order of their ids, and as many validation
    #: cuts.
    max_cuts: Count = 1000
    #: How posteriors become scores, and what may be perceived.
    decoding: Decoding = field(default_factory=lambda: Decoding(acoustic_scale=0.3))
    #: How the acoustic scale is chosen.
    calibration: CalibrationConfig = field(
        default_factory=lambda: CalibrationConfig(scales=[0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0])
    )
    judged: bool = False  # whether P(mispronounced) and what is flagged are a judge's
    #: How it is fitted; its expected rate is also what the acceptor begins with.
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    #: Whose boundaries units get: the best ``path``'s, or those of the ``aligner`` of stage 3,
    #: which aligns what was perceived.
    boundaries: Literal["path", "aligner"] = "aligner"


class PosteriorNetwork(nn.Module):
    """Stands where an :class:`mlvae.nn.MlVae` does, and gives the posteriors that it is given.

    "Features" are log-posteriors of N units and of nothing, (B, T, N + 1).

    Args:
        shares: float32 (V, N), see :class:`mlvae.acoustic.symbols.SymbolMap`.
    """

    states_per_unit = 1
    silence = "everywhere"

    def __init__(self, shares: torch.Tensor) -> None:
        super().__init__()
        self.num_units = num_units = shares.shape[1]
        self.register_buffer("shares", shares)
        self.register_buffer("log_prior", torch.zeros(num_units + 1))
        #: Log-probabilities that no unit starts in a frame, and that one does.
        self.register_buffer("log_boundary", torch.tensor([0.9, 0.1]).log())
        self.register_buffer("log_correctness", torch.tensor([0.85, 0.15]).log())
        self.register_buffer("log_confusion", torch.zeros(num_units, num_units))

    def forward(self, features: torch.Tensor, num_frames: torch.Tensor) -> Posteriors:
        """As that of :class:`mlvae.nn.MlVae`.

        A unit that no symbol stands for is as likely as the likeliest other one, so that it is
        never called wrong.
        """
        units, known = features, self._known()
        if not bool(known.all()):
            ratio = (features - self.log_prior)[..., :-1]
            best = ratio[..., known].amax(-1, keepdim=True) + self.log_prior[:-1]
            of_units = torch.where(known, features[..., :-1], best.clamp(max=0.0))
            units = torch.cat([of_units, features[..., -1:]], dim=-1)
        shape = (*features.shape[:2], 2)
        return Posteriors(
            units, self.log_boundary.expand(shape), self.log_correctness.expand(shape)
        )

    def scale(self, features: torch.Tensor) -> torch.Tensor:
        """Nothing is scaled."""
        return features

    def estimator(self, features: torch.Tensor, num_frames: torch.Tensor) -> torch.Tensor:
        """Log-posteriors of units given that a frame is of a unit, float (B, T, N)."""
        probs = features[..., :-1].exp()
        found = probs + ANY_UNIT * self.log_prior[:-1].softmax(0)
        known = self._known()
        if not bool(known.all()):
            found = torch.where(known, found, found[..., known].amax(-1, keepdim=True))
        return (found / (probs.sum(-1, keepdim=True) + ANY_UNIT)).clamp(max=1.0).log()

    def unit_probs(self, log_probs: torch.Tensor) -> torch.Tensor:
        """Probabilities of units, (B, T, N)."""
        return log_probs.exp()

    def _known(self) -> torch.Tensor:
        """Bool (N,), of which units there is a symbol."""
        return self.shares.sum(0) > 0


@dataclass(frozen=True)
class TrainedAcoustic(TrainedMlVae):
    """A system of kind ``acoustic`` that is ready to answer."""

    def check(self, cut: Cut) -> None:
        """Raise ValueError with the reason where the acoustic model cannot read a cut."""
        self.dataset.features(cut)

    def localize(self, cuts: CutSet, passes: Passes | None = None) -> tuple[CutSet, list[str]]:
        """As of :class:`TrainedMlVae`; cuts that cannot be read have a line in the log."""
        usable = usable_cuts(cuts, self.dataset, "acoustic")
        if not usable:
            return CutSet.from_cuts([]), list(cuts.ids)
        found, short = super().localize(CutSet.from_cuts(usable), passes)
        known = {cut.id for cut in usable}
        return found, [*(name for name in cuts.ids if name not in known), *short]


def usable_cuts(cuts: Sequence[Cut], dataset: PosteriorDataset, name: str) -> list[Cut]:
    """The cuts that have posteriors; a line in the log for each of the others."""
    usable = []
    for cut in progress(cuts, f"{name}, posteriors", "cut", len(cuts)):
        try:
            dataset.features(cut)
        except ValueError as error:
            log(f"{name}: left out: {error}")
        else:
            usable.append(cut)
    return usable


def train_acoustic(setup: Setup, train_cuts: CutSet, valid_cuts: CutSet) -> dict:
    """Estimate what goes with an acoustic model; a killed run goes on from what is searched.

    Args:
        setup: the system and where it is trained.
        train_cuts: cuts with features, audio (or stored posteriors) and the tier ``fa``.
        valid_cuts: the same, for the scale and the judge.

    Returns:
        What ``training.json`` says.

    Raises:
        ValueError: the model or its table cannot be used, or no cut has posteriors.
    """
    settings: AcousticSettings = setup.settings
    name, table, device, folder = setup.name, setup.table, setup.device, setup.folder
    source, symbols = _source_and_map(settings, table, device)
    log(f"{name}: {settings.adapter}: {symbols.describe()}")
    dataset = PosteriorDataset(table, source, symbols, setup.dataset.cache_mb)
    train, valid = (
        CutSet.from_cuts(
            usable_cuts(sorted(cuts, key=lambda cut: cut.id)[: settings.max_cuts], dataset, name)
        )
        for cuts in (train_cuts, valid_cuts)
    )
    if not len(train) or not len(valid):
        raise ValueError(f"{name}: the acoustic model can read no training or validation cut")
    if len(table) - len(symbols.missing) < 2:
        raise ValueError(
            f"{name}: symbols stand for a single unit: nothing can be said in its place"
        )
    model = PosteriorNetwork(symbols.matrix).to(device)
    digest = _digest(settings.adapter, Path(settings.path))
    keeper = keep_passes(
        folder / "scale-checkpoint.safetensors",
        {**asdict(settings), "model": digest, "shares": symbols.matrix.tolist()},
        setup.seed,
        [train, valid],
    )
    passes = keeper.state.passes
    _estimate(model, train, dataset, settings, device, passes)
    decoding, losses = choose_scale(
        model,
        valid,
        dataset,
        TOPOLOGY,
        settings.decoding,
        settings.calibration,
        device,
        setup.seed,
        passes,
    )
    training: dict[str, Any] = {
        "num_params": source.num_params,
        "acoustic_scale": decoding.acoustic_scale,
        "scale_log_loss": losses,
        "warnings": [],
        **scale_report(decoding, losses, setup),
        "mispronunciation_rate": float(model.log_correctness[1].exp()),
        "symbols_of_no_unit": list(symbols.unused),
        "units_without_symbol": list(symbols.missing),
    }
    metadata = {
        "config": {"adapter": settings.adapter},
        "decoding": asdict(decoding),
        "symbols": list(source.symbols),
        "units": list(table.symbols),
        "model": digest,
    }
    save_model(folder / MODEL, model, metadata)
    if settings.judged:
        system = SearchedModel(model, TOPOLOGY, decoding, dataset, device)
        judge = fit_judge(system, valid, load_aligner(setup, valid), settings.judge, setup.seed)
        training["judge"] = keep_judge(judge, setup)
    training["training_seconds"] = round(keeper.seconds, 1)
    keeper.remove()
    return training


def _source_and_map(settings: AcousticSettings, table: UnitTable, device: torch.device):
    """The acoustic model that settings name, and what its symbols stand for."""
    if settings.adapter != "stored" and not settings.path:
        raise ValueError(f"adapter {settings.adapter} wants a model: say its path")
    symbols: Sequence[str] = ()
    if settings.adapter != "transformers":
        beside = Path(settings.path)
        beside = (beside.parent if beside.is_file() else beside) / "tokens.txt"
        symbols = read_tokens(Path(settings.tokens) if settings.tokens else beside)
    source = _source(settings, Path(settings.path), symbols, device)
    known = None
    if settings.map:
        known = read_map(IPA_TABLE if settings.map == IPA else Path(settings.map))
    return source, map_symbols(source.symbols, table.symbols, known, source.blank)


def _source(settings: AcousticSettings, path: Path, symbols: Sequence[str], device: torch.device):
    if settings.adapter == "stored":
        return StoredPosteriors(settings.array, symbols)
    if settings.adapter == "transformers":
        return Transformers(path, device)
    if settings.adapter == "onnx":
        return Onnx(path, symbols, settings.sampling_rate)
    return Wav2Vec(path, symbols, device)


def _digest(adapter: str, path: Path) -> str:
    """What is equal for equal models; empty where posteriors are stored."""
    if adapter == "stored":
        return ""
    names = folder_files(path) if adapter == "transformers" else [""]
    return " ".join(file_digest(path / name) for name in names)


def _estimate(
    model: PosteriorNetwork,
    cuts: CutSet,
    dataset: PosteriorDataset,
    settings: AcousticSettings,
    device: torch.device,
    passes: Passes,
) -> None:
    """Set prior, rates and confusions of a model by training cuts."""
    table = dataset.table
    found = [dataset.features(cut).double().exp() for cut in cuts]
    frames = sum(map(len, found))
    prior = torch.stack([one.sum(0) for one in found]).sum(0) / frames
    prior = torch.cat([prior[:-1].clamp(min=LEAST_UNIT), prior[-1:].clamp(min=LEAST_NOTHING)])
    model.log_prior.copy_((prior / prior.sum()).log())
    units = {cut.id: table.ids(canonical_units(cut), cut.id) for cut in cuts}
    start = min(max(sum(map(len, units.values())) / frames, 1e-3), 0.5)
    model.log_boundary.copy_(torch.tensor([1 - start, start]).log())
    rate = settings.judge.rates.expected
    model.log_correctness.copy_(torch.tensor([1 - rate, rate]).log())
    spans = {cut.id: spans_of_tier(cut, "fa", units[cut.id]) for cut in cuts}
    confused = acoustic_confusions(model, cuts, dataset, spans, device)
    known = model.shares.sum(0).cpu() > 0
    if bool(known.any()) and not bool(known.all()):  # what no symbol stands for is never perceived
        confused[:, ~known] = -torch.inf
        confused = confused.log_softmax(1)
    model.log_confusion.copy_(confused)
    search = EStep(search_compiler(model, TOPOLOGY, settings.decoding), cuts, dataset, 8000)
    paths = search.run(model, settings.decoding, device, passes).spans
    correctness, confusion = estimate_confusions(
        paths, len(table), prior_rate=rate, log_prior=confused
    )
    model.log_correctness.copy_(correctness)
    model.log_confusion.copy_(confusion)


def load_acoustic(setup: Setup, cuts: CutSet) -> TrainedAcoustic:
    """Read what :func:`train_acoustic` wrote, and the acoustic model.

    Args:
        setup: the system, and where it was trained.
        cuts: some cuts with features; their dimension counts.

    Raises:
        ValueError: it has not been trained, is of other units, or the acoustic model is another
            one; names the file.
    """
    settings: AcousticSettings = setup.settings
    path, table, device = setup.folder / MODEL, setup.table, setup.device
    metadata = read_metadata(path)
    if metadata.get("units") != list(table.symbols):
        raise ValueError(f"{path} is of other units than the unit table: run stage 4 again")
    symbols = metadata["symbols"]
    place = setup.folder / OWN / _NAMES.get(settings.adapter, "")
    if settings.path:
        place = Path(settings.path)
        if _digest(settings.adapter, place) != metadata["model"]:
            raise ValueError(f"{place} is another model than in training: run stage 4 again")
    source = _source(settings, place, symbols, device)
    if list(source.symbols) != symbols:
        raise ValueError(f"{place} has other symbols than in training: run stage 4 again")
    model = PosteriorNetwork(torch.zeros(len(symbols), len(table)))
    load_model(path, model)
    decoding = Decoding(**metadata["decoding"])
    dataset = PosteriorDataset(
        table, source, SymbolMap(model.shares, (), ()), setup.dataset.cache_mb
    )
    aligner = load_aligner(setup, cuts)
    system = TrainedAcoustic(
        model.to(device),
        TOPOLOGY,
        decoding,
        dataset,
        device,
        boundary_aligner=aligner if settings.boundaries == "aligner" else None,
    )
    if settings.judged:
        judge = load_judge(setup.folder / JUDGE, system, {"fa": aligner}, table)
        system = replace(system, judge=judge)
    return system


def pack_acoustic(settings: AcousticSettings, folder: Path) -> dict[str, Any]:
    """Copy the acoustic model of a system to a folder, ``acoustic`` below it.

    Returns:
        What ``model.json`` says of it.

    Raises:
        ValueError: it is not where it was, or in no form that may be packed.
    """
    if settings.adapter == "stored":
        return {"adapter": settings.adapter, "array": settings.array}
    source, target = Path(settings.path), folder / OWN
    target.mkdir()
    if settings.adapter == "wav2vec2":
        weights = wav2vec.read_weights(source, output=True)
        save_file({k: v.contiguous() for k, v in weights.items()}, target / "model.safetensors")
    elif settings.adapter == "onnx":
        _copy(source, target / "model.onnx")
    else:
        for name in folder_files(source):
            _copy(source / name, target / name)
        config = json.loads((source / "config.json").read_text(encoding="utf-8"))
        config.pop("_name_or_path", None)  # a path of this machine
        (target / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return {"adapter": settings.adapter, "package": _PACKAGES.get(settings.adapter)}


def _copy(source: Path, target: Path) -> None:
    if not source.is_file():
        raise ValueError(f"{source} is missing: the acoustic model is no longer there")
    shutil.copyfile(source, target)
