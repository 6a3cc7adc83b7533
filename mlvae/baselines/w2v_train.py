"""Fine-tuning of wav2vec 2.0 with CTC, which goes on from its checkpoint after a kill."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.utils import fastcopy
from torch import nn

from mlvae.baselines.ctc import BLANK, fewest_frames
from mlvae.baselines.w2v_ctc import W2vCtcConfig, load_waveform, read_waveform
from mlvae.baselines.wav2vec import (
    LONGEST,
    SECTION,
    Wav2VecCtc,
    find_weights,
    fingerprint,
    pretrained,
)
from mlvae.data.checks import with_audio_digest
from mlvae.data.units import UnitTable, canonical_units
from mlvae.device import num_parameters, seed_everything
from mlvae.made import remove_made
from mlvae.stage import log
from mlvae.stage import progress as shown
from mlvae.tiers import has_tier, units_of_words, with_units
from mlvae.train.loop import (
    Gathered,
    Passes,
    ScalarWriter,
    TrainingState,
    load_checkpoint,
    read_metadata,
    run_identity,
    save_checkpoint,
    save_model,
)
from mlvae.train.stretches import divide, word_times

NO_WEIGHTS = "no weights at hand"
MODEL, CHECKPOINT = "model.safetensors", "checkpoint.safetensors"


def train_w2v(
    config: W2vCtcConfig,
    train_cuts: CutSet,
    valid_cuts: CutSet,
    table: UnitTable,
    folder: Path,
    device: torch.device,
    seed: int,
) -> dict:
    """Fine-tune wav2vec 2.0, if its weights are at hand.

    Args:
        config: how to train, and which weights.
        train_cuts: cuts with audio and canonical units; audio may have any sampling rate.
        valid_cuts: the same, to choose the epoch by.
        table: ids of the units.
        folder: where to write; a killed training goes on from what lies there.
        device: where to run.
        seed: of everything random.

    Returns:
        What ``training.json`` says: ``{"unavailable": reason}`` alone where there are no weights.

    Raises:
        ValueError: the weights that were named cannot be read, or no cut can be used.
    """
    weights = find_weights(config.checkpoint, config.hub_file)
    if weights is None:
        log(
            f"w2v-ctc: {NO_WEIGHTS}: name a checkpoint of wav2vec 2.0 (--w2v-checkpoint FILE), or "
            f"have {config.hub_file} of torchaudio in {torch.hub.get_dir()}/checkpoints"
        )
        return {"unavailable": NO_WEIGHTS}
    seed_everything(seed)
    model = pretrained(weights, len(table), config.dropout, config.layer_drop)
    log(f"w2v-ctc: {num_parameters(model)} parameters of {weights} on {device}")
    tuner = FineTuner(model, config, table, folder, device, seed)
    setup = {"weights": fingerprint(weights), "units": list(table.symbols)}
    return tuner.fit(train_cuts, valid_cuts, setup)


class FineTuner:
    """Trains one model in one folder.

    The folder holds ``checkpoint.safetensors`` (how far training is, written after each epoch and
    every few minutes within it), ``model.safetensors`` (the epoch of the least validation loss) and
    TensorBoard scalars. Cuts pass through the model one by one
    and their gradients are added up, so that a step is what it would be in a batch without padding.

    Args:
        model: to train.
        config: how.
        table: ids of the units.
        folder: where to write.
        device: where to train.
        seed: of everything random.
    """

    def __init__(
        self,
        model: Wav2VecCtc,
        config: W2vCtcConfig,
        table: UnitTable,
        folder: Path,
        device: torch.device,
        seed: int,
    ) -> None:
        self.model = model.to(device)
        self.config = config
        self.table = table
        self.folder = Path(folder)
        self.device = device
        self.seed = seed
        freeze(model, config.frozen_layers)
        output = list(model.network.aux.parameters())
        rest = [p for p in model.network.encoder.parameters() if p.requires_grad]
        self.rates = (config.output_learning_rate, config.learning_rate)
        groups = [{"params": output, "lr": 0.0}, {"params": rest, "lr": 0.0}]
        self.optimizer = torch.optim.Adam([group for group in groups if group["params"]])
        self.passes = Passes()
        self._began = time.monotonic()  # work that no checkpoint has counted yet

    def fit(self, train_cuts: CutSet, valid_cuts: CutSet, setup: dict) -> dict:
        """Train to the end; return what ``training.json`` says.

        Args:
            train_cuts: to learn from.
            valid_cuts: to choose the epoch by.
            setup: JSON values of what makes this run another one besides settings, seed and cuts.
        """
        settings = {key: value for key, value in asdict(self.config).items() if key in _COUNTING}
        usable = {"training": self._usable(train_cuts), "validation": self._usable(valid_cuts)}
        for part, cuts in usable.items():
            if not cuts:
                raise ValueError(f"w2v-ctc: no usable {part} cut")
        identity = run_identity(settings, self.seed, setup, list(usable.values()))
        progress: dict = {"epoch": 0, "best": None, "best_epoch": 0, "seconds": 0.0}
        progress.update(history=[], identity=identity)
        state = TrainingState(
            {"model": self.model}, {"model": self.optimizer}, progress, passes=self.passes
        )
        self._remove_left_overs(identity)
        seed_everything(self.seed)
        if (self.folder / CHECKPOINT).exists():
            load_checkpoint(self.folder / CHECKPOINT, state)
            model = self.folder / MODEL
            kept = read_metadata(model).get("epoch", 0) if model.exists() else 0
            if kept > progress["epoch"]:
                # A kill came between model and checkpoint, and the best model from before is gone.
                # Done again on other hardware, that epoch need not be the best once more.
                progress["best"] = None
            log(f"w2v-ctc: going on after epoch {progress['epoch']} of {self.config.epochs}")
        self.folder.mkdir(parents=True, exist_ok=True)
        purge_step = progress["epoch"] + 1
        with ScalarWriter(self.folder / "tensorboard", purge_step=purge_step) as writer:
            self.passes.save = partial(self._save, state)
            self._began = time.monotonic()
            while progress["epoch"] < self.config.epochs:
                scalars = {
                    "loss/train": self._train_epoch(usable["training"], progress["epoch"]),
                    "loss/valid": self._valid_loss(usable["validation"]),
                }
                progress["epoch"] += 1
                progress["history"].append(scalars)
                if progress["best"] is None or scalars["loss/valid"] < progress["best"]:
                    progress["best"] = scalars["loss/valid"]
                    progress["best_epoch"] = progress["epoch"]
                    metadata = {"units": list(self.table.symbols), "epoch": progress["epoch"]}
                    save_model(self.folder / MODEL, self.model, metadata)
                self.passes.clear()
                self._save(state)
                for name, value in scalars.items():
                    writer.add_scalar(name, value, progress["epoch"])
                log(
                    f"epoch {progress['epoch']}: "
                    + ", ".join(f"{name} {value:.4g}" for name, value in scalars.items())
                )
        trained = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        return {
            "num_params": num_parameters(self.model),
            "num_params_trained": trained,
            "training_seconds": round(progress["seconds"], 1),
            "iterations": progress["epoch"],
            "best_iteration": progress["best_epoch"],
            "criterion": "CTC loss of the canonical units of the validation part",
            "history": progress["history"],
        }

    def _save(self, state: TrainingState) -> None:
        """Write the checkpoint, and the time since the last one."""
        now = time.monotonic()
        state.progress["seconds"] += now - self._began
        self._began = now
        save_checkpoint(self.folder / CHECKPOINT, state)

    def _usable(self, cuts: CutSet) -> list[Cut]:
        """The cuts that CTC can learn from; a line in the log for each of the others.

        They know the digest of the audio that was read, as it makes the run another one.
        """
        kept = []
        cuts = shown(cuts, "w2v-ctc, read audio", "cut", len(cuts))
        for cut in (part for whole in cuts for part in in_parts(whole, self.table)):
            units = self._units(cut)
            try:
                waveform, digest = read_waveform(cut)
            except ValueError as error:
                log(f"w2v-ctc: left out: {error}")
                continue
            found, needed = self.model.num_frames(len(waveform)), fewest_frames(units)
            if found < needed:
                log(f"w2v-ctc: left out: {cut.id}: {found} frames, its units take {needed}")
                continue
            kept.append(with_audio_digest(cut, digest))
        return kept

    def _train_epoch(self, cuts: Sequence[Cut], epoch: int) -> float:
        self.model.train()
        order = list(cuts)
        random.Random(f"{self.seed} {epoch}").shuffle(order)
        size = self.config.batch_cuts
        batches = [order[begin : begin + size] for begin in range(0, len(order), size)]
        losses = Gathered([])
        numbered = self.passes.over(
            enumerate(batches), losses, "w2v-ctc", "cut", len(order), lambda item: len(item[1])
        )
        for number, batch in numbered:
            self._set_learning_rates(epoch * len(batches) + number)
            self.optimizer.zero_grad(set_to_none=True)
            for cut in batch:
                loss = self._loss(cut)
                (loss / len(batch)).backward()
                losses.value.append(float(loss.detach()))
            if self.config.gradient_clip > 0:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.config.gradient_clip)
            self.optimizer.step()
        return sum(losses.value) / len(losses.value)

    def _valid_loss(self, cuts: Sequence[Cut]) -> float:
        self.model.eval()
        losses = Gathered([])
        name = "w2v-ctc, validation"
        with torch.no_grad():
            for cut in self.passes.over(cuts, losses, name, "cut", len(cuts), lambda _: 1):
                losses.value.append(float(self._loss(cut)))
        return sum(losses.value) / len(cuts)

    def _loss(self, cut: Cut) -> torch.Tensor:
        """CTC loss a canonical unit."""
        units = self._units(cut)
        log_probs = self.model(load_waveform(cut).to(self.device))
        target = torch.tensor(units, device=self.device) + 1
        lengths = (torch.tensor([len(log_probs)]), torch.tensor([len(units)]))
        return F.ctc_loss(log_probs.unsqueeze(1), target.unsqueeze(0), *lengths, blank=BLANK)

    def _set_learning_rates(self, step: int) -> None:
        share = min(1.0, (step + 1) / max(self.config.warmup_steps, 1))
        for group, rate in zip(self.optimizer.param_groups, self.rates):
            group["lr"] = rate * share

    def _units(self, cut: Cut) -> list[int]:
        return self.table.ids(canonical_units(cut), cut.id)

    def _remove_left_overs(self, identity: str) -> None:
        """Remove the results of another run.

        Raises:
            ValueError: the best model of this run is gone, or a file is damaged.
        """
        checkpoint = self.folder / CHECKPOINT
        if checkpoint.exists() and read_metadata(checkpoint).get("identity") != identity:
            log(f"{checkpoint} is of another seed, configuration or corpus: starting afresh")
            remove_made(self.folder / MODEL)
            remove_made(checkpoint)
        # Within the first epoch there is no model yet.
        if (
            checkpoint.exists()
            and read_metadata(checkpoint)["best_epoch"]
            and not (self.folder / MODEL).exists()
        ):
            raise ValueError(
                f"{checkpoint} is there without {MODEL}, its best epoch: move it away to start "
                "afresh"
            )


def in_parts(cut: Cut, table: UnitTable) -> list[Cut]:
    """A cut to learn from; one that is too long for the transformer is cut in the pauses of ``fa``.

    Without that tier it stays whole.
    """
    if cut.duration <= LONGEST or not has_tier(cut, "fa"):
        return [cut]
    times, shift = word_times(cut, table), cut.frame_shift
    units = canonical_units(cut)
    word_of = units_of_words(cut) or range(len(units))
    parts = []
    for part in divide(times, cut.num_frames, round(SECTION / shift)):
        begin, end = part.begin * shift, min(part.end * shift, cut.duration)
        own = [
            unit for unit, word in zip(units, word_of) if part.first_word <= word < part.end_word
        ]
        piece = fastcopy(
            cut,
            id=f"{cut.id}[{begin:.2f}-{end:.2f}]",
            start=cut.start + begin,
            duration=end - begin,
        )
        parts.append(with_units(piece, own))
    return parts


#: Settings that make a run another one; a run may be prolonged with more epochs.
_COUNTING = (
    "batch_cuts",
    "learning_rate",
    "output_learning_rate",
    "warmup_steps",
    "frozen_layers",
    "dropout",
    "layer_drop",
    "gradient_clip",
)


def freeze(model: Wav2VecCtc, num_layers: int) -> None:
    """Take the feature extractor out of training, and the lowest transformer layers.

    Raises:
        ValueError: there are fewer layers.
    """
    transformer = model.network.encoder.transformer
    if num_layers > len(transformer.layers):
        raise ValueError(f"frozen_layers is {num_layers}, of {len(transformer.layers)} layers")
    model.network.feature_extractor.requires_grad_(False)
    if num_layers:
        model.network.encoder.feature_projection.requires_grad_(False)
        transformer.pos_conv_embed.requires_grad_(False)
        if transformer.layer_norm_first:  # the transformer's own comes before its layers
            transformer.layer_norm.requires_grad_(False)
    for layer in transformer.layers[:num_layers]:
        layer.requires_grad_(False)
