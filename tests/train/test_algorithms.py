"""What an iteration does: epochs and their rates, whose boundaries are learned, and precision."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from lhotse import CutSet
from safetensors.torch import load_file

from mlvae.train import Trainer
from mlvae.train.algorithms import Alternating, Learner, gradient_scaler
from mlvae.train.estep import EStepResult
from mlvae.train.loop import read_metadata
from mlvae.train.targets import TrainingBatches
from tests.train.tiny import CPU, spoken_cuts
from tests.train.trainers import CONFIG, MODULES, make_trainer, values


@pytest.fixture(scope="module")
def cuts() -> tuple[CutSet, CutSet]:
    return spoken_cuts(12)[0], spoken_cuts(4, seed=1)[0]


def test_each_pass_of_the_estimator_takes_all_cuts_in_an_order_of_its_own(
    cuts, tmp_path, monkeypatch
):
    trainer = make_trainer(cuts, tmp_path, replace(CONFIG, estimator_epochs=3))
    batches, seen = trainer.algorithm.batches, []
    original = batches.epoch

    def epoch(number, spans, description, means):
        names = []
        for batch in original(number, spans, description, means):
            names += batch.cut_ids
            yield batch
        if description == "estimator":
            seen.append(tuple(names))

    monkeypatch.setattr(batches, "epoch", epoch)
    trainer.fit()
    assert len(seen) == len(set(seen)) == 3 * CONFIG.iterations
    assert {tuple(sorted(names)) for names in seen} == {tuple(sorted(cuts[0].ids))}


def test_the_path_score_of_the_validation_part_may_choose(cuts, tmp_path, monkeypatch):
    trainer = make_trainer(cuts, tmp_path, replace(CONFIG, iterations=4, selection="path_score"))
    score, asked = values(-3.0, -2.0, -2.5, -2.0), []

    def run(model, decoding, device, **_):
        asked.append(trainer.valid_searches["valid"].other_units)
        return EStepResult({}, score(), 0.0)

    monkeypatch.setattr(trainer.valid_searches["valid"], "run", run)
    training = trainer.fit()
    assert training["best_iteration"] == 2
    assert read_metadata(tmp_path / "model.safetensors")["iteration"] == 2
    assert [row["path_score/valid"] for row in training["history"]] == [-3.0, -2.0, -2.5, -2.0]
    assert "path" in training["criterion"]
    assert asked[0] is None and trainer.valid_estep.other_units  # the text, not corrupted


def rates(trainer: Trainer, monkeypatch) -> dict[str, list[float]]:
    """Train without steps; the rate of each iteration by module."""
    seen = {name: [] for name in MODULES}

    def step(self, loss):
        (name,) = (n for n, learner in trainer.algorithm.learners.items() if learner is self)
        (group,) = self.optimizer.param_groups
        if seen[name][-1:] != [group["lr"]]:
            seen[name].append(group["lr"])

    monkeypatch.setattr(Learner, "step", step)
    trainer.fit()
    return seen


@pytest.mark.parametrize(
    ("iterations", "final", "expected"),
    [
        (3, 0.0, [1e-2]),
        (3, 1e-4, [1e-2, 1e-3, 1e-4]),
        (3, 1e-2, [1e-2]),
        (1, 1e-4, [1e-2]),
    ],
)
def test_the_rate_falls_by_equal_factors(cuts, tmp_path, monkeypatch, iterations, final, expected):
    config = replace(CONFIG, iterations=iterations, learning_rate=1e-2, final_learning_rate=final)
    found = rates(make_trainer(cuts, tmp_path, config), monkeypatch)
    assert found == {name: pytest.approx(expected) for name in MODULES}


def test_with_more_iterations_it_is_another_run(cuts, tmp_path):
    """Every iteration then has another rate; with a constant one, a run may be prolonged."""

    def identity(**change) -> str:
        return make_trainer(cuts, tmp_path, replace(CONFIG, **change)).identity

    assert identity(iterations=3) == identity(iterations=4)
    falling = identity(iterations=3, final_learning_rate=1e-4)
    assert falling != identity(iterations=4, final_learning_rate=1e-4)
    assert falling != identity(iterations=3)


@pytest.mark.parametrize("algorithm", ["alternating", "reinforce"])
def test_without_a_boundary_detector_starts_have_the_rate_of_the_alignment(
    cuts, tmp_path, algorithm
):
    config = replace(CONFIG, iterations=1, algorithm=algorithm, boundary_detector=False)
    trainer = make_trainer(cuts, tmp_path, config)
    training = trainer.fit()
    assert "loss/boundary" not in training["history"][0]
    units = sum(len(spans) for spans in trainer.algorithm.aligned.values())
    rate = units / sum(cut.num_frames for cut in cuts[0])
    kept = load_file(tmp_path / "model.safetensors")
    torch.testing.assert_close(kept["log_boundary"].exp(), torch.tensor([1 - rate, rate]))
    assert not any(name.startswith("boundary.") for name in kept)


@pytest.mark.parametrize("algorithm", ["alternating", "reinforce", "joint"])
def test_the_checkpoint_holds_what_is_trained(cuts, tmp_path, algorithm):
    training = make_trainer(
        cuts, tmp_path, replace(CONFIG, iterations=1, algorithm=algorithm)
    ).fit()
    names = load_file(tmp_path / "checkpoint.safetensors")
    baseline = algorithm == "reinforce"
    assert any(name.startswith("module.baseline.") for name in names) is baseline
    assert any(name.startswith("optimizer.baseline.") for name in names) is baseline
    assert not any("baseline" in name for name in load_file(tmp_path / "model.safetensors"))
    # Of the optimizers: each parameter once.
    averages = [value for name, value in names.items() if name.endswith(".exp_avg")]
    assert training["num_params"] == sum(value.numel() for value in averages)


@pytest.mark.parametrize("boundary_target", ["aligned", "found"])
def test_which_boundaries_are_learned(cuts, tmp_path, monkeypatch, boundary_target):
    """B-hat is that of the same iteration; the estimator has the alignment either way."""
    config = replace(CONFIG, boundary_target=boundary_target)
    algorithm = make_trainer(cuts, tmp_path, config).algorithm
    found, order = [], []
    search, epoch = Alternating.search, TrainingBatches.epoch

    def searching(self):
        order.append("E-step")
        found.append(search(self))
        return found[-1]

    def noting(self, number, spans, name, means):
        order.append(name)
        if name == "boundary":
            used = algorithm.aligned if boundary_target == "aligned" else found[-1].spans
            assert spans is used
        if name == "estimator":
            assert spans is algorithm.aligned
        return epoch(self, number, spans, name, means)

    monkeypatch.setattr(Alternating, "search", searching)
    monkeypatch.setattr(TrainingBatches, "epoch", noting)
    algorithm.iterate(0)
    assert (
        order
        == {
            "aligned": ["estimator", "boundary", "E-step", "generator"],
            "found": ["estimator", "E-step", "boundary", "generator"],
        }[boundary_target]
    )
    starts = [
        {name: [span.start for span in spans] for name, spans in rows.items()}
        for rows in (found[0].spans, algorithm.aligned)
    ]
    assert starts[0] != starts[1]


def test_boundaries_are_first_searched_with_their_prior(cuts, tmp_path):
    """An untrained detector would say that every second frame is a start."""
    rates = {}
    for target in ("aligned", "found"):
        algorithm = make_trainer(cuts, tmp_path, replace(CONFIG, boundary_target=target)).algorithm
        batch = next(iter(algorithm.batches.epoch(0, algorithm.aligned, "")))
        alpha, beta = algorithm.model.boundary(batch.features, batch.num_frames)
        rates[target] = float((alpha / (alpha + beta))[batch.mask].mean())
    alpha, beta = algorithm.boundary_prior
    assert rates["found"] == pytest.approx(alpha / (alpha + beta), rel=0.25)
    assert rates["aligned"] > 2 * rates["found"]


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision_needs_a_gpu(name):
    with pytest.raises(ValueError, match=f"precision {name} needs a GPU; on cpu"):
        gradient_scaler(name, CPU)


def test_a_gpu_without_bfloat16_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    with pytest.raises(ValueError, match="this GPU lacks it"):
        gradient_scaler("bfloat16", torch.device("cuda"))


def test_float32_has_no_state_and_changes_nothing(recwarn):
    scaler = gradient_scaler("float32", CPU)
    assert scaler.state_dict() == {}
    learner = Learner(torch.nn.Linear(3, 2), CONFIG, scaler)
    inputs = torch.rand(4, 3)
    expected = learner.module(inputs)
    assert torch.equal(learner(inputs), expected)
    (gradient,) = torch.autograd.grad(expected.sum(), learner.module.weight)
    learner.gradient_clip = 0.0
    learner.step(learner(inputs).sum())
    assert torch.equal(learner.module.weight.grad, gradient)
    assert not list(recwarn)
