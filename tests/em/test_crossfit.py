"""Relabelling by estimators that have not learned what they judge."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from lhotse import CutSet
from safetensors.torch import load_file

import mlvae.em.alternating
import mlvae.em.trainer
from mlvae.device import num_parameters, seed_everything
from mlvae.em import Decoding, EStep, TrainConfig, Trainer
from mlvae.em.checkpoint import read_metadata
from mlvae.em.crossfit import CrossFitted, assign_folds, folds_of_frames, groups_of_units
from mlvae.em.epochs import Learner
from mlvae.em.sections import Section
from mlvae.em.settings import CrossFitConfig
from mlvae.fsa import UnitSpan
from mlvae.nn import MlVae
from tests.em.tiny import (
    CPU,
    NUM_FEATURES,
    TABLE,
    aligned,
    dataset,
    make_cut,
    spoken_cuts,
    tiny_model_config,
    unit_spans,
)
from tests.em.trainers import Kill, assert_same_files, figures, kill_at, make_trainer

CONFIG = TrainConfig(
    iterations=3,
    max_frames=300,
    learning_rate=0.02,
    topology="substitution",
    states_per_unit=2,
    relabel_after=2,
    crossfit=CrossFitConfig(folds=3),
    decoding=Decoding(acoustic_scale=0.5),
)


def with_origin(cuts, num_sources: int = 9) -> CutSet:
    """Cuts whose units come from a few recordings and whose speakers are four."""
    rng = np.random.default_rng(5)
    for number, cut in enumerate(cuts):
        supervision = cut.supervisions[0]
        count = len(supervision.custom["units"])
        supervision.custom["sources"] = [f"r{s}" for s in rng.integers(0, num_sources, count)]
        supervision.speaker = f"s{number % 4}"
    return CutSet.from_cuts(cuts)


@pytest.fixture
def cuts() -> tuple[CutSet, CutSet]:
    return with_origin(spoken_cuts(24)[0]), spoken_cuts(8, seed=1)[0]


def test_folds_are_even_and_hang_on_names_and_seed_alone():
    groups = [f"g{number}" for number in range(50)]
    folds = assign_folds(groups, 4, seed=0)
    assert folds == assign_folds(groups[::-1] + groups[:9], 4, seed=0)
    assert sorted(Counter(folds.values()).values()) == [12, 12, 13, 13]
    assert folds != assign_folds(groups, 4, seed=1)
    # Which fold a group is in has nothing to do with the order of names.
    assert [folds[group] for group in groups] != [number % 4 for number in range(50)]


def test_where_units_come_from():
    cut = make_cut("x", np.zeros((6, 3)), ["a", "b"])
    supervision = cut.supervisions[0]
    assert groups_of_units(cut, "recording") == ["x", "x"]  # the cut's own recording
    with pytest.raises(ValueError, match="x: no speaker"):
        groups_of_units(cut, "speaker")
    supervision.speaker, supervision.custom["sources"] = "ann", ["r1", "r2"]
    assert groups_of_units(cut, "recording") == ["r1", "r2"]
    assert groups_of_units(cut, "speaker") == ["ann", "ann"]
    supervision.custom["sources"] = ["r1"]
    with pytest.raises(ValueError, match="x: 1 sources for 2 units"):
        groups_of_units(cut, "recording")


def test_a_frame_has_the_fold_of_its_unit_also_outside_units():
    cuts = [make_cut(f"x{i}", np.zeros((10, 3)), ["a", "b"]) for i in range(6)]
    for number, cut in enumerate(cuts):
        cut.supervisions[0].custom["sources"] = [f"r{number}", f"r{(number + 1) % 6}"]
    spans = unit_spans([0, 1], [2, 5, 9])
    silence = UnitSpan(-1, -1, 6, 7, "silence", False, -1, 0.0, -1, -1)
    path = [spans[0], spans[1]._replace(end=6), silence]
    aligned = {cut.id: path for cut in cuts}
    config = CrossFitConfig(folds=3)
    found = folds_of_frames(cuts, aligned, config, seed=0)
    of = assign_folds({f"r{number}" for number in range(6)}, 3, seed=0)
    for number in range(6):
        first, second = of[f"r{number}"], of[f"r{(number + 1) % 6}"]
        assert found[f"x{number}"].tolist() == [first] * 5 + [second] * 5
    again = folds_of_frames(cuts[::-1], aligned, config, seed=0)
    assert all(torch.equal(again[name], found[name]) for name in found)
    with pytest.raises(ValueError, match="6 recordings cannot be divided into 7 folds"):
        folds_of_frames(cuts, aligned, CrossFitConfig(folds=7), seed=0)


@pytest.mark.parametrize("by", ["recording", "speaker"])
def test_no_estimator_learns_from_its_own_fold(cuts, tmp_path, by):
    """Other labels in one fold change the weights of all estimators but that fold's."""
    config = replace(
        CONFIG, iterations=1, crossfit=CrossFitConfig(3, by), relabel_after=3, label_smoothing=0.1
    )
    trainer = make_trainer(cuts, tmp_path / "one", config)
    trainer.fit()
    of = assign_folds({g for cut in cuts[0] for g in groups_of_units(cut, by)}, 3, seed=0)
    num_changed, other = 0, []
    for cut in cuts[0]:
        units = list(cut.supervisions[0].custom["units"])
        for place, group in enumerate(groups_of_units(cut, by)):
            if of[group] == 1:
                units[place] = TABLE.symbols[(TABLE.ids(units, "x")[place] + 1) % len(TABLE)]
                num_changed += 1
        edges = [span.start for span in trainer.algorithm.aligned[cut.id]] + [cut.num_frames]
        changed = make_cut(cut.id, cut.load_features(), units)
        changed.supervisions[0].custom["sources"] = cut.supervisions[0].custom["sources"]
        changed.supervisions[0].speaker = cut.supervisions[0].speaker
        other.append(aligned(changed, edges))
    assert 5 < num_changed < 60
    again = make_trainer((CutSet.from_cuts(other), cuts[1]), tmp_path / "two", config)
    again.fit()

    def same(mine, theirs) -> bool:
        return all(torch.equal(a, b) for a, b in zip(mine.parameters(), theirs.parameters()))

    pairs = zip(trainer.algorithm.folds, again.algorithm.folds)
    assert [same(mine, theirs) for mine, theirs in pairs] == [False, True, False]
    assert not same(trainer.model.estimator, again.model.estimator)


