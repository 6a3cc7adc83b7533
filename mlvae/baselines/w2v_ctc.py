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
from mlvae.bounds import Count, CountOrNone, LearningRate, Settings, Share, Weight
from mlvae.data.audio import read_cut
from mlvae.data.checks import source_name
from mlvae.data.units import UnitTable, canonical_units
from mlvae.stage import log
from mlvae.train.loop import Gathered, Passes, read_tensors

NETWORK = "network."


@dataclass
class W2vCtcConfig(Settings):
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
    epochs: Count = 10
    batch_cuts: Count = 8
    learning_rate: LearningRate = 5e-5
    output_learning_rate: LearningRate = 1e-3
    warmup_steps: CountOrNone = 200
    frozen_layers: CountOrNone = 0
    dropout: Share = 0.1
    layer_drop: Share = 0.05
    gradient_clip: Weight = 1.0
    margin: Weight = 0.5


def load_waveform(cut: Cut) -> torch.Tensor:
    """Audio of a mono cut at 16 kHz, float32 (num_samples,).

    Raises:
        ValueError: as :func:`read_waveform`.
    """
    return read_waveform(cut)[0]


def read_waveform(cut: Cut) -> tuple[torch.Tensor, str]:
    """Read the audio of a mono cut.

    Returns:
        Samples at 16 kHz, float32 (num_samples,), and the digest that
        :func:`mlvae.data.audio.read_cut` gives.

    Raises:
        ValueError: there is no audio, it cannot be read, or it is not what stage 1 read; names the
            cut and the file.
    """
    if not cut.has_recording:
        raise ValueError(f"{cut.id}: no audio")
    try:
        samples, digest = read_cut(cut)
    except Exception as error:  # lhotse's transforms raise kinds of their own
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{cut.id}: {source_name(cut)}: {reason}") from error
    if digest != (cut.custom or {}).get("audio_digest", digest):
        raise ValueError(
            f"{cut.id}: {source_name(cut)}: not the audio that stage 1 read: run the stages from "
            "stage 1 on"
        )
    waveform = torch.from_numpy(samples)
    return torchaudio.functional.resample(waveform, cut.sampling_rate, SAMPLING_RATE), digest


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

    def localize(self, cuts: CutSet, passes: Passes | None = None) -> tuple[CutSet, list[str]]:
        """Add the tiers ``mlvae`` and ``mlvae_heard``.

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
            with_comparison(
                cut, canonical_units(cut), [AlignmentItem(*item) for item in found.value[cut.id]]
            )
            for cut in cuts
            if cut.id in found.value
        ]
        return CutSet.from_cuts(answered), [cut.id for cut in cuts if cut.id not in found.value]


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
