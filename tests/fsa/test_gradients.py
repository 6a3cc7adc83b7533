"""Gradients of total scores, against finite differences of the independent reference."""

from __future__ import annotations

import pytest
import torch

from mlvae.fsa import MlFsaCompiler, total_scores
from tests.fsa import brute_force
from tests.fsa.cases import NUM_UNITS, random_case

ALL = 1e4


def _reference(case, log_semiring: bool) -> float:
    """Sum over the batch of the scores of all paths, in double precision."""
    total = 0.0
    for index in range(len(case.utterances)):
        scores = [hypothesis.score for hypothesis in case.hypotheses(index)]
        total += brute_force.log_sum(scores) if log_semiring else max(scores)
    return total


def _central_difference(case, tensor: torch.Tensor, log_semiring: bool) -> torch.Tensor:
    """Move each entry of ``tensor``, one of the case's own inputs, in place."""
    step = 1e-4
    gradient = torch.zeros_like(tensor)
    for place in range(tensor.numel()):
        flat = tensor.view(-1)
        value = float(flat[place])
        flat[place] = value + step
        up, upper = _reference(case, log_semiring), float(flat[place])
        flat[place] = value - step
        down, lower = _reference(case, log_semiring), float(flat[place])
        flat[place] = value
        gradient.view(-1)[place] = (up - down) / (upper - lower)
    return gradient