def test_each_frame_is_judged_by_the_estimator_of_its_fold_without_the_generator(
    cuts, tmp_path, monkeypatch
):
    trainer = make_trainer(cuts, tmp_path, CONFIG)
    algorithm = trainer.algorithm
    assert isinstance(algorithm, CrossFitted)
    for number, estimator in enumerate(algorithm.folds):
        with torch.no_grad():
            estimator.output.bias[0] += number
    some = list(cuts[0])[:3]
    features = torch.randn(3, 40, NUM_FEATURES)
    lengths = torch.tensor([cut.num_frames for cut in some])
    whole = [Section(cut.id, 0, cut.num_frames) for cut in some]
    found = algorithm.unit_posteriors(whole, features, lengths)
    seen = set()
    for row, cut in enumerate(some):
        for frame, fold in enumerate(algorithm.fold_of_frame[cut.id].tolist()):
            expected = algorithm.folds[fold].eval()(features, lengths)[row, frame]
            torch.testing.assert_close(found[row, frame], expected)
            seen.add(fold)
    assert seen == {0, 1, 2}

    given = []

    def noting(self, model, decoding, device, units=None, passes=None):
        given.append((decoding, units))
        raise Kill

    monkeypatch.setattr(EStep, "run", noting)
    with pytest.raises(Kill):
        algorithm.hear(None)
    assert given == [(Decoding(0.5, use_correctness=False), algorithm.unit_posteriors)]


