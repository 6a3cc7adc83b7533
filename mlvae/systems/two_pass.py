"""Two-Pass-FA: free recognition with the acoustic model of forced alignment, then alignment.

The first pass searches a loop over all units with the model of stage 3. The second aligns what was
recognised, and the two unit sequences are compared; see :func:`with_comparison`. Nothing is
trained but one number, the score of starting a unit in the loop. It is chosen without labels of
what was said: so that as many units are recognised in the validation cuts as their text has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.supervision import AlignmentItem
from rapidfuzz.distance import Levenshtein

from mlvae.data.dataset import Section, UnitDataset, make_sampler
from mlvae.data.units import canonical_units
from mlvae.device import num_parameters
from mlvae.fsa import Emissions, best_path, unit_loop
from mlvae.stage import log
from mlvae.systems.align import Aligner, new_aligner
from mlvae.systems.base import Setup
from mlvae.tiers import DELETED, tier, with_tiers, with_units
from mlvae.train.loop import (
    CHECKPOINT,
    MODEL,
    Gathered,
    Passes,
    keep_passes,
    read_metadata,
    save_model,
    weights_digest,
)

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
    """A recogniser that is ready for use."""

    aligner: Aligner  # of stage 3; its model serves both passes
    insertion_score: float  # natural-log score of starting a unit in the loop
    dataset: UnitDataset  # gives features and units, without deltas

    def recognize(self, cuts: CutSet, passes: Passes | None = None) -> dict[str, list[str]]:
        """Units recognised in each cut, by its id; none where it is too short for a unit."""
        found, batches, passes = Recognised(), self.batches(cuts), passes or Passes()
        total, name = sum(map(_num_frames, batches)), "two-pass-fa, recognise"
        for batch in passes.over(batches, found, name, "frame", total, _num_frames):
            self.recognize_batch(batch, self.emissions(batch), found)
        return {name: self.dataset.table.units(found.units(name)) for name in found.value}

    def localize(self, cuts: CutSet, passes: Passes | None = None) -> tuple[CutSet, list[str]]:
        """Add the tiers ``mlvae`` and ``mlvae_perceived``.

        Args:
            cuts: cuts with features and canonical units.
            passes: what an earlier run has done; None: nothing.

        Returns:
            The cuts with both tiers, in their order, and the ids of those that are too short for
            any unit.
        """
        passes = passes or Passes()
        recognised = self.recognize(cuts, passes)
        spoken = [with_units(cut, recognised[cut.id]) for cut in cuts if recognised[cut.id]]
        times = {}
        if spoken:
            aligned, _ = self.aligner.align(CutSet.from_cuts(spoken), self.dataset, passes)
            times = {cut.id: tier(cut, "fa") for cut in aligned}
        states = self.aligner.config.model.states_per_unit
        short = [cut.id for cut in cuts if cut.num_frames < states]
        # A cut that is long enough and has no unit is all silence.
        answered = [
            with_comparison(cut, times.get(cut.id, [])) for cut in cuts if cut.num_frames >= states
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

    def emissions(self, batch: Batch) -> Emissions:
        """Scores of a batch; they know the ids of its cuts, and which frames of one they are."""
        (first, section), *_ = batch
        if section.end - section.begin < first.num_frames:
            name = f"{first.id} [frames {section.begin} to {section.end}]"
            frames = (section.begin, section.end)
            return self.aligner.score(self.dataset.features(first), [frames], [name])
        return self.aligner.emissions([cut for cut, _ in batch], self.dataset)

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


def train_two_pass(setup: Setup, train_cuts: CutSet, valid_cuts: CutSet) -> dict:
    """Choose the insertion score and write the recogniser to its folder.

    The number of recognised units never falls as the score rises, so that halving a range finds
    the score at which it reaches the number of canonical units.

    Args:
        setup: the system and where it is trained; the aligner of stage 3 lies in ``fa`` beside it.
        train_cuts: of no use here.
        valid_cuts: cuts with features and canonical units.

    Returns:
        What ``training.json`` says. Its time is that of this choice; stage 3 has its own.

    Raises:
        ValueError: there is no aligner, or it is of another configuration; names the file.
    """
    cuts = CutSet.from_cuts(list(valid_cuts)[:MOST_CUTS])
    system = _read(setup, cuts, setup.folder.parent / "fa" / MODEL)
    align = asdict(setup.config.align)
    keeper = keep_passes(
        setup.folder / CHECKPOINT,
        {**align, "weights": weights_digest(system.aligner.model)},
        0,
        [cuts],
    )
    batches = [(batch, system.emissions(batch)) for batch in system.batches(cuts)]
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
    metadata = {"insertion_score": system.insertion_score, "align": align}
    save_model(setup.folder / MODEL, system.aligner.model, metadata)
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


def load_two_pass(setup: Setup, cuts: CutSet) -> TwoPassFa:
    """Read what :func:`train_two_pass` wrote; ``cuts`` have features, whose dimension counts.

    Raises:
        ValueError: there is nothing, or it is of another configuration; names the file.
    """
    path = setup.folder / MODEL
    system = _read(setup, cuts, path)
    system.insertion_score = float(read_metadata(path)["insertion_score"])
    return system


def _read(setup: Setup, cuts: CutSet, path: Path) -> TwoPassFa:
    """The recogniser with the weights of a file, and an insertion score of 0."""
    aligner = new_aligner(setup, cuts)
    aligner.load(path)
    return TwoPassFa(aligner, 0.0, setup.dataset.plain())


def pair_units(canonical: Sequence[str], recognised: Sequence[str]) -> list[tuple[int | None, int]]:
    """Pair canonical with recognised units on an edit path of least cost.

    Args:
        canonical: L canonical units.
        recognised: M recognised units, 0 allowed.

    Returns:
        For each canonical unit the index of the recognised unit that stands for it, equal or not,
        or None where there is none; and how many recognised units come before it on the path.
        Recognised units that no canonical unit is paired with were inserted.
    """
    pairs: list[tuple[int | None, int]] = []
    for step in Levenshtein.opcodes(canonical, recognised):
        for offset in range(step.src_end - step.src_start):
            paired = step.tag in ("equal", "replace")
            index = step.dest_start + offset if paired else None
            pairs.append((index, step.dest_start if index is None else index))
    return pairs


def with_comparison(cut: Cut, recognised: Sequence[AlignmentItem]) -> Cut:
    """Add the tiers ``mlvae`` and ``mlvae_perceived`` of a baseline.

    Both have one item a canonical unit, of equal times, and without score:

    * a unit that was recognised, as itself or as another, has the span of what was recognised;
    * one that was not has no length, lies where it would have been (at the start of the recognised
      unit that follows), and ``mlvae_perceived`` says ``-``: it is flagged, and its IoU is 0;
    * the time of a recognised unit that was inserted belongs to no canonical unit: it is left out
      of the tiers, as silence is, so that they have a gap there.

    Args:
        cut: cut with one supervision, which has canonical units.
        recognised: the units that were recognised in it, in order, with their times in seconds.
    """
    perceived_symbols = [item.symbol for item in recognised]
    end = recognised[-1].end if recognised else 0.0
    units, perceived = [], []
    canonical = canonical_units(cut)
    for symbol, (index, before) in zip(canonical, pair_units(canonical, perceived_symbols)):
        if index is None:
            start, duration, said = end, 0.0, DELETED
            if before < len(recognised):
                start = recognised[before].start
        else:
            found = recognised[index]
            start, duration, said = found.start, found.duration, found.symbol
        units.append(AlignmentItem(symbol, start, duration, None))
        perceived.append(AlignmentItem(said, start, duration, None))
    return with_tiers(cut, {"mlvae": units, "mlvae_perceived": perceived})
