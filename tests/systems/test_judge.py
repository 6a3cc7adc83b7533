"""A judged system from training to tiers, on sounds that are easily told apart and on noise."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from lhotse import CutSet
from lhotse.utils import fastcopy

from mlvae.config import RecipeConfig, System
from mlvae.data.dataset import UnitDataset
from mlvae.score.ranking import area_under_curve
from mlvae.systems import Setup
from mlvae.systems.acoustic import PosteriorNetwork
from mlvae.systems.align import new_aligner
from mlvae.systems.judge import (
    JUDGE,
    JudgeConfig,
    fit_judge,
    measure,
    relative_rates,
    some_cuts,
)
from mlvae.systems.localize import TrainedMlVae
from mlvae.systems.ml_vae import MlVaeSettings, load_ml_vae, train_ml_vae
from mlvae.tiers import DELETED, tier, with_units
from mlvae.train import Decoding, TrainConfig
from mlvae.train.rates import LEAST_STD, RatesConfig
from tests.systems.small import ALIGN
from tests.train.tiny import (
    CPU,
    NUM_FEATURES,
    TABLE,
    dataset,
    make_cut,
    spoken_cut,
    spoken_cuts,
    tiny_model_config,
)


def config_of(iterations: int = 4) -> RecipeConfig:
    train = TrainConfig(
        iterations=iterations,
        max_frames=300,
        learning_rate=0.02,
        topology="substitution",
        states_per_unit=2,
        generator=False,
        trusted_f1=1.0,
        decoding=Decoding(acoustic_scale=0.5, deletions=True),
    )
    settings = MlVaeSettings(
        tiny_model_config(),
        train,
        judged=True,
        judge=JudgeConfig(RatesConfig(expected=0.1)),
        boundaries="aligner",
    )
    return RecipeConfig(align=ALIGN, systems={"sub": System("sub", "ml_vae", settings=settings)})


def trained(folder, train_cuts: CutSet, valid_cuts: CutSet, config: RecipeConfig) -> tuple:
    """A system that is trained in a folder, with the aligner beside it; and training's answer."""
    setup = Setup("sub", config, dataset(), CPU, 0, folder / "sub")
    aligner = new_aligner(setup, train_cuts)
    aligner.train(train_cuts, dataset(), 0)
    (folder / "fa").mkdir()
    aligner.save(folder / "fa" / "model.safetensors")
    (folder / "sub").mkdir()
    aligned, _ = aligner.align(train_cuts, dataset())
    return setup, aligner, train_ml_vae(setup, aligned, valid_cuts)


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    folder = tmp_path_factory.mktemp("judged")
    return trained(folder, spoken_cuts(80)[0], spoken_cuts(40, seed=1)[0], config_of())


