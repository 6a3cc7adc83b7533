"""What training reads: batches of features of lhotse cuts, long ones in sections.

A network over an hour of speech would take many times the memory of the speech. A recording of more
than :data:`NETWORK_FRAMES` frames is therefore read in sections: in training each is an example of
its own, and to search it, they have a margin on both sides (:data:`NETWORK_MARGIN`).
"""

from __future__ import annotations

import hashlib
import warnings
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torchaudio
from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.cut.set import deserialize_cut
from lhotse.dataset import DynamicBucketingSampler, SimpleCutSampler
from lhotse.dataset.sampling.base import CutSampler
from lhotse.utils import fastcopy
from torch.utils.data import Dataset

from mlvae.data.checks import check_id
from mlvae.data.manifests import check_is_cut, check_sources, manifest_lines, place_of, shown_id
from mlvae.data.units import UnitTable, canonical_units
from mlvae.errors import one_line, with_type
from mlvae.stage import StageReport

#: Seconds a frame of the features.
FRAME_SHIFT = 0.01


class FeaturesError(ValueError):
    """Features that cannot be used; the message names the cut and the stage that makes them."""


def load_cuts(path: Path) -> CutSet:
    """Read a manifest of cuts into memory; raises what :func:`read_cuts` does."""
    return CutSet.from_cuts(read_cuts(path))


def read_cuts(path: Path) -> Iterator[Cut]:
    """Read a manifest of cuts one by one. Whatever reads cuts reads them with this.

    Raises:
        ValueError: there is no such file (names the stage to run), it is damaged, a line is no cut,
            names a command or an address in the place of a file, or has an id that cannot name a
            file or is that of another; names file and line.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"no manifest {path}: run the stage before this one")
    lines: dict[str, int] = {}
    for number, content in manifest_lines(path):
        place = place_of(path, number)
        cut = cut_of_line(content, place)
        try:
            check_id(cut.id)
        except ValueError as error:
            raise ValueError(f"{place}: {shown_id(content)}: {error}") from None
        if cut.id in lines:
            raise ValueError(f"{place}: the cut of line {lines[cut.id]} has the id {cut.id!r}, too")
        lines[cut.id] = number
        yield cut


def cut_of_line(content: dict[str, Any], place: str, allow_commands: bool = False) -> Cut:
    """The cut that a line of a manifest describes.

    Args:
        content: the line.
        place: how the line is named.
        allow_commands: whether sources of audio may be shell commands. (None is run here.)

    Raises:
        ValueError: it is no cut, or names a command or an address; begins with the place.
    """
    check_is_cut(content, place)
    name = shown_id(content)
    if not isinstance(content.get("id"), str):
        raise ValueError(f"{place}: {name}: its id is no text")
    try:
        check_sources(content, allow_commands)
        return deserialize_cut(content)
    except ValueError as error:
        raise ValueError(f"{place}: {name}: {error}") from error
    except Exception as error:  # what lhotse raises for a wrong line is of many kinds
        raise ValueError(f"{place}: {name}: not a cut of lhotse: {with_type(error)}") from error


class StoredCuts:
    """Cuts that a model can read, read anew from a manifest whenever one goes through them.

    Nothing but their ids is held.

    Args:
        path: of the manifest.
        table: ids of the canonical units.
        report: see :func:`usable`.
        ids: of those to read; None: all.

    Attributes:
        ids: in their order.

    Raises:
        ValueError: as :func:`read_cuts`.
    """

    def __init__(
        self,
        path: Path,
        table: UnitTable,
        report: StageReport,
        ids: Collection[str] | None = None,
    ) -> None:
        self.path = Path(path)
        cuts = (cut for cut in read_cuts(path) if ids is None or cut.id in ids)
        self.ids = dict.fromkeys(cut.id for cut in usable(cuts, table, report))

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Cut]:
        return (cut for cut in read_cuts(self.path) if cut.id in self.ids)


def usable_cuts(cuts: Iterable[Cut], table: UnitTable, report: StageReport) -> CutSet:
    """What :func:`usable` gives, in memory."""
    return CutSet.from_cuts(usable(cuts, table, report))


def usable(cuts: Iterable[Cut], table: UnitTable, report: StageReport) -> Iterator[Cut]:
    """The cuts that a model can read: with sound features, and canonical units of the table.

    The others are reported as skipped with a reason; those that stay are not counted yet.
    """
    for cut in cuts:
        try:
            units = table.ids(canonical_units(cut), cut.id)
            if not cut.has_features:
                raise ValueError(f"{cut.id}: no features")
            if cut.num_frames < len(units):
                raise ValueError(f"{cut.id}: {cut.num_frames} frames for {len(units)} units")
            load_features(cut)
        except ValueError as error:
            report.skip(cut.id, str(error))
        else:
            yield cut


def load_features(cut: Cut) -> np.ndarray:
    """Features (num_frames, F) float32 of a cut as stage 1 has stored them.

    Raises:
        FeaturesError: there are none, or they are damaged, or not those that the manifest is about.
    """
    if not cut.has_features:
        raise FeaturesError(f"{cut.id}: no features, run stage 1")
    try:
        features = cut.load_features()
    except Exception as error:  # lhotse's storages raise many kinds
        raise _damaged(cut, f"they cannot be read: {one_line(error, most=400)}") from error
    expected = (cut.num_frames, cut.num_features)
    if features.shape != expected:
        raise _damaged(cut, f"their shape is {features.shape}, not {expected}")
    if not np.isfinite(features).all():
        raise _damaged(cut, "they hold numbers that are not finite")
    digest = (cut.custom or {}).get("features_digest")
    if digest is not None and features_digest(features) != digest:
        raise _damaged(cut, "their content is another")
    return features


def _damaged(cut: Cut, reason: str) -> FeaturesError:
    return FeaturesError(
        f"{cut.id}: its features are damaged, or were made again since ({reason}): run the stages "
        "from stage 1 on"
    )


def features_digest(features: np.ndarray) -> str:
    """32 hexadecimal digits that stand for stored features."""
    content = np.ascontiguousarray(features, dtype="<f4")
    return hashlib.blake2b(content, digest_size=16).hexdigest()


#: Features that a process keeps in memory by default, in MB (10^6 bytes): 17 hours of 40 numbers.
CACHE_MB = 1000


class FeatureCache:
    """What was read last, up to so many bytes; what was not asked for the longest goes first.

    The last one is kept whatever its size: a long recording is asked for section by section.

    Args:
        most_bytes: of all tensors together but for the last; with 0 only the last is kept.

    Attributes:
        num_bytes: of the tensors that are kept, but for the last.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.clear()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: tuple[str, str], make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """The tensor of a key, which is made where it is not kept."""
        if self._last is not None and self._last[0] == key:
            tensor = self._last[1]
        elif key in self._kept:
            tensor = self._kept[key]
        else:
            self._last = None  # so that no two that may be large are there at once
            tensor = make()
            self._keep(key, tensor)
        self._last = key, tensor
        if key in self._kept:
            self._kept.move_to_end(key)
        return tensor

    def _keep(self, key: tuple[str, str], tensor: torch.Tensor) -> None:
        size = tensor.numel() * tensor.element_size()
        if size <= self.most_bytes:
            self._kept[key] = tensor
            self.num_bytes += size
            while self.num_bytes > self.most_bytes:
                _, oldest = self._kept.popitem(last=False)
                self.num_bytes -= oldest.numel() * oldest.element_size()

    def clear(self) -> None:
        """Forget everything."""
        self._last: tuple[tuple[str, str], torch.Tensor] | None = None
        self._kept: OrderedDict[tuple[str, str], torch.Tensor] = OrderedDict()
        self.num_bytes = 0


