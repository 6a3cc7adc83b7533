from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
from lhotse import CutSet
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import mlvae.train.algorithms
import mlvae.train.trainer
from mlvae.fsa import MlFsaCompiler
from mlvae.tiers import tier
from mlvae.train import Decoding
from mlvae.train.estep import EStep, EStepResult
from mlvae.train.loop import read_metadata
from mlvae.train.targets import TrainingBatches, changed_frames, frame_targets
from tests.train.tiny import (
    DEVICE,
    NUM_FEATURES,
    TABLE,
    aligned,
    dataset,
    make_cut,
    spoken_cuts,
)
from tests.train.trainers import CONFIG, MODULES, Kill, kill_at, make_trainer, values


def test_tensorboard_has_each_iteration_once(cuts, tmp_path, monkeypatch):
    make_trainer(cuts, tmp_path, replace(CONFIG, iterations=1)).fit()
    with monkeypatch.context() as patch:
        kill_at(patch, EStep, "run", 1)
        with pytest.raises(Kill):
            make_trainer(cuts, tmp_path).fit()
    history = make_trainer(cuts, tmp_path).fit()["history"]
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert set(events.Tags()["scalars"]) == set(history[0])
    for name in history[0]:
        scalars = events.Scalars(name)
        assert [event.step for event in scalars] == [1, 2]
        expected = [scalars[name] for scalars in history]
        assert [event.value for event in scalars] == pytest.approx(expected, rel=1e-5)


def test_what_the_e_step_changes_is_counted_from_the_alignment_on(cuts, tmp_path, monkeypatch):
    found, search = [], EStep.run

    def noting(*args, **kwargs):
        found.append(search(*args, **kwargs))
        return found[-1]

    monkeypatch.setattr(EStep, "run", noting)
    trainer = make_trainer(cuts, tmp_path)
    aligned_spans, of_training = trainer.algorithm.aligned, trainer.algorithm.estep.cuts
    history = trainer.fit()["history"]
    ids = {cut.id for batch in of_training for cut in batch}
    assignments = [result.spans for result in found if result.spans.keys() == ids]
    assert len(assignments) == len(history) == 2
    expected = [
        changed_frames(before, after)
        for before, after in zip([aligned_spans, *assignments], assignments)
    ]
    assert [scalars["changed_frames"] for scalars in history] == expected
    assert 0 < expected[0] <= 1


def test_each_epoch_trains_one_module_in_the_order_of_the_algorithm(cuts, tmp_path, monkeypatch):
    trainer = make_trainer(cuts, tmp_path)
    algorithm = trainer.algorithm
    seen = []

    def weights():
        return {
            name: [value.detach().clone() for value in getattr(trainer.model, name).parameters()]
            for name in MODULES
        }

    def note(target, method):
        original = getattr(target, method)

        def noting(*args, **options):
            before = weights()
            training = []
            hooks = [
                getattr(trainer.model, name).trunk.register_forward_hook(
                    lambda module, *_, name=name: training.append((name, module.training))
                )
                for name in ("estimator", "boundary")
            ]
            result = original(*args, **options)
            for hook in hooks:
                hook.remove()
            after = weights()
            changed = [
                name
                for name in MODULES
                if any(not torch.equal(a, b) for a, b in zip(before[name], after[name]))
            ]
            seen.append((method, changed, sorted(set(training))))
            return result

        monkeypatch.setattr(target, method, noting)

    for method in ("train_estimator", "train_boundary", "train_generator"):
        note(algorithm, method)
    note(algorithm.estep, "run")
    note(trainer.valid_estep, "run")
    scalars = trainer._iterate(0)
    looking = [("boundary", False), ("estimator", False)]
    assert seen == [
        ("train_estimator", ["estimator"], [("estimator", True)]),
        ("train_boundary", ["boundary"], [("boundary", True)]),
        ("run", [], looking),
        ("train_generator", ["generator"], looking),
        ("run", [], looking),
    ]
    assert all(math.isfinite(value) for value in scalars.values())


