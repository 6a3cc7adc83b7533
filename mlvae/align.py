"""Forced alignment from a flat start: a narrow model, rounds of training and realigning.

Nothing but features and canonical units is used. The first targets divide each utterance evenly
among its units and each unit among its states; then a narrow acoustic model is trained on the
targets, and the best path of the ``single`` topology under it gives new targets.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.supervision import AlignmentItem
from tqdm import tqdm

from mlvae.data.dataset import UnitDataset, make_sampler
from mlvae.data.units import UnitTable, canonical_units
from mlvae.device import num_parameters, seed_everything
from mlvae.em.checkpoint import load_model, save_model
from mlvae.em.targets import items_of_spans
from mlvae.fsa import MlFsaCompiler, UnitSpan, best_columns, best_path
from mlvae.nn import NarrowAcousticModel, NarrowAcousticModelConfig
from mlvae.pronunciations import canonical_spans, graph_units, places_of_slots, spoken_differs
from mlvae.stage import log
from mlvae.tiers import with_tiers


@dataclass
class AlignConfig:
    """How the aligner is trained.

    Attributes:
        model: sizes of the narrow acoustic model, with its states a unit.
        rounds: rounds of training and realigning.
        epochs_per_round: passes over all frames a round.
        batch_frames: frames a step; they are drawn from all cuts.
        learning_rate: of Adam.
        search_frames: largest batch of the search, in frames with padding.
    """

    model: NarrowAcousticModelConfig = field(default_factory=NarrowAcousticModelConfig)
    rounds: int = 8
    epochs_per_round: int = 2
    batch_frames: int = 2048
    learning_rate: float = 1e-3
    search_frames: int = 20000


class Aligner:
    """A narrow acoustic model with its state prior and its search.

    Args:
        num_features: feature dimension F.
        num_units: units N.
        silence: whether silence is optional at edges and between words.
        config: how to train.
        device: where to run.
    """

    def __init__(
        self,
        num_features: int,
        num_units: int,
        silence: bool,
        config: AlignConfig,
        device: torch.device,
    ) -> None:
        self.config = config
        self.device = device
        states = config.model.states_per_unit
        self.compiler = MlFsaCompiler(
            num_units, topology="single", states_per_unit=states, silence=silence
        )
        self.model = NarrowAcousticModel(num_features, num_units, silence, config.model).to(device)
        columns = self.compiler.layout.num_posteriors
        self.model.register_buffer("log_prior", torch.zeros(columns, device=device))

    def train(self, cuts: CutSet, dataset: UnitDataset, seed: int) -> dict:
        """Train from a flat start; return what ``training.json`` says.

        Args:
            cuts: training cuts with features, each with at least as many frames as states.
            dataset: gives features and units.
            seed: of initial weights, order and dropout.
        """
        began = time.monotonic()
        seed_everything(seed)
        self.model.apply(_reset)
        cuts = list(cuts)
        features = [dataset.features(cut) for cut in cuts]
        units = [dataset.table.ids(cut.supervisions[0].custom["units"], cut.id) for cut in cuts]
        frames = torch.cat(features)
        self.model.scale.set(frames.pow(2).mean(0).sqrt())
        padded, position = _with_margins(features, self.config.model.context)
        layout = self.compiler.layout
        silence = layout.num_states if layout.silence else None
        targets = [
            _flat_start(len(matrix), sequence, layout.states_per_unit, silence)
            for matrix, sequence in zip(features, units)
        ]
        scores = []
        optimizer = torch.optim.Adam(self.model.parameters(), lr=self.config.learning_rate)
        rounds = tqdm(
            range(self.config.rounds), desc="align", unit="round", leave=False, disable=None
        )
        for number in rounds:
            target = torch.cat(targets)
            self._set_prior(target)
            loss = self._train_round(padded, position, target, optimizer)
            score, targets = self._realign(CutSet.from_cuts(cuts), dataset)
            scores.append(score)
            log(f"round {number + 1}: loss {loss:.4f}, path score {score:.4f} a frame")
        self._set_prior(torch.cat(targets))
        return {
            "num_params": num_parameters(self.model),
            "training_seconds": round(time.monotonic() - began, 1),
            "path_scores": scores,
        }

    def align(self, cuts: CutSet, dataset: UnitDataset) -> tuple[CutSet, list[str]]:
        """Add the tier ``fa``; item scores are mean log scores a frame.

        It has one item a canonical unit. A cut that was found to be spoken in other pronunciations
        than the canonical ones also has ``fa_spoken``, see :mod:`mlvae.pronunciations`.

        Returns:
            The cuts with the tier, in their order, and the ids of those too short for their states.
        """
        found = {}
        for cut_ids, graphs, emissions in self._search(cuts, dataset):
            found.update(zip(cut_ids, best_path(graphs, emissions)))
        aligned, short = [], []
        for cut in cuts:
            spans = found[cut.id]
            if not spans:
                short.append(cut.id)
                continue
            places = places_of_slots(cut, dataset.table)
            tiers = {"fa": spans}
            if places is not None:
                units = dataset.table.ids(canonical_units(cut), cut.id)
                tiers["fa"] = canonical_spans(spans, places, units)
                if spoken_differs(spans, places, units):
                    tiers["fa_spoken"] = spans
            aligned.append(
                with_tiers(
                    cut,
                    {name: _items(cut, found, dataset.table) for name, found in tiers.items()},
                )
            )
        return CutSet.from_cuts(aligned), short

    def save(self, path: Path) -> None:
        """Write weights, scale and prior."""
        save_model(path, self.model, {"config": asdict(self.config)})

    def load(self, path: Path) -> None:
        """Read what :meth:`save` wrote; ValueError names a file that does not fit."""
        load_model(path, self.model)

    def _train_round(self, padded, position, target, optimizer) -> float:
        self.model.train()
        width = 2 * self.config.model.context + 1
        offsets = torch.arange(width) - self.config.model.context
        total = 0.0
        for _ in range(self.config.epochs_per_round):
            total = 0.0
            for index in torch.randperm(len(position)).split(self.config.batch_frames):
                windows = padded[position[index].unsqueeze(1) + offsets].to(self.device)
                log_probs = self.model.middle_frame(windows)
                loss = F.nll_loss(log_probs, target[index].to(self.device))
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                total += float(loss.detach()) * len(index)
        return total / max(len(position), 1)

    def _realign(self, cuts: CutSet, dataset: UnitDataset) -> tuple[float, list[torch.Tensor]]:
        """Mean path score a frame, and the state of each frame of each cut."""
        columns: dict[str, torch.Tensor] = {}
        total = torch.zeros((), dtype=torch.float64)
        for cut_ids, graphs, emissions in self._search(cuts, dataset):
            total += sum(span.score for spans in best_path(graphs, emissions) for span in spans)
            found = best_columns(graphs, emissions)
            for name, row, length in zip(cut_ids, found, emissions.num_frames.tolist()):
                columns[name] = row[:length]
        targets = [columns[cut.id] for cut in cuts]
        return float(total) / sum(len(target) for target in targets), targets

    def _search(self, cuts: CutSet, dataset: UnitDataset):
        self.model.eval()
        for batch_cuts in make_sampler(cuts, self.config.search_frames, shuffle=False):
            batch = dataset[batch_cuts]
            with torch.no_grad():
                log_probs = self.model(batch["features"].to(self.device))
                emissions = self.compiler.emissions(
                    log_probs,
                    batch["num_frames"],
                    log_prior=self.model.log_prior,
                    names=batch["cut_ids"],
                )
            units = graph_units(batch_cuts, dataset.table)
            graphs = self.compiler.compile(units, names=batch["cut_ids"])
            yield batch["cut_ids"], graphs, emissions

    def _set_prior(self, target: torch.Tensor) -> None:
        counts = torch.bincount(target, minlength=len(self.model.log_prior)).double() + 1.0
        self.model.log_prior.copy_((counts / counts.sum()).log())


def _items(cut: Cut, spans: Sequence[UnitSpan], table: UnitTable) -> list[AlignmentItem]:
    """The units of an alignment with their mean scores a frame."""
    units = [span for span in spans if span.kind == "unit"]
    scores = [span.score / max(span.end - span.start, 1) for span in units]
    return items_of_spans(cut, units, table.units(span.unit for span in units), scores)


def _reset(module: torch.nn.Module) -> None:
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()


def _with_margins(features: list[torch.Tensor], context: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All frames in one matrix with ``context`` zero rows around each cut, and where frames lie."""
    margin = features[0].new_zeros(context, features[0].shape[1])
    rows: list[torch.Tensor] = [margin]
    position = []
    begin = context
    for matrix in features:
        rows += [matrix, margin]
        position.append(torch.arange(begin, begin + len(matrix)))
        begin += len(matrix) + context
    return torch.cat(rows), torch.cat(position)


def _flat_start(
    num_frames: int, units: list[int], states: int, silence: int | None = None
) -> torch.Tensor:
    """States of an utterance that is divided evenly, int64 (num_frames,).

    With ``silence``, the column of silence, the utterance begins and ends with a share of it.
    """
    columns = (torch.tensor(units).unsqueeze(1) * states + torch.arange(states)).flatten()
    if silence is not None:
        edge = torch.full((states,), silence)
        columns = torch.cat([edge, columns, edge])
    return columns[torch.arange(num_frames) * len(columns) // num_frames]
