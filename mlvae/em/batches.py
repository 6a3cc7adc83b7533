"""Batches of the training set, with frame-level targets written out from spans."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from lhotse import CutSet
from lhotse.cut import Cut

from mlvae.data.dataset import UnitDataset, make_sampler
from mlvae.em import distributed
from mlvae.em.passes import Gathered, Passes
from mlvae.em.sections import Section, section_features, spans_within, with_sections
from mlvae.em.targets import FrameTargets, frame_targets
from mlvae.fsa import UnitSpan
from mlvae.nn import MlVae
from mlvae.nn.layers import frame_mask


@dataclass
class Batch:
    """One batch, on the device of training.

    Attributes:
        cut_ids: ids of the B cuts, or names of sections of long ones.
        features: float (B, T, F), scaled; padding is zero.
        num_frames: int64 (B,).
        targets: by frame, (B, T) each.
        mask: bool (B, T), frames that count.
    """

    cut_ids: list[str]
    features: torch.Tensor
    num_frames: torch.Tensor
    targets: FrameTargets
    mask: torch.Tensor


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
                [_spans_of(cut, section, spans) for cut, section in parts],
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


def _spans_of(
    cut: Cut, section: Section, spans: Mapping[str, Sequence[UnitSpan]]
) -> Sequence[UnitSpan]:
    """Targets of a section of a cut."""
    if section.end - section.begin == cut.num_frames:
        return spans[cut.id]
    return spans_within(spans[cut.id], section.begin, section.end)
