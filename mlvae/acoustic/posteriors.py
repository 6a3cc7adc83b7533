"""Posteriors of units for the cuts of a recipe, by an acoustic model of somebody else.

A model has frames of its own, 20 or 40 ms apart, and symbols of its own. What comes of them are
log-posteriors of N units and of *nothing*, frame by frame of the cut's features (10 ms):

* the posterior of a unit is the sum of those of its symbols (:mod:`mlvae.acoustic.symbols`);
* what is left, that of the blank and of symbols of no unit, is the posterior of nothing;
* the model's frames follow each other at its frame shift, and what the recording is longer than
  they are lies before the first and behind the last of them in equal parts, in which these two hold
  on. A frame of 10 ms has the mean of the posteriors in it.

So times are times of the recording, whatever the frame shift of the model is.
"""

from __future__ import annotations

import torch
import torchaudio
from lhotse.cut import Cut

from mlvae.acoustic.models import AcousticModel, StoredPosteriors
from mlvae.acoustic.symbols import SymbolMap
from mlvae.data.audio import read_cut
from mlvae.data.checks import source_name
from mlvae.data.dataset import CACHE_MB, FRAME_SHIFT, UnitDataset
from mlvae.data.units import UnitTable
from mlvae.errors import one_line
from mlvae.nn import wav2vec

#: Posteriors below this one count as this one.
FLOOR = 1e-5


def read_waveform(cut: Cut, sampling_rate: int) -> tuple[torch.Tensor, str]:
    """Read the audio of a mono cut.

    Args:
        cut: with audio of any sampling rate.
        sampling_rate: that is wanted, in Hz.

    Returns:
        Samples at that rate, float32 (num_samples,), and the digest that
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
        reason = one_line(error, most=200)
        raise ValueError(f"{cut.id}: {source_name(cut)}: {reason}") from error
    if digest != (cut.custom or {}).get("audio_digest", digest):
        raise ValueError(
            f"{cut.id}: {source_name(cut)}: not the audio that stage 1 read: run the stages from "
            "stage 1 on"
        )
    waveform = torch.from_numpy(samples)
    return torchaudio.functional.resample(waveform, cut.sampling_rate, sampling_rate), digest


def on_frames(posteriors: torch.Tensor, shift: float, num_frames: int) -> torch.Tensor:
    """Bring posteriors to frames of 10 ms; see the head of this module.

    Args:
        posteriors: float (T, C), probabilities.
        shift: seconds from one of these frames to the next.
        num_frames: number of frames that are wanted.

    Returns:
        float64 (num_frames, C), probabilities.
    """
    before = (num_frames * FRAME_SHIFT - len(posteriors) * shift) / 2
    boundaries = torch.arange(num_frames + 1, dtype=torch.float64) * FRAME_SHIFT
    position = (boundaries - before) / shift  # in frames of the model
    more = max(int(-position[0].floor()), int(position[-1].ceil()) - len(posteriors), 0)
    rows = posteriors.double()
    rows = torch.cat([rows[:1].expand(more, -1), rows, rows[-1:].expand(more, -1)])
    total = torch.nn.functional.pad(rows.cumsum(0), (0, 0, 1, 1))
    position = position + more
    whole = position.floor().clamp(max=len(rows))
    index = whole.long()
    following = torch.cat([rows, rows[-1:]])[index]
    integral = total[index] + (position - whole).unsqueeze(1) * following
    return (integral[1:] - integral[:-1]) * (shift / FRAME_SHIFT)


class PosteriorDataset(UnitDataset):
    """Gives log-posteriors of units where others give features, so that everything works on them.

    Args:
        table: ids of the units.
        model: the acoustic model.
        symbols: what its symbols stand for.
        cache_mb: most memory, in MB, that posteriors and features take which are kept.
    """

    def __init__(
        self,
        table: UnitTable,
        model: AcousticModel | StoredPosteriors,
        symbols: SymbolMap,
        cache_mb: float = CACHE_MB,
    ) -> None:
        super().__init__(table, cache_mb=cache_mb)
        self.model, self.symbols = model, symbols

    def features(self, cut: Cut) -> torch.Tensor:
        """Log-posteriors of the units and, last, of nothing, float32 (num_frames, N + 1).

        Raises:
            ValueError: audio or posteriors cannot be read, or are too short for a frame of the
                model; names the cut.
        """
        return self.cache.get(("posteriors", cut.id), lambda: self._log_posteriors(cut))

    def _log_posteriors(self, cut: Cut) -> torch.Tensor:
        stored = isinstance(self.model, StoredPosteriors)
        found = self._of_stored(cut) if stored else self._of_audio(cut)
        found = found.clamp(min=FLOOR)
        return (found / found.sum(1, keepdim=True)).log().float()

    def _of_units(self, posteriors: torch.Tensor) -> torch.Tensor:
        """Probabilities of units and nothing, float64 (T, N + 1), from those of symbols (T, V)."""
        of_units = posteriors.double() @ self.symbols.matrix.double()
        return torch.cat([of_units, 1 - of_units.sum(1, keepdim=True)], dim=1)

    def _of_stored(self, cut: Cut) -> torch.Tensor:
        posteriors, shift = self.model.of_cut(cut)
        return on_frames(self._of_units(posteriors), shift, cut.num_frames)

    def _of_audio(self, cut: Cut) -> torch.Tensor:
        rate, num_frames = self.model.sampling_rate, cut.num_frames
        waveform, _ = read_waveform(cut, rate)
        size, margin = num_frames, 0
        if cut.duration > wav2vec.LONGEST:
            seconds = wav2vec.SECTION, wav2vec.MARGIN
            size, margin = (round(one / FRAME_SHIFT) for one in seconds)
        found = []
        for begin in range(0, num_frames, size):
            end = min(begin + size, num_frames)
            first, last = max(begin - margin, 0), min(end + margin, num_frames)
            stop = round(last * FRAME_SHIFT * rate) if last < num_frames else None
            samples = waveform[round(first * FRAME_SHIFT * rate) : stop]
            posteriors = self._of_samples(samples, cut.id)
            part = on_frames(self._of_units(posteriors), self.model.frame_shift, last - first)
            found.append(part[begin - first : end - first])
        return torch.cat(found)

    def _of_samples(self, samples: torch.Tensor, name: str) -> torch.Tensor:
        """Probabilities of symbols, float (T, V); ValueError names the cut."""
        try:
            log_posteriors, lengths = self.model(samples[None], torch.tensor([len(samples)]))
        except Exception as error:  # whatever a model of somebody's does with some samples
            reason = one_line(error, most=200)
            raise ValueError(f"{name}: the acoustic model cannot read it: {reason}") from error
        found = log_posteriors[0, : int(lengths[0])].exp()
        if len(found) == 0:
            raise ValueError(f"{name}: {len(samples)} samples are too short for the acoustic model")
        if not bool(found.isfinite().all()):
            raise ValueError(f"{name}: the acoustic model gives numbers that are not finite")
        return found
