"""w2v-CTC: wav2vec 2.0 fine-tuned with CTC on the canonical units, then CTC segmentation.

Units are recognised by the best column of each frame, segmented, and compared with the canonical
ones; see :func:`mlvae.systems.two_pass.with_comparison`. Training sees audio and canonical units
alone, wrong ones among them.

The network is that of :mod:`mlvae.nn.wav2vec`.

The segmentation is that of Kürzinger et al., "CTC-segmentation of large corpora" (2020): the best
path of a unit sequence through the posteriors, blanks included, and boundaries in the middle
between neighbouring units, but never further from a unit than a margin. The search is k2's, which
needs no compiler.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import k2
import torch
import torch.nn.functional as F
from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.supervision import AlignmentItem
from lhotse.utils import fastcopy
from torch import nn

from mlvae.acoustic.posteriors import read_waveform
from mlvae.bounds import Count, CountOrNone, Fraction, LearningRate, Settings, Weight
from mlvae.data.checks import with_audio_digest
from mlvae.data.units import UnitTable, canonical_units
from mlvae.device import num_parameters, seed_everything
from mlvae.fsa import MAX_CELLS
from mlvae.fsa.search import WIDER_BEAMS
from mlvae.made import file_digest
from mlvae.nn import wav2vec
from mlvae.nn.wav2vec import (
    SAMPLING_RATE,
    Wav2VecCtc,
    architecture,
    find_weights,
    pretrained,
    torchaudio_name,
)
from mlvae.stage import log
from mlvae.stage import progress as shown
from mlvae.systems.base import Setup
from mlvae.systems.two_pass import with_comparison
from mlvae.tiers import has_tier, units_of_words, with_units
from mlvae.train.loop import (
    CHECKPOINT,
    MODEL,
    Gathered,
    Loop,
    Passes,
    TrainingState,
    read_tensors,
    run_identity,
)
from mlvae.train.stretches import WordTime, divide, stretch_size, word_times

BLANK = 0


def greedy_spans(
    log_probs: torch.Tensor, max_cells: int = MAX_CELLS
) -> tuple[list[int], list[tuple[int, int]]]:
    """Units of the best column of each frame, repetitions and blanks taken out, and their frames.

    There may be any number of frames. What is too large for one search is divided in the longest
    blanks.

    Args:
        log_probs: float (T, N + 1), column 0 the blank, column u + 1 unit u.
        max_cells: largest search, in units x frames.

    Returns:
        Units, 0 to N - 1, and of each what :func:`ctc_spans` gives.
    """
    columns, counts = torch.unique_consecutive(log_probs.argmax(dim=1), return_counts=True)
    spoken = columns != BLANK
    units = (columns[spoken] - 1).tolist()
    num_frames = len(log_probs)
    if len(units) * num_frames <= max_cells:
        return units, ctc_spans(log_probs, units)
    ends = counts.cumsum(0)
    edges = zip((ends - counts)[spoken].tolist(), ends[spoken].tolist())
    times = [WordTime(first, end, 0.0) for first, end in edges]
    size = stretch_size(len(units) * num_frames, num_frames, max_cells, num_frames)
    spans: list[tuple[int, int]] = []
    for part in divide(times, num_frames, size):
        own = ctc_spans(log_probs[part.begin : part.end], units[part.first_word : part.end_word])
        spans += [(part.begin + first, part.begin + end) for first, end in own]
    return units, spans


def ctc_spans(log_probs: torch.Tensor, units: Sequence[int]) -> list[tuple[int, int]]:
    """Frames that the best path of a unit sequence gives to its units.

    Args:
        log_probs: float (T, N + 1), as in :func:`greedy_spans`.
        units: the sequence, 0 to N - 1.

    Returns:
        Of each unit its first frame, inclusive, and its end, exclusive. Blanks may lie between.

    Raises:
        ValueError: a unit is out of range, or there are fewer frames than units and the blanks
            that have to part equal neighbours.
    """
    num_frames, num_columns = log_probs.shape
    if not all(0 <= unit < num_columns - 1 for unit in units):
        raise ValueError(f"units must be 0 to {num_columns - 2}, not {list(units)}")
    if not units:
        return []
    needed = fewest_frames(units)
    if num_frames < needed:
        raise ValueError(f"{num_frames} frames for units that take at least {needed}")
    graph = k2.ctc_graph([[unit + 1 for unit in units]], device=log_probs.device)
    segments = torch.tensor([[0, 0, num_frames]], dtype=torch.int32)
    dense = k2.DenseFsaVec(log_probs.detach().float().unsqueeze(0), segments)
    for beam in WIDER_BEAMS:
        lattice = k2.intersect_dense(graph, dense, output_beam=beam)
        path = k2.shortest_path(lattice, use_double_scores=True)
        if path.num_arcs == num_frames + 1:
            return _spans(path.labels[:-1].tolist(), path.aux_labels[:-1].tolist())
    raise ValueError("the posteriors leave no path to the units")


def fewest_frames(units: Sequence[int]) -> int:
    """Frames that CTC needs: one a unit, and a blank between equal neighbours."""
    return len(units) + sum(a == b for a, b in zip(units[:-1], units[1:]))


def _spans(columns: Sequence[int], starts: Sequence[int]) -> list[tuple[int, int]]:
    """Spans from the column of each frame, and what is above 0 where a unit starts."""
    spans: list[tuple[int, int]] = []
    for frame, (column, starting) in enumerate(zip(columns, starts)):
        if starting > 0:
            spans.append((frame, frame + 1))
        elif column != BLANK:
            spans[-1] = (spans[-1][0], frame + 1)
    return spans


def segment_times(
    spans: Sequence[tuple[int, int]], num_frames: int, duration: float, margin: float
) -> list[tuple[float, float]]:
    """Starts and ends in seconds: neighbours share the blanks between them.

    Args:
        spans: frames of each unit, from :func:`ctc_spans`.
        num_frames: T; frames divide the duration evenly.
        duration: of the audio, in seconds.
        margin: how far a segment may reach beyond the frames of its unit, in seconds.
    """
    shift = duration / num_frames
    times = []
    for index, (first, end) in enumerate(spans):
        before = spans[index - 1][1] if index else -first
        after = spans[index + 1][0] if index + 1 < len(spans) else 2 * num_frames - end
        start = max((before + first) / 2 * shift, first * shift - margin)
        stop = min((end + after) / 2 * shift, end * shift + margin)
        times.append((start, stop))
    return times


NETWORK = "network."
#: Settings that do not make a run another one: it may be prolonged with more epochs, weights count
#: by what is in them, and the margin is of reading.
_NOT_COUNTING = ("checkpoint", "hub_file", "epochs", "margin")


@dataclass
class W2vCtcConfig(Settings):
    """How wav2vec 2.0 is fine-tuned and read.

    The convolutions of the feature extractor are never trained.
    """

    checkpoint: str = ""  # file with the weights to start from; empty: ``hub_file``
    #: File name of one of torchaudio's bundles, taken where torch.hub has downloaded it before;
    #: nothing is downloaded.
    hub_file: str = "wav2vec2_fairseq_base_ls960.pth"
    #: Passes over the training cuts; the one with the least CTC loss on the canonical units of the
    #: validation cuts is kept.
    epochs: Count = 10
    batch_cuts: Count = 8  # cuts a step
    learning_rate: LearningRate = 5e-5  # of Adam, for the pretrained layers
    output_learning_rate: LearningRate = 1e-3  # for the new output layer
    warmup_steps: CountOrNone = 200  # steps in which the learning rates rise evenly from 0
    #: Transformer layers, from the lowest, that are not trained; above 0 the projection before them
    #: is not trained either.
    frozen_layers: CountOrNone = 0
    dropout: Fraction = 0.1  # in the transformer
    #: Probability that a transformer layer is left out of a training step.
    layer_drop: Fraction = 0.05
    gradient_clip: Weight = 1.0  # largest norm of the gradient; 0 for no limit
    margin: Weight = 0.5  # how far a segment may reach beyond the frames of its unit, in seconds


@dataclass
class W2vCtc:
    """A trained recogniser."""

    model: Wav2VecCtc  # the network
    table: UnitTable  # its units
    margin: float  # see :class:`W2vCtcConfig`
    device: torch.device  # where it runs

    def log_probs(self, cut: Cut) -> torch.Tensor:
        """Log-posteriors (T, N + 1) of a cut on CPU.

        Raises:
            ValueError: the audio cannot be read, or is too short for a frame; names the cut.
        """
        waveform = read_waveform(cut, SAMPLING_RATE)[0]
        if self.model.num_frames(len(waveform)) < 1:
            raise ValueError(f"{cut.id}: {len(waveform)} samples are too short for wav2vec 2.0")
        self.model.eval()
        return self.model.log_probs(waveform.to(self.device))

    def recognize(self, cut: Cut) -> list[AlignmentItem]:
        """The units recognised in a cut with their times; the score is their mean probability.

        Raises:
            ValueError: as :meth:`log_probs`.
        """
        log_probs = self.log_probs(cut)
        units, spans = greedy_spans(log_probs)
        times = segment_times(spans, len(log_probs), cut.duration, self.margin)
        items = []
        for unit, (first, end), (start, stop) in zip(units, spans, times):
            score = float(log_probs[first:end, unit + 1].exp().mean())
            symbol = self.table.symbols[unit]
            items.append(AlignmentItem(symbol, round(start, 6), round(stop - start, 6), score))
        return items

    def localize(self, cuts: CutSet, passes: Passes | None = None) -> tuple[CutSet, list[str]]:
        """Add the tiers ``mlvae`` and ``mlvae_perceived``.

        Args:
            cuts: cuts with audio and canonical units.
            passes: what an earlier run has done; None: nothing.

        Returns:
            The cuts with both tiers, in their order, and the ids of those without an answer, for
            each of which there is a line in the log.
        """
        found = Gathered({})
        passes = passes or Passes()
        for cut in passes.over(cuts, found, "w2v-ctc", "cut", len(cuts), lambda _: 1):
            try:
                found.value[cut.id] = self.recognize(cut)
            except ValueError as error:
                log(f"w2v-ctc: no answer: {error}")
        answered = [
            with_comparison(cut, [AlignmentItem(*item) for item in found.value[cut.id]])
            for cut in cuts
            if cut.id in found.value
        ]
        return CutSet.from_cuts(answered), [cut.id for cut in cuts if cut.id not in found.value]


def load_w2v(setup: Setup, cuts: CutSet) -> W2vCtc | None:
    """Read a fine-tuned model; None, and a line in the log, where it could not be trained.

    Raises:
        ValueError: as :func:`read_w2v`.
    """
    path = setup.folder / "training.json"
    training = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if "unavailable" in training:
        log(f"{setup.name}: no answers: {training['unavailable']}")
        return None
    return read_w2v(setup.folder / MODEL, setup.table, setup.settings.margin, setup.device)


def read_w2v(path: Path, table: UnitTable, margin: float, device: torch.device) -> W2vCtc:
    """Read a fine-tuned model; its shape is read off the weights.

    Raises:
        ValueError: the file is absent, damaged, or of other units; names the file.
    """
    tensors, metadata = read_tensors(path)
    symbols: Sequence[str] = metadata.get("units", [])
    if tuple(symbols) != table.symbols:
        raise ValueError(f"{path} is of other units than the unit table: run stage 4 again")
    weights = {torchaudio_name(name[len(NETWORK) :]): value for name, value in tensors.items()}
    model = Wav2VecCtc(architecture(weights), len(table))
    model.network.load_state_dict(weights)
    return W2vCtc(model.to(device), table, margin, device)


NO_WEIGHTS = "no weights at hand"


def train_w2v(setup: Setup, train_cuts: CutSet, valid_cuts: CutSet) -> dict:
    """Fine-tune wav2vec 2.0, if its weights are at hand.

    Args:
        setup: the system and where it is trained; a killed training goes on from what lies there.
        train_cuts: cuts with audio and canonical units; audio may have any sampling rate.
        valid_cuts: the same, to choose the epoch by.

    Returns:
        What ``training.json`` says: ``{"unavailable": reason}`` alone where there are no weights.

    Raises:
        ValueError: the weights that were named cannot be read, or no cut can be used.
    """
    config: W2vCtcConfig = setup.settings
    table, device = setup.table, setup.device
    weights = find_weights(config.checkpoint, config.hub_file)
    if weights is None:
        log(
            f"w2v-ctc: {NO_WEIGHTS}: name a checkpoint of wav2vec 2.0 (--w2v-checkpoint FILE), or "
            f"have {config.hub_file} of torchaudio in {torch.hub.get_dir()}/checkpoints"
        )
        return {"unavailable": NO_WEIGHTS}
    seed_everything(setup.seed)
    model = pretrained(weights, len(table), config.dropout, config.layer_drop)
    log(f"w2v-ctc: {num_parameters(model)} parameters of {weights} on {device}")
    fixed = {"weights": file_digest(weights), "units": list(table.symbols)}
    return FineTuner(setup, model).fit(train_cuts, valid_cuts, fixed)


class FineTuner:
    """Trains one model in one folder.

    The epoch of the least validation loss is kept. Cuts pass through the model one by one and their
    gradients are added up, so that a step is what it would be in a batch without padding.

    Args:
        setup: the system, and where it is trained.
        model: to train.
    """

    def __init__(self, setup: Setup, model: Wav2VecCtc) -> None:
        self.setup, self.table, self.device = setup, setup.table, setup.device
        self.config: W2vCtcConfig = setup.settings
        self.model, config = model.to(setup.device), self.config
        freeze(model, config.frozen_layers)
        output = list(model.network.aux.parameters())
        rest = [p for p in model.network.encoder.parameters() if p.requires_grad]
        self.rates = (config.output_learning_rate, config.learning_rate)
        groups = [{"params": output, "lr": 0.0}, {"params": rest, "lr": 0.0}]
        self.optimizer = torch.optim.Adam([group for group in groups if group["params"]])
        self.passes = Passes()

    def fit(self, train_cuts: CutSet, valid_cuts: CutSet, fixed: dict) -> dict:
        """Train to the end; return what ``training.json`` says.

        Args:
            train_cuts: to learn from.
            valid_cuts: to choose the epoch by.
            fixed: JSON values of what makes this run another one besides settings, seed and cuts.
        """
        settings = asdict(self.config)
        for name in _NOT_COUNTING:
            del settings[name]
        usable = {"training": self._usable(train_cuts), "validation": self._usable(valid_cuts)}
        for part, cuts in usable.items():
            if not cuts:
                raise ValueError(f"w2v-ctc: no usable {part} cut")
        seed, folder = self.setup.seed, self.setup.folder
        identity = run_identity(settings, seed, fixed, list(usable.values()))
        seed_everything(seed)
        state = TrainingState(
            {"model": self.model}, {"model": self.optimizer}, {}, passes=self.passes
        )
        epochs = self.config.epochs
        loop = Loop(state, identity, epochs, folder / CHECKPOINT, folder, "w2v-ctc, epoch")

        def step(epoch: int) -> dict[str, float]:
            return {
                "loss/train": self._train_epoch(usable["training"], epoch),
                "loss/valid": self._valid_loss(usable["validation"]),
            }

        loop.run(step, "loss/valid", least=True, metadata={"units": list(self.table.symbols)})
        trained = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        return {
            "num_params": num_parameters(self.model),
            "num_params_trained": trained,
            "training_seconds": round(state.progress["seconds"], 1),
            "iterations": len(loop.history),
            "best_iteration": loop.best_iteration,
            "criterion": "CTC loss of the canonical units of the validation part",
            "chosen_by": "loss/valid",
            "history": loop.history,
        }

    def _usable(self, cuts: CutSet) -> list[Cut]:
        """The cuts that CTC can learn from; a line in the log for each of the others.

        They know the digest of the audio that was read, as it makes the run another one.
        """
        kept = []
        cuts = shown(cuts, "w2v-ctc, read audio", "cut", len(cuts))
        for cut in (part for whole in cuts for part in in_parts(whole, self.table)):
            units = self._units(cut)
            try:
                waveform, digest = read_waveform(cut, SAMPLING_RATE)
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
        random.Random(f"{self.setup.seed} {epoch}").shuffle(order)
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
        waveform = read_waveform(cut, SAMPLING_RATE)[0]
        log_probs = self.model(waveform.to(self.device))
        target = torch.tensor(units, device=self.device) + 1
        lengths = (torch.tensor([len(log_probs)]), torch.tensor([len(units)]))
        return F.ctc_loss(log_probs.unsqueeze(1), target.unsqueeze(0), *lengths, blank=BLANK)

    def _set_learning_rates(self, step: int) -> None:
        fraction = min(1.0, (step + 1) / max(self.config.warmup_steps, 1))
        for group, rate in zip(self.optimizer.param_groups, self.rates):
            group["lr"] = rate * fraction

    def _units(self, cut: Cut) -> list[int]:
        return self.table.ids(canonical_units(cut), cut.id)


def in_parts(cut: Cut, table: UnitTable) -> list[Cut]:
    """A cut to learn from; one that is too long for the transformer is cut in the pauses of ``fa``.

    Without that tier it stays whole.
    """
    if cut.duration <= wav2vec.LONGEST or not has_tier(cut, "fa"):
        return [cut]
    times, shift = word_times(cut, table), cut.frame_shift
    units = canonical_units(cut)
    word_of = units_of_words(cut) or range(len(units))
    parts = []
    for part in divide(times, cut.num_frames, round(wav2vec.SECTION / shift)):
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
