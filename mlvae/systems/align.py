"""Forced alignment from a flat start: a narrow model, rounds of training and realigning.

Nothing but features and canonical units is used. The first targets divide each utterance evenly
among its units and each unit among its states; then a narrow acoustic model is trained on the
targets, and the best path of the ``single`` topology under it gives new targets.

A recording that is too large to be searched whole (:data:`MAX_CELLS_WHOLE`) is searched in
stretches; see :mod:`mlvae.train.stretches`. In training this begins with half a minute, as a flat
start is far off in the middle of a long recording. There it divides what is louder than pauses, and
from round to round stretches are those of the last alignment and overlap by half of their length,
so that what was far off can move. When training is over the recording is read from its beginning,
without regard to what training took it for.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate, chain
from pathlib import Path

import k2
import torch
import torch.nn.functional as F
from lhotse import CutSet, MonoCut
from lhotse.cut import Cut
from lhotse.supervision import AlignmentItem
from lhotse.utils import fastcopy

from mlvae.bounds import Count, LearningRate, Settings
from mlvae.data.dataset import FRAME_SHIFT, NETWORK_FRAMES, UnitDataset, make_sampler
from mlvae.data.units import UnitTable, canonical_units
from mlvae.device import num_parameters, seed_everything
from mlvae.fsa import (
    MAX_CELLS,
    Emissions,
    MlFsaCompiler,
    UnitSpan,
    best_path,
)
from mlvae.fsa.emissions import CONSTANT_BOUNDARY_RATE
from mlvae.made import file_digest
from mlvae.nn import NarrowAcousticModel, NarrowAcousticModelConfig
from mlvae.stage import log
from mlvae.systems.base import Setup
from mlvae.tiers import has_tier, tier, with_tiers
from mlvae.train.estep import FoundPaths
from mlvae.train.goodness import UnitModel
from mlvae.train.loop import (
    Gathered,
    Loop,
    Passes,
    TrainingState,
    adapted_count,
    load_model,
    run_identity,
    save_model,
    take_weights,
    text_of,
    text_tensor,
)
from mlvae.train.pronunciations import (
    canonical_spans,
    cut_pronunciations,
    positions_of_slots,
    variant_differs,
)
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
    times_of_path,
    word_times,
)
from mlvae.train.targets import items_of_spans

#: Largest search of a whole recording, in cells (arcs x frames): from there on stretches are fast
MAX_CELLS_WHOLE = MAX_CELLS // 2
#: The same where it is known roughly where the words lie.
MAX_CELLS_SURE = MAX_CELLS // 10
#: Frames of a stretch and of half a seam where the recording was read before, and where an
#: alignment is only as good as the last round's.
SURE = (1000, 200)
UNSURE = (2000, 1000)
#: How often a recording is searched that could not be read from its beginning.
SWEEPS = 5
#: Longest recording that a flat start divides without regard to pauses, and whose first alignments
#: may differ from that by all of its length.
FLAT_FRAMES = 3000
#: Frames that the aligner is trained on, at most: five hours teach so small a model what it can
#: learn, and training has all of its frames in memory.
TRAIN_FRAMES = 1_800_000
#: Fewest frames of a pause, for the flat start of long recordings.
PAUSE = 20


@dataclass
class AlignConfig(Settings):
    """How the aligner is trained."""

    #: Sizes of the narrow acoustic model, with its states per unit.
    model: NarrowAcousticModelConfig = field(default_factory=NarrowAcousticModelConfig)
    rounds: Count = 8  # rounds of training and realigning
    epochs_per_round: Count = 2  # passes over all frames per round
    batch_frames: Count = 2048  # frames a step; they are drawn from all cuts
    learning_rate: LearningRate = 1e-3  # of Adam
    search_frames: Count = 20000  # largest batch of the search, in frames with padding


class Aligner:
    """A narrow acoustic model with its state prior and its search.

    Args:
        num_features: feature dimension F.
        num_units: units N.
        silence: whether silence is optional at edges and between words.
        config: how to train.
        device: where to run.
        max_cells: a recording whose search has more cells is searched in stretches.

    Attributes:
        passes: what is done of a round of training; afterwards they are free for :meth:`align`.
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
        self.passes = Passes()
        #: Log posteriors of states by cut id; see :meth:`keeping`.
        self._kept: dict[str, torch.Tensor] = {}
        self._keeps = False

    def train(
        self,
        cuts: CutSet,
        dataset: UnitDataset,
        seed: int,
        checkpoint: Path | None = None,
        init: Path | None = None,
    ) -> dict:
        """Train from a flat start, or from a trained model; return what ``training.json`` says.

        Args:
            cuts: training cuts with features, each with at least as many frames as states.
            dataset: gives features and units.
            seed: of initial weights, order and dropout.
            checkpoint: file that is written every few minutes and after each round, and that a
                killed training goes on from; who calls removes it in the end. None: there is none.
            init: weights of an aligner of the same units, which gives the first targets in the
                place of the flat start; then half the rounds are left, and the prior of states
                stays. Weights of other sizes are not used, and the log says so.

        Raises:
            ValueError: the checkpoint, or ``init``, is damaged.
        """
        seed_everything(seed)
        self.model.apply(_reset)
        cuts = list(cuts)
        units = [dataset.table.ids(canonical_units(cut), cut.id) for cut in cuts]
        padded, position = _with_margins(
            (dataset.features(cut) for cut in cuts),
            [cut.num_frames for cut in cuts],
            self.config.model.context,
        )
        self.model.scale.set(padded[position].pow_(2).mean(0).sqrt())
        begun = init is not None and self._begin_from(init)
        layout = self.compiler.layout
        silence = layout.num_states if layout.silence else None
        targets, times = [], {}
        for cut, sequence in zip(cuts, units):
            speech = None
            if self._is_long(cut, dataset.table, FLAT_FRAMES):
                speech = _speech(dataset.features(cut), layout.states_per_unit * len(sequence))
                words = cut_pronunciations(cut, dataset.table)
                times[cut.id] = _even_times(speech, [len(word[0]) for word in words])
            targets.append(
                _flat_start(cut.num_frames, sequence, layout.states_per_unit, silence, speech)
            )
        optimizer = torch.optim.Adam(self.model.parameters(), lr=self.config.learning_rate)
        identity = self.identity(cuts, dataset, seed, init)
        state = TrainingState({"model": self.model}, {"model": optimizer}, {}, passes=self.passes)
        rounds = adapted_count(self.config.rounds) if begun else self.config.rounds
        loop = Loop(state, identity, rounds, checkpoint, name="align, round")
        if "targets" in state.tensors:
            lengths = [len(target) for target in targets]
            targets = list(state.tensors["targets"].split(lengths))
            times = _times_of(state.tensors["times"])

        def step(number: int) -> dict[str, float]:
            name = f"align, round {number + 1} of {rounds}"
            if begun and number == 0:
                realign(name)
            target = torch.cat(targets)
            if not begun:
                self._set_prior(target)
            loss = self._train_round(padded, position, target, optimizer, name)
            return {"loss": loss, "path_score": realign(name) / len(target)}

        def realign(name: str) -> float:
            found = self._realign(CutSet.from_cuts(cuts), dataset, times, name)
            # A long cut without a path keeps what it had.
            targets[:] = [found.value.get(cut.id, old) for cut, old in zip(cuts, targets)]
            times.update(found.times)
            return found.score

        loop.run(step, tensors=lambda: {"targets": torch.cat(targets), "times": text_tensor(times)})
        if not begun:
            self._set_prior(torch.cat(targets))
        return {
            "num_params": num_parameters(self.model),
            "training_seconds": round(loop.seconds, 1),
            "path_scores": [scalars["path_score"] for scalars in loop.history],
        }

    def identity(
        self, cuts: Sequence[Cut], dataset: UnitDataset, seed: int, init: Path | None = None
    ) -> str:
        """Equal for trainings that give the same aligner; arguments as of :meth:`train`."""
        num_features = dataset.features(cuts[0]).shape[1]
        setup: dict = {
            "units": dataset.table.symbols,
            "shape": [num_features, self.compiler.layout.num_posteriors],
        }
        if init is not None:
            setup["init"] = file_digest(init)
        return run_identity(asdict(self.config), seed, setup, [cuts])

    def align(
        self, cuts: CutSet, dataset: UnitDataset, passes: Passes | None = None
    ) -> tuple[CutSet, list[str]]:
        """Add the tier ``fa``; item scores are mean log scores per frame.

        It has one item a canonical unit. A cut that was found to be spoken in other pronunciations
        than the canonical ones also has ``fa_variant``, see :mod:`mlvae.train.pronunciations`.

        Args:
            cuts: cuts with features and canonical units. A long one that has the tier already is
                searched where that has its words, roughly; another one is read from its beginning.
            dataset: gives features and units.
            passes: what an earlier run has done; None: nothing.

        Returns:
            The cuts with the tier, in their order, and the ids of those too short for their states.
        """
        paths = FoundPaths()
        long = self._long(cuts, dataset.table)
        for batch in self._left(cuts, long, passes or Passes(), paths, "align"):
            if batch[0].id in long:
                answer = self._read(batch[0], dataset)
                paths.value[batch[0].id] = [] if answer is None else answer.spans
            else:
                graphs, emissions = self._scores(batch, dataset)
                paths.value.update(zip(emissions.names, best_path(graphs, emissions)))
        found = paths.value
        aligned, short = [], []
        for cut in cuts:
            spans = found[cut.id]
            if not spans:
                short.append(cut.id)
                continue
            places = positions_of_slots(cut, dataset.table)
            tiers = {"fa": spans}
            if places is not None:
                units = dataset.table.ids(canonical_units(cut), cut.id)
                tiers["fa"] = canonical_spans(spans, places, units)
                if variant_differs(spans, places, units):
                    tiers["fa_variant"] = spans
            aligned.append(
                with_tiers(
                    cut,
                    {name: _items(cut, found, dataset.table) for name, found in tiers.items()},
                )
            )
        return CutSet.from_cuts(aligned), short

    def with_fit(self, cut: MonoCut, dataset: UnitDataset) -> MonoCut:
        """A copy of a cut that says how well its text explains it, and a free loop over units.

        ``custom["score_per_frame"]`` is the mean, over the frames of the units of the tier ``fa``,
        of the log posterior minus log prior of the aligned states; ``custom["loop_gain"]`` that of
        the best state of any unit in each frame, minus the former. What the graph pays for starting
        and holding units is in neither.

        Args:
            cut: with the tier ``fa``.
            dataset: gives features.
        """
        ratio = self.log_posteriors(cut, dataset) - self.model.log_prior.cpu()
        best = ratio[:, : self.compiler.layout.num_states].amax(1)
        stay, start = math.log(1 - CONSTANT_BOUNDARY_RATE), math.log(CONSTANT_BOUNDARY_RATE)
        forced = loop = 0.0
        frames = 0
        for item in tier(cut, "fa"):
            first = round(item.start / FRAME_SHIFT)
            last = min(max(round(item.end / FRAME_SHIFT), first + 1), len(best))
            length = last - first
            paid = (length - 1) * stay + (start if first else 0.0)
            forced += item.score * length - paid
            loop += float(best[first:last].sum())
            frames += length
        score, loop = round(forced / frames, 4), round(loop / frames, 4)
        fit = {"score_per_frame": score, "loop_gain": round(loop - score, 4)}
        return fastcopy(cut, custom={**(cut.custom or {}), **fit})

    def save(self, path: Path) -> None:
        """Write weights, scale and prior."""
        save_model(path, self.model, {"config": asdict(self.config)})

    def load(self, path: Path) -> None:
        """Read what :meth:`save` wrote; ValueError names a file that does not fit."""
        load_model(path, self.model)

    def unit_model(self, dataset: UnitDataset) -> UnitModel:
        """Its acoustic model by units; ``dataset`` gives features without deltas."""
        network, states = self.model.eval(), self.config.model.states_per_unit

        def log_probs(features: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            return network(features)

        return UnitModel(log_probs, dataset, self.device, states, self._kept)

    @contextlib.contextmanager
    def keeping(self) -> Iterator[None]:
        """Within the block the model sees a cut once; what it says is kept by the cut's id."""
        self._keeps = True
        try:
            yield
        finally:
            self._keeps = False
            self._kept.clear()

    @torch.no_grad()
    def log_posteriors(self, cut: Cut, dataset: UnitDataset) -> torch.Tensor:
        """Log posteriors of states (and silence) in each frame of a cut, float32 (T, C) on CPU."""
        if cut.id in self._kept:
            return self._kept[cut.id]
        self.model.eval()
        features = dataset.features(cut)
        begins = range(0, len(features), NETWORK_FRAMES)
        parts = (self._part(features, begin, begin + NETWORK_FRAMES) for begin in begins)
        return torch.cat([part.cpu() for part in parts])

    def _part(self, features: torch.Tensor, begin: int, end: int) -> torch.Tensor:
        """Log posteriors of some frames; the model sees its context beyond them."""
        first = max(begin - self.config.model.context, 0)
        seen = features[first : end + self.config.model.context].unsqueeze(0).to(self.device)
        return self.model(seen)[0, begin - first : end - first]

    def _begin_from(self, path: Path) -> bool:
        """Take over a trained model, whole or not at all; whether it was."""
        before = {name: value.clone() for name, value in self.model.state_dict().items()}
        _, left = take_weights(path, self.model)
        if left:
            self.model.load_state_dict(before)
            log(f"flat start: other sizes than in {path}: {left}")
        else:
            log(f"begins from {path}")
        return not left

    def _train_round(self, padded, position, target, optimizer, description: str) -> float:
        self.model.train()
        width = 2 * self.config.model.context + 1
        offsets = torch.arange(width) - self.config.model.context
        epoch = _Epoch()
        for _ in range(self.config.epochs_per_round):
            epoch = _Epoch()
            batches = self.passes.over(
                epoch.batches(len(position), self.config.batch_frames),
                epoch,
                description,
                "frame",
                len(position),
                len,
            )
            for index in batches:
                windows = padded[position[index].unsqueeze(1) + offsets].to(self.device)
                log_probs = self.model.middle_frame(windows)
                loss = F.nll_loss(log_probs, target[index].to(self.device))
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                epoch.total += float(loss.detach()) * len(index)
        return epoch.total / max(len(position), 1)

    def _realign(
        self, cuts: CutSet, dataset: UnitDataset, times: dict[str, list[WordTime]], name: str
    ) -> _States:
        """The states of all frames by a new search; none of a long cut without a path.

        Args:
            cuts: training cuts.
            dataset: gives features and units.
            times: of the words of long cuts up to now, by cut id.
            name: of the round.
        """
        states, wanted = _States(), Wanted(columns=True)
        long = self._long(cuts, dataset.table, FLAT_FRAMES)
        for batch in self._left(cuts, long, self.passes, states, f"{name}, search"):
            if batch[0].id in long:
                cut = batch[0]
                answer = self._search_long(cut, dataset, times[cut.id], *UNSURE, wanted)
                if answer is not None:
                    states.score += sum(span.score for span in answer.spans)
                    states.value[cut.id] = answer.columns
                    states.times[cut.id] = times_of_path(answer.spans)
                continue
            graphs, emissions = self._scores(batch, dataset)
            answers = answers_of(graphs, emissions, wanted)
            states.score += sum(span.score for answer in answers for span in answer.spans)
            states.value.update(zip(emissions.names, (answer.columns for answer in answers)))
        return states

    def _cells(self, words: Words, num_frames: int) -> int:
        """About the cells of a whole search."""
        arcs = sum(map(num_slots, words)) * (2 * self.compiler.layout.states_per_unit + 1)
        return arcs * (num_frames + 1)

    def _is_long(self, cut: Cut, table: UnitTable, most_frames: float = math.inf) -> bool:
        """Whether a cut is searched in stretches."""
        if cut.num_frames > most_frames:
            return True
        most = min(self.max_cells, MAX_CELLS_SURE) if has_tier(cut, "fa") else self.max_cells
        return self._cells(cut_pronunciations(cut, table), cut.num_frames) > most

    def _long(
        self, cuts: CutSet, table: UnitTable, most_frames: float = math.inf
    ) -> dict[str, Cut]:
        """The cuts that are searched in stretches, by id."""
        return {cut.id: cut for cut in cuts if self._is_long(cut, table, most_frames)}

    def _read(self, cut: Cut, dataset: UnitDataset) -> Answer | None:
        """The alignment of a long cut; None where it has no path."""
        if has_tier(cut, "fa"):
            times = word_times(cut, dataset.table)
            return self._search_long(cut, dataset, times, *SURE, Wanted())
        words = cut_pronunciations(cut, dataset.table)
        features = dataset.features(cut)

        def emissions_of(begin: int, end: int, starts: torch.Tensor) -> Emissions:
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
            answer, times = found, times_of_path(found.spans)
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
        with torch.no_grad():
            found = [self._part(features, begin, end) for begin, end in frames]
            return self.compiler.emissions(
                torch.nn.utils.rnn.pad_sequence(found, batch_first=True),
                torch.tensor([end - begin for begin, end in frames]),
                log_prior=self.model.log_prior,
                log_boundary=None if log_boundary is None else log_boundary.to(self.device),
                names=names,
            )

    def _left(
        self,
        cuts: CutSet,
        long: dict[str, Cut],
        passes: Passes,
        gathered: Gathered,
        description: str,
    ) -> Iterator[CutSet]:
        """Batches of cuts that a pass has not searched yet; each long one is a batch of its own."""
        short = CutSet.from_cuts(cut for cut in cuts if cut.id not in long)
        sampler = make_sampler(short, self.config.search_frames, shuffle=False) if short else ()
        batches = chain(sampler, (CutSet.from_cuts([cut]) for cut in long.values()))
        total = sum(cut.num_frames for cut in cuts)
        return passes.over(batches, gathered, description, "frame", total, _num_frames)

    def _scores(self, cuts: CutSet, dataset: UnitDataset) -> tuple[k2.Fsa, Emissions]:
        """Graphs and scores of a batch of cuts that are searched whole."""
        words = [cut_pronunciations(cut, dataset.table) for cut in cuts]
        graphs = compile_words(self.compiler, words, [cut.id for cut in cuts])
        return graphs, self.emissions(cuts, dataset)

    def emissions(self, cuts: CutSet, dataset: UnitDataset) -> Emissions:
        """Scores of a batch of cuts that are searched whole."""
        self.model.eval()
        batch = dataset[cuts]
        with torch.no_grad():
            log_probs = self.model(batch["features"].to(self.device))
            if self._keeps:
                for name, row, size in zip(batch["cut_ids"], log_probs, batch["num_frames"]):
                    self._kept[name] = row[:size].cpu()
            return self.compiler.emissions(
                log_probs,
                batch["num_frames"],
                log_prior=self.model.log_prior,
                names=batch["cut_ids"],
            )

    def _set_prior(self, target: torch.Tensor) -> None:
        counts = torch.bincount(target, minlength=len(self.model.log_prior)).double() + 1.0
        self.model.log_prior.copy_((counts / counts.sum()).log())


def drawn(num_frames: Mapping[str, int], seed: int) -> set[str]:
    """The ids of the cuts that an aligner is trained on, of which frames are given by id.

    Of more than :data:`TRAIN_FRAMES` as many are drawn by the seed, and the log says so.
    """
    total = sum(num_frames.values())
    if total <= TRAIN_FRAMES:
        return set(num_frames)
    hours, of = (frames * FRAME_SHIFT / 3600 for frames in (TRAIN_FRAMES, total))
    log(f"the aligner is trained on {hours:.1f} of {of:.1f} hours, drawn by the seed")
    names = sorted(num_frames)
    random.Random(seed).shuffle(names)
    ends = accumulate(num_frames[name] for name in names)
    return {name for name, end in zip(names, ends) if end - num_frames[name] < TRAIN_FRAMES}


def new_aligner(setup: Setup, cuts: CutSet) -> Aligner:
    """An aligner of the recipe's configuration that is not trained.

    Args:
        setup: of a system; its settings play no part.
        cuts: some cuts with features; their dimension counts.
    """
    config = setup.config
    num_features = setup.dataset.plain().features(cuts[0]).shape[1]
    return Aligner(num_features, len(setup.table), config.silence, config.align, setup.device)


def load_aligner(setup: Setup, cuts: CutSet) -> Aligner:
    """The forced aligner of the experiment that a system is of.

    Args:
        setup: of the system; the aligner's folder ``fa`` is that of ``setup`` or beside it.
        cuts: some cuts with features; their dimension counts.

    Raises:
        ValueError: it has not been trained, or with another configuration; names the file.
    """
    if setup.aligner is not None:
        return setup.aligner
    aligner = new_aligner(setup, cuts)
    aligner.load(setup.folder.parent / "fa" / "model.safetensors")
    return aligner


def _items(cut: Cut, spans: Sequence[UnitSpan], table: UnitTable) -> list[AlignmentItem]:
    """The units of an alignment with their mean scores per frame."""
    units = [span for span in spans if span.kind == "unit"]
    scores = [span.score / max(span.end - span.start, 1) for span in units]
    return items_of_spans(cut, units, table.units(span.unit for span in units), scores)


class _Epoch(Gathered):
    """An epoch over frames: the sum of its losses, and what its order was drawn from."""

    def __init__(self) -> None:
        self.total = 0.0
        self.drawn_from: torch.Tensor | None = None

    def batches(self, num_frames: int, size: int) -> Iterator[torch.Tensor]:
        """All frames in the order of this epoch, ``size`` by ``size``."""
        if self.drawn_from is None:
            self.drawn_from = torch.get_rng_state()
            order = torch.randperm(num_frames)
        else:  # an earlier run has drawn it; its generator is further by now
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(self.drawn_from)
                order = torch.randperm(num_frames)
        yield from order.split(size)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The sum, and the state of the random generator before the order was drawn."""
        total = torch.tensor(self.total, dtype=torch.float64)
        return {"total": total, "drawn_from": self.drawn_from}

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take over what a checkpoint has."""
        self.total = float(tensors["total"])
        self.drawn_from = tensors["drawn_from"]


class _States(Gathered):
    """What a search has found: the score of all paths, and by cut the state of each frame.

    Attributes:
        times: where words lie, of long cuts.
    """

    def __init__(self) -> None:
        super().__init__({})
        self.score = 0.0
        self.times: dict[str, list[WordTime]] = {}

    def tensors(self) -> dict[str, torch.Tensor]:
        """The score, the names of the cuts, their lengths and their states in one row."""
        return {
            "score": torch.tensor(self.score, dtype=torch.float64),
            "names": text_tensor(list(self.value)),
            "lengths": torch.tensor([len(states) for states in self.value.values()]),
            "states": torch.cat([torch.zeros(0, dtype=torch.int64), *self.value.values()]),
            "times": text_tensor(self.times),
        }

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take over what a checkpoint has."""
        self.score = float(tensors["score"])
        states = tensors["states"].split(tensors["lengths"].tolist())
        self.value = dict(zip(text_of(tensors["names"]), states))
        self.times = _times_of(tensors["times"])


def _times_of(tensor: torch.Tensor) -> dict[str, list[WordTime]]:
    """Where words lie by cut id, from a checkpoint."""
    return {name: [WordTime(*time) for time in times] for name, times in text_of(tensor).items()}


def _num_frames(cuts: CutSet) -> int:
    return sum(cut.num_frames for cut in cuts)


def _reset(module: torch.nn.Module) -> None:
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()


def _with_margins(
    features: Iterable[torch.Tensor], num_frames: Sequence[int], context: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """All frames in one matrix with ``context`` zero rows around each cut, and where frames lie."""
    # Filled cut by cut: all features beside the matrix would take as much memory again.
    total, padded = sum(num_frames), torch.zeros(0, 0)
    position = torch.zeros(total, dtype=torch.int64)
    begin, filled = context, 0
    for matrix, length in zip(features, num_frames):
        if not filled:
            rows = total + context * (len(num_frames) + 1)
            padded = matrix.new_zeros(rows, matrix.shape[1])
        padded[begin : begin + length] = matrix
        position[filled : filled + length] = torch.arange(begin, begin + length)
        begin, filled = begin + length + context, filled + length
    return padded, position


def _flat_start(
    num_frames: int,
    units: list[int],
    states: int,
    silence: int | None = None,
    speech: torch.Tensor | None = None,
) -> torch.Tensor:
    """States of an utterance that is divided evenly, int64 (num_frames,).

    With ``silence``, the column of silence, the utterance begins and ends with a part of it. With
    ``speech``, bool (num_frames,), the frames for which it is true are divided, and the others are
    silence, or belong to what was before them where there is no ``silence``.
    """
    columns = (torch.tensor(units).unsqueeze(1) * states + torch.arange(states)).flatten()
    if speech is not None:
        found = columns[_parts(speech, len(columns))]
        return found if silence is None else found.masked_fill(~speech, silence)
    if silence is not None:
        edge = torch.full((states,), silence)
        columns = torch.cat([edge, columns, edge])
    return columns[torch.arange(num_frames) * len(columns) // num_frames]


def _parts(speech: torch.Tensor, count: int) -> torch.Tensor:
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
    part = _parts(speech, int(first[-1]))
    starts = torch.searchsorted(part, first[:-1]).tolist()
    # The last frame of speech before the next word starts.
    spoken = speech.nonzero().flatten()
    ends = [*starts[1:], len(speech)]
    last = spoken[(torch.searchsorted(spoken, torch.tensor(ends)) - 1).clamp(min=0)].tolist()
    return [
        WordTime(start, min(max(final + 1, start + 1), end), 0.0)
        for start, end, final in zip(starts, ends, last)
    ]
