"""P(mispronounced) of a system: the acceptor's answer, goodness of pronunciation, and rates.

The acceptor says where units lie and what may have been said in their place. How likely a unit is
mispronounced, it knows badly: frames are no independent witnesses, its one rate fits no unit and no
speaker, and whatever is estimated from its own answers feeds on itself. A judge brings it together
with other measures (:mod:`mlvae.train.evidence`) and with how mispronunciations cluster
(:mod:`mlvae.train.rates`). It is fitted after training, to held-out cuts: to units that are
replaced on purpose, and to the units as they are for how often they are wrong, under a prior; or,
where the model is trusted, to its own answers and to which units are heard otherwise than written
by the aligner that learned from what it perceived.

The features of an adapted system (:mod:`mlvae.train.adaptation`) are those of each speaker, where
it is fitted as where it answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import torch
from lhotse import CutSet
from lhotse.cut import Cut

from mlvae.bounds import Count, Rate, Settings
from mlvae.data.dataset import UnitDataset
from mlvae.data.units import UnitTable, canonical_units
from mlvae.made import atomic_path
from mlvae.nn import MlVae
from mlvae.plausibility import edge_warnings
from mlvae.stage import log
from mlvae.systems.align import Aligner
from mlvae.systems.base import Setup
from mlvae.tiers import units_of_words, with_units
from mlvae.train.adaptation import AdaptedDataset, fit_maps
from mlvae.train.confusion import acoustic_confusions
from mlvae.train.estep import EStep, search_compiler
from mlvae.train.evidence import (
    CONFUSABLE,
    LARGEST_ODDS,
    Evidence,
    fit_evidence,
    fit_to_answers,
    heard_otherwise,
    rates_of_units,
    replace_units,
)
from mlvae.train.goodness import Goodness, UnitModel
from mlvae.train.pronunciations import by_position, positions_of_slots
from mlvae.train.rates import Rates, RatesConfig, UnitSequences, fit_rates, unit_sequences
from mlvae.train.settings import Decoding
from mlvae.train.stretches import Answer, Wanted
from mlvae.train.targets import spans_of_tier

#: What a judge is kept in.
JUDGE = "judge.json"
#: An aligner: the forced one, or that of what a system perceived.
AlignerName = Literal["fa", "boundaries"]
#: Corruption rates that are tried where no unit was drawn at the configured one.
HIGHER_RATES = (0.3, 0.6)


@dataclass
class JudgeConfig(Settings):
    """How a judge is fitted."""

    #: Prior of how often units are mispronounced.
    rates: RatesConfig = field(default_factory=RatesConfig)
    corruption_rate: Rate = 0.1  # fraction of units that are replaced on purpose
    #: Held-out cuts that are used, and as many training cuts where the model is trusted.
    max_cuts: Count = 1000


@dataclass(frozen=True)
class Verdict:
    """What a judge says of a cut; float64."""

    mispronounced: np.ndarray  # (L,), P(mispronounced or deleted) of each canonical unit
    words: np.ndarray | None  # (W,), P(any unit of the word is); None for a cut without words


@dataclass(frozen=True)
class Judge:
    """A fitted judge."""

    evidence: Evidence  # makes a log-likelihood ratio of measures
    rates: Rates  # how often units are wrong
    #: Acoustic models that are asked for goodness of pronunciation: the estimator's of the system,
    #: and an aligner's.
    models: tuple[UnitModel, ...]
    table: UnitTable  # ids of the units
    aligner: AlignerName = "fa"  # whose model the second one is

    @property
    def estimator(self) -> UnitModel:
        """The acoustic model of the system itself."""
        return self.models[0]

    def judge(self, cuts: Sequence[Cut], measures: np.ndarray) -> dict[str, Verdict]:
        """Judge the units of cuts, those of a speaker together; where nobody is named, each alone.

        Args:
            cuts: with canonical units.
            measures: float64 (n, M) of their units, see :func:`measure`.
        """
        if not cuts:
            return {}
        sequences = sequences_of(cuts, self.table)
        found = self.rates.correctness(sequences, self.evidence.log_ratio(measures, sequences))
        first = np.flatnonzero(sequences.first).tolist() + [len(sequences.unit)]
        verdicts = {}
        for cut, begin, end in zip(cuts, first[:-1], first[1:]):
            mispronounced, words = found.mispronounced[begin:end], None
            word_of = units_of_words(cut)
            if word_of is not None:
                right = found.stays_right[begin:end].copy()
                starts = np.diff(np.array(word_of), prepend=-1) != 0
                right[starts] = 1 - mispronounced[starts]
                words = 1 - np.multiply.reduceat(right, np.flatnonzero(starts))
            verdicts[cut.id] = Verdict(mispronounced, words)
        return verdicts

    def save(self, path: Path) -> None:
        """Write a JSON file."""
        content = {
            "aligner": self.aligner,
            "evidence": asdict(self.evidence),
            "rates": asdict(self.rates),
        }
        with atomic_path(path) as part:
            part.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def load_judge(
    path: Path, system: SearchedModel, aligners: Mapping[AlignerName, Aligner], table: UnitTable
) -> Judge:
    """Read what :meth:`Judge.save` wrote.

    Args:
        path: of the file.
        system: that it judges.
        aligners: that the system has.
        table: of its units.

    Raises:
        ValueError: the file is not there, damaged, or of other units; names it.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        name = content["aligner"]
        models = system.unit_models(aligners[name])
        evidence = Evidence.from_dict(content["evidence"])
        rates = Rates.from_dict(content["rates"])
        scalars = evidence.median, evidence.weight, evidence.bias, evidence.median_part
        scalars += rates.log_odds, rates.within_word, rates.across_words, rates.mean
        values = (*scalars, *evidence.spreads, *evidence.weights, *rates.of_units)
        values = (*values, *np.ravel(evidence.centres))
        if not np.isfinite(np.array(values, dtype=np.float64)).all() or min(evidence.spreads) <= 0:
            raise ValueError("a number is not finite, or a spread not above 0")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{path}: no judge can be read (run stage 4 again): {type(error).__name__}: {error}"
        ) from None
    if {len(rates.of_units), *map(len, evidence.centres)} != {len(table)}:
        raise ValueError(f"{path}: its judge is of other units than the {len(table)} of the table")
    return Judge(evidence, rates, models, table, name)


