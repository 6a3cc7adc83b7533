"""What is refused, and that the message says where the fault is."""

from __future__ import annotations

import math

import k2
import numpy as np
import pytest
import torch

from mlvae.fsa import MlFsaCompiler, best_path, posteriors, search, total_scores
from mlvae.fsa.topology import TOPOLOGIES
from tests.fsa.cases import NUM_UNITS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_units": 0}, "num_units must be at least 1, not 0"),
        ({"num_units": 3, "states_per_unit": 0}, "states_per_unit must be at least 1, not 0"),
        ({"num_units": 3, "topology": "ML"}, f"there are: {', '.join(TOPOLOGIES)}"),
        (
            {"num_units": 3, "competitors": [[1], [2], [0]]},
            "competitors go with topology 'substitution', not 'ml'",
        ),
        ({"num_units": 3, "deletion_rate": 0.0}, "deletion_rate must lie between 0 and 1, not 0.0"),
        ({"num_units": 3, "deletion_rate": 1.0}, "deletion_rate must lie between 0 and 1, not 1.0"),
        (
            {"num_units": 3, "insertion_rate": -0.1},
            "insertion_rate must lie between 0 and 1, not -0.1",
        ),
        ({"num_units": 3, "insertion_rate": math.nan}, "insertion_rate must lie between 0 and 1"),
    ],
)
def test_compiler_refuses_what_it_cannot_do(arguments, message):
    with pytest.raises(ValueError, match=message):
        MlFsaCompiler(**arguments)


@pytest.mark.parametrize(
    ("competitors", "message"),
    [
        ([[1], [0]], "competitors has 2 lists for 3 units"),
        ([[1], [1], [0]], "unit 1 cannot have the competitor 1: competitors are other units, 0 to"),
        ([[1], [3], [0]], "unit 1 cannot have the competitor 3"),
        ([[1], [0], [-1]], "unit 2 cannot have the competitor -1"),
        ([[1], [0], [0.5]], "unit 2 cannot have the competitor 0.5"),
        ([[1], ["n"], [0]], "unit 1 cannot have the competitor 'n'"),
        ([1, 2, 0], "must be a list of units for each unit, or a table"),
        (3, "must be a list of units for each unit, or a table, not 3"),
        (torch.zeros(2, 3), r"must be \(3, 3\) log-probabilities, not \(2, 3\)"),
        (np.zeros(3), r"must be \(3, 3\) log-probabilities, not \(3,\)"),
        (torch.tensor([[0, -1, -1], [-1, 0, -9], [-1, math.nan, 0]]), "row of unit 2 holds NaN"),
        (torch.full((3, 3), 1 / 3), "row of unit 0 sums to 2.791, above 1; log p.* is wanted"),
        (np.log([[1, 0.6, 0.3], [0.5, 1, 0.5], [0.6, 0.6, 1]]), "row of unit 2 sums to 1.2"),
    ],
)
def test_competitors_are_checked(competitors, message):
    with pytest.raises(ValueError, match=message):
        MlFsaCompiler(3, "substitution", competitors=competitors)


@pytest.mark.parametrize(
    ("utterances", "message"),
    [
        ([], "no utterances"),
        ([[0, 1], []], "utterance 1 has no units"),
        ([[0, 1], [2, 4]], "utterance 1: unit 4 is out of range; units are 0 to 3"),
        ([[0, -1]], "utterance 0: unit -1 is out of range; units are 0 to 3"),
        ([[[[0]]], [[[1], [7]]]], "utterance 1: unit 7 is out of range; units are 0 to 3"),
        ([[[[0]], []]], "utterance 0, word 1 has no pronunciation"),
        ([[[[0]], [[1], []]]], "utterance 0, word 1 has a pronunciation without units"),
        ([[0, 1], [[[0]]]], "utterance 0, word 0: found a unit where a word is expected"),
        ([[[0, 1], [2]]], "utterance 0, word 0: a word is a list of pronunciations"),
        ([[0.5, 1.0]], "utterance 0, word 0: units must be integers, not 0.5"),
        ([[0, [1]]], "units must be integers"),
        ([["n", "aa"]], "units must be integers"),
        ([[[[0, 1.5]]]], "utterance 0, word 0: units must be integers"),
        ([0, 1], "utterance 0 is 0, not a list"),
        ([[0, 1], None], "utterance 1 is None, not a list"),
        ([[[[0]], None]], "utterance 0, word 1 is None, not a list"),
        ([[[[0], None]]], "utterance 0, word 0: a pronunciation is None, not a list"),
    ],
)
def test_compile_names_what_is_wrong(utterances, message):
    with pytest.raises(ValueError, match=message):
        MlFsaCompiler(NUM_UNITS).compile(utterances)