@pytest.mark.parametrize("log_semiring", [True, False], ids=["log", "max"])
@pytest.mark.parametrize(
    "settings",
    [
        {"topology": "ml", "inputs": "boundary and correctness"},
        {"topology": "single", "states": 2, "inputs": "boundary and correctness"},
        {"topology": "ml", "states": 2, "silence": True, "inputs": "everything"},
        {"topology": "ml", "alternatives": True, "inputs": "prior"},
        {"topology": "substitution", "states": 2, "inputs": "everything"},
        {"topology": "substitution", "silence": True, "deletions": True, "inputs": "prior"},
        {"topology": "single", "silence": True, "insertions": True, "inputs": "everything"},
        {
            "topology": "ml",
            "deletions": True,
            "insertions": True,
            "inputs": "boundary and correctness",
        },
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_gradients_are_finite_differences(settings, log_semiring, device):
    case = random_case(17, batch=2, max_frames=4, max_units=2, **settings)
    if not settings.get("alternatives"):
        case.utterances = [[2], [0, 1]]
    case.num_frames = torch.tensor([3, 4])
    inputs = {"log_posteriors": case.log_posteriors}
    inputs.update((k, v) for k, v in case.options.items() if torch.is_tensor(v))
    leaves = {name: value.to(device, copy=True).requires_grad_() for name, value in inputs.items()}
    constants = {k: v for k, v in case.options.items() if not torch.is_tensor(v)}
    emissions = case.compiler.emissions(num_frames=case.num_frames, **leaves, **constants)
    total_scores(case.graphs(), emissions, log_semiring, output_beam=ALL).sum().backward()
    # The reference works on doubles; the case's tensors are replaced in place by those.
    case.log_posteriors = case.log_posteriors.double()
    case.options = {k: v.double() if torch.is_tensor(v) else v for k, v in case.options.items()}
    for name, leaf in leaves.items():
        tensor = case.log_posteriors if name == "log_posteriors" else case.options[name]
        if name == "log_correctness" and not case.compiler.layout.has_mismatch:
            assert leaf.grad is None  # the single topology has no such term
            continue
        expected = _central_difference(case, tensor, log_semiring)
        found = leaf.grad.cpu().double()
        assert torch.allclose(found, expected, atol=2e-3, rtol=2e-3), (name, found, expected)


@pytest.mark.parametrize("gap", [5.0, 12.0, 20.0, 60.0, 500.0])
@pytest.mark.parametrize("log_correct", [-0.2, -1000.0])
def test_saturated_estimator_keeps_a_gradient(gap, log_correct, device):
    """An estimator that is all but sure of the canonical unit, with and without reason.

    Where the generator leaves "mispronounced" as the only branch, its score must still tell the
    estimator to move to another unit.
    """
    logits = torch.zeros(1, 3, NUM_UNITS)
    logits[..., 0] = gap
    log_posteriors = logits.to(device).log_softmax(-1).requires_grad_()
    correctness = torch.tensor([log_correct, -1.7 if log_correct > -1 else 0.0])
    compiler = MlFsaCompiler(NUM_UNITS, "ml")
    emissions = compiler.emissions(
        log_posteriors,
        torch.tensor([3]),
        log_correctness=correctness.expand(1, 3, 2).to(device),
    )
    score = total_scores(compiler.compile([[0]]), emissions)
    assert torch.isfinite(score).all()
    score.sum().backward()
    gradient = log_posteriors.grad[0]
    assert torch.isfinite(gradient).all()
    if log_correct > -1:
        assert (gradient[:, 0] > 0.1).all()
    else:
        torch.testing.assert_close(gradient[:, 1:], torch.full_like(gradient[:, 1:], 1 / 3))


def test_certain_estimator_has_finite_gradients(device):
    """Probabilities of exactly one and zero."""
    log_posteriors = torch.full((1, 3, NUM_UNITS), -torch.inf, device=device)
    log_posteriors[..., 0] = 0.0
    for blank in (None, 3):
        leaf = log_posteriors.clone().requires_grad_()
        compiler = MlFsaCompiler(NUM_UNITS - (blank is not None), "ml")
        emissions = compiler.emissions(leaf, torch.tensor([3]), blank=blank)
        for units in ([0], [1], [0, 0]):
            score = total_scores(compiler.compile([units]), emissions)
            assert torch.isfinite(score).all()
            (gradient,) = torch.autograd.grad(score.sum(), leaf, retain_graph=True)
            assert torch.isfinite(gradient).all(), (blank, units)


def test_silent_frames_have_finite_gradients(device):
    """An insertion is any unit, and in a frame of certain silence no unit has any probability."""
    log_posteriors = torch.tensor([[0.5, 0.5, 0.0]] * 4).log()
    log_posteriors[1] = torch.tensor([0.0, 0.0, 1.0]).log()
    log_posteriors[2] = torch.tensor([-20.0, -21.0, 0.0])
    leaf = log_posteriors[None].to(device).requires_grad_()
    compiler = MlFsaCompiler(2, "single", silence=True, insertions=True, insertion_rate=0.5)
    emissions = compiler.emissions(leaf, torch.tensor([4]))
    insertion = emissions.dense.scores[:4, -1].sum()
    (gradient,) = torch.autograd.grad(insertion, leaf, retain_graph=True)
    # The floor holds for the score; an estimator that is all but sure can still be told otherwise.
    near = torch.tensor([-20.0, -21.0]).softmax(0)
    expected = torch.tensor([[0.5, 0.5, 0], [0, 0, 0], [*near, 0], [0.5, 0.5, 0]])
    torch.testing.assert_close(gradient[0].cpu(), expected)
    score = total_scores(compiler.compile([[0]]), emissions)
    (gradient,) = torch.autograd.grad(score.sum(), leaf)
    assert torch.isfinite(gradient).all()


def test_too_short_utterance_does_not_spoil_gradients(device):
    case = random_case(2, batch=3, max_frames=6)
    case.utterances = [[0, 1], [2, 3, 1], [1]]
    case.num_frames = torch.tensor([6, 2, 0])
    leaf = case.log_posteriors.to(device).requires_grad_()
    emissions = case.compiler.emissions(leaf, case.num_frames)
    scores = total_scores(case.graphs(), emissions)
    assert torch.isfinite(scores).tolist() == [True, False, False]
    scores.sum().backward()
    assert torch.isfinite(leaf.grad).all()
    assert leaf.grad[1:].eq(0).all()
    assert leaf.grad[0].ne(0).any()


def test_arc_scores_of_the_graph_can_be_learned(device):
    """A score of one unit's arcs counts as often as the unit has frames."""
    case = random_case(4, batch=1, max_frames=5)
    case.utterances, case.num_frames = [[0, 1]], torch.tensor([5])
    graphs = case.graphs(device)
    scores = torch.zeros(graphs.num_arcs, device=device, requires_grad=True)
    graphs.scores = scores
    total_scores(graphs, case.emissions(device), output_beam=ALL).sum().backward()
    position = graphs.unit_pos.long()
    assert float(scores.grad[position >= 0].sum()) == pytest.approx(5, abs=1e-3)
    answer = case.answer(0)
    for slot in (0, 1):
        frames = sum(row[slot] for row in answer.occupancy)
        assert float(scores.grad[position == slot].sum()) == pytest.approx(frames, abs=1e-3)
