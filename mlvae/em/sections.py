"""Long recordings in sections that networks can see at once.

A network over an hour of speech would take many times the memory of the speech. A recording of more
than :data:`NETWORK_FRAMES` frames is therefore read in sections: in training each is an example of
its own, and to search it, they have a margin on both sides (:mod:`mlvae.em.stretches`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.utils import fastcopy

from mlvae.data.dataset import UnitDataset
from mlvae.fsa import UnitSpan

#: Longest recording that networks see whole, in frames.
NETWORK_FRAMES = 6000
#: What they see beyond a section of a longer one, on each side.
NETWORK_MARGIN = 200


class Section(NamedTuple):
    """Frames of a cut, from ``begin`` to ``end`` (exclusive): all, or a part of a long one."""

    cut_id: str
    begin: int
    end: int


def sections(cut_id: str, num_frames: int) -> list[Section]:
    """A recording in equal sections that networks can see at once; short ones are one section."""
    if num_frames <= NETWORK_FRAMES:
        return [Section(cut_id, 0, num_frames)]
    count = -(-num_frames // (NETWORK_FRAMES // 2))
    edges = [num_frames * number // count for number in range(count + 1)]
    return [Section(cut_id, begin, end) for begin, end in zip(edges[:-1], edges[1:])]


def with_sections(cuts: Iterable[Cut]) -> tuple[CutSet, dict[str, tuple[Cut, Section]]]:
    """Cuts for a sampler, long ones in sections; and which cut and frames each of them stands for.

    A section has its length and a name of its own, and nothing else is to be read from it.
    """
    parts: list[Cut] = []
    origin: dict[str, tuple[Cut, Section]] = {}
    for cut in cuts:
        own = sections(cut.id, cut.num_frames)
        for section in own:
            part = cut
            if len(own) > 1:
                duration = (section.end - section.begin) * cut.frame_shift
                name = f"{cut.id}[{section.begin}:{section.end}]"
                part = fastcopy(cut, id=name, duration=duration, supervisions=[])
            parts.append(part)
            origin[part.id] = cut, section
    return CutSet.from_cuts(parts), origin


def section_features(
    dataset: UnitDataset, parts: Sequence[tuple[Cut, Section]]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Features (B, T, F) of sections of cuts, zero in padding, and their lengths, int64 (B,)."""
    cuts = {cut.id: cut for cut, _ in parts}
    whole = {cut_id: dataset.features(cut) for cut_id, cut in cuts.items()}  # each is read once
    features = [whole[cut.id][section.begin : section.end] for cut, section in parts]
    lengths = torch.tensor([len(matrix) for matrix in features], dtype=torch.int64)
    return torch.nn.utils.rnn.pad_sequence(features, batch_first=True), lengths


def spans_within(spans: Sequence[UnitSpan], begin: int, end: int) -> list[UnitSpan]:
    """The spans of some frames, counted from ``begin``; those that reach beyond are shortened."""
    return [
        span._replace(start=max(span.start, begin) - begin, end=min(span.end, end) - begin)
        for span in spans
        if span.start < end and span.end > begin
    ]
