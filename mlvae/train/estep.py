"""The E-step over a set of cuts: best paths of the ML-FSA under the networks' posteriors.

A cut whose search is too large for the memory is searched in stretches; see
:mod:`mlvae.train.stretches`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import NamedTuple

import k2
import torch
from lhotse import CutSet
from lhotse.cut import Cut
from torch.nn.utils.rnn import pad_sequence

from mlvae.data.dataset import UnitDataset, make_sampler, sections
from mlvae.device import give_back_memory
from mlvae.fsa import (
    MAX_CELLS,
    Emissions,
    MlFsaCompiler,
    best_path,
    plan_batches,
    restrict,
)
from mlvae.fsa.search import arc_row_splits, slot_tables
from mlvae.fsa.topology import find_topology
from mlvae.nn import MlVae
from mlvae.nn.model import Posteriors
from mlvae.tiers import has_tier
from mlvae.train import distributed
from mlvae.train.loop import Gathered, Passes
from mlvae.train.packed import PackedSpans
from mlvae.train.pronunciations import cut_pronunciations
from mlvae.train.settings import Decoding
from mlvae.train.stretches import (
    Answer,
    Stretch,
    Wanted,
    Words,
    WordTime,
    answers_of,
    compile_words,
    groups,
    locate,
    num_slots,
    searched,
    stretch_size,
    word_times,
)

#: Frames of a stretch and of half a seam: far more than what neighbours tell of a unit. Longer ones
#: would take longer a second of speech.
STRETCH, SEAM = 600, 200
#: Sections of a long recording that networks see at once.
SECTIONS_AT_ONCE = 8
#: Words by which the size of a long recording's graph is estimated.
SOME_WORDS = 100


#: Frames whose scores are kept for another search of the same cuts, at most.
KEPT_FRAMES = 20_000
#: Bytes of graphs that an E-step keeps for the next search, at most; to compile one takes a
#: twentieth of the time that its search takes.
GRAPH_BYTES = 500_000_000
#: Bytes of an arc: four numbers, twelve attributes and a score.
ARC_BYTES = 68
#: What is decided of the slots of a cut, see :func:`mlvae.fsa.restrict`.
Decisions = Sequence["bool | None"]


class SearchBatch(NamedTuple):
    """Cuts that are searched together, or one that is searched in stretches.

    Attributes:
        number: which of the sampler's batches they are of.
        cuts: with features.
        whole: whether they are searched whole.
        graphs: of these cuts; None where they are compiled when they are needed.
    """

    number: int
    cuts: CutSet
    whole: bool
    graphs: k2.Fsa | None = None


@dataclass
class EStepResult:
    """Hard assignments of a set of cuts.

    Attributes:
        spans: of each cut by id; cuts with fewer frames than units are left out.
        score: mean log score of the best path a frame.
        flag_rate: fraction of units that are called mispronounced.
    """

    spans: PackedSpans
    score: float
    flag_rate: float


class FoundPaths(Gathered):
    """Best paths that a search has found, by the id of the cut."""

    def __init__(self) -> None:
        super().__init__(PackedSpans())

    def tensors(self) -> dict[str, torch.Tensor]:
        """All that a checkpoint needs."""
        return self.value.tensors()

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take over what a checkpoint has."""
        self.value = PackedSpans.from_tensors(tensors)


def search_compiler(model: MlVae, topology: str, decoding: Decoding | None = None) -> MlFsaCompiler:
    """The compiler that goes with a model: its states, silence, and confusion table.

    Args:
        model: whose posteriors are searched.
        topology: of the acceptor, or ``separate``: boundaries first, by the single-path acceptor.
        decoding: what may be perceived; None: any other unit in the place of each, no deletions.
    """
    decoding = decoding or Decoding()
    if topology == "separate":
        return SeparateCompiler(model.num_units, model.states_per_unit, model.silence)
    competitors = None
    if find_topology(topology).takes_competitors:
        competitors = likeliest(model.log_confusion, decoding.competitors)
    return MlFsaCompiler(
        model.num_units,
        topology=topology,
        states_per_unit=model.states_per_unit,
        silence=model.silence,
        deletions=decoding.deletions,
        competitors=competitors,
        deletion_rate=decoding.deletion_rate,
    )


def likeliest(log_confusion: torch.Tensor, count: int) -> torch.Tensor:
    """A confusion table with the likeliest entries of each row alone, which then sum to one.

    Args:
        log_confusion: float (N, N), log p(perceived | canonical, mispronounced), -inf on the
            diagonal.
        count: entries to keep of each row; 0 or as many as there are keeps the table as it is.
    """
    if not 0 < count < len(log_confusion) - 1:
        return log_confusion
    kept = torch.full_like(log_confusion, -torch.inf)
    values, places = log_confusion.topk(count, dim=1)
    return kept.scatter(1, places, values.log_softmax(1))