def sequences_of(cuts: Sequence[Cut], table: UnitTable) -> UnitSequences:
    """The canonical units of cuts, with their words and who speaks."""
    return unit_sequences(
        [table.ids(canonical_units(cut), cut.id) for cut in cuts],
        [units_of_words(cut) for cut in cuts],
        [cut.supervisions[0].speaker for cut in cuts],
    )


def measure(
    cuts: Sequence[Cut], wrong: Mapping[str, torch.Tensor], models: Sequence[UnitModel]
) -> np.ndarray:
    """What is known of each unit of some cuts, higher for what fits worse.

    Args:
        cuts: with features, canonical units and the tier ``fa``.
        wrong: by cut id P(mispronounced or deleted) over all paths, (L,).
        models: whose goodness of pronunciation is asked for.

    Returns:
        float64 (n, 1 + 2 K): the log-odds of ``wrong``, and by model the negative GOP and LPR; NaN
        for units without frames.
    """
    odds = [wrong[cut.id].double().logit().clamp(-LARGEST_ODDS, LARGEST_ODDS) for cut in cuts]
    columns = [torch.cat(odds).numpy()]
    for model in models:
        found = _goodness(cuts, model)
        columns += [-found.gop.numpy(), -found.ratio.numpy()]
    return np.stack(columns, axis=1)


def _goodness(cuts: Sequence[Cut], model: UnitModel) -> Goodness:
    """Goodness of pronunciation of the units of cuts, one after another."""
    some = CutSet.from_cuts(cuts)
    found = {cut.id: model.goodness(cut, log_probs) for cut, log_probs in model.of_cuts(some)}
    return Goodness(*map(torch.cat, zip(*(found[cut.id] for cut in cuts))))


_Searched = TypeVar("_Searched", bound="SearchedModel")


