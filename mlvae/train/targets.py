"""Training targets: alignment tiers as spans of frames, and batches with labels by frame."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.supervision import AlignmentItem

from mlvae.data.dataset import (
    Section,
    UnitDataset,
    make_sampler,
    section_features,
    with_sections,
)
from mlvae.data.units import UnitTable, canonical_units
from mlvae.fsa import UnitSpan
from mlvae.nn import MlVae
from mlvae.nn.layers import frame_mask
from mlvae.tiers import has_tier, tier
from mlvae.train import distributed
from mlvae.train.loop import Gathered, Passes

#: Target of a frame that belongs to no unit where silence is not modelled: no loss is taken there.
IGNORE = -100


@dataclass
class FrameTargets:
    """Frame-level labels of a batch."""

    #: int64 (B, T), the estimator's output for each frame: its unit and state, silence, or
    #: ``IGNORE``.
    column: torch.Tensor
    boundary: torch.Tensor  # float (B, T), 1 where a unit starts
    mispronounced: torch.Tensor  # float (B, T), 1 in frames of a mispronounced unit

    def to(self, device: torch.device) -> FrameTargets:
        """The same on another device."""
        return FrameTargets(*(getattr(self, field.name).to(device) for field in fields(self)))


def frame_targets(
    spans: Sequence[Sequence[UnitSpan]],
    num_frames: torch.Tensor,
    num_units: int,
    states_per_unit: int = 1,
    silence: bool = False,
) -> FrameTargets:
    """Write spans out by frame.

    A span stands for the unit that was perceived, or, where that is not known, for the canonical
    one, as the paper trains its estimator. States divide a span evenly.

    Args:
        spans: spans of each utterance, units in order; frames outside units are silence.
        num_frames: int64 (B,), frames of each utterance, at least the end of its spans.
        num_units: units N.
        states_per_unit: states S that the estimator tells apart.
        silence: whether frames outside units are silence; otherwise they are ignored.

    Returns:
        :class:`FrameTargets` on CPU, T being the longest utterance. Padding has column ``IGNORE``.
    """
    lengths = num_frames.tolist()
    batch, max_frames = len(spans), max(lengths)
    column = torch.full((batch, max_frames), IGNORE, dtype=torch.int64)
    boundary = torch.zeros(batch, max_frames)
    mispronounced = torch.zeros(batch, max_frames)
    for row, utterance in enumerate(spans):
        if silence:
            column[row, : lengths[row]] = num_units * states_per_unit
        for span in utterance:
            if span.kind != "unit" or span.end == span.start:
                continue
            length = span.end - span.start
            perceived = span.unit if span.perceived < 0 else span.perceived
            state = torch.arange(length) * states_per_unit // length
            column[row, span.start : span.end] = perceived * states_per_unit + state
            boundary[row, span.start] = 1.0
            if span.mispronounced:
                mispronounced[row, span.start : span.end] = 1.0
    return FrameTargets(column, boundary, mispronounced)


def changed_frames(
    before: Mapping[str, Sequence[UnitSpan]], after: Mapping[str, Sequence[UnitSpan]]
) -> float:
    """Fraction of the frames that are given to another unit than before, or judged otherwise.

    Args:
        before: spans by cut id, at least those of ``after``; frames outside are of no unit.
        after: spans by cut id that tile the frames of their cuts.

    Returns:
        Between 0 and 1; 0 where there are no frames.
    """
    changed = total = 0
    for cut_id, spans in after.items():
        if not spans:
            continue
        judged = np.full((2, spans[-1].end), -1)
        for frames, assignment in zip(judged, (before[cut_id], spans)):
            for span in assignment:
                if span.kind == "unit":
                    frames[span.start : span.end] = 2 * span.position + span.mispronounced
        changed += int((judged[0] != judged[1]).sum())
        total += judged.shape[1]
    return changed / max(total, 1)


def spans_of_tier(cut: Cut, name: str, unit_ids: Sequence[int]) -> list[UnitSpan]:
    """Read a tier with one item a canonical unit as spans.

    Args:
        cut: cut with the tier and with features (their frame shift is the grid).
        name: the tier.
        unit_ids: the canonical units as ids, one an item.

    Raises:
        ValueError: there is no such tier, or it has another number of items.
    """
    if not has_tier(cut, name):
        raise ValueError(f"{cut.id}: no tier {name}, run the stage that makes it")
    items = tier(cut, name)
    if len(items) != len(unit_ids):
        raise ValueError(f"{cut.id}: tier {name} has {len(items)} items for {len(unit_ids)} units")
    spans = []
    shift, num_frames = cut.frame_shift, cut.num_frames  # a cut computes them anew each time
    for position, (item, unit) in enumerate(zip(items, unit_ids)):
        start = round(item.start / shift)
        end = min(round(item.end / shift), num_frames)
        # The last frame may be half a frame short, and rounding would lose it.
        if item.end > cut.duration - shift / 4:
            end = num_frames
        score = 0.0 if item.score is None else item.score
        spans.append(
            UnitSpan(position, unit, start, end, "unit", False, unit, score, position, position)
        )
    return spans


def variant_spans(cut: Cut, table: UnitTable) -> list[UnitSpan]:
    """Read what forced alignment found to be spoken, as spans.

    Args:
        cut: cut with the tier ``fa``; one with ``fa_variant``, too, was found to be spoken in other
            pronunciations than the canonical ones, and is read from there.
        table: ids of the units.

    Raises:
        ValueError: as :func:`spans_of_tier`, or a unit is not in the table.
    """
    if has_tier(cut, "fa_variant"):
        symbols = [item.symbol for item in tier(cut, "fa_variant")]
        return spans_of_tier(cut, "fa_variant", table.ids(symbols, cut.id))
    return spans_of_tier(cut, "fa", table.ids(canonical_units(cut), cut.id))


def items_of_spans(
    cut: Cut, spans: Sequence[UnitSpan], symbols: Sequence[str], scores: Sequence[float]
) -> list[AlignmentItem]:
    """Write the unit spans of a cut as items of a tier.

    Args:
        cut: cut with features; the last frame ends with the cut.
        spans: spans of all kinds; only units become items.
        symbols: symbol of each unit span.
        scores: score of each unit span.
    """
    items = []
    shift, num_frames = cut.frame_shift, cut.num_frames  # a cut computes them anew each time
    for span, symbol, score in zip(
        [span for span in spans if span.kind == "unit"], symbols, scores
    ):
        start = span.start * shift
        end = cut.duration if span.end == num_frames else span.end * shift
        duration = max(end - start, 0.0) if span.end > span.start else 0.0
        items.append(AlignmentItem(symbol, round(start, 6), round(duration, 6), score))
    return items


def feature_std(cuts: CutSet, dataset: UnitDataset) -> torch.Tensor:
    """Standard deviation of each feature dimension, float32 (F,); cut means are zero already."""
    power = sum(dataset.features(cut).double().pow(2).sum(0) for cut in cuts)
    return (power / sum(cut.num_frames for cut in cuts)).sqrt().float()


def log_prior(
    cuts: CutSet, targets: Mapping[str, Sequence[UnitSpan]], model: MlVae
) -> torch.Tensor:
    """Log p(c) of each of the estimator's outputs, from what it is trained towards.

    Args:
        cuts: training cuts with features.
        targets: their spans.
        model: gives units, states and silence.

    Returns:
        float32 (N * S [+ 1]); states of a unit share its frames, and nothing has probability 0.
    """
    states = model.states_per_unit
    counts = torch.ones(len(model.log_prior), dtype=torch.float64)
    for cut in cuts:
        covered = 0
        spans = [s for s in targets[cut.id] if s.kind == "unit" and s.end > s.start]
        for span in spans:
            length = span.end - span.start
            unit = span.unit if span.perceived < 0 else span.perceived
            counts[unit * states : (unit + 1) * states] += length / states
            covered += length
        if model.silence:
            counts[-1] += cut.num_frames - covered
    return (counts / counts.sum()).log().float()


def boundary_prior(
    cuts: CutSet, aligned: Mapping[str, Sequence[UnitSpan]], strength: float
) -> tuple[float, float]:
    """Alpha and beta of p(eta): mean units per frame in the training set, and alpha + beta."""
    units = sum(len(spans) for spans in aligned.values())
    rate = units / sum(cut.num_frames for cut in cuts)
    return strength * rate, strength * (1 - rate)


@dataclass
class Batch:
    """One batch, on the device of training."""

    cut_ids: list[str]  # ids of the B cuts, or names of sections of long ones
    features: torch.Tensor  # float (B, T, F), scaled; padding is zero
    num_frames: torch.Tensor  # int64 (B,)
    targets: FrameTargets  # by frame, (B, T) each
    mask: torch.Tensor  # bool (B, T), frames that count


class Means(Gathered):
    """Means of losses over the batches of an epoch, kept on the device until the end.

    Args:
        device: of the losses.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__({})
        self.device = device

    def add(self, **values: torch.Tensor) -> None:
        """Take over the losses of a batch, scalars."""
        for name, value in values.items():
            self.value.setdefault(name, []).append(value.detach())

    def result(self) -> dict[str, float]:
        """Means by name, as ``loss/NAME``."""
        return {
            f"loss/{name}": float(torch.stack(values).mean()) for name, values in self.value.items()
        }

    def tensors(self) -> dict[str, torch.Tensor]:
        """The losses of the batches by name."""
        return {name: torch.stack(values) for name, values in self.value.items()}

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take over :meth:`tensors` of a checkpoint."""
        self.value = {name: list(values.to(self.device)) for name, values in tensors.items()}


class TrainingBatches:
    """Epochs over training cuts; what an epoch holds depends on its number and the seed alone.

    Args:
        model: scales the features, and says how units and states are numbered.
        cuts: training cuts with features.
        dataset: gives their features.
        max_frames: largest batch, in frames with padding.
        seed: of the order.
        device: where batches go.
        passes: which of an epoch's batches are done already.
    """

    def __init__(
        self,
        model: MlVae,
        cuts: CutSet,
        dataset: UnitDataset,
        max_frames: int,
        seed: int,
        device: torch.device,
        passes: Passes,
    ) -> None:
        self.model = model
        self.cuts = cuts
        self.dataset = dataset
        self.max_frames = max_frames
        self.seed = seed
        self.device = device
        self.passes = passes

    def epoch(
        self,
        number: int,
        spans: Mapping[str, Sequence[UnitSpan]],
        description: str,
        means: Means | None = None,
    ) -> Iterator[Batch]:
        """Each cut that has spans once, in an order of this epoch's own; long ones in sections.

        Several processes divide the batches among themselves, and all get equally many; the last
        cuts of an epoch may come more than once where they are fewer than the processes.

        Args:
            number: of the epoch; another one has another order.
            spans: targets by cut id; cuts without are left out.
            description: what the progress bar says.
            means: the losses of batches, which make the epoch a pass that goes on after a kill;
                None: all batches, whatever was done before.
        """
        cuts, origin = with_sections(cut for cut in self.cuts if cut.id in spans)
        sampler = make_sampler(
            cuts,
            self.max_frames,
            shuffle=True,
            seed=self.seed,
            world_size=distributed.world_size(),
            rank=distributed.rank(),
        )
        sampler.set_epoch(number)
        batches: Iterable[CutSet] = sampler
        if means is not None:
            total = math.ceil(len(cuts) / distributed.world_size())
            batches = self.passes.over(sampler, means, description, "cut", total, len)
        for batch_cuts in batches:
            names = [_name(cut.id, origin) for cut in batch_cuts]
            parts = [origin[name] for name in names]
            features, lengths = section_features(self.dataset, parts)
            num_frames = lengths.to(self.device)
            features = self.model.scale(features.to(self.device))
            targets = frame_targets(
                [spans_within(spans[cut.id], one.begin, one.end) for cut, one in parts],
                lengths,
                self.model.num_units,
                self.model.states_per_unit,
                self.model.silence,
            ).to(self.device)
            mask = frame_mask(num_frames, features.shape[1])
            yield Batch(names, features, num_frames, targets, mask)


def _name(cut_id: str, origin: Mapping[str, tuple[Cut, Section]]) -> str:
    """The id that a cut came with, also where the sampler has repeated it."""
    return cut_id if cut_id in origin else re.sub(r"(_dup\d+)+$", "", cut_id)


def spans_within(spans: Sequence[UnitSpan], begin: int, end: int) -> list[UnitSpan]:
    """The spans of some frames, counted from ``begin``; those that reach beyond are shortened."""
    return [
        span._replace(start=max(span.start, begin) - begin, end=min(span.end, end) - begin)
        for span in spans
        if span.start < end and span.end > begin
    ]