class UnitDataset(Dataset):
    """Batches in lhotse's manner: indexed by a CutSet, which a sampler gives.

    Features are normalised by the cut's own mean over its frames, so that a cut gets the same
    numbers alone and in any batch (variance is the model's business). With ``deltas`` the first
    and second differences over time of the normalised features are appended.

    Example::

        cuts = load_cuts(Path("data/fsdd/fbank/cuts_train.jsonl.gz"))
        dataset = UnitDataset(UnitTable.load(Path("data/fsdd/units/tokens.txt")))
        for batch_cuts in make_sampler(cuts, max_frames=10000, shuffle=True, seed=0):
            batch = dataset[batch_cuts]

    Args:
        table: ids of the canonical units.
        deltas: whether to append deltas and delta-deltas (three times as many dimensions).
        cache_mb: most memory, in MB, that features take which were read and are kept for the next
            time; 0: only the last cut's are.

    Attributes:
        cache: has what is kept.
    """

    def __init__(self, table: UnitTable, deltas: bool = False, cache_mb: float = CACHE_MB):
        self.table = table
        self.deltas = deltas
        self.cache_mb = cache_mb
        self.cache = FeatureCache(int(cache_mb * 1e6))

    def __getitem__(self, cuts: CutSet) -> dict[str, Any]:
        """One batch.

        Returns:
            ``features``: (B, T, F) float32, zero after the end of a cut; ``num_frames``: (B,)
            int64; ``cut_ids``: B strings. In the order of ``cuts``.

        Raises:
            ValueError: as `load_features`; names the cut.
        """
        cuts = list(cuts)
        features = [self.features(cut) for cut in cuts]
        return {
            "features": torch.nn.utils.rnn.pad_sequence(features, batch_first=True),
            "num_frames": torch.tensor([len(f) for f in features], dtype=torch.int64),
            "cut_ids": [cut.id for cut in cuts],
        }

    def plain(self) -> UnitDataset:
        """Features without deltas of the same cuts, which share the memory that may be taken."""
        if type(self) is UnitDataset and not self.deltas:
            return self
        plain = UnitDataset(self.table, cache_mb=self.cache_mb)
        plain.cache = self.cache
        return plain

    def forget(self) -> None:
        """Forget all that is kept; ids of cuts may then come again with other audio."""
        self.cache.clear()

    def features(self, cut: Cut) -> torch.Tensor:
        """Normalised features (num_frames, F) float32 of one cut.

        Raises:
            ValueError: as `load_features`.
        """
        kind = "deltas" if self.deltas else "plain"
        return self.cache.get((kind, cut.id), lambda: self._read(cut))

    def _read(self, cut: Cut) -> torch.Tensor:
        features = torch.from_numpy(load_features(cut)).to(torch.float32)
        features = features - features.mean(dim=0)
        return append_deltas(features) if self.deltas else features