@dataclass(frozen=True)
class SearchedModel:
    """A trained model and the acceptor that is searched with it."""

    model: MlVae  # the networks
    topology: str  # of the acceptor
    decoding: Decoding  # how posteriors become scores
    dataset: UnitDataset  # gives features and units
    device: torch.device  # where to run
    #: Whether its features are adapted to each speaker, see :mod:`mlvae.train.adaptation`; cuts
    #: then need the tier ``fa``.
    adapted: bool = False

    def adapted_to(self: _Searched, cuts: Iterable[Cut]) -> _Searched:
        """The model for some cuts: itself, or where it is adapted, with features of their speakers.

        Raises:
            ValueError: it is adapted, and a cut has no tier ``fa``; names the cut.
        """
        if not self.adapted:
            return self
        maps = fit_maps(cuts, self.unit_model(), self.model.silence)
        return replace(self, dataset=AdaptedDataset(self.dataset, maps), adapted=False)

    def unadapted_rate(self, cuts: CutSet) -> float | None:
        """The rate of mispronounced units that the model finds before it is adapted.

        Adapted to a text, it takes some that are wrong for right; which ones are, it knows better.

        Returns:
            None: it is not adapted, or no cut has a path.
        """
        wrong = list(self.wrong_units(cuts).values()) if self.adapted else []
        return torch.cat(wrong).mean().item() if wrong else None

    def unit_model(self) -> UnitModel:
        """The phoneme estimator as an acoustic model of units."""

        def log_probs(features: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            self.model.eval()
            return self.model.estimator(self.model.scale(features), lengths)

        return UnitModel(log_probs, self.dataset, self.device, self.model.states_per_unit)

    def unit_models(self, *aligners: Aligner) -> tuple[UnitModel, ...]:
        """Acoustic models that can be asked for goodness of pronunciation: its own, and theirs."""
        plain = self.dataset.plain()
        return self.unit_model(), *(aligner.unit_model(plain) for aligner in aligners)

    def wrong_units(self, cuts: CutSet) -> dict[str, torch.Tensor]:
        """P(mispronounced or deleted) over all paths by cut id, float64 (L,).

        Cuts that are too short for their units have none.
        """
        table = self.dataset.table
        compiler = search_compiler(self.model, self.topology, self.decoding)
        search = EStep(compiler, cuts, self.dataset, max_frames=8000)
        by_id, found = {cut.id: cut for cut in cuts}, {}
        wanted = Wanted(posteriors=True)
        for name, answer in search.answers(self.model, self.decoding, self.device, wanted):
            if answer.spans:
                found[name], _ = wrong_and_deleted(by_id[name], answer, table)
        return found


def wrong_and_deleted(
    cut: Cut, answer: Answer, table: UnitTable
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """P(mispronounced or deleted) and P(deleted) of each canonical unit, float64 (L,).

    The latter is None where no unit can be left out.
    """
    units = answer.posteriors
    wrong, deleted = units.mispronounced + units.deleted, units.deleted
    positions = positions_of_slots(cut, table)
    if positions is not None:
        size = len(canonical_units(cut))
        wrong, deleted = (by_position(p, positions, size) for p in (wrong, deleted))
    # A sum over many paths may exceed 1 in the last digits.
    return wrong.clamp(max=1.0), deleted.clamp(max=1.0) if answer.can_skip else None


@dataclass(frozen=True)
class HeldOut:
    """Measures of held-out units, and of units in whose text some are replaced."""

    measures: np.ndarray  # float64 (n, M), see :func:`measure`
    sequences: UnitSequences  # of these n units
    corrupted_measures: np.ndarray  # float64 (m, M)
    corrupted: UnitSequences  # of these m units, as they are written
    replaced: np.ndarray  # bool (m,), which of them are replaced


def hold_out(
    system: SearchedModel,
    cuts: CutSet,
    aligner: Aligner,
    config: JudgeConfig,
    seed: int,
    confusable: float = CONFUSABLE,
    others: Sequence[Aligner] = (),
) -> HeldOut:
    """Measure held-out units under their text and under one with replaced units.

    Args:
        system: trained.
        cuts: held-out cuts with features; they are aligned here.
        aligner: of the experiment, trained.
        config: sizes.
        seed: of what is replaced.
        confusable: see :func:`mlvae.train.evidence.replace_units`.
        others: whose models are also asked for goodness of pronunciation.
    """
    aligned = _aligned(system, cuts, aligner, config)
    system = system.adapted_to(aligned)
    dataset, table = system.dataset, system.dataset.table
    own = {cut.id: table.ids(canonical_units(cut), cut.id) for cut in aligned}
    spans = {cut.id: spans_of_tier(cut, "fa", own[cut.id]) for cut in aligned}
    log_confusion = acoustic_confusions(
        system.model, aligned, dataset, spans, system.device
    ).numpy()
    for rate in (config.corruption_rate, *HIGHER_RATES):
        units, replaced = replace_units(own, log_confusion, rate, seed, confusable=confusable)
        if any(map(any, replaced.values())):
            break  # of few units all may be spared by chance
    rewritten = CutSet.from_cuts(
        with_units(cut, table.units(units[cut.id]), units_of_words(cut)) for cut in aligned
    )
    corrupted, _ = aligner.align(rewritten, dataset.plain())
    asked = aligner, *others
    measures, sequences, _ = _measured(system, aligned, *asked)
    corrupted_measures, corrupted_sequences, rewritten = _measured(system, corrupted, *asked)
    marks = np.array([mark for cut in rewritten for mark in replaced[cut.id]], dtype=bool)
    return HeldOut(measures, sequences, corrupted_measures, corrupted_sequences, marks)


def _aligned(system: SearchedModel, cuts: CutSet, aligner: Aligner, config: JudgeConfig) -> CutSet:
    """The cuts that a judge is fitted to, aligned."""
    return aligner.align(
        CutSet.from_cuts(some_cuts(cuts, config.max_cuts)), system.dataset.plain()
    )[0]


def some_cuts(cuts: CutSet, most: int) -> list[Cut]:
    """At most so many cuts, evenly spread in the order of ids: of all speakers."""
    ordered = sorted(cuts, key=lambda cut: cut.id)
    size = min(len(ordered), most)
    return [ordered[number * len(ordered) // size] for number in range(size)]


def relative_rates(cuts: Sequence[Cut], model: UnitModel, table: UnitTable) -> np.ndarray:
    """How much more often than all units an acoustic model hears each as another, float64 (N,).

    Args:
        cuts: with features, canonical units and the tier ``fa``.
        model: that is asked.
        table: of the N units.
    """
    heard = heard_otherwise(-_goodness(cuts, model).ratio.numpy())
    return rates_of_units(heard, sequences_of(cuts, table).unit, len(table))


def _measured(
    system: SearchedModel, cuts: CutSet, *aligners: Aligner
) -> tuple[np.ndarray, UnitSequences, list[Cut]]:
    """Measures of the units of aligned cuts, float64 (n, M); these units; cuts that have a path.

    Goodness of pronunciation is that of the system's own model, and those of the aligners.
    """
    wrong = system.wrong_units(cuts)
    known = [cut for cut in cuts if cut.id in wrong]
    measures = measure(known, wrong, system.unit_models(*aligners))
    return measures, sequences_of(known, system.dataset.table), known


@dataclass(frozen=True)
class Trusted:
    """What the judge of a trusted model is fitted with, see :mod:`mlvae.train.evidence`."""

    cuts: CutSet  # that it was trained on, with the tier ``fa``
    #: That learned from what it perceived in them. None: there is none, the forced one stands in.
    aligner: Aligner | None


def fit_judge(
    system: SearchedModel,
    cuts: CutSet,
    aligner: Aligner,
    config: JudgeConfig,
    seed: int,
    trusted: Trusted | None = None,
) -> Judge:
    """Fit a judge to held-out cuts.

    Args:
        system: as in :func:`hold_out`, as are the next ones.
        cuts: the same.
        aligner: the same.
        config: the same.
        seed: the same.
        trusted: of a trusted model, whose own answers are what the measures are to tell. None:
            units are replaced.

    Raises:
        ValueError: no unit of the cuts can be replaced, or none has a path.
    """
    table = system.dataset.table
    if trusted is not None:
        aligned = _aligned(system, cuts, aligner, config)
        second = trusted.aligner or aligner
        measures, sequences, known = _measured(system.adapted_to(aligned), aligned, second)
        if not known:
            raise ValueError("no utterance of the held-out part has a path: nothing to learn from")
        rate = system.unadapted_rate(aligned)
        models, heard = (
            system.unit_models(second),
            [*some_cuts(trusted.cuts, config.max_cuts), *aligned],
        )
        relative = relative_rates(heard, models[-1], table)
        evidence, of_units = fit_to_answers(measures, sequences, relative, rate=rate)
        rates = Rates.independent(evidence.rate, of_units, config.rates)
        name: AlignerName = "fa" if trusted.aligner is None else "boundaries"
        return Judge(evidence, rates, models, table, name)
    found = hold_out(system, cuts, aligner, config, seed)
    evidence = fit_evidence(
        found.measures,
        found.sequences,
        found.corrupted_measures,
        found.corrupted,
        found.replaced,
        len(table),
        config.rates.expected,
    )
    ratio = evidence.log_ratio(found.measures, found.sequences)
    rates = fit_rates(found.sequences, ratio, len(table), config.rates)
    return Judge(evidence, rates, system.unit_models(aligner), table)


def keep_judge(judge: Judge, setup: Setup) -> dict:
    """Write a judge to the folder of its system; what ``training.json`` says of it."""
    judge.save(setup.folder / JUDGE)
    rates, evidence = judge.rates, asdict(judge.evidence)
    log(f"{setup.name}: {100 * rates.mean:.1f} % of held-out units mispronounced, it seems")
    return {
        "expected_rate": rates.config.expected,
        "rate": rates.mean,
        "evidence": {key: value for key, value in evidence.items() if key != "centres"},
        "within_word": rates.within_word,
        "across_words": rates.across_words,
    }


def scale_report(decoding: Decoding, losses: dict[str, float], setup: Setup) -> dict:
    """What ``training.json`` says of an acoustic scale that was chosen by these losses."""
    scale = decoding.acoustic_scale
    if not losses:
        return {"acoustic_scale": scale}
    log(f"{setup.name}: acoustic scale {scale} by log loss {losses}")
    scales, option = setup.settings.calibration.scales, f"systems.{setup.name}.calibration.scales"
    warnings = edge_warnings("acoustic scale", scale, scales, option)
    return {"scale_log_loss": losses, "warnings": warnings, "acoustic_scale": scale}