class Inputs:
    """Valid arguments of emissions, each of which a test may replace."""

    def __init__(self, device="cpu"):
        self.log_posteriors = torch.zeros(2, 5, NUM_UNITS, device=device).log_softmax(-1)
        self.num_frames = torch.tensor([5, 3])
        self.two = torch.zeros(2, 5, 2, device=device).log_softmax(-1)

    def refused(self, message, compiler=None, **changes):
        arguments = {"log_posteriors": self.log_posteriors, "num_frames": self.num_frames}
        arguments.update(changes)
        with pytest.raises(ValueError, match=message):
            (compiler or MlFsaCompiler(NUM_UNITS)).emissions(**arguments)


def test_shapes_and_types_are_checked(device):
    inputs = Inputs(device)
    flat = inputs.log_posteriors[0]
    inputs.refused(r"must be \(B, T, 4\) for 4 units x 1 states, not \(5, 4\)", log_posteriors=flat)
    compiler = MlFsaCompiler(NUM_UNITS, states_per_unit=3, silence=True)
    inputs.refused(r"\(B, T, 13\) for 4 units x 3 states \+ silence, not", compiler)
    inputs.refused(r"\(B, T, 5\) for 4 units x 1 states \+ blank", blank=0)
    whole = torch.zeros_like(inputs.log_posteriors, dtype=torch.int64)
    inputs.refused("must be floating point, not torch.int64", log_posteriors=whole)
    inputs.refused("log_posteriors is empty", log_posteriors=inputs.log_posteriors[:, :0])
    inputs.refused("must be 2 integers", num_frames=torch.tensor([5, 3, 1]))
    inputs.refused("must be 2 integers", num_frames=torch.tensor([5.0, 3.0]))
    inputs.refused("utterance 1 has 6 frames, .* room for 0 to 5", num_frames=torch.tensor([5, 6]))
    inputs.refused("utterance 0 has -1 frames", num_frames=torch.tensor([-1, 3]))
    for name in ("log_boundary", "log_correctness"):
        inputs.refused(rf"{name} must be \(2, 5, 2\)", **{name: inputs.two[..., :1]})
        inputs.refused(rf"{name} must be \(2, 5, 2\)", **{name: inputs.two[:, :4]})
    inputs.refused(r"one value a column of log_posteriors \(4\)", log_prior=torch.zeros(3))
    inputs.refused("log_prior must be finite", log_prior=torch.tensor([-1.0, -1, -1, -torch.inf]))
    for scale in (0.0, -1.0, float("nan"), float("inf")):
        inputs.refused("acoustic_scale must be positive and finite", acoustic_scale=scale)
    inputs.refused("3 names for 2 utterances", names=["a", "b", "c"])
    five = torch.zeros(2, 5, NUM_UNITS + 1, device=device).log_softmax(-1)
    for blank in (5, -1):
        inputs.refused(f"blank is column {blank}", log_posteriors=five, blank=blank)


def test_logits_are_refused(device):
    inputs = Inputs(device)
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(2, 5, NUM_UNITS, generator=generator).to(device)
    inputs.refused("log-probabilities are wanted, not logits", log_posteriors=logits)
    inputs.refused("log_boundary has .* not logits", log_boundary=logits[..., :2] + 9)
    inputs.refused("log_correctness has .* not logits", log_correctness=logits[..., :2] + 9)
    inputs.refused("not logits", log_posteriors=logits, names=["cut-1", "cut-2"])
    # Probabilities in place of their logs are at least as common a mistake.
    inputs.refused("not logits", log_posteriors=logits.softmax(-1))


def _with_graphs(graphs, emissions, message):
    for search_ in (best_path, posteriors, total_scores):
        with pytest.raises(ValueError, match=message):
            search_(graphs, emissions)