def append_deltas(features: torch.Tensor) -> torch.Tensor:
    """Append deltas and delta-deltas (window of 5 frames): (T, F) to (T, 3 F)."""
    static = features.T  # torchaudio wants time last
    delta = torchaudio.functional.compute_deltas(static)
    return torch.cat([static, delta, torchaudio.functional.compute_deltas(delta)]).T.contiguous()


def make_sampler(
    cuts: CutSet,
    max_frames: int,
    shuffle: bool,
    seed: int = 0,
    world_size: int = 1,
    rank: int = 0,
) -> CutSampler:
    """Batches of cuts of similar length, at most ``max_frames`` with the padding counted.

    (Times are compared, so that rounding may add half a frame a cut.) Every cut comes once an
    epoch; a cut longer than ``max_frames`` is a batch of its own. Shuffled batches depend on
    ``seed`` and on the epoch that the sampler's ``set_epoch`` was given, and on nothing else;
    without shuffling cuts come in the order of falling length.

    Args:
        cuts: in memory.
        max_frames: largest number of frames of a batch, B times the longest T.
        shuffle: whether to draw batches at random.
        seed: of the drawing.
        world_size: processes that divide the batches. All get the same number of batches: where
            they do not come out even, the cuts of the last ones are divided anew, and if these are
            fewer than the processes, some come again under an id that ends in ``_dup``.
        rank: which of them this is. (Left alone, lhotse would take both from the environment, for
            work that a single process does, too.)

    Raises:
        ValueError: if there is no cut.
    """
    if len(cuts) == 0:
        raise ValueError("no cut to make batches of")
    max_duration = max_frames * FRAME_SHIFT
    if not shuffle:
        cuts = cuts.sort_by_duration()
    num_buckets = min(10, len(cuts) // 20)
    if not shuffle or num_buckets < 2:
        return SimpleCutSampler(
            cuts,
            max_duration=max_duration,
            shuffle=shuffle,
            seed=seed,
            world_size=world_size,
            rank=rank,
        )
    with warnings.catch_warnings():
        # lhotse recommends lazy manifests for corpora that do not fit into memory; ours do.
        warnings.filterwarnings("ignore", message=".*eagerly read CutSet.*")
        return DynamicBucketingSampler(
            cuts,
            max_duration=max_duration,
            num_buckets=num_buckets,
            shuffle=True,
            seed=seed,
            sync_buckets=True,  # without it an empty bucket may end the epoch early
            world_size=world_size,
            rank=rank,
        )


#: Longest recording that networks see whole, in frames.
NETWORK_FRAMES = 6000
#: What they see beyond a section of a longer one, on each side.
NETWORK_MARGIN = 200


class Section(NamedTuple):
    """Frames of a cut, from ``begin`` to ``end`` (exclusive): all, or a part of a long one."""

    cut_id: str
    begin: int
    end: int

    def with_margin(self, num_frames: int) -> Section:
        """The section and what networks see beyond it, in a cut of so many frames."""
        begin = max(self.begin - NETWORK_MARGIN, 0)
        return self._replace(begin=begin, end=min(self.end + NETWORK_MARGIN, num_frames))


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
