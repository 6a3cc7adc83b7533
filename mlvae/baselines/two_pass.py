"""Two-Pass-FA: free recognition with the acoustic model of forced alignment, then alignment.

The first pass searches a loop over all units with the model of stage 3. The second aligns what was
recognised, and the two unit sequences are compared; see :mod:`mlvae.baselines.compare`. Nothing is
trained but one number, the score of starting a unit in the loop. It is chosen without labels of
what was said: so that as many units are recognised in the validation cuts as their text has.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import repeat
from pathlib import Path

import torch
from lhotse import CutSet

from mlvae.align import AlignConfig, Aligner
from mlvae.baselines.compare import with_comparison
from mlvae.data.dataset import UnitDataset, make_sampler
from mlvae.data.units import UnitTable, canonical_units
from mlvae.device import num_parameters
from mlvae.em.checkpoint import read_metadata, save_model
from mlvae.em.sections import Section
from mlvae.fsa import Emissions, best_path, unit_loop
from mlvae.stage import log
from mlvae.tiers import tier, with_units

MODEL = "model.safetensors"
#: Frames of a long recording that are recognised at once, and what neighbours have in common on
#: each side of a cut.
SECTION, OVERLAP = 6000, 200


@dataclass
class TwoPassConfig:
    """How the insertion score is chosen.

    Attributes:
        most_cuts: validation cuts that are looked at, at most; their emissions are kept in memory.
        largest_score: the natural-log score is sought between minus this and this.
        steps: halvings of that range, at most.
    """

    most_cuts: int = 500
    largest_score: float = 1000.0
    steps: int = 20

    def __post_init__(self) -> None:
        for name in ("most_cuts", "largest_score", "steps"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")


@dataclass
class TwoPassFa:
    """A recogniser that is ready for use.

    Attributes:
        aligner: of stage 3; its model serves both passes.
        insertion_score: natural-log score of starting a unit in the loop.
    """

    aligner: Aligner
    insertion_score: float

    def recognize(self, cuts: CutSet, dataset: UnitDataset) -> dict[str, list[str]]:
        """Units recognised in each cut, by its id; none where it is too short for a unit."""
        return self.recognize_in(self.emissions(cuts, dataset), dataset.table)

    def localize(self, cuts: CutSet, dataset: UnitDataset) -> tuple[CutSet, list[str]]:
        """Add the tiers ``mlvae`` and ``mlvae_heard``.

        Args:
            cuts: cuts with features and canonical units.
            dataset: gives features and units, without deltas.

        Returns:
            The cuts with both tiers, in their order, and the ids of those that are too short for
            any unit.
        """
        recognised = self.recognize(cuts, dataset)
        spoken = [with_units(cut, recognised[cut.id]) for cut in cuts if recognised[cut.id]]
        times = {}
        if spoken:
            aligned, _ = self.aligner.align(CutSet.from_cuts(spoken), dataset)
            times = {cut.id: tier(cut, "fa") for cut in aligned}
        states = self.aligner.config.model.states_per_unit
        short = [cut.id for cut in cuts if cut.num_frames < states]
        # A cut that is long enough and has no unit is all silence.
        answered = [
            with_comparison(cut, canonical_units(cut), times.get(cut.id, []))
            for cut in cuts
            if cut.num_frames >= states
        ]
        return CutSet.from_cuts(answered), short

    def emissions(
        self, cuts: CutSet, dataset: UnitDataset
    ) -> Iterator[tuple[Emissions, list[Section]]]:
        """Scores of all cuts in batches, the longest first, and which frames of which cut they are.

        A cut that is too large for one search comes in sections that overlap.
        """
        aligner = self.aligner
        model, layout = aligner.model.eval(), aligner.compiler.layout
        num_arcs = unit_loop(layout, 1, self.insertion_score).num_arcs
        is_long = {cut.id: num_arcs * (cut.num_frames + 1) > aligner.max_cells for cut in cuts}
        whole = CutSet.from_cuts(cut for cut in cuts if not is_long[cut.id])
        search_frames = aligner.config.search_frames
        for batch_cuts in make_sampler(whole, search_frames, shuffle=False) if whole else ():
            batch = dataset[batch_cuts]
            names, lengths = batch["cut_ids"], batch["num_frames"]
            with torch.no_grad():
                emissions = aligner.compiler.emissions(
                    model(batch["features"].to(aligner.device)),
                    lengths,
                    log_prior=model.log_prior,
                    names=names,
                )
            yield emissions, [Section(*one) for one in zip(names, repeat(0), lengths.tolist())]
        for cut in cuts:
            if not is_long[cut.id]:
                continue
            features = dataset.features(cut)
            size = min(SECTION, max(4 * OVERLAP, aligner.max_cells // (4 * num_arcs)))
            for begin in range(0, len(features), size):
                end = min(begin + size + OVERLAP, len(features))
                part = Section(cut.id, max(begin - OVERLAP, 0), end)
                name = f"{cut.id} [frames {part.begin} to {part.end}]"
                yield aligner.score(features, [(part.begin, part.end)], [name]), [part]

    def recognize_in(
        self, batches: Iterable[tuple[Emissions, list[Section]]], table: UnitTable
    ) -> dict[str, list[str]]:
        """Units recognised in each cut of :meth:`emissions`."""
        found: dict[str, list[tuple[int, int]]] = {}
        seen: dict[str, int] = {}
        for emissions, parts in batches:
            loops = unit_loop(emissions.layout, len(parts), self.insertion_score)
            for part, spans in zip(parts, best_path(loops, emissions)):
                starts = [
                    (part.begin + span.start, span.unit) for span in spans if span.kind == "unit"
                ]
                before = found.setdefault(part.cut_id, [])
                found[part.cut_id] = _continued(before, starts, part, seen.get(part.cut_id, 0))
                seen[part.cut_id] = part.end
        return {cut_id: table.units(unit for _, unit in starts) for cut_id, starts in found.items()}


def _continued(
    before: list[tuple[int, int]], starts: list[tuple[int, int]], part: Section, seen: int
) -> list[tuple[int, int]]:
    """Units up to now and those of the next section, joined near the middle of what both saw.

    Where both start the same unit in the same frame is the place; in the middle where there is
    none.

    Args:
        before: first frames and units up to now.
        starts: those of the section.
        part: the section.
        seen: where the section before it ended.
    """
    middle = (part.begin + seen) // 2
    common = {place for place in before if place[0] >= part.begin} & set(starts)
    join = min((frame for frame, _ in common), key=lambda f: abs(f - middle), default=middle)
    return [place for place in before if place[0] < join] + [p for p in starts if p[0] >= join]


def train_two_pass(
    config: TwoPassConfig,
    align: AlignConfig,
    silence: bool,
    valid_cuts: CutSet,
    table: UnitTable,
    folder: Path,
    device: torch.device,
) -> dict:
    """Choose the insertion score and write the recogniser to its folder.

    The number of recognised units never falls as the score rises, so that halving a range finds
    the score at which it reaches the number of canonical units.

    Args:
        config: how to choose.
        align: of the aligner of stage 3.
        silence: whether silence is optional there.
        valid_cuts: cuts with features and canonical units.
        table: ids of the units.
        folder: where to write; the aligner of stage 3 lies in ``fa`` beside it.
        device: where to run.

    Returns:
        What ``training.json`` says. Its time is that of this choice; stage 3 has its own.

    Raises:
        ValueError: there is no aligner, or it is of another configuration; names the file.
    """
    began = time.monotonic()
    dataset = UnitDataset(table)
    cuts = CutSet.from_cuts(list(valid_cuts)[: config.most_cuts])
    system = TwoPassFa(_aligner(align, silence, cuts, dataset, device), 0.0)
    system.aligner.load(Path(folder).parent / "fa" / MODEL)
    batches = list(system.emissions(cuts, dataset))
    wanted = sum(len(canonical_units(cut)) for cut in cuts)
    low, high = -config.largest_score, config.largest_score
    tried: list[tuple[int, float]] = []
    for _ in range(config.steps):
        system.insertion_score = (low + high) / 2
        count = sum(map(len, system.recognize_in(batches, table).values()))
        tried.append((count, system.insertion_score))
        if count == wanted:
            break
        if count < wanted:
            low = system.insertion_score
        else:
            high = system.insertion_score
    count, system.insertion_score = min(tried, key=lambda pair: abs(pair[0] - wanted))
    log(
        f"two-pass-fa: insertion score {system.insertion_score:.4g} recognises {count} units in "
        f"{len(cuts)} validation cuts, whose text has {wanted}"
    )
    metadata = {"insertion_score": system.insertion_score, "align": asdict(align)}
    save_model(Path(folder) / MODEL, system.aligner.model, metadata)
    return {
        "num_params": num_parameters(system.aligner.model),
        "training_seconds": round(time.monotonic() - began, 1),
        "insertion_score": system.insertion_score,
        "recognised_units": count,
        "canonical_units": wanted,
        "criterion": "as many units recognised in the validation part as its text has",
    }


def load_two_pass(
    align: AlignConfig,
    silence: bool,
    cuts: CutSet,
    table: UnitTable,
    folder: Path,
    device: torch.device,
) -> TwoPassFa:
    """Read what :func:`train_two_pass` wrote.

    Raises:
        ValueError: there is nothing, or it is of another configuration; names the file.
    """
    path = Path(folder) / MODEL
    aligner = _aligner(align, silence, cuts, UnitDataset(table), device)
    aligner.load(path)
    return TwoPassFa(aligner, float(read_metadata(path)["insertion_score"]))


def _aligner(
    config: AlignConfig, silence: bool, cuts: CutSet, dataset: UnitDataset, device: torch.device
) -> Aligner:
    num_features = dataset.features(cuts[0]).shape[1]
    return Aligner(num_features, len(dataset.table), silence, config, device)