class SeparateCompiler(MlFsaCompiler):
    """The paper's Appendix "Estimating B-hat and Pi-hat separately" (its equation map3).

    B-hat is the best path's of the single-path acceptor. The acceptor of two branches is then
    searched under boundaries that are certain where B-hat has them and impossible elsewhere. All
    that is left to find is pi of each segment::

        argmax  q(pi = 0) prod_t q(c)/p(c),  q(pi = 1) prod_t (1 - q(c))/(1 - p(c))

    (Silence, where there is any, may still move within what lies between two starts.)

    Args:
        num_units: units N.
        states_per_unit: states per unit.
        silence: whether silence is optional at edges and between words.
    """

    #: Log-probability of a boundary that is impossible; finite, as k2 adds it up along paths.
    IMPOSSIBLE = -1e4

    def __init__(self, num_units: int, states_per_unit: int, silence: bool) -> None:
        super().__init__(num_units, "ml", states_per_unit, silence)
        self.single = MlFsaCompiler(num_units, "single", states_per_unit, silence)

    def fix_boundaries(self, graphs: k2.Fsa, emissions: Emissions, size: int) -> torch.Tensor:
        """Log q(b_t) that leaves only the best path's boundaries.

        Args:
            graphs: of ``single``.
            emissions: of ``single``.
            size: T.

        Returns:
            float (B, T, 2) on CPU; a cut without a path has log q = 0 for both everywhere.
        """
        found = best_path(graphs, emissions)
        log_boundary = torch.zeros(len(found), size, 2)
        for row, spans in zip(log_boundary, found):
            if spans:
                starts = [span.start for span in spans if span.kind == "unit"]
                row[:, 1] = self.IMPOSSIBLE
                row[starts] = torch.tensor([self.IMPOSSIBLE, 0.0])
        return log_boundary


