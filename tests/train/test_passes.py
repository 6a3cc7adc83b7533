"""Runs that are killed anywhere within an iteration, and go on from a checkpoint in its midst."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlvae import stage
from mlvae.train import Decoding
from mlvae.train.loop import Gathered, Passes, TrainingState, load_checkpoint, text_of, text_tensor
from tests.train.tiny import spoken_cuts
from tests.train.trainers import (
    CONFIG,
    Kill,
    Killer,
    assert_same_files,
    figures,
    make_trainer,
    until_done,
)

SMALL = replace(CONFIG, max_frames=150)
SUB = replace(
    SMALL,
    topology="substitution",
    states_per_unit=2,
    pseudo_labels_after=2,
    decoding=Decoding(acoustic_scale=0.5),
)
ONCE = replace(SMALL, iterations=1)
CONFIGS = {
    "alternating": replace(SMALL, estimator_epochs=2, selection="path_score", frequency_warp=0.1),
    "reinforce": replace(SMALL, algorithm="reinforce", boundary_target="found"),
    "separate": replace(SMALL, algorithm="reinforce", topology="separate"),
    "joint": replace(SMALL, algorithm="joint", final_learning_rate=1e-3),
    "pseudo-labelling": replace(
        SUB, estimate_after=1, decoding=Decoding(acoustic_scale=0.5, competitors=2, deletions=True)
    ),
}


@pytest.fixture(scope="module")
def cuts():
    return spoken_cuts(11)[0], spoken_cuts(4, seed=1)[0]


@pytest.fixture(autouse=True, scope="module")
def small_searches():
    """Several batches a search."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlvae.train.algorithms.Algorithm.search_frames", lambda self: 100)
        yield


def fit(cuts, folder, config) -> dict:
    return until_done(lambda: make_trainer(cuts, folder, config).fit())


def undisturbed(cuts, folder, config) -> tuple[dict, int]:
    """What a run returns, and its number of batches."""
    with pytest.MonkeyPatch.context() as patch:
        whole = Killer(patch, every=0)
        return fit(cuts, folder, config), whole.count


@pytest.fixture(scope="module", params=CONFIGS)
def whole(request, cuts, tmp_path_factory):
    """A configuration, the folder of its undisturbed run, what that returned, and its batches."""
    config, folder = CONFIGS[request.param], tmp_path_factory.mktemp("whole")
    return config, folder, *undisturbed(cuts, folder, config)


def test_a_run_that_is_killed_again_and_again_goes_on_to_the_same_weights(
    cuts, tmp_path, monkeypatch, whole
):
    """It has a checkpoint after every third batch, and is killed in all parts of an iteration."""
    config, folder, expected, count = whole
    killer = Killer(monkeypatch, every=3, kills=tuple(range(4, 2 * count, 16)))
    found = fit(cuts, tmp_path, config)
    # Of the sixteen batches from kill to kill one or two are done once more.
    assert count < killer.count < 1.5 * count
    assert figures(found) == figures(expected)
    assert_same_files(tmp_path, folder)


def test_without_a_checkpoint_within_it_an_iteration_begins_anew(
    cuts, tmp_path, monkeypatch, whole
):
    """Killed in the first iteration, of which nothing is left, and at the end of the second."""
    config, folder, expected, count = whole
    Killer(monkeypatch, every=0, kills=(count // 4, count // 4 + count - 1))
    assert figures(fit(cuts, tmp_path, config)) == figures(expected)
    assert_same_files(tmp_path, folder)


@pytest.fixture(scope="module")
def once(cuts, tmp_path_factory):
    """A run of one iteration, and its number of batches."""
    folder = tmp_path_factory.mktemp("once")
    return folder, undisturbed(cuts, folder, ONCE)[1]


@pytest.mark.parametrize("kill", (2, 7, 12))
def test_a_kill_right_behind_a_checkpoint_repeats_no_batch(cuts, tmp_path, monkeypatch, once, kill):
    killer = Killer(monkeypatch, every=1, kills=(kill,))
    fit(cuts, tmp_path, ONCE)
    assert killer.count == once[1] > kill
    assert_same_files(tmp_path, once[0])


def test_a_checkpoint_within_an_iteration_is_gone_on_from_without_its_passes(
    cuts, tmp_path, monkeypatch
):
    """Another number of processes divides batches otherwise."""
    Killer(monkeypatch, every=1, kills=(8,))
    with pytest.raises(Kill):
        make_trainer(cuts, tmp_path, ONCE).fit()
    monkeypatch.setattr("mlvae.train.distributed.world_size", lambda: 2)
    trainer = make_trainer(cuts, tmp_path, ONCE)
    algorithm = trainer.algorithm
    optimizers = {name: learner.optimizer for name, learner in algorithm.learners.items()}
    state = TrainingState(algorithm.modules, optimizers, {}, passes=algorithm.passes)
    load_checkpoint(tmp_path / "checkpoint.safetensors", state)
    seen = list(algorithm.passes.over("ab", Gathered([]), "", "cut", 2, len))
    assert seen == ["a", "b"]


def test_the_first_process_alone_shows_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(stage, "LINE_SECONDS", 0.0)
    for rank, shown in ((0, True), (1, False)):
        monkeypatch.setattr("mlvae.train.distributed.rank", lambda rank=rank: rank)
        list(Passes(together=True).over("abc", Gathered([]), "estimator", "cut", 3, len))
        assert ("estimator: 2 of 3 (67%) cuts" in capsys.readouterr().err) is shown


def test_each_part_of_training_says_in_a_log_how_far_it_is(cuts, tmp_path, monkeypatch, capsys):
    """Epochs were mute there, and searches everywhere."""
    monkeypatch.setattr(stage, "LINE_SECONDS", 0.0)
    make_trainer(cuts, tmp_path, ONCE).fit()
    lines = [line[20:] for line in capsys.readouterr().err.splitlines()]
    for name in ("estimator", "boundary", "search", "generator", "search of validation cuts"):
        assert any(line.startswith(f"{name}: ") and " left" in line for line in lines), name


@pytest.mark.parametrize("value", [{"a": [0.1, 1e-300, -2.5e300]}, ["ä\ud800", None, True], []])
def test_json_values_come_out_of_a_tensor_as_they_went_in(value):
    assert text_of(text_tensor(value)) == value


def test_freed_memory_goes_back_during_a_long_pass(monkeypatch):
    """Left to itself the process would come to hold more than any search needs."""
    clock, given = [0.0], []
    monkeypatch.setattr("mlvae.train.loop.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("mlvae.train.loop.give_back_memory", lambda: given.append(clock[0]))
    passes = Passes()
    for _ in range(2):
        for seconds in passes.over([4.0] * 4, Gathered([]), "search", "frame", 4, int):
            clock[0] += seconds
    assert given == [4.0 * number for number in range(1, 9)]
