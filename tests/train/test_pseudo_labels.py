"""Training on pseudo-labels of the E-step, with their rate and confusion table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from lhotse import CutSet
from safetensors.torch import load_file

import mlvae.train.algorithms
from mlvae.train import Decoding, TrainConfig
from mlvae.train.confusion import estimate_confusions
from mlvae.train.estep import EStep
from mlvae.train.targets import TrainingBatches
from tests.train.tiny import TABLE, spoken_cut, spoken_cuts
from tests.train.trainers import make_trainer

CONFIG = TrainConfig(
    iterations=4,
    max_frames=300,
    learning_rate=0.02,
    topology="substitution",
    states_per_unit=2,
    pseudo_labels_after=2,
    decoding=Decoding(acoustic_scale=0.5),
)


def confused_cuts(count: int) -> tuple[CutSet, dict[str, list[int]]]:
    """One unit in five is said as the next one of the table; and by cut what was said."""
    rng = np.random.default_rng(0)
    made, said = [], {}
    for number in range(count):
        written = rng.integers(0, len(TABLE), rng.integers(2, 6))
        marks = rng.random(len(written)) < 0.2
        name = f"cut{number:03d}"
        said[name] = np.where(marks, (written + 1) % len(TABLE), written).tolist()
        made.append(spoken_cut(name, said[name], written.tolist(), seed=number))
    return CutSet.from_cuts(made), said


def test_targets_become_what_was_said_and_rate_and_table_approach_the_reference(tmp_path):
    train, said = confused_cuts(160)
    config = replace(CONFIG, iterations=7, pseudo_labels_after=4)
    trainer = make_trainer((train, spoken_cuts(20, seed=1)[0]), tmp_path, config)
    history = trainer.fit()["history"]

    pairs = [
        (span.unit, span.perceived, true)
        for name, units in said.items()
        for span, true in zip(trainer.algorithm.targets[name], units)
    ]
    assert len(pairs) == sum(map(len, said.values()))
    wrong = [(told, perceived, true) for told, perceived, true in pairs if told != true]
    assert 0.15 < len(wrong) / len(pairs) < 0.25
    assert sum(perceived == true for _, perceived, true in pairs) / len(pairs) > 0.95
    assert sum(perceived == true for _, perceived, true in wrong) / len(wrong) > 0.85

    true_spans = {
        name: [
            span._replace(perceived=true, mispronounced=span.unit != true)
            for span, true in zip(trainer.algorithm.aligned[name], units)
        ]
        for name, units in said.items()
    }
    correctness, confusion = estimate_confusions(true_spans, len(TABLE))
    rate = float(trainer.model.log_correctness[1].exp())
    assert rate == pytest.approx(float(correctness[1].exp()), abs=0.03)
    found = trainer.model.log_confusion.exp()
    assert float((found - confusion.exp()).abs().max()) < 0.15
    for unit in range(len(TABLE)):
        assert int(found[unit].argmax()) == (unit + 1) % len(TABLE)
    changed = [scalars["changed_units"] for scalars in history[3:]]
    assert changed[0] > 0.05 > changed[-1]
    assert history[-1]["corrupted_f1"] > 0.6  # to flag all would give about 0.35
    # The targets' own prior, not that of the labels, is what likelihood ratios are taken against.
    counts = torch.ones(2 * len(TABLE))
    for spans in trainer.algorithm.targets.values():
        for span in spans:
            counts[2 * span.perceived : 2 * span.perceived + 2] += (span.end - span.start) / 2
    torch.testing.assert_close(trainer.model.log_prior.exp(), counts / counts.sum())


def notes_of_targets(monkeypatch) -> list[tuple[str, dict]]:
    """Module and targets of every epoch."""
    seen = []
    original = TrainingBatches.epoch

    def noting(self, number, spans, name, means):
        seen.append((name, spans))
        return original(self, number, spans, name, means)

    monkeypatch.setattr(TrainingBatches, "epoch", noting)
    return seen


@pytest.mark.parametrize("pseudo_labels_after", [0, 1, 3])
def test_nothing_is_pseudo_labelled_before_its_time(
    cuts, tmp_path, monkeypatch, pseudo_labels_after
):
    seen = notes_of_targets(monkeypatch)
    states = []
    trainer = make_trainer(cuts, tmp_path, replace(CONFIG, pseudo_labels_after=pseudo_labels_after))
    before = [trainer.model.log_correctness.clone(), trainer.model.log_confusion.clone()]
    original = trainer.algorithm.learn_from_answers

    def learning(iteration):
        scalars = original(iteration)
        found = [trainer.model.log_correctness, trainer.model.log_confusion]
        states.append(all(torch.equal(a, b) for a, b in zip(before, found)))
        return scalars

    trainer.algorithm.learn_from_answers = learning
    history = trainer.fit()["history"]
    first = pseudo_labels_after or 99
    assert ["changed_units" in scalars for scalars in history] == [
        iteration >= first for iteration in (1, 2, 3, 4)
    ]
    assert states == [iteration < first for iteration in (1, 2, 3, 4)]
    plain = [(name, spans is trainer.algorithm.aligned) for name, spans in seen]
    assert [is_plain for name, is_plain in plain if name == "estimator"] == [
        iteration <= first for iteration in (1, 2, 3, 4)
    ]
    assert all(is_plain for name, is_plain in plain if name == "boundary")
    assert ("tensor.targets.rows" in load_file(tmp_path / "checkpoint.safetensors")) is (first < 99)


def test_both_searches_use_the_new_table(cuts, tmp_path, monkeypatch):
    given = []
    original = EStep.use

    def noting(self, compiler):
        given.append(compiler)
        return original(self, compiler)

    monkeypatch.setattr(EStep, "use", noting)
    trainer = make_trainer(cuts, tmp_path, replace(CONFIG, iterations=1, pseudo_labels_after=1))
    uniform = trainer.algorithm.estep.compiler
    trainer.fit()
    assert trainer.algorithm.estep.compiler is trainer.valid_estep.compiler is given[-1]
    assert trainer.algorithm.estep.compiler is not uniform


@pytest.fixture(scope="module")
def undisturbed(cuts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return folder, make_trainer(cuts, folder, CONFIG).fit()


def test_a_finished_run_still_has_its_targets(cuts, tmp_path, undisturbed):
    folder, expected = undisturbed
    trainer = make_trainer(cuts, folder, CONFIG)
    assert trainer.fit() == expected
    assert trainer.algorithm.targets.keys() == trainer.algorithm.aligned.keys()
    changed = [
        span.perceived != span.unit
        for spans in trainer.algorithm.targets.values()
        for span in spans
    ]
    assert 0 < sum(changed) < len(changed)


def test_label_smoothing_and_pseudo_labelling_make_another_run(cuts, tmp_path, undisturbed):
    identities = {
        make_trainer(cuts, tmp_path, replace(CONFIG, **change)).identity
        for change in (
            {},
            {"label_smoothing": 0.1},
            {"pseudo_labels_after": 3},
            {"pseudo_labels_after": 0, "topology": "ml"},
            {"states_per_unit": 1},
        )
    }
    assert len(identities) == 5
    assert make_trainer(cuts, tmp_path, replace(CONFIG, iterations=9)).identity in identities


@pytest.mark.parametrize("estimate_after", [1, 2])
def test_rate_and_table_are_estimated_from_their_time_on_without_pseudo_labelling(
    cuts, tmp_path, monkeypatch, estimate_after
):
    config = replace(CONFIG, iterations=3, pseudo_labels_after=0, estimate_after=estimate_after)
    given = []

    def estimating(spans, num_units, log_prior):
        assert log_prior is None  # the competitors are not limited
        given.append(spans)
        rate = torch.tensor([1 - 0.1 * len(given), 0.1 * len(given)]).log()
        return rate, torch.full((num_units, num_units), 0.25).log()

    monkeypatch.setattr(mlvae.train.algorithms, "estimate_confusions", estimating)
    trainer = make_trainer(cuts, tmp_path, config)
    rates = [float(trainer.model.log_correctness[1].exp())]
    original = trainer.algorithm.learn_from_answers

    def learning(iteration):
        scalars = original(iteration)
        rates.append(float(trainer.model.log_correctness[1].exp()))
        return scalars

    trainer.algorithm.learn_from_answers = learning
    history = trainer.fit()["history"]
    late = [max(number - estimate_after + 1, 0) for number in (1, 2, 3)]
    assert rates == pytest.approx([0.15, *(0.1 * count or 0.15 for count in late)])
    assert [spans.keys() for spans in given] == [{cut.id for cut in cuts[0]}] * late[-1]
    assert float(trainer.model.log_confusion[0, 0].exp()) == pytest.approx(0.25)
    assert not any("changed_units" in scalars for scalars in history)
    assert trainer.algorithm.targets is trainer.algorithm.aligned
    # It is the table that both searches use.
    assert trainer.valid_estep.compiler is trainer.algorithm.estep.compiler
