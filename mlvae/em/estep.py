"""The E-step over a set of cuts: best paths of the ML-FSA under the networks' posteriors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import k2
import torch
from lhotse import CutSet

from mlvae.data.dataset import UnitDataset, make_sampler
from mlvae.em import distributed
from mlvae.fsa import (
    Emissions,
    MlFsaCompiler,
    UnitPosteriors,
    UnitSpan,
    best_path,
    plan_batches,
    posteriors,
)
from mlvae.nn import MlVae
from mlvae.pronunciations import graph_units

#: Log-posteriors of units by state, float (B, T, N * S [+ 1]), from the ids of B cuts, their scaled
#: features (B, T, F) and their lengths (B,): what may speak in the place of a model's estimator.
UnitSource = Callable[[Sequence[str], torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass
class Decoding:
    """How posteriors become scores, and what may be heard besides the canonical units.

    Attributes:
        acoustic_scale: factor of log q(y)/p(y).
        use_correctness: whether q(pi) of the speech generator is used; otherwise the constant rate
            that is stored with the model.
        skip: whether units may be left out.
        skip_rate: P(a unit is left out).
        competitors: of topology ``substitution``: how many units may be heard in the place of each,
            the likeliest of the model's confusion table; 0 for all others.
    """

    acoustic_scale: float = 1.0
    use_correctness: bool = True
    skip: bool = False
    skip_rate: float = 0.03
    competitors: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.skip_rate < 1:
            raise ValueError(f"skip_rate must lie between 0 and 1, not {self.skip_rate}")
        if self.competitors < 0:
            raise ValueError(f"competitors must not be below 0, but is {self.competitors}")


@dataclass
class EStepResult:
    """Hard assignments of a set of cuts.

    Attributes:
        spans: spans of each cut by id; cuts with fewer frames than units are left out.
        score: mean log score of the best path a frame.
        flag_rate: share of units that are called mispronounced.
    """

    spans: dict[str, list[UnitSpan]]
    score: float
    flag_rate: float


def search_compiler(model: MlVae, topology: str, decoding: Decoding | None = None) -> MlFsaCompiler:
    """The compiler that goes with a model: its states, silence, and confusion table.

    Args:
        model: whose posteriors are searched.
        topology: of the acceptor, or ``separate``: boundaries first, by the single-path acceptor.
        decoding: what may be heard; None: any other unit in the place of each, and nothing is left
            out.
    """
    decoding = decoding or Decoding()
    if topology == "separate":
        return SeparateCompiler(model.num_units, model.states_per_unit, model.silence)
    competitors = None
    if topology == "substitution":
        competitors = likeliest(model.log_confusion, decoding.competitors)
    return MlFsaCompiler(
        model.num_units,
        topology=topology,
        states_per_unit=model.states_per_unit,
        silence=model.silence,
        skip=decoding.skip,
        competitors=competitors,
        skip_rate=decoding.skip_rate,
    )


def likeliest(log_confusion: torch.Tensor, count: int) -> torch.Tensor:
    """A confusion table with the likeliest entries of each row alone, which then sum to one.

    Args:
        log_confusion: float (N, N), log p(heard | canonical, mispronounced), -inf on the diagonal.
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
        states_per_unit: states a unit.
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
    """Best paths of the same cuts again and again; graphs are built once and kept.

    Args:
        compiler: of the topology to search.
        cuts: cuts with features.
        dataset: gives their features and canonical units.
        max_frames: largest batch, in frames with padding; one whose graphs would take too much
            memory is divided further.
        units: other canonical units than the cuts' own, by cut id, without alternative
            pronunciations.
        shared: whether the processes of a run divide the batches among themselves. They must then
            search together, and each has the answers of all: those of one process alone, to the
            bit, as batches are the same.
    """

    def __init__(
        self,
        compiler: MlFsaCompiler,
        cuts: CutSet,
        dataset: UnitDataset,
        max_frames: int,
        units: dict[str, Sequence[int]] | None = None,
        shared: bool = False,
    ) -> None:
        self.dataset = dataset
        self.shared = shared
        self.cuts = list(make_sampler(cuts, max_frames, shuffle=False))
        if shared:
            self.cuts = distributed.own_share(self.cuts)
        self.units = [graph_units(batch, dataset.table, units) for batch in self.cuts]
        self.use(compiler)

    def use(self, compiler: MlFsaCompiler) -> None:
        """Build the graphs anew, as priors of competitors stand on their arcs."""
        self.compiler = compiler
        self.batches: list[tuple[CutSet, k2.Fsa, k2.Fsa | None]] = []
        self.origin: list[int] = []  # of each of these, which of self.cuts it is a part of
        for number, (cuts, units) in enumerate(zip(self.cuts, self.units)):
            graphs, single = compiler.compile(units), None
            if isinstance(compiler, SeparateCompiler):
                single = compiler.single.compile(units)
            cuts = list(cuts)
            names = [cut.id for cut in cuts]
            for part in plan_batches([cut.num_frames for cut in cuts], graphs, names=names):
                index = torch.tensor(part, dtype=torch.int32)
                self.origin.append(number)
                self.batches.append(
                    (
                        CutSet.from_cuts(cuts[i] for i in part),
                        k2.index_fsa(graphs, index),
                        None if single is None else k2.index_fsa(single, index),
                    )
                )

    def run(
        self,
        model: MlVae,
        decoding: Decoding,
        device: torch.device,
        units: UnitSource | None = None,
    ) -> EStepResult:
        """Search all cuts once; the model is put in evaluation mode and back.

        Args:
            model: gives the posteriors.
            decoding: how they become scores.
            device: where to run.
            units: gives the posteriors of units in the place of the model's estimator.
        """
        paths: list[dict[str, list[UnitSpan]]] = [{} for _ in self.cuts]
        scores = self.scores(model, decoding, device, units)
        for (graphs, emissions), number in zip(scores, self.origin):
            paths[number].update(zip(emissions.names, best_path(graphs, emissions)))
        if self.shared:
            paths = distributed.interleave(distributed.gather(paths))
        spans: dict[str, list[UnitSpan]] = {}
        total, num_frames, num_units, num_flagged = 0.0, 0, 0, 0
        for name, found in (item for batch in paths for item in batch.items() if item[1]):
            spans[name] = found
            total += sum(span.score for span in found)
            num_frames += found[-1].end
            num_units += sum(span.kind == "unit" for span in found)
            num_flagged += sum(span.mispronounced for span in found)
        return EStepResult(spans, total / max(num_frames, 1), num_flagged / max(num_units, 1))

    def localize(
        self, model: MlVae, decoding: Decoding, device: torch.device
    ) -> Iterator[tuple[str, list[UnitSpan], UnitPosteriors]]:
        """Best path and unit posteriors of each cut; no spans where a cut is too short."""
        for graphs, emissions in self.scores(model, decoding, device):
            yield from zip(
                emissions.names, best_path(graphs, emissions), posteriors(graphs, emissions)
            )

    def scores(
        self,
        model: MlVae,
        decoding: Decoding,
        device: torch.device,
        units: UnitSource | None = None,
    ) -> Iterator[tuple[k2.Fsa, Emissions]]:
        """Graphs and emissions of each batch; arguments as in :meth:`run`."""
        was_training = model.training
        model.eval()
        try:
            for cuts, graphs, single in self.batches:
                batch = self.dataset[cuts]
                num_frames = batch["num_frames"]
                with torch.no_grad():
                    features, lengths = batch["features"].to(device), num_frames.to(device)
                    given = None
                    if units is not None:
                        given = units(batch["cut_ids"], model.scale(features), lengths)
                    found = model(features, lengths, given)
                    correctness = found.correctness
                    if not decoding.use_correctness:
                        correctness = model.log_correctness.expand_as(correctness)
                    common = {
                        "log_prior": model.log_prior,
                        "acoustic_scale": decoding.acoustic_scale,
                        "names": batch["cut_ids"],
                    }
                    boundary = found.boundary
                    if single is not None:
                        first = self.compiler.single.emissions(
                            found.units, num_frames, log_boundary=boundary, **common
                        )
                        fixed = self.compiler.fix_boundaries(single, first, boundary.shape[1])
                        boundary = fixed.to(boundary)
                    emissions = self.compiler.emissions(
                        found.units,
                        num_frames,
                        log_boundary=boundary,
                        log_correctness=correctness,
                        **common,
                    )
                yield graphs, emissions
        finally:
            model.train(was_training)
