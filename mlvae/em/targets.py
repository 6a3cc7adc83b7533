"""Between alignment tiers in seconds, spans in frames, and training targets by frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from lhotse.cut import Cut
from lhotse.supervision import AlignmentItem

from mlvae.data.units import UnitTable, canonical_units
from mlvae.fsa import UnitSpan
from mlvae.fsa.layout import KIND_NAMES
from mlvae.tiers import has_tier, tier

#: Target of a frame that belongs to no unit where silence is not modelled: no loss is taken there.
IGNORE = -100


@dataclass
class FrameTargets:
    """Frame-level labels of a batch.

    Attributes:
        unit: int64 (B, T), the unit of each frame, ``num_units`` for silence, or ``IGNORE``.
        column: int64 (B, T), the estimator's output for that unit and its state, or ``IGNORE``.
        boundary: float (B, T), 1 where a unit starts.
        mispronounced: float (B, T), 1 in frames of a mispronounced unit.
    """

    unit: torch.Tensor
    column: torch.Tensor
    boundary: torch.Tensor
    mispronounced: torch.Tensor

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
        :class:`FrameTargets` on CPU, T being the longest utterance. Padding has unit ``IGNORE``.
    """
    lengths = num_frames.tolist()
    batch, max_frames = len(spans), max(lengths)
    unit = torch.full((batch, max_frames), IGNORE, dtype=torch.int64)
    column = torch.full((batch, max_frames), IGNORE, dtype=torch.int64)
    boundary = torch.zeros(batch, max_frames)
    mispronounced = torch.zeros(batch, max_frames)
    for row, utterance in enumerate(spans):
        if silence:
            unit[row, : lengths[row]] = num_units
            column[row, : lengths[row]] = num_units * states_per_unit
        for span in utterance:
            if span.kind != "unit" or span.end == span.start:
                continue
            length = span.end - span.start
            perceived = span.unit if span.perceived < 0 else span.perceived
            unit[row, span.start : span.end] = perceived
            state = torch.arange(length) * states_per_unit // length
            column[row, span.start : span.end] = perceived * states_per_unit + state
            boundary[row, span.start] = 1.0
            if span.mispronounced:
                mispronounced[row, span.start : span.end] = 1.0
    return FrameTargets(unit, column, boundary, mispronounced)


def pack_spans(spans: Mapping[str, Sequence[UnitSpan]], cut_ids: Sequence[str]) -> torch.Tensor:
    """Spans as an int32 table for a checkpoint: a row a span, cuts in the order of ``cut_ids``."""
    rows = [
        (index, span.unit, span.start, span.end, KIND_NAMES.index(span.kind), span.perceived)
        for index, cut_id in enumerate(cut_ids)
        for span in spans[cut_id]
    ]
    return torch.tensor(rows, dtype=torch.int32)


def unpack_spans(table: torch.Tensor, cut_ids: Sequence[str]) -> dict[str, list[UnitSpan]]:
    """What :func:`pack_spans` packed, scores left out."""
    spans: dict[str, list[UnitSpan]] = {cut_id: [] for cut_id in cut_ids}
    num_units = dict.fromkeys(cut_ids, 0)
    for index, unit, start, end, kind_id, perceived in table.tolist():
        mine, kind = spans[cut_ids[index]], KIND_NAMES[kind_id]
        wrong = kind == "unit" and perceived != unit
        place = num_units[cut_ids[index]] if kind == "unit" else -1
        num_units[cut_ids[index]] += kind == "unit"
        mine.append(UnitSpan(place, unit, start, end, kind, wrong, perceived, 0.0, place, place))
    return spans


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
    after = {cut_id: spans for cut_id, spans in after.items() if spans}
    ends = np.cumsum([spans[-1].end for spans in after.values()], dtype=np.int64)
    if len(ends) == 0:
        return 0.0
    first = dict(zip(after, np.append(0, ends[:-1])))
    judged = []
    for assignment in (before, after):
        rows = [
            (first[cut_id] + span.start, span.end - span.start, span.position, span.mispronounced)
            for cut_id in after
            for span in assignment[cut_id]
            if span.kind == "unit"
        ]
        start, length, position, wrong = np.array(rows, dtype=np.int64).reshape(-1, 4).T
        place = np.repeat(start - (np.cumsum(length) - length), length) + np.arange(length.sum())
        frames = np.full(ends[-1], -1)
        frames[place] = np.repeat(2 * position + wrong, length)
        judged.append(frames)
    return float(np.mean(judged[0] != judged[1]))


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
    for position, (item, unit) in enumerate(zip(items, unit_ids)):
        start = round(item.start / cut.frame_shift)
        end = min(round(item.end / cut.frame_shift), cut.num_frames)
        # The last frame may be half a frame short, and rounding would lose it.
        if item.end > cut.duration - cut.frame_shift / 4:
            end = cut.num_frames
        score = 0.0 if item.score is None else item.score
        spans.append(
            UnitSpan(position, unit, start, end, "unit", False, unit, score, position, position)
        )
    return spans


def variant_spans(cut: Cut, name: str, table: UnitTable) -> list[UnitSpan]:
    """Read what a tier of canonical units found to be spoken, as spans.

    Args:
        cut: cut with the tier; one with ``<name>_spoken``, too, was found to be spoken in other
            pronunciations than the canonical ones, and is read from there.
        name: the tier.
        table: ids of the units.

    Raises:
        ValueError: as :func:`spans_of_tier`, or a unit is not in the table.
    """
    spoken = f"{name}_variant"
    if has_tier(cut, spoken):
        symbols = [item.symbol for item in tier(cut, spoken)]
        return spans_of_tier(cut, spoken, table.ids(symbols, cut.id))
    return spans_of_tier(cut, name, table.ids(canonical_units(cut), cut.id))


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
    for span, symbol, score in zip(
        [span for span in spans if span.kind == "unit"], symbols, scores
    ):
        start = span.start * cut.frame_shift
        end = cut.duration if span.end == cut.num_frames else span.end * cut.frame_shift
        duration = max(end - start, 0.0) if span.end > span.start else 0.0
        items.append(AlignmentItem(symbol, round(start, 6), round(duration, 6), score))
    return items
