"""Forced alignment from a flat start: a narrow model, rounds of training and realigning.

Nothing but features and canonical units is used. The first targets divide each utterance evenly
among its units and each unit among its states; then a narrow acoustic model is trained on the
targets, and the best path of the ``single`` topology under it gives new targets.

A recording that is too large to be searched whole (:data:`MAX_CELLS_WHOLE`) is searched in
stretches; see :mod:`mlvae.em.stretches`. In training this begins with half a minute, as a flat
start is far off in the middle of a long recording. There it divides what is louder than pauses, and
from round to round stretches are those of the last alignment and overlap by half of their length,
so that what was far off can move. When training is over the recording is read from its beginning,
without regard to what training took it for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import k2
import torch
import torch.nn.functional as F
from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.supervision import AlignmentItem
from tqdm import tqdm

from mlvae.data.dataset import UnitDataset, make_sampler
from mlvae.data.units import UnitTable, canonical_units
from mlvae.device import num_parameters, seed_everything
from mlvae.em.checkpoint import load_model, save_model
from mlvae.em.stretches import (
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
    times_of_answer,
)
from mlvae.em.targets import items_of_spans
from mlvae.fsa import (
    MAX_CELLS,
    Emissions,
    MlFsaCompiler,
    UnitSpan,
    best_columns,
    best_path,
)
from mlvae.nn import NarrowAcousticModel, NarrowAcousticModelConfig
from mlvae.pronunciations import (
    canonical_spans,
    cut_pronunciations,
    graph_units,
    places_of_slots,
    spoken_differs,
)
from mlvae.stage import log
from mlvae.tiers import with_tiers

#: Largest search of a whole recording, in cells (arcs x frames): about 1 GB.
MAX_CELLS_WHOLE = 5 * MAX_CELLS
#: Frames of a stretch and of half a seam where the recording was read before, and where an
#: alignment is only as good as the last round's.
SURE = (1000, 200)
UNSURE = (2000, 1000)
#: How often a recording is searched that could not be read from its beginning.
SWEEPS = 5
#: Longest recording that a flat start divides without regard to pauses, and whose first alignments
#: may differ from that by all of its length.
FLAT_FRAMES = 3000
#: Fewest frames of a pause, for the flat start of long recordings.
PAUSE = 20


@dataclass
class AlignConfig:
    """How the aligner is trained.

    Attributes:
        model: sizes of the narrow acoustic model, with its states a unit.
        rounds: rounds of training and realigning.
        epochs_per_round: passes over all frames a round.
        batch_frames: frames a step; they are drawn from all cuts.
        learning_rate: of Adam.
        search_frames: largest batch of the search, in frames with padding.
    """

    model: NarrowAcousticModelConfig = field(default_factory=NarrowAcousticModelConfig)
    rounds: int = 8
    epochs_per_round: int = 2
    batch_frames: int = 2048
    learning_rate: float = 1e-3
    search_frames: int = 20000


class Aligner:
    """A narrow acoustic model with its state prior and its search.

    Args:
        num_features: feature dimension F.
        num_units: units N.
        silence: whether silence is optional at edges and between words.
        config: how to train.
        device: where to run.
        max_cells: a recording whose search has more cells is searched in stretches.
    """

    def __init__(
        self,
        num_features: int,
        num_units: int,
        silence: bool,
        config: AlignConfig,
        device: torch.device,
        max_cells: int = MAX_CELLS_WHOLE,
    ) -> None:
        self.config = config
        self.max_cells = max_cells
        self.device = device
        states = config.model.states_per_unit
        self.compiler = MlFsaCompiler(
            num_units, topology="single", states_per_unit=states, silence=silence
        )
        self.model = NarrowAcousticModel(num_features, num_units, silence, config.model).to(device)
        columns = self.compiler.layout.num_posteriors
        self.model.register_buffer("log_prior", torch.zeros(columns, device=device))

    def train(self, cuts: CutSet, dataset: UnitDataset, seed: int) -> dict:
        """Train from a flat start; return what ``training.json`` says.

        Args:
            cuts: training cuts with features, each with at least as many frames as states.
            dataset: gives features and units.
            seed: of initial weights, order and dropout.
        """
        began = time.monotonic()
        seed_everything(seed)
        self.model.apply(_reset)
        cuts = list(cuts)
        features = [dataset.features(cut) for cut in cuts]
        units = [dataset.table.ids(cut.supervisions[0].custom["units"], cut.id) for cut in cuts]
        frames = torch.cat(features)
        self.model.scale.set(frames.pow(2).mean(0).sqrt())
        padded, position = _with_margins(features, self.config.model.context)
        layout = self.compiler.layout
        silence = layout.num_states if layout.silence else None
        targets, times = [], {}
        for cut, matrix, sequence in zip(cuts, features, units):
            speech = None
            if self._is_long(cut, dataset.table, FLAT_FRAMES):
                speech = _speech(matrix, layout.states_per_unit * len(sequence))
                words = cut_pronunciations(cut, dataset.table)
                times[cut.id] = _even_times(speech, [len(word[0]) for word in words])
            targets.append(
                _flat_start(len(matrix), sequence, layout.states_per_unit, silence, speech)
            )
        scores = []
        optimizer = torch.optim.Adam(self.model.parameters(), lr=self.config.learning_rate)
        rounds = tqdm(
            range(self.config.rounds), desc="align", unit="round", leave=False, disable=None
        )
        for number in rounds:
            target = torch.cat(targets)
            self._set_prior(target)
            loss = self._train_round(padded, position, target, optimizer)
            score, targets = self._realign(CutSet.from_cuts(cuts), dataset, targets, times)
            scores.append(score)
            log(f"round {number + 1}: loss {loss:.4f}, path score {score:.4f} a frame")
        self._set_prior(torch.cat(targets))
        return {
            "num_params": num_parameters(self.model),
            "training_seconds": round(time.monotonic() - began, 1),
            "path_scores": scores,
        }

    def align(self, cuts: CutSet, dataset: UnitDataset) -> tuple[CutSet, list[str]]:
        """Add the tier ``fa``; item scores are mean log scores a frame.

        It has one item a canonical unit. A cut that was found to be spoken in other pronunciations
        than the canonical ones also has ``fa_spoken``, see :mod:`mlvae.pronunciations`.

        Returns:
            The cuts with the tier, in their order, and the ids of those too short for their states.
        """
        found: dict[str, list[UnitSpan]] = {}
        long = self._long(cuts, dataset.table)
        for cut_ids, graphs, emissions in self._search(cuts, dataset, long):
            found.update(zip(cut_ids, best_path(graphs, emissions)))
        for cut in long.values():
            answer = self._read(cut, dataset)
            found[cut.id] = [] if answer is None else answer.spans
        aligned, short = [], []
        for cut in cuts:
            spans = found[cut.id]
            if not spans:
                short.append(cut.id)
                continue
            places = places_of_slots(cut, dataset.table)
            tiers = {"fa": spans}
            if places is not None:
                units = dataset.table.ids(canonical_units(cut), cut.id)
                tiers["fa"] = canonical_spans(spans, places, units)
                if spoken_differs(spans, places, units):
                    tiers["fa_spoken"] = spans
            aligned.append(
                with_tiers(
                    cut,
                    {name: _items(cut, found, dataset.table) for name, found in tiers.items()},
                )
            )
        return CutSet.from_cuts(aligned), short

    def save(self, path: Path) -> None:
        """Write weights, scale and prior."""
        save_model(path, self.model, {"config": asdict(self.config)})

    def load(self, path: Path) -> None:
        """Read what :meth:`save` wrote; ValueError names a file that does not fit."""
        load_model(path, self.model)

    def _train_round(self, padded, position, target, optimizer) -> float:
        self.model.train()
        width = 2 * self.config.model.context + 1
        offsets = torch.arange(width) - self.config.model.context
        total = 0.0
        for _ in range(self.config.epochs_per_round):
            total = 0.0
            for index in torch.randperm(len(position)).split(self.config.batch_frames):
                windows = padded[position[index].unsqueeze(1) + offsets].to(self.device)
                log_probs = self.model.middle_frame(windows)
                loss = F.nll_loss(log_probs, target[index].to(self.device))
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                total += float(loss.detach()) * len(index)
        return total / max(len(position), 1)

    def _realign(
        self,
        cuts: CutSet,
        dataset: UnitDataset,
        before: Sequence[torch.Tensor],
        times: dict[str, list[WordTime]],
    ) -> tuple[float, list[torch.Tensor]]:
        """Mean path score a frame, and the state of each frame of each cut.

        Args:
            cuts: training cuts.
            dataset: gives features and units.
            before: the states up to now; those of a long cut without a path stay.
            times: of the words of long cuts, by cut id; brought up to date.
        """
        columns: dict[str, torch.Tensor] = {}
        total = torch.zeros((), dtype=torch.float64)
        long = self._long(cuts, dataset.table, FLAT_FRAMES)
        for cut, states in zip(cuts, before):
            if cut.id not in long:
                continue
            wanted = Wanted(columns=True)
            answer = self._search_long(cut, dataset, times[cut.id], *UNSURE, wanted)
            columns[cut.id] = states
            if answer is not None:
                total += sum(span.score for span in answer.spans)
                columns[cut.id] = answer.columns
                times[cut.id] = times_of_answer(answer)
        for cut_ids, graphs, emissions in self._search(cuts, dataset, long):
            total += sum(span.score for spans in best_path(graphs, emissions) for span in spans)
            found = best_columns(graphs, emissions)
            for name, row, length in zip(cut_ids, found, emissions.num_frames.tolist()):
                columns[name] = row[:length]
        targets = [columns[cut.id] for cut in cuts]
        return float(total) / sum(len(target) for target in targets), targets

    def _cells(self, words: Words, num_frames: int) -> int:
        """About the cells of a whole search."""
        arcs = sum(map(num_slots, words)) * (2 * self.compiler.layout.states_per_unit + 1)
        return arcs * (num_frames + 1)

    def _is_long(self, cut: Cut, table: UnitTable, most_frames: float = math.inf) -> bool:
        """Whether a cut is searched in stretches."""
        if cut.num_frames > most_frames:
            return True
        return self._cells(cut_pronunciations(cut, table), cut.num_frames) > self.max_cells

    def _long(
        self, cuts: CutSet, table: UnitTable, most_frames: float = math.inf
    ) -> dict[str, Cut]:
        """The cuts that are searched in stretches, by id."""
        return {cut.id: cut for cut in cuts if self._is_long(cut, table, most_frames)}

    def _read(self, cut: Cut, dataset: UnitDataset) -> Answer | None:
        """The alignment of a long cut; None where it has no path."""
        words = cut_pronunciations(cut, dataset.table)
        features = dataset.features(cut)

        def emissions_of(begin: int, end: int, rate: float) -> Emissions:
            starts = torch.tensor([1 - rate, rate]).log().expand(1, end - begin, 2)
            return self.score(features, [(begin, end)], [cut.id], starts)

        self.model.eval()
        times = locate(words, len(features), self.compiler, emissions_of)
        if times is not None:
            return self._search_long(cut, dataset, times, *SURE, Wanted())
        states = self.compiler.layout.states_per_unit
        canonical = [len(word[0]) for word in words]
        times = _even_times(_speech(features, states * sum(canonical)), canonical)
        answer = None
        for _ in range(SWEEPS):
            found = self._search_long(cut, dataset, times, *UNSURE, Wanted())
            if found is None:
                break
            answer, times = found, times_of_answer(found)
        return answer

    def _search_long(
        self,
        cut: Cut,
        dataset: UnitDataset,
        times: Sequence[WordTime],
        most: int,
        margin: int,
        wanted: Wanted,
    ) -> Answer | None:
        """Search a long cut in stretches of ``most`` frames at most; see there."""
        words, features = cut_pronunciations(cut, dataset.table), dataset.features(cut)
        size = stretch_size(self._cells(words, len(features)), len(features), self.max_cells, most)

        def search(stretches: Sequence[Stretch]) -> list[Answer]:
            answers = []
            for some in groups(stretches, self.config.search_frames):
                frames = [(stretch.begin, stretch.end) for stretch in some]
                names = [f"{cut.id} [frames {begin} to {end}]" for begin, end in frames]
                emissions = self.score(features, frames, names)
                graphs = compile_words(
                    self.compiler, [words[one.first_word : one.end_word] for one in some]
                )
                answers += answers_of(graphs, emissions, wanted)
            return answers

        self.model.eval()
        return searched(words, times, len(features), search, size, min(margin, size // 2))

    def score(
        self,
        features: torch.Tensor,
        frames: Sequence[tuple[int, int]],
        names: Sequence[str],
        log_boundary: torch.Tensor | None = None,
    ) -> Emissions:
        """Scores of parts of a recording; the model sees its few frames of context beyond them."""
        context = self.config.model.context
        found = []
        with torch.no_grad():
            for begin, end in frames:
                first = max(begin - context, 0)
                seen = features[first : end + context].unsqueeze(0).to(self.device)
                found.append(self.model(seen)[0, begin - first : end - first])
            return self.compiler.emissions(
                torch.nn.utils.rnn.pad_sequence(found, batch_first=True),
                torch.tensor([end - begin for begin, end in frames]),
                log_prior=self.model.log_prior,
                log_boundary=None if log_boundary is None else log_boundary.to(self.device),
                names=names,
            )

    def _search(
        self, cuts: CutSet, dataset: UnitDataset, long: dict[str, Cut]
    ) -> Iterator[tuple[list[str], k2.Fsa, Emissions]]:
        """Ids, graphs and scores of batches of all cuts but those that are too long."""
        self.model.eval()
        if long:
            cuts = CutSet.from_cuts(cut for cut in cuts if cut.id not in long)
        if not len(cuts):
            return
        for batch_cuts in make_sampler(cuts, self.config.search_frames, shuffle=False):
            batch = dataset[batch_cuts]
            with torch.no_grad():
                log_probs = self.model(batch["features"].to(self.device))
                emissions = self.compiler.emissions(
                    log_probs,
                    batch["num_frames"],
                    log_prior=self.model.log_prior,
                    names=batch["cut_ids"],
                )
            graphs = self.compiler.compile(graph_units(batch_cuts, dataset.table))
            yield batch["cut_ids"], graphs, emissions

    def _set_prior(self, target: torch.Tensor) -> None:
        counts = torch.bincount(target, minlength=len(self.model.log_prior)).double() + 1.0
        self.model.log_prior.copy_((counts / counts.sum()).log())


def _items(cut: Cut, spans: Sequence[UnitSpan], table: UnitTable) -> list[AlignmentItem]:
    """The units of an alignment with their mean scores a frame."""
    units = [span for span in spans if span.kind == "unit"]
    scores = [span.score / max(span.end - span.start, 1) for span in units]
    return items_of_spans(cut, units, table.units(span.unit for span in units), scores)


def _reset(module: torch.nn.Module) -> None:
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()


def _with_margins(features: list[torch.Tensor], context: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All frames in one matrix with ``context`` zero rows around each cut, and where frames lie."""
    margin = features[0].new_zeros(context, features[0].shape[1])
    rows: list[torch.Tensor] = [margin]
    position = []
    begin = context
    for matrix in features:
        rows += [matrix, margin]
        position.append(torch.arange(begin, begin + len(matrix)))
        begin += len(matrix) + context
    return torch.cat(rows), torch.cat(position)


