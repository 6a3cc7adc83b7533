"""w2v-CTC: wav2vec 2.0 fine-tuned with CTC on the canonical units, then CTC segmentation.

Units are recognised by the best column of each frame, segmented, and compared with the canonical
ones; see :mod:`mlvae.baselines.ctc` and :mod:`mlvae.baselines.compare`. Training sees audio and
canonical units alone, wrong ones among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torchaudio
from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.supervision import AlignmentItem

from mlvae.baselines.compare import with_comparison
from mlvae.baselines.ctc import greedy_spans, segment_times
from mlvae.baselines.wav2vec import SAMPLING_RATE, Wav2VecCtc, architecture, torchaudio_name
from mlvae.data.audio import AudioError, audio_info
from mlvae.data.units import UnitTable, canonical_units
from mlvae.em.checkpoint import read_tensors
from mlvae.stage import log

NETWORK = "network."


@dataclass
class W2vCtcConfig:
    """How wav2vec 2.0 is fine-tuned and read.

    The convolutions of the feature extractor are never trained.

    Attributes:
        checkpoint: file with the weights to start from; empty: ``hub_file``.
        hub_file: file name of one of torchaudio's bundles, taken where torch.hub has downloaded it
            before; nothing is downloaded.
        epochs: passes over the training cuts; the one with the least CTC loss on the canonical
            units of the validation cuts is kept.
        batch_cuts: cuts a step.
        learning_rate: of Adam, for the pretrained layers.
        output_learning_rate: for the new output layer.
        warmup_steps: steps in which the learning rates rise evenly from 0.
        frozen_layers: transformer layers, from the lowest, that are not trained; above 0 the
            projection before them is not trained either.
        dropout: in the transformer.
        layer_drop: probability that a transformer layer is left out of a training step.
        gradient_clip: largest norm of the gradient; 0 for no limit.
        margin: how far a segment may reach beyond the frames of its unit, in seconds.
    """

    checkpoint: str = ""
    hub_file: str = "wav2vec2_fairseq_base_ls960.pth"
    epochs: int = 10
    batch_cuts: int = 8
    learning_rate: float = 5e-5
    output_learning_rate: float = 1e-3
    warmup_steps: int = 200
    frozen_layers: int = 0
    dropout: float = 0.1
    layer_drop: float = 0.05
    gradient_clip: float = 1.0
    margin: float = 0.5

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_cuts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("warmup_steps", "frozen_layers", "gradient_clip", "margin"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")


def load_waveform(cut: Cut) -> torch.Tensor:
    """Audio of a mono cut at 16 kHz, float32 (num_samples,).

    Raises:
        ValueError: there is no audio, or it cannot be read; names the cut and the file.
    """
    if not cut.has_recording:
        raise ValueError(f"{cut.id}: no audio")
    for source in cut.recording.sources:
        if source.type == "file":
            try:
                audio_info(Path(source.source))
            except AudioError as error:
                raise ValueError(f"{cut.id}: {source.source}: {error}") from error
    try:
        samples = torch.from_numpy(cut.load_audio())[0]
    except Exception as error:  # lhotse's backends raise kinds of their own
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{cut.id}: its audio cannot be read: {reason}") from error
    return torchaudio.functional.resample(samples, cut.sampling_rate, SAMPLING_RATE)


@dataclass
class W2vCtc:
    """A trained recogniser.

    Attributes:
        model: the network.
        table: its units.
        margin: see :class:`W2vCtcConfig`.
        device: where it runs.
    """

    model: Wav2VecCtc
    table: UnitTable
    margin: float
    device: torch.device

    def log_probs(self, cut: Cut) -> torch.Tensor:
        """Log-posteriors (T, N + 1) of a cut on CPU.

        Raises:
            ValueError: the audio cannot be read, or is too short for a frame; names the cut.
        """
        waveform = load_waveform(cut)
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

    def localize(self, cuts: CutSet) -> tuple[CutSet, list[str]]:
        """Add the tiers ``mlvae`` and ``mlvae_heard``.

        Returns:
            The cuts with both tiers, in their order, and the ids of those without an answer, for
            each of which there is a line in the log.
        """
        answered: list[Cut] = []
        without: list[str] = []
        for cut in cuts:
            try:
                items = self.recognize(cut)
            except ValueError as error:
                log(f"w2v-ctc: no answer: {error}")
                without.append(cut.id)
                continue
            answered.append(with_comparison(cut, canonical_units(cut), items))
        return CutSet.from_cuts(answered), without


def load_w2v(path: Path, table: UnitTable, margin: float, device: torch.device) -> W2vCtc:
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