@pytest.fixture(scope="module")
def answers(system):
    """Cuts with words of two units, aligned and localised; and which units are wrong."""
    setup, aligner, _ = system
    cuts, wrong = spoken_cuts(45, seed=2)
    with_words = []
    for cut in cuts:
        units = cut.supervisions[0].custom["units"]
        words = [place // 2 for place in range(len(units))]
        with_words.append(with_units(cut, units, words))
        custom = with_words[-1].supervisions[0].custom
        custom["words"] = [f"w{word}" for word in range(words[-1] + 1)]
    aligned, _ = aligner.align(CutSet.from_cuts(with_words), dataset())
    found, short = load_ml_vae(setup, aligned).localize(aligned)
    assert short == []
    return found, wrong


@pytest.mark.parametrize("adapted", [False, True], ids=["as they are", "adapted"])
@pytest.mark.parametrize(
    ("least", "trusted"),
    [(0.0, True), (1.0, False)],
    ids=["trusted", "not trusted"],
)
def test_the_judge_of_a_trusted_model_is_fitted_to_its_answers(tmp_path, least, trusted, adapted):
    config = config_of()
    settings = config.systems["sub"].settings
    train = replace(settings.train, trusted_f1=least)
    settings = replace(settings, train=train, adapted=adapted)
    config = replace(config, systems={"sub": System("sub", "ml_vae", settings=settings)})
    train_cuts, valid_cuts = spoken_cuts(60)[0], spoken_cuts(40, seed=1)[0]
    setup, aligner, training = trained(tmp_path, train_cuts, valid_cuts, config)
    assert training["trusted"] == trusted
    system = load_ml_vae(setup, valid_cuts)
    assert system.adapted == adapted
    of_answers = system.judge.rates.config.speaker_std == LEAST_STD
    assert of_answers == trusted
    assert system.judge.aligner == ("boundaries" if trusted else "fa")
    if of_answers:  # what it holds for wrong is as much as the model does, before it is adapted
        wrong = system.wrong_units(valid_cuts)
        rate = torch.cat(list(wrong.values())).mean().item()
        assert training["judge"]["rate"] == training["judge"]["expected_rate"]
        assert training["judge"]["rate"] == pytest.approx(rate, abs=1e-6)
        found, _ = system.localize(aligner.align(valid_cuts, dataset())[0])
        judged = [item.score for cut in found for item in tier(cut, "mlvae")]
        assert sum(judged) / len(judged) == pytest.approx(rate, rel=0.2)


def test_what_is_flagged_is_what_is_more_likely_wrong_than_right(answers):
    found, _ = answers
    flagged = 0
    for cut in found:
        canonical, perceived = tier(cut, "mlvae"), tier(cut, "mlvae_perceived")
        deleted = tier(cut, "mlvae_deleted")
        for unit, other, gone in zip(canonical, perceived, deleted):
            assert (unit.symbol != other.symbol) == (unit.score > 0.5)
            assert unit.score == other.score and 0 <= gone.score <= unit.score <= 1
            assert (unit.start, unit.duration) == (other.start, other.duration)
            assert unit.duration > 0 or other.symbol == DELETED
            flagged += unit.symbol != other.symbol
    assert flagged


def test_wrong_units_are_found(answers):
    found, wrong = answers
    scores = np.array([unit.score for cut in found for unit in tier(cut, "mlvae")])
    positive = np.array([mark for cut in found for mark in wrong[cut.id]])
    assert area_under_curve(scores, positive) > 0.9
    assert scores[positive].mean() > 3 * scores[~positive].mean()


def test_a_word_is_wrong_where_a_unit_of_it_is(answers):
    for cut in answers[0]:
        units = [unit.score for unit in tier(cut, "mlvae")]
        for number, word in enumerate(tier(cut, "mlvae_word")):
            own = units[2 * number : 2 * number + 2]
            # Errors cluster: not less than of the worst unit, nor more than if all were apart.
            assert max(own) - 1e-6 <= word.score <= 1 - np.prod([1 - p for p in own]) + 1e-6


def test_the_judge_is_kept_and_a_damaged_one_is_named(system, tmp_path):
    setup, _, training = system
    assert 0.05 < training["judge"]["rate"] < 0.5  # a fifth is wrong
    json.dumps(training, allow_nan=False)
    cuts = spoken_cuts(5, seed=3)[0]
    shutil.copytree(setup.folder.parent, tmp_path / "copy")
    copy = replace(setup, folder=tmp_path / "copy" / "sub")
    assert isinstance(load_ml_vae(copy, cuts), TrainedMlVae)
    path = copy.folder / JUDGE
    content = json.loads(path.read_text())
    infinite = json.loads(path.read_text())
    infinite["evidence"]["weight"] = math.inf
    content["rates"]["of_units"] = [0.0]
    for text, reason in (
        ("{", "no judge can be read"),
        ("{}", "no judge can be read"),
        (json.dumps(infinite), "a number is not finite"),
        (json.dumps(content), "of other units than the 4 of the table"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=reason) as caught:
            load_ml_vae(copy, cuts)
        assert str(path) in str(caught.value)
    path.unlink()
    with pytest.raises(ValueError, match="run stage 4 again"):
        load_ml_vae(copy, cuts)


def test_a_unit_that_many_say_otherwise_has_a_rate_of_its_own(system):
    setup, aligner, _ = system
    random, cuts = np.random.default_rng(0), []
    for number in range(60):
        written = random.integers(0, len(TABLE), 4).tolist()
        half = number % 2 == 0
        said = [1 if unit == 0 and half else unit for unit in written]
        cuts.append(spoken_cut(f"habit-{number:02d}", said, written, seed=number))
    aligned, _ = aligner.align(CutSet.from_cuts(cuts), dataset())
    relative = relative_rates(list(aligned), aligner.unit_model(dataset()), TABLE)
    assert relative[0] > 1.5 and (relative[1:] < 1).all()


def test_a_judge_is_fitted_to_cuts_of_all_speakers():
    """Ids begin with the speaker, and the first of many cuts are of some of them."""
    cuts = [fastcopy(cut, id=f"s{n // 10}-{n % 10}") for n, cut in enumerate(spoken_cuts(40)[0])]
    few = some_cuts(CutSet.from_cuts(cuts), 8)
    assert [cut.id[:2] for cut in few] == ["s0", "s0", "s1", "s1", "s2", "s2", "s3", "s3"]
    every = some_cuts(CutSet.from_cuts(cuts[::-1]), 1000)
    assert [cut.id for cut in every] == [cut.id for cut in cuts]


def test_few_held_out_units_are_enough_for_a_judge(system):
    setup, aligner, _ = system
    few = spoken_cuts(1, seed=5)[0]
    searched = load_ml_vae(setup, few)
    config = JudgeConfig(corruption_rate=1e-6)
    judge = fit_judge(searched, few, aligner, config, seed=0)
    aligned, _ = aligner.align(few, dataset())
    measures = measure(list(aligned), searched.wrong_units(aligned), judge.models)
    verdict = judge.judge(list(aligned), measures)[few[0].id]
    assert ((verdict.mispronounced >= 0) & (verdict.mispronounced <= 1)).all()
    assert verdict.words is None


class Sure(UnitDataset):
    """Log-posteriors of the units and of nothing, as an acoustic model of somebody's gives them."""

    def features(self, cut):
        found = super().features(cut)[:, : len(TABLE)]
        return F.pad(3 * found, (0, 1), value=2.0).log_softmax(1)


def somebodys(system: tuple) -> TrainedMlVae:
    _, aligner, _ = system
    model = PosteriorNetwork(torch.eye(len(TABLE)))
    model.log_prior.copy_(torch.tensor([0.15, 0.15, 0.15, 0.15, 0.4]).log())
    model.log_confusion.copy_(torch.zeros(4, 4).fill_diagonal_(-torch.inf).log_softmax(1))
    searched = TrainedMlVae(model, "substitution", Decoding(acoustic_scale=0.3), Sure(TABLE), CPU)
    valid, config = spoken_cuts(40, seed=1)[0], JudgeConfig(RatesConfig(expected=0.1))
    return replace(searched, judge=fit_judge(searched, valid, aligner, config, seed=0))


@pytest.mark.parametrize("kind", ["ml_vae", "adapted", "acoustic"])
def test_recordings_of_a_speaker_are_judged_together_whatever_the_batches(system, kind):
    setup, aligner, _ = system
    cuts = [
        fastcopy(cut, supervisions=[fastcopy(cut.supervisions[0], speaker=f"s{number % 2}")])
        for number, cut in enumerate(spoken_cuts(20, seed=6)[0])
    ]
    aligned, _ = aligner.align(CutSet.from_cuts(cuts), dataset())
    searched = somebodys(system) if kind == "acoustic" else load_ml_vae(setup, aligned)
    searched = replace(searched, adapted=kind == "adapted")
    judge = searched.judge
    ready = searched.adapted_to(aligned)
    models = judge.models if kind == "acoustic" else ready.unit_models(aligner)
    measures = measure(list(aligned), ready.wrong_units(aligned), models)
    verdicts = judge.judge(list(aligned), measures)
    for max_frames in (60, 8000):
        found, short = replace(searched, boundary_aligner=None).localize(
            aligned, max_frames=max_frames
        )
        assert short == []
        for cut in found:
            expected = verdicts[cut.id].mispronounced.tolist()
            assert [unit.score for unit in tier(cut, "mlvae")] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("iterations", [1, 4])
def test_acoustics_that_know_nothing_flag_no_more_than_the_prior_rate(iterations, tmp_path):
    """Features that have nothing to do with the units, however long training runs."""
    random = np.random.default_rng(0)

    def noise(count: int, name: str) -> CutSet:
        return CutSet.from_cuts(
            make_cut(
                f"{name}{number}",
                random.normal(size=(60, NUM_FEATURES)),
                random.choice(list(TABLE.symbols), 6).tolist(),
            )
            for number in range(count)
        )

    setup, aligner, _ = trained(tmp_path, noise(60, "t"), noise(40, "v"), config_of(iterations))
    cuts, _ = aligner.align(noise(40, "x"), dataset())
    found, _ = load_ml_vae(setup, cuts).localize(cuts)
    units = [
        pair for cut in found for pair in zip(tier(cut, "mlvae"), tier(cut, "mlvae_perceived"))
    ]
    assert np.mean([unit.symbol != other.symbol for unit, other in units]) <= 0.1
    assert np.mean([unit.score for unit, _ in units]) < 0.2