def _flat_start(
    num_frames: int,
    units: list[int],
    states: int,
    silence: int | None = None,
    speech: torch.Tensor | None = None,
) -> torch.Tensor:
    """States of an utterance that is divided evenly, int64 (num_frames,).

    With ``silence``, the column of silence, the utterance begins and ends with a share of it. With
    ``speech``, bool (num_frames,), the frames for which it is true are divided, and the others are
    silence, or belong to what was before them where there is no ``silence``.
    """
    columns = (torch.tensor(units).unsqueeze(1) * states + torch.arange(states)).flatten()
    if speech is not None:
        found = columns[_shares(speech, len(columns))]
        return found if silence is None else found.masked_fill(~speech, silence)
    if silence is not None:
        edge = torch.full((states,), silence)
        columns = torch.cat([edge, columns, edge])
    return columns[torch.arange(num_frames) * len(columns) // num_frames]


def _shares(speech: torch.Tensor, count: int) -> torch.Tensor:
    """int64 (num_frames,): in which of ``count`` equal parts of the speech each frame lies."""
    before = (speech.long().cumsum(0) - 1).clamp(min=0)
    return before * count // int(speech.sum())


def _speech(features: torch.Tensor, fewest: int) -> torch.Tensor:
    """Which frames are no pause, bool (num_frames,): a guess from log energies.

    Args:
        features: (num_frames, F), log mel energies of some scale.
        fewest: states of the utterance; with hardly more frames of speech all of them count.
    """
    energy = features.mean(1)
    low, high = (torch.quantile(energy[:: max(1, len(energy) // 100_000)], q) for q in (0.1, 0.9))
    loud = (energy > low + 0.35 * (high - low)).float()
    # A frame is in a pause where all around it are quiet.
    width = PAUSE // 2 * 2 + 1
    padded = F.pad(loud, (width // 2, width // 2))
    speech = F.max_pool1d(padded.view(1, 1, -1), width, 1).view(-1) > 0
    enough = int(speech.sum()) > 2 * fewest
    return speech if enough else torch.ones(len(features), dtype=torch.bool)


def _even_times(speech: torch.Tensor, num_units: Sequence[int]) -> list[WordTime]:
    """Where words lie that share the speech by their units."""
    first = torch.tensor([0, *num_units]).cumsum(0)
    share = _shares(speech, int(first[-1]))
    starts = torch.searchsorted(share, first[:-1]).tolist()
    # The last frame of speech before the next word starts.
    spoken = speech.nonzero().flatten()
    ends = [*starts[1:], len(speech)]
    last = spoken[(torch.searchsorted(spoken, torch.tensor(ends)) - 1).clamp(min=0)].tolist()
    return [
        WordTime(start, min(max(final + 1, start + 1), end), 0.0)
        for start, end, final in zip(starts, ends, last)
    ]