def repeated_recordings(count: int, wrong_rate: float):
    """Cuts joined from few recordings, each with one label, some of them wrong, and a hiss of its
    own by which it is easily recognised; by cut what was said.
    """
    rng = np.random.default_rng(0)
    said = rng.integers(0, len(TABLE), 80)
    is_wrong = rng.random(80) < wrong_rate
    written = np.where(is_wrong, (said + rng.integers(1, len(TABLE), 80)) % len(TABLE), said)
    sounds = []
    for unit in said:
        sound = 0.3 * rng.standard_normal((6, 16)) + 0.8 * rng.standard_normal(16)
        sound[:, :4] = 0.7 * rng.standard_normal((6, 4))
        sound[:, unit] += 2.5
        sounds.append(sound)
    cuts, truth = [], {}
    for number in range(count):
        chosen = rng.permutation(80)[:4]
        features = np.concatenate([sounds[place] for place in chosen])
        cut = make_cut(f"cut{number:03d}", features, TABLE.units(written[chosen]))
        cut.supervisions[0].custom["sources"] = [f"r{place}" for place in chosen]
        cuts.append(aligned(cut, [0, 6, 12, 18, 24]))
        truth[cut.id] = said[chosen].tolist()
    return CutSet.from_cuts(cuts), truth


def test_wrong_labels_that_are_learned_by_heart_are_found_by_cross_fitting(tmp_path):
    cuts, said = repeated_recordings(80, wrong_rate=0.2)
    found = {}
    for folds in (0, 4):
        config = replace(
            CONFIG,
            iterations=10,
            relabel_after=10,
            crossfit=CrossFitConfig(folds),
            max_frames=200,
            decoding=Decoding(acoustic_scale=0.3),
        )
        seed_everything(0)
        model = MlVae(16, len(TABLE), False, tiny_model_config(), config.states_per_unit)
        valid, folder = cuts.subset(first=8), tmp_path / str(folds)
        trainer = Trainer(model, cuts, valid, dataset(), TABLE, config, folder, CPU, 0)
        trainer.fit()
        wrong = [
            span.perceived == true
            for name, units in said.items()
            for span, true in zip(trainer.algorithm.targets[name], units)
            if span.unit != true
        ]
        right = [
            span.perceived == true
            for name, units in said.items()
            for span, true in zip(trainer.algorithm.targets[name], units)
            if span.unit == true
        ]
        found[folds] = np.mean(wrong), np.mean(right)
    assert found[4][0] > found[0][0] + 0.3, found
    assert found[4][1] > 0.8, found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    cuts = with_origin(spoken_cuts(24)[0]), spoken_cuts(8, seed=1)[0]
    config = replace(CONFIG, estimate_after=1)
    return cuts, config, folder, make_trainer(cuts, folder, config).fit()


def test_the_checkpoint_has_the_folds_and_the_model_has_not(undisturbed):
    cuts, config, folder, training = undisturbed
    checkpoint = load_file(folder / "checkpoint.safetensors")
    for number in range(3):
        assert any(name.startswith(f"module.folds.{number}.") for name in checkpoint)
        assert any(name.startswith(f"optimizer.fold{number}.") for name in checkpoint)
    model = make_trainer(cuts, folder / "other", config).model
    assert load_file(folder / "model.safetensors").keys() == model.state_dict().keys()
    assert training["num_params"] == num_parameters(model)
    losses = [scalars["loss/folds"] for scalars in training["history"]]
    assert losses[-1] < losses[0]


#: Iteration 1 estimates rate and table, iterations 2 and 3 relabel too. An iteration searches three
#: times.
PLACES = {
    "the first fold": (Learner, "step", 2, 1),
    "the cross-fitted search": (EStep, "run", 5, 1),
    "the checkpoint after estimating": (mlvae.em.trainer, "save_checkpoint", 2, 1),
    "the cross-fitted search after relabelling": (EStep, "run", 8, 2),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path, monkeypatch, undisturbed, place):
    cuts, config, folder, expected = undisturbed
    target, name, call, iteration = PLACES[place]
    with monkeypatch.context() as patch:
        if name == "step":
            steps = []
            counted = make_trainer(cuts, tmp_path / "count", replace(config, iterations=1))
            for kind, learner in counted.algorithm.learners.items():
                learner.step = lambda loss, kind=kind: steps.append(kind)
            counted.fit()
            call = len(steps) + steps.index("fold2") + 1  # in the midst of a batch's folds
        kill_at(patch, target, name, call)
        with pytest.raises(Kill):
            make_trainer(cuts, tmp_path, config).fit()
    assert read_metadata(tmp_path / "checkpoint.safetensors")["iteration"] == iteration
    torch.manual_seed(99)  # a new process
    assert figures(make_trainer(cuts, tmp_path, config).fit()) == figures(expected)
    assert_same_files(tmp_path, folder)


