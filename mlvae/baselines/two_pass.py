"""Two-Pass-FA: free recognition with the acoustic model of forced alignment, then alignment.

The first pass searches a loop over all units with the model of stage 3. The second aligns what was
recognised, and the two unit sequences are compared; see :mod:`mlvae.baselines.compare`. Nothing is
trained but one number, the score of starting a unit in the loop. It is chosen without labels of
what was said: so that as many units are recognised in the validation cuts as their text has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from lhotse import CutSet
from lhotse.cut import Cut

from mlvae.align import AlignConfig, Aligner
from mlvae.baselines.compare import with_comparison
from mlvae.data.dataset import Section, UnitDataset, make_sampler
from mlvae.data.units import UnitTable, canonical_units
from mlvae.device import num_parameters
from mlvae.fsa import Emissions, best_path, unit_loop
from mlvae.stage import log
from mlvae.tiers import tier, with_units
from mlvae.train.loop import (
    Gathered,
    Passes,
    keep_passes,
    read_metadata,
    save_model,
    weights_digest,
)

MODEL = "model.safetensors"
#: Frames of a long recording that are recognised at once, and what neighbours have in common on
#: each side of a cut.
SECTION, OVERLAP = 6000, 200
#: Validation cuts by which the insertion score is chosen, at most; emissions are kept in memory.
MOST_CUTS = 500
#: The natural-log score is sought between minus this and this, by so many halvings at most.
LARGEST_SCORE, STEPS = 1000.0, 20

#: What is recognised together: cuts, or frames of one that is too long for one search.
Batch = Sequence[tuple[Cut, Section]]


@dataclass
class TwoPassFa:
    """A recogniser that is ready for use.

    Attributes:
        aligner: of stage 3; its model serves both passes.
        insertion_score: natural-log score of starting a unit in the loop.
    """

    aligner: Aligner
    insertion_score: float

    def recognize(
        self, cuts: CutSet, dataset: UnitDataset, passes: Passes | None = None
    ) -> dict[str, list[str]]:
        """Units recognised in each cut, by its id; none where it is too short for a unit."""
        found, batches, passes = Recognised(), self.batches(cuts), passes or Passes()
        total, name = sum(map(_num_frames, batches)), "two-pass-fa, recognise"
        for batch in passes.over(batches, found, name, "frame", total, _num_frames):
            self.recognize_batch(batch, self.emissions(batch, dataset), found)
        return {name: dataset.table.units(found.units(name)) for name in found.value}

    def localize(
        self, cuts: CutSet, dataset: UnitDataset, passes: Passes | None = None
    ) -> tuple[CutSet, list[str]]:
        """Add the tiers ``mlvae`` and ``mlvae_heard``.

        Args:
            cuts: cuts with features and canonical units.
            dataset: gives features and units, without deltas.
            passes: what an earlier run has done; None: nothing.

        Returns:
            The cuts with both tiers, in their order, and the ids of those that are too short for
            any unit.
        """
        passes = passes or Passes()
        recognised = self.recognize(cuts, dataset, passes)
        spoken = [with_units(cut, recognised[cut.id]) for cut in cuts if recognised[cut.id]]
        times = {}
        if spoken:
            aligned, _ = self.aligner.align(CutSet.from_cuts(spoken), dataset, passes)
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

    def batches(self, cuts: CutSet) -> list[Batch]:
        """Cuts in batches, the longest first; long ones come last, in sections that overlap."""
        max_cells = self.aligner.max_cells
        num_arcs = unit_loop(self.aligner.compiler.layout, 1, self.insertion_score).num_arcs
        is_long = {cut.id: num_arcs * (cut.num_frames + 1) > max_cells for cut in cuts}
        whole = CutSet.from_cuts(cut for cut in cuts if not is_long[cut.id])
        sampler: Iterable[CutSet] = ()
        if whole:
            sampler = make_sampler(whole, self.aligner.config.search_frames, shuffle=False)
        batches: list[Batch] = [
            [(cut, Section(cut.id, 0, cut.num_frames)) for cut in batch] for batch in sampler
        ]
        size = min(SECTION, max(4 * OVERLAP, max_cells // (4 * num_arcs)))
        for cut in (cut for cut in cuts if is_long[cut.id]):
            for begin in range(0, cut.num_frames, size):
                end = min(begin + size + OVERLAP, cut.num_frames)
                batches.append([(cut, Section(cut.id, max(begin - OVERLAP, 0), end))])
        return batches

    def emissions(self, batch: Batch, dataset: UnitDataset) -> Emissions:
        """Scores of a batch; they know the ids of its cuts, and which frames of one they are."""
        (first, section), *_ = batch
        if section.end - section.begin < first.num_frames:
            name = f"{first.id} [frames {section.begin} to {section.end}]"
            frames = (section.begin, section.end)
            return self.aligner.score(dataset.features(first), [frames], [name])
        data, model = dataset[[cut for cut, _ in batch]], self.aligner.model.eval()
        with torch.no_grad():
            return self.aligner.compiler.emissions(
                model(data["features"].to(self.aligner.device)),
                data["num_frames"],
                log_prior=model.log_prior,
                names=data["cut_ids"],
            )

    def recognize_batch(self, batch: Batch, emissions: Emissions, found: Recognised) -> None:
        """Take over the units of a batch; sections of a cut come one after the other."""
        loops = unit_loop(emissions.layout, len(batch), self.insertion_score)
        for (_, section), spans in zip(batch, best_path(loops, emissions)):
            units = [(section.begin + s.start, s.unit) for s in spans if s.kind == "unit"]
            found.add(section, units)


class Recognised(Gathered):
    """Units that were recognised: by cut id their first frames and ids, and frames up to now."""

    def __init__(self) -> None:
        super().__init__({})

    def add(self, section: Section, units: Sequence[tuple[int, int]]) -> None:
        """Take over first frames and ids of the units of a section, the next of its cut.

        They are joined to those before near the middle of what both sections saw: where both start
        the same unit in the same frame, or in the middle where there is none.
        """
        before, seen = self.value.get(section.cut_id, ([], 0))
        before = list(map(tuple, before))
        middle = (section.begin + seen) // 2
        common = {place for place in before if place[0] >= section.begin} & set(units)
        join = min((frame for frame, _ in common), key=lambda f: abs(f - middle), default=middle)
        kept = [place for place in before if place[0] < join]
        kept += [place for place in units if place[0] >= join]
        self.value[section.cut_id] = kept, section.end

    def units(self, cut_id: str) -> list[int]:
        """Ids of the units of a cut."""
        return [unit for _, unit in self.value[cut_id][0]]

    def __len__(self) -> int:
        return sum(len(units) for units, _ in self.value.values())


def _num_frames(batch: Batch) -> int:
    return sum(section.end - section.begin for _, section in batch)


def train_two_pass(
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
    dataset = UnitDataset(table)
    cuts = CutSet.from_cuts(list(valid_cuts)[:MOST_CUTS])
    system = TwoPassFa(_aligner(align, silence, cuts, dataset, device), 0.0)
    system.aligner.load(Path(folder).parent / "fa" / MODEL)
    keeper = keep_passes(
        Path(folder) / "checkpoint.safetensors",
        {**asdict(align), "weights": weights_digest(system.aligner.model)},
        0,
        [cuts],
    )
    batches = [(batch, system.emissions(batch, dataset)) for batch in system.batches(cuts)]
    total = sum(_num_frames(batch) for batch, _ in batches)
    wanted = sum(len(canonical_units(cut)) for cut in cuts)
    low, high = -LARGEST_SCORE, LARGEST_SCORE
    tried: list[tuple[int, float]] = []
    for step in range(STEPS):
        system.insertion_score = (low + high) / 2
        found = Recognised()
        name = f"two-pass-fa, step {step + 1} of at most {STEPS}"
        for batch, emissions in keeper.state.passes.over(
            batches, found, name, "frame", total, lambda pair: _num_frames(pair[0])
        ):
            system.recognize_batch(batch, emissions, found)
        count = len(found)
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
    keeper.remove()
    return {
        "num_params": num_parameters(system.aligner.model),
        "training_seconds": round(keeper.seconds, 1),
        "insertion_score": system.insertion_score,
        "recognised_units": count,
        "canonical_units": wanted,
        "warnings": _warnings(system.insertion_score),
        "criterion": "as many units recognised in the validation part as its text has",
    }


def _warnings(score: float) -> list[str]:
    """A sentence for the user where the insertion score lies at an end of its range."""
    if abs(score) < 0.9 * LARGEST_SCORE:
        return []
    return [
        f"the insertion score, {score:.4g}, lies at the end of its range from {-LARGEST_SCORE:g} "
        f"to {LARGEST_SCORE:g}: recordings may not belong to their texts"
    ]


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
