"""Every way of training: killed at any step and started again, it ends with the same bits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

import mlvae.train.loop
import mlvae.train.trainer
from mlvae.train.algorithms import Alternating, Learner
from mlvae.train.estep import EStep
from mlvae.train.loop import read_metadata
from mlvae.train.targets import TrainingBatches
from tests.train.tiny import spoken_cuts
from tests.train.trainers import CONFIG, Kill, assert_same_files, figures, kill_at, make_trainer

VARIANTS = {
    "ml-vae-rl": replace(CONFIG, algorithm="reinforce"),
    "ablation-1": replace(CONFIG, algorithm="reinforce", boundary_target="found"),
    "ablation-2": replace(CONFIG, algorithm="joint"),
    "ablation-3": replace(CONFIG, algorithm="reinforce", topology="separate"),
}


@pytest.fixture(scope="module")
def cuts():
    return spoken_cuts(16)[0], spoken_cuts(6, seed=1)[0]


@pytest.fixture(scope="module", params=VARIANTS)
def undisturbed(request, cuts, tmp_path_factory):
    """Configuration, folder, what training returned, and updates of parameters an iteration."""
    config = VARIANTS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    updates = []
    original = Learner.update
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "update", lambda self: (updates.append(self), original(self)))
        training = make_trainer(cuts, folder, config).fit()
    return config, folder, training, len(updates) // config.iterations


def check_killed(cuts, folder, patch, undisturbed, target, name, call, iteration) -> None:
    """Kill in the midst of a call; the run then goes on to the same files."""
    config, expected_folder, expected, _ = undisturbed
    with patch.context() as context, pytest.raises(Kill):
        kill_at(context, target, name, call)
        make_trainer(cuts, folder, config).fit()
    checkpoint = folder / "checkpoint.safetensors"
    assert checkpoint.exists() is (iteration > 0)
    if iteration:
        assert read_metadata(checkpoint)["iteration"] == iteration
    torch.manual_seed(99)  # a new process
    assert figures(make_trainer(cuts, folder, config).fit()) == figures(expected)
    assert_same_files(folder, expected_folder)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 1.0])
def test_a_run_that_is_killed_at_a_step_goes_on(cuts, tmp_path, monkeypatch, undisturbed, share):
    """In the second iteration, from its first step to its last."""
    steps = undisturbed[3]
    call = steps + 1 + round(share * (steps - 1))
    check_killed(cuts, tmp_path, monkeypatch, undisturbed, Learner, "update", call, 1)


@pytest.mark.parametrize("place", ["first iteration", "validation", "checkpoint"])
def test_a_run_that_is_killed_between_epochs_goes_on(
    cuts, tmp_path, monkeypatch, undisturbed, place
):
    searches = 1 if undisturbed[0].algorithm == "joint" else 2  # an iteration
    target, name, call, iteration = {
        "first iteration": (Learner, "update", undisturbed[3], 0),
        "validation": (EStep, "run", 2 * searches, 1),
        "checkpoint": (mlvae.train.loop, "save_checkpoint", 2, 1),
    }[place]
    check_killed(cuts, tmp_path, monkeypatch, undisturbed, target, name, call, iteration)


def test_the_checkpoint_holds_what_is_trained(undisturbed):
    config, folder, training, _ = undisturbed
    names = load_file(folder / "checkpoint.safetensors")
    baseline = config.algorithm == "reinforce"
    assert any(name.startswith("module.baseline.") for name in names) is baseline
    assert any(name.startswith("optimizer.baseline.") for name in names) is baseline
    assert not any("baseline" in name for name in load_file(folder / "model.safetensors"))
    params = sum(
        value.numel() for name, value in names.items() if name.endswith(".exp_avg")
    )  # of the optimizers: each parameter once
    assert training["num_params"] == params


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