class EStep:
    """Best paths of the same cuts again and again.

    Graphs are kept from one search to the next as far as :data:`GRAPH_BYTES` allows, and compiled
    batch by batch beyond it.

    Args:
        compiler: of the topology to search.
        cuts: cuts with features.
        dataset: gives their features and canonical units.
        max_frames: largest batch, in frames with padding; one whose graphs would take too much
            memory is divided further, and so is a cut that alone would.
        units: other canonical units than the cuts' own, by cut id, without alternative
            pronunciations.
        shared: whether the processes of a run divide the batches among themselves. They must then
            search together, and each has the answers of all: those of one process alone, to the
            bit, as batches are the same.
        max_cells: largest search, in cells; see :func:`mlvae.fsa.plan_batches`.
    """

    def __init__(
        self,
        compiler: MlFsaCompiler,
        cuts: CutSet,
        dataset: UnitDataset,
        max_frames: int,
        units: dict[str, Sequence[int]] | None = None,
        shared: bool = False,
        max_cells: int = MAX_CELLS,
    ) -> None:
        self.max_frames = max_frames
        self.max_cells = max_cells
        self.dataset = dataset
        self.shared = shared
        self.cuts = list(make_sampler(cuts, max_frames, shuffle=False))
        if shared:
            self.cuts = distributed.shard(self.cuts)
        self.other_units = units
        #: Scores by the number of a batch and its first cut; see :meth:`answers`.
        self._kept: dict[tuple[int, str], tuple[Emissions, Posteriors]] = {}
        self.use(compiler)

    def use(self, compiler: MlFsaCompiler) -> None:
        """Build the graphs anew, as priors of competitors stand on their arcs."""
        self.compiler = compiler
        self.batches: list[SearchBatch] = []
        long: list[SearchBatch] = []
        kept = 0
        for number, cuts in enumerate(self.cuts):
            cuts, words = list(cuts), self._words(cuts)
            # A graph that is far too large is not even built: each slot has two arcs and more.
            small = [
                2 * sum(map(num_slots, own)) * (cut.num_frames + 1) <= self.max_cells
                for cut, own in zip(cuts, words)
            ]
            long += [_alone(number, cut) for cut, fits in zip(cuts, small) if not fits]
            cuts = [cut for cut, fits in zip(cuts, small) if fits]
            words = [own for own, fits in zip(words, small) if fits]
            if not cuts:
                continue
            graphs = compile_words(self.compiler, words)
            num_arcs = arc_row_splits(graphs).diff()
            cells = num_arcs * (torch.tensor([cut.num_frames for cut in cuts]) + 1)
            fitting = (cells <= self.max_cells).nonzero().flatten().tolist()
            long += [_alone(number, cut) for i, cut in enumerate(cuts) if i not in set(fitting)]
            lengths = [cuts[i].num_frames for i in fitting]
            names = [cuts[i].id for i in fitting]
            for part in plan_batches(lengths, num_arcs[fitting], self.max_cells, names):
                part = [fitting[i] for i in part]
                some, own = CutSet.from_cuts(cuts[i] for i in part), None
                kept += ARC_BYTES * int(num_arcs[part].sum())
                if kept <= GRAPH_BYTES:
                    own = k2.index_fsa(graphs, torch.tensor(part, dtype=torch.int32))
                self.batches.append(SearchBatch(number, some, True, own))
        self.batches += long

    def _words(self, cuts: Iterable[Cut]) -> list[Words]:
        """The words of cuts, each with its pronunciations."""
        table, others = self.dataset.table, self.other_units
        return [
            cut_pronunciations(cut, table, None if others is None else others[cut.id])
            for cut in cuts
        ]

    def run(
        self,
        model: MlVae,
        decoding: Decoding,
        device: torch.device,
        passes: Passes | None = None,
        description: str = "search",
    ) -> EStepResult:
        """Search all cuts once; the model is put in evaluation mode and back.

        Args:
            model: gives the posteriors.
            decoding: how they become scores.
            device: where to run.
            passes: which batches are searched already; None: none.
            description: what the progress bar says.
        """
        found = FoundPaths()
        batches = self.left(passes or Passes(), found, description)
        for name, answer in self.answers(model, decoding, device, Wanted(), batches):
            found.value[name] = answer.spans
        names: list[list[str]] = [[] for _ in self.cuts]
        for batch in self.batches:
            names[batch.number] += [cut.id for cut in batch.cuts]
        paths = [found.value.some(own) for own in names]
        if self.shared:
            paths = distributed.merge_shards(distributed.gather(paths))
        spans = PackedSpans()
        for batch in paths:
            spans.update(batch)
        total, num_frames, num_units, num_flagged = 0.0, 0, 0, 0
        for name in list(spans):  # not all of items at once, which are lists
            path = spans[name]
            if not path:
                del spans[name]
                continue
            total += sum(span.score for span in path)
            num_frames += path[-1].end
            num_units += sum(span.kind == "unit" for span in path)
            num_flagged += sum(span.mispronounced for span in path)
        give_back_memory()
        return EStepResult(spans, total / max(num_frames, 1), num_flagged / max(num_units, 1))

    def left(self, passes: Passes, gathered: Gathered, description: str) -> Iterator[SearchBatch]:
        """The batches that a pass has not done yet, with a progress bar of frames."""

        def num_frames(batch: SearchBatch) -> int:
            return sum(cut.num_frames for cut in batch.cuts)

        rounds = 0
        if self.shared:
            rounds = max(distributed.gather(len(self.batches)))
        total = sum(map(num_frames, self.batches))
        return passes.over(self.batches, gathered, description, "frame", total, num_frames, rounds)

    def answers(
        self,
        model: MlVae,
        decoding: Decoding,
        device: torch.device,
        wanted: Wanted,
        batches: Iterable[SearchBatch] | None = None,
        decided: Mapping[str, Decisions] | None = None,
        keep: bool = False,
    ) -> Iterator[tuple[str, Answer]]:
        """Search all cuts, or those of some batches; one without a path has no spans.

        Args:
            model: as in :meth:`run`, and so are the others.
            decoding: how posteriors become scores.
            device: where to run.
            wanted: what is asked besides best paths.
            batches: those to search; None: all.
            decided: by cut id which units are mispronounced, where that is decided by more than
                the acceptor knows: paths are then the best ones under these decisions, where there
                are any.
            keep: whether scores are kept for the next search, with the same model and decoding, as
                far as :data:`KEPT_FRAMES` allows; what a search finds kept it takes away.

        Yields:
            The id of a cut, and the answer.
        """
        with _evaluating(model):
            for batch in self.batches if batches is None else batches:
                if not batch.whole:
                    for cut in batch.cuts:
                        with torch.no_grad():
                            found = self._search_long(
                                cut, model, decoding, device, wanted, (decided or {}).get(cut.id)
                            )
                        yield cut.id, found or Answer([])
                    continue
                key = batch.number, batch.cuts[0].id
                graphs = batch.graphs
                if graphs is None:
                    graphs = compile_words(self.compiler, self._words(batch.cuts))
                scores = self._kept.pop(key, None)
                scores = scores or self._scores(batch.cuts, model, decoding, device)
                emissions, found = scores
                if keep and self._num_kept() + int(emissions.num_frames.sum()) <= KEPT_FRAMES:
                    self._kept[key] = scores
                if decided is None:
                    answers = answers_of(graphs, emissions, wanted)
                else:
                    answers = _decided(graphs, emissions, wanted, decided)
                if wanted.log_posteriors:
                    lengths = emissions.num_frames.tolist()
                    for answer, row, length in zip(answers, found.units.cpu(), lengths):
                        answer.log_posteriors = row[:length]
                yield from zip(emissions.names, answers)

    def _num_kept(self) -> int:
        return sum(int(emissions.num_frames.sum()) for emissions, _ in self._kept.values())

    @torch.no_grad()
    def _scores(
        self, cuts: CutSet, model: MlVae, decoding: Decoding, device: torch.device
    ) -> tuple[Emissions, Posteriors]:
        """Scores of cuts that are searched whole, and what they are made of."""
        data = self.dataset[cuts]
        num_frames, names = data["num_frames"], data["cut_ids"]
        features, lengths = data["features"].to(device), num_frames.to(device)
        found = model(features, lengths)
        single = None
        if isinstance(self.compiler, SeparateCompiler):
            single = compile_words(self.compiler.single, self._words(cuts))
        emissions = self._emissions(model, decoding, found, num_frames, names, single)
        return emissions, found

    def _emissions(
        self,
        model: MlVae,
        decoding: Decoding,
        found: Posteriors,
        num_frames: torch.Tensor,
        names: Sequence[str],
        single: k2.Fsa | None,
    ) -> Emissions:
        """Scores of a batch; ``single`` are its graphs for topology ``separate``."""
        common = {
            "log_prior": model.log_prior,
            "acoustic_scale": decoding.acoustic_scale,
            "names": names,
        }
        boundary = found.boundary
        if single is not None:
            first = self.compiler.single.emissions(
                found.units, num_frames, log_boundary=boundary, **common
            )
            fixed = self.compiler.fix_boundaries(single, first, boundary.shape[1])
            boundary = fixed.to(boundary)
        return self.compiler.emissions(
            found.units,
            num_frames,
            log_boundary=boundary,
            log_correctness=found.correctness,
            **common,
        )

    def _search_long(
        self,
        cut: Cut,
        model: MlVae,
        decoding: Decoding,
        device: torch.device,
        wanted: Wanted,
        decided: Decisions | None,
    ) -> Answer | None:
        """Search a cut in stretches; None where it cannot be aligned, or has no path."""
        words = self._words([cut])[0]
        found = self._posteriors_of(cut, model, device)
        size = found.units.shape[0]
        if has_tier(cut, "fa"):
            times = word_times(cut, self.dataset.table)
        else:
            times = _times(model, words, found)
        if times is None:
            return None

        def answer(decided: Decisions | None) -> Answer | None:
            by_word = None if decided is None else _by_word(decided, words)

            def search(stretches: Sequence[Stretch]) -> list[Answer]:
                answers: list[Answer] = []
                for some in groups(stretches, self.max_frames):
                    answers += self._search_some(
                        cut, words, found, some, model, decoding, asked, by_word
                    )
                return answers

            return searched(words, times, size, search, most, min(SEAM, most // 2))

        asked = replace(wanted, paths=True)  # stretches are put together along their paths
        some_words = words[:SOME_WORDS]
        num_arcs = compile_words(self.compiler, [some_words]).num_arcs
        num_arcs *= sum(map(num_slots, words)) / sum(map(num_slots, some_words))
        most = stretch_size(int(num_arcs * (size + 1)), size, self.max_cells, STRETCH)
        whole = answer(decided)
        if decided is not None and (whole is None or not whole.spans):
            whole = answer(None)  # what was decided cannot be
        if whole is not None and wanted.log_posteriors:
            whole.log_posteriors = found.units.cpu()
        return whole

    def _search_some(
        self,
        cut: Cut,
        words: Words,
        found: Posteriors,
        stretches: Sequence[Stretch],
        model: MlVae,
        decoding: Decoding,
        wanted: Wanted,
        decided: Sequence[Decisions] | None,
    ) -> list[Answer]:
        """Search stretches of a cut.

        ``found`` are its posteriors, (T, C) each, and ``decided`` is by word.
        """
        batch = [words[one.first_word : one.end_word] for one in stretches]
        graphs, single = compile_words(self.compiler, batch), None
        if decided is not None:
            of_stretches = [decided[one.first_word : one.end_word] for one in stretches]
            graphs = restrict(graphs, [list(chain(*some)) for some in of_stretches])
        if isinstance(self.compiler, SeparateCompiler):
            single = compile_words(self.compiler.single, batch)
        lengths = torch.tensor([one.end - one.begin for one in stretches])
        num_arcs = arc_row_splits(graphs).diff()
        answers = [Answer([]) for _ in stretches]
        # One that is still too large is one long word, and has no answer.
        fitting = (num_arcs * (lengths + 1) <= self.max_cells).nonzero().flatten().tolist()
        for part in plan_batches(lengths[fitting], num_arcs[fitting], self.max_cells):
            part = [fitting[i] for i in part]
            some = [stretches[i] for i in part]
            names = [f"{cut.id} [frames {one.begin} to {one.end}]" for one in some]
            index = torch.tensor(part, dtype=torch.int32)
            emissions = self._emissions(
                model,
                decoding,
                Posteriors(
                    *(
                        pad_sequence([values[one.begin : one.end] for one in some], True)
                        for values in found
                    )
                ),
                lengths[part],
                names,
                None if single is None else k2.index_fsa(single, index),
            )
            own = answers_of(k2.index_fsa(graphs, index), emissions, wanted)
            for place, answer in zip(part, own):
                answers[place] = answer
        return answers

    def _posteriors_of(self, cut: Cut, model: MlVae, device: torch.device) -> Posteriors:
        """What the networks say of a long cut, (T, C) each; see :mod:`mlvae.data.dataset`."""
        whole = self.dataset.features(cut)
        num_frames = len(whole)
        inner = sections(cut.id, num_frames)
        found: list[Posteriors] = []
        for begin in range(0, len(inner), SECTIONS_AT_ONCE):
            some = inner[begin : begin + SECTIONS_AT_ONCE]
            seen = [one.with_margin(num_frames) for one in some]
            features = pad_sequence([whole[one.begin : one.end] for one in seen], True).to(device)
            lengths = torch.tensor([one.end - one.begin for one in seen], device=device)
            of_batch = model(features, lengths)
            for row, (one, outer) in enumerate(zip(some, seen)):
                own = slice(one.begin - outer.begin, one.end - outer.begin)
                found.append(Posteriors(*(values[row, own] for values in of_batch)))
        return Posteriors(*map(torch.cat, zip(*found)))


def _by_word(decided: Decisions, words: Words) -> list[Decisions]:
    """What was decided of the slots of each word."""
    edges = [0, *accumulate(map(num_slots, words))]
    return [decided[begin:end] for begin, end in zip(edges[:-1], edges[1:])]


def _decided(
    graphs: k2.Fsa, emissions: Emissions, wanted: Wanted, decided: Mapping[str, Decisions]
) -> list[Answer]:
    """Answers of a batch that is searched whole, with the best paths under decisions."""
    free = [[None] * len(unit) for unit, _ in slot_tables(graphs)]
    chosen = [decided.get(name, nothing) for name, nothing in zip(emissions.names, free)]
    paths = best_path(restrict(graphs, chosen), emissions)
    if any(not path and name in decided for name, path in zip(emissions.names, paths)):
        # What was decided cannot be, as of a unit that has no competitors.
        paths = [one or other for one, other in zip(paths, best_path(graphs, emissions))]
    answers = answers_of(graphs, emissions, replace(wanted, paths=False))
    for answer, path in zip(answers, paths):
        answer.spans = path
    return answers


def _alone(number: int, cut: Cut) -> SearchBatch:
    """A cut that is searched in stretches."""
    return SearchBatch(number, CutSet.from_cuts([cut]), False)


@contextlib.contextmanager
def _evaluating(model: MlVae) -> Iterator[None]:
    """The model in evaluation mode, and back."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _times(model: MlVae, words: Words, found: Posteriors) -> list[WordTime] | None:
    """Where words lie by the model itself, for a cut that was not aligned before."""
    single = MlFsaCompiler(model.num_units, "single", model.states_per_unit, model.silence)

    def emissions_of(begin: int, end: int, starts: torch.Tensor) -> Emissions:
        return single.emissions(
            found.units[None, begin:end],
            torch.tensor([end - begin]),
            log_prior=model.log_prior,
            log_boundary=starts.to(found.units),
        )

    return locate(words, len(found.units), single, emissions_of)
