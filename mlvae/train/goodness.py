"""Goodness of pronunciation by posteriors; what it is, :mod:`mlvae.systems.gop` says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from lhotse import CutSet
from lhotse.cut import Cut

from mlvae.data.dataset import (
    UnitDataset,
    section_features,
    sections,
)
from mlvae.data.units import canonical_units
from mlvae.tiers import has_tier, tier
from mlvae.train.stretches import groups
from mlvae.train.targets import spans_of_tier, variant_spans

#: A log posterior below this one counts as this one, as that of 0 would.
LOG_ZERO = -1e4
#: Largest batch, in frames with padding.
BATCH_FRAMES = 8000


class Goodness(NamedTuple):
    """Goodness of pronunciation of L units; of a unit without frames NaN, and -1."""

    gop: torch.Tensor  # float64 (L,), mean log posterior, at most 0
    #: float64 (L,), less that of the best other unit; infinite where there is no other.
    ratio: torch.Tensor
    best_other: torch.Tensor  # int64 (L,), that unit


def mean_log_probs(
    log_probs: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor
) -> torch.Tensor:
    """Mean log posteriors of all units in L spans.

    Args:
        log_probs: float (T, N), log posteriors of units by frame, on any device. They may sum to
            less than one (silence).
        starts: int64 (L,), first frame of each span, in any order.
        ends: int64 (L,), the frame after its last one, from its start up to T.

    Returns:
        float64 (L, N) on the device of ``log_probs``, NaN where there is no frame.
    """
    starts, ends = starts.to(log_probs.device), ends.to(log_probs.device)
    total = F.pad(log_probs.double().clamp(min=LOG_ZERO).cumsum(0), (0, 0, 1, 0))
    return (total[ends] - total[starts]) / (ends - starts).unsqueeze(1)


def compare_units(mean: torch.Tensor, units: torch.Tensor) -> Goodness:
    """Goodness of pronunciation of L units; see :mod:`mlvae.systems.gop`.

    Args:
        mean: float64 (L, N), of :func:`mean_log_probs`.
        units: int64 (L,), from 0 to N - 1, whose goodness is asked for.

    Returns:
        :class:`Goodness` on the device of ``mean``.

    Example:
        >>> log_probs = torch.tensor([[-1.0, -2.0], [-4.0, -0.5]])
        >>> mean = mean_log_probs(log_probs, torch.tensor([0, 1]), torch.tensor([1, 2]))
        >>> found = compare_units(mean, torch.tensor([0, 0]))
        >>> found.gop.tolist(), found.ratio.tolist(), found.best_other.tolist()
        ([-1.0, -4.0], [1.0, -3.5], [1, 1])
    """
    column = units.to(mean.device).unsqueeze(1)
    gop = mean.gather(1, column).squeeze(1)
    other, best = mean.scatter(1, column, -torch.inf).max(1)
    return Goodness(gop, gop - other, torch.where(gop.isnan(), -1, best))


def unit_log_probs(
    log_probs: torch.Tensor, num_units: int, states_per_unit: int = 1
) -> torch.Tensor:
    """Log posteriors of units from those of their states.

    Args:
        log_probs: float (..., N * S [+ 1]), by unit and state; a last column (silence) is left out.
        num_units: N.
        states_per_unit: S.

    Returns:
        float (..., N).
    """
    states = log_probs[..., : num_units * states_per_unit]
    return states.unflatten(-1, (num_units, states_per_unit)).logsumexp(-1)


@dataclass(frozen=True)
class UnitModel:
    """The acoustic model of a trained system."""

    #: Gives log posteriors of states (and silence), float (B, T, N * S [+ 1]), of features, float
    #: (B, T, F), of which rows have these lengths, int64 (B,).
    log_probs: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    dataset: UnitDataset  # gives the features, and the units
    device: torch.device  # where it runs
    states_per_unit: int = 1  # S
    #: By cut id log posteriors of states, float (T, N * S [+ 1]) on CPU, of cuts that the model
    #: need not see again. Who puts them there takes them away.
    known: dict[str, torch.Tensor] = field(default_factory=dict)

    @torch.no_grad()
    def of_cuts(self, cuts: CutSet) -> Iterator[tuple[Cut, torch.Tensor]]:
        """Log posteriors of each cut, in their order.

        A long recording is read in sections with a margin, as everywhere.

        Args:
            cuts: with features.

        Yields:
            A cut, and float (T, N) on CPU.
        """
        by_id = {cut.id: cut for cut in cuts}
        if by_id.keys() <= self.known.keys():
            for cut_id, cut in by_id.items():
                yield cut, self._of_units(self.known[cut_id])
            return
        inner = [section for cut in cuts for section in sections(cut.id, cut.num_frames)]
        found: list[torch.Tensor] = []
        for some in groups(inner, BATCH_FRAMES):
            seen = [one.with_margin(by_id[one.cut_id].num_frames) for one in some]
            parts = [(by_id[one.cut_id], one) for one in seen]
            features, lengths = section_features(self.dataset, parts)
            rows = self.log_probs(features.to(self.device), lengths.to(self.device)).cpu()
            for row, own, outer in zip(rows, some, seen):
                found.append(row[own.begin - outer.begin : own.end - outer.begin])
                if own.end == by_id[own.cut_id].num_frames:
                    yield by_id[own.cut_id], self._of_units(torch.cat(found))
                    found = []

    def _of_units(self, states: torch.Tensor) -> torch.Tensor:
        return unit_log_probs(states, len(self.dataset.table), self.states_per_unit)

    def goodness(self, cut: Cut, log_probs: torch.Tensor) -> Goodness:
        """Goodness of the L canonical units of a cut on the spans of its tier ``fa``.

        Where forced alignment found another correct pronunciation, a unit may be what that has in
        its place, or the canonical unit, whichever fits better.

        Args:
            cut: with canonical units and the tier ``fa``.
            log_probs: float (T, N), what :meth:`of_cuts` gives.

        Raises:
            ValueError: the cut has no tier ``fa``; names the cut.
        """
        table = self.dataset.table
        units = table.ids(canonical_units(cut), cut.id)
        spans = spans_of_tier(cut, "fa", units)
        lasting = [item.duration > 0 for item in tier(cut, "fa")]
        starts = torch.tensor([span.start for span in spans])
        ends = torch.tensor([s.end if lasts else s.start for s, lasts in zip(spans, lasting)])
        mean, expected = mean_log_probs(log_probs, starts, ends), torch.tensor(units)
        if has_tier(cut, "fa_variant"):
            sounds = {span.start: span.unit for span in variant_spans(cut, table)}
            other = torch.tensor([sounds.get(span.start, span.unit) for span in spans])
            better = mean.gather(1, other[:, None]) > mean.gather(1, expected[:, None])
            expected = torch.where(better.squeeze(1), other, expected)
        return compare_units(mean, expected)