def test_pseudo_labels_are_those_of_the_alignment_and_pi_that_of_the_search(
    cuts, tmp_path, monkeypatch
):
    """B-hat of the search teaches nobody: the boundary detector learns from the alignment."""
    trainer = make_trainer(cuts, tmp_path)
    algorithm = trainer.algorithm
    found = algorithm.estep.run(trainer.model, Decoding(), DEVICE).spans
    given = {}

    def noting(name):
        original = getattr(mlvae.train.algorithms, name)

        def loss(*args):
            given.setdefault(name, []).append(args)
            return original(*args)

        return loss

    for name in ("estimator_loss", "boundary_loss", "generator_loss"):
        monkeypatch.setattr(mlvae.train.algorithms, name, noting(name))
    names = []
    original = TrainingBatches.epoch

    def epoch_of(self, *args):
        for batch in original(self, *args):
            names.append(batch.cut_ids)
            yield batch

    monkeypatch.setattr(TrainingBatches, "epoch", epoch_of)
    algorithm.train_estimator(0)
    algorithm.train_boundary(1, algorithm.aligned)
    algorithm.train_generator(2, EStepResult(found, 0.0, 0.0))
    targets = [
        *(column for _, column, *_ in given["estimator_loss"]),
        *(boundary for _, _, boundary, *_ in given["boundary_loss"]),
        *(wrong for _, _, wrong, *_ in given["generator_loss"]),
    ]
    assert len(targets) == len(names)
    epoch = len(names) // 3
    num_wrong = 0
    for number, (batch, target) in enumerate(zip(names, targets)):
        spans = algorithm.aligned if number < 2 * epoch else found
        expected = frame_targets(
            [spans[name] for name in batch],
            torch.tensor([spans[name][-1].end for name in batch]),
            len(TABLE),
        )
        kind = ("column", "boundary", "mispronounced")[number // epoch]
        assert torch.equal(target, getattr(expected, kind))
        num_wrong += int(expected.mispronounced.sum())
    assert num_wrong > 0
    for _, _, _, mask, prior, weight in given["boundary_loss"]:
        assert prior == algorithm.boundary_prior
        assert weight == CONFIG.boundary_kl_weight
        assert mask.dtype == torch.bool
    for *_, kl_weight, weight in given["generator_loss"]:
        assert (kl_weight, weight) == (CONFIG.generator_kl_weight, CONFIG.correctness_weight)


def test_every_epoch_sees_every_cut_once_in_another_order(cuts, tmp_path):
    algorithm = make_trainer(cuts, tmp_path).algorithm
    orders = []
    for epoch in (0, 0, 1):
        batches = algorithm.batches.epoch(epoch, algorithm.aligned, "boundary")
        order = [batch.num_frames.tolist() for batch in batches]
        orders.append(order)
        assert sum(map(len, order)) == len(cuts[0])
        lengths = sorted(length for batch in order for length in batch)
        assert lengths == sorted(cut.num_frames for cut in cuts[0])
    assert orders[0] == orders[1] != orders[2]


def test_what_selects_the_component(cuts, tmp_path):
    trainer = make_trainer(cuts, tmp_path)
    algorithm = trainer.algorithm
    with torch.no_grad():  # the estimator then always says unit 3
        trainer.model.estimator.output.bias.copy_(torch.tensor([0.0, 0.0, 0.0, 50.0]))
    given = []
    trainer.model.generator.register_forward_pre_hook(lambda module, args: given.append(args))
    algorithm.train_generator(0, EStepResult(algorithm.aligned, 0.0, 0.0))
    batches = list(algorithm.batches.epoch(0, algorithm.aligned, "generator"))
    assert len(given) == len(batches)
    for args, batch in zip(given, batches):
        num_frames = batch.num_frames
        assert torch.equal(args[1], num_frames)
        assert (args[2][batch.mask] == 3).all()
        model = trainer.model
        with torch.no_grad():
            posteriors = model.estimator(args[0], num_frames).exp()
            alpha, beta = model.boundary(args[0], num_frames)
        torch.testing.assert_close(args[3], posteriors)
        torch.testing.assert_close(args[4], alpha / (alpha + beta))
        assert not args[3].requires_grad and not args[4].requires_grad


def statistics_cuts() -> CutSet:
    """Five and nine frames; units a (3 frames), b (2), a (4), silence at both ends (5)."""
    features = torch.randn(14, NUM_FEATURES, generator=torch.Generator().manual_seed(0)).numpy()
    features *= [1, 2, 3, 4, 5, 0]
    first = aligned(make_cut("x", features[:5], ["a", "b"]), [0, 3, 5])
    second = aligned(make_cut("y", features[5:], ["a"]), [2, 6])
    return CutSet.from_cuts([first, second])


@pytest.mark.parametrize("silence", [False, True])
def test_prior_of_units(tmp_path, silence):
    cuts = statistics_cuts()
    trainer = make_trainer((cuts, cuts), tmp_path, silence=silence)
    found = trainer.model.log_prior.exp()
    frames = [7.0, 2.0, 0.0, 0.0] + [5.0] * silence
    expected = torch.tensor(frames) + 1  # smoothed, so that no unit is impossible
    torch.testing.assert_close(found, expected / expected.sum())


def test_scale_and_boundary_prior(tmp_path):
    cuts = statistics_cuts()
    trainer = make_trainer((cuts, cuts), tmp_path, replace(CONFIG, boundary_prior_strength=7.0))
    data = dataset()
    frames = torch.cat([data.features(cut) for cut in cuts])
    scaled = trainer.model.scale(frames).pow(2).mean(0)
    torch.testing.assert_close(scaled, torch.tensor([1.0, 1, 1, 1, 1, 0]))
    alpha, beta = trainer.algorithm.boundary_prior
    assert alpha + beta == pytest.approx(7.0)
    assert alpha / (alpha + beta) == pytest.approx(3 / 14)  # L / T


def test_the_best_iteration_is_kept(cuts, tmp_path, monkeypatch, undisturbed):
    monkeypatch.setattr(mlvae.train.trainer, "corrupted_f1", values(0.1, 0.5, 0.5, 0.3))
    training = make_trainer(cuts, tmp_path, replace(CONFIG, iterations=4)).fit()
    assert (training["iterations"], training["best_iteration"]) == (4, 2)
    best = load_file(tmp_path / "model.safetensors")
    assert read_metadata(tmp_path / "model.safetensors")["iteration"] == 2
    second = load_file(undisturbed[0] / "checkpoint.safetensors")
    for name, value in best.items():
        assert torch.equal(value, second[f"module.model.{name}"]), name


def test_the_criterion_looks_at_corrupted_units_of_the_validation_part(cuts, tmp_path):
    trainer = make_trainer(cuts, tmp_path, replace(CONFIG, corruption_rate=0.5))
    assert trainer.replaced.keys() == {cut.id for cut in cuts[1]}
    marks = [mark for row in trainer.replaced.values() for mark in row]
    assert 0.2 < sum(marks) / len(marks) < 0.8
    result = trainer.valid_estep.run(trainer.model, Decoding(), DEVICE)
    for cut in cuts[1]:
        written = TABLE.ids(cut.supervisions[0].custom["units"], cut.id)
        searched = [span.unit for span in result.spans[cut.id]]
        assert [a != b for a, b in zip(written, searched)] == trainer.replaced[cut.id]


@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_gradient_norm_is_limited_for_each_module(cuts, tmp_path, clip):
    trainer = make_trainer(cuts, tmp_path, replace(CONFIG, gradient_clip=clip))
    module = trainer.model.boundary
    loss = 1e3 * sum(value.pow(2).sum() for value in module.parameters())
    trainer.algorithm.learners["boundary"].step(loss)
    norm = math.sqrt(sum(float(value.grad.pow(2).sum()) for value in module.parameters()))
    assert (norm > 100) if clip == 0 else norm == pytest.approx(0.5, rel=1e-3)


def test_training_finds_what_was_said_otherwise(tmp_path):
    """Sounds that are easily told apart: the whole chain has to find most of the wrong labels."""
    train, _ = spoken_cuts(160)  # of half as many, every third seed learns too little
    valid, wrong = spoken_cuts(60, seed=1)
    config = replace(CONFIG, iterations=8, learning_rate=0.02)
    trainer = make_trainer((train, valid), tmp_path, config)
    training = trainer.fit()
    first, last = training["history"][0], training["history"][-1]
    for name in ("loss/estimator", "loss/boundary"):
        assert last[name] < 0.8 * first[name], name
    rate = 0.2  # in nats, what the rate of wrong labels alone gives
    assert last["loss/correctness"] < -rate * math.log(rate) - (1 - rate) * math.log(1 - rate)
    assert last["loss/reconstruction"] < first["loss/reconstruction"]
    assert last["corrupted_f1"] > first["corrupted_f1"]
    estep = EStep(MlFsaCompiler(len(TABLE)), valid, dataset(), 1000)
    spans = estep.run(trainer.model, Decoding(), DEVICE).spans
    pairs = [
        (span.mispronounced, mark)
        for name, marks in wrong.items()
        for span, mark in zip(spans[name], marks)
    ]
    hits = sum(flag and mark for flag, mark in pairs)
    f1 = 2 * hits / sum(flag + mark for flag, mark in pairs)
    flag_all = 2 * sum(mark for _, mark in pairs) / sum(1 + mark for _, mark in pairs)
    assert f1 > 0.75 > 0.45 > flag_all
    true_starts = {cut.id: [item.start for item in tier(cut, "fa")] for cut in valid}
    errors = [
        abs(span.start / 100 - start)
        for name, starts in true_starts.items()
        for span, start in zip(spans[name], starts)
    ]
    assert sum(error < 0.011 for error in errors) / len(errors) > 0.9
    json.dumps(training, allow_nan=False)


def test_silence_is_learned_at_both_ends(tmp_path):
    """Frames after the last unit are silence as those before the first."""
    cuts = statistics_cuts()
    algorithm = make_trainer((cuts, cuts), tmp_path, silence=True).algorithm
    labels = {}
    for batch in algorithm.batches.epoch(0, algorithm.aligned, "estimator"):
        labels.update(zip(batch.num_frames.tolist(), batch.targets.column.tolist()))
    assert labels[9] == [4, 4, 0, 0, 0, 0, 4, 4, 4]