@pytest.mark.parametrize(("folds", "estimate_after"), [(0, 1), (0, 2), (3, 1)])
def test_rate_and_table_are_estimated_from_their_time_on_without_relabelling(
    cuts, tmp_path, monkeypatch, folds, estimate_after
):
    config = replace(
        CONFIG, relabel_after=0, estimate_after=estimate_after, crossfit=CrossFitConfig(folds)
    )
    given = []

    def estimating(spans, num_units, log_prior):
        assert log_prior is None  # the competitors are not limited
        given.append(spans)
        rate = torch.tensor([1 - 0.1 * len(given), 0.1 * len(given)]).log()
        return rate, torch.full((num_units, num_units), 0.25).log()

    monkeypatch.setattr(mlvae.em.alternating, "estimate_confusions", estimating)
    trainer = make_trainer(cuts, tmp_path, config)
    rates = [float(trainer.model.log_correctness[1].exp())]
    original = trainer._iterate

    def iterating(iteration):
        scalars = original(iteration)
        rates.append(float(trainer.model.log_correctness[1].exp()))
        return scalars

    trainer._iterate = iterating
    history = trainer.fit()["history"]
    late = [max(number - estimate_after + 1, 0) for number in (1, 2, 3)]
    assert rates == pytest.approx([0.15, *(0.1 * count or 0.15 for count in late)])
    assert [spans.keys() for spans in given] == [{cut.id for cut in cuts[0]}] * late[-1]
    assert float(trainer.model.log_confusion[0, 0].exp()) == pytest.approx(0.25)
    changed = [count > 0 for count in late]
    assert ["flag_rate/heard" in scalars for scalars in history] == changed
    assert not any("changed_units" in scalars for scalars in history)
    assert trainer.algorithm.targets is trainer.algorithm.aligned
    # It is the table that both searches use.
    assert trainer.valid_estep.compiler is trainer.algorithm.estep.compiler


def test_cross_fitting_makes_another_run(cuts, tmp_path):
    changes = (
        {},
        {"crossfit": CrossFitConfig(4)},
        {"crossfit": CrossFitConfig(3, "speaker")},
        {"crossfit": CrossFitConfig()},
        {"estimate_after": 1},
    )
    identities = {
        make_trainer(cuts, tmp_path, replace(CONFIG, **change)).identity for change in changes
    }
    assert len(identities) == len(changes)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"crossfit": {"folds": 1}}, "folds"),
        ({"crossfit": {"folds": -2}}, "folds"),
        ({"crossfit": {"folds": 2, "by": "cut"}}, "by must be"),
        ({"crossfit": {"folds": 2}}, "nothing to do"),
        ({"estimate_after": 1}, "estimate_after goes with topology substitution"),
        ({"topology": "substitution", "estimate_after": -1}, "estimate_after"),
        ({"topology": "substitution", "relabel_after": -1}, "relabel_after"),
        ({"label_smoothing": 1.0}, "label_smoothing"),
        ({"label_smoothing": -0.1}, "label_smoothing"),
        ({"loss_exponent": 1.5}, "loss_exponent"),
        ({"loss_exponent": 0.5, "label_smoothing": 0.1}, "do not go together"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, reason):
    with pytest.raises(ValueError, match=reason):
        crossfit = CrossFitConfig(**settings.get("crossfit", {}))
        TrainConfig(**{**settings, "crossfit": crossfit})