def test_graphs_of_another_compiler_are_refused(device):
    compiler = MlFsaCompiler(NUM_UNITS)
    inputs = Inputs(device)
    emissions = compiler.emissions(inputs.log_posteriors, inputs.num_frames)
    others = [
        MlFsaCompiler(NUM_UNITS + 1),
        MlFsaCompiler(NUM_UNITS, "single"),
        MlFsaCompiler(NUM_UNITS, states_per_unit=2),
        MlFsaCompiler(NUM_UNITS, silence=True),
        MlFsaCompiler(NUM_UNITS, insertions=True),
        MlFsaCompiler(NUM_UNITS, "substitution"),
    ]
    for other in others:
        _with_graphs(other.compile([[0], [1]]), emissions, "different compilers")
        # One foreign graph among good ones.
        mixed = k2.cat([compiler.compile([[0]]), other.compile([[1]])])
        _with_graphs(mixed, emissions, "different compilers")
    # An equal compiler is no other one.
    graphs = MlFsaCompiler(NUM_UNITS).compile([[0], [1]])
    assert len(best_path(graphs, emissions)) == 2


def test_other_graphs_are_refused(device):
    compiler = MlFsaCompiler(NUM_UNITS)
    inputs = Inputs(device)
    emissions = compiler.emissions(inputs.log_posteriors, inputs.num_frames)
    _with_graphs(compiler.compile([[0]]), emissions, "1 graphs for emissions of 2 utterances")
    _with_graphs(compiler.compile([[0]])[0], emissions, "must be an FsaVec made by MlFsaCompiler")
    foreign = k2.linear_fsa([[1], [2]])
    _with_graphs(foreign, emissions, "must be an FsaVec made by MlFsaCompiler")


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        ("INT32_MAX", 20, r"cut-b is too large for k2: it has .* x 3 frames, .* at most 20"),
        ("UINT16_MAX", 5, "cut-a is too large for k2: it has 5 frames, .* at most 4"),
    ],
)
def test_utterance_that_is_too_large_for_k2_is_refused_by_name(monkeypatch, limit, value, message):
    compiler = MlFsaCompiler(NUM_UNITS, "single")
    inputs = Inputs()
    if limit == "INT32_MAX":
        inputs.num_frames = torch.tensor([1, 3])
    emissions = compiler.emissions(
        inputs.log_posteriors, inputs.num_frames, names=["cut-a", "cut-b"]
    )
    graphs = compiler.compile([[0], [2, 1]])
    monkeypatch.setattr(search, limit, value)
    _with_graphs(graphs, emissions, message)


def test_more_frames_than_k2_can_number_are_refused_by_name():
    """k2 keeps the number of frames in 16 bits: a longer one had no path, and a score of -inf."""
    compiler = MlFsaCompiler(2, "single")
    graphs = compiler.compile([[0]])
    for frames in (65534, 65535):
        log_posteriors = torch.zeros(1, frames, 2).log_softmax(-1)
        emissions = compiler.emissions(log_posteriors, [frames], names=["lecture"])
        if frames == 65534:
            assert best_path(graphs, emissions)[0][-1].end == frames
        else:
            _with_graphs(graphs, emissions, "lecture is too large for k2: it has 65535 frames")


def test_more_states_than_k2_can_number_are_refused_by_name():
    """k2 keeps states of a graph in 16 bits, and would go on in another one."""
    compiler = MlFsaCompiler(1, "single")
    emissions = compiler.emissions(torch.zeros(1, 2, 1), [2], names=["lecture"])
    graphs = compiler.compile([[0] * 65_535])
    _with_graphs(graphs, emissions, "lecture is too large for k2: it has a graph of 65537 states")


def test_more_columns_than_k2_can_number_are_refused():
    """k2 keeps labels in 16 bits: those above were read from columns of other units."""
    assert MlFsaCompiler(32_767, "single").layout.num_columns == 65_535
    with pytest.raises(ValueError, match="need 65537 columns of emissions, and k2 can number 655"):
        MlFsaCompiler(32_768, "single")
    with pytest.raises(ValueError, match="columns of emissions, and k2 can number 65535"):
        MlFsaCompiler(2, states_per_unit=2**31)
