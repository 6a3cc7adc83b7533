"""Malformed calls: each answers or is refused with a ValueError, and k2 says nothing.

The table has what was seen to end the process, or to give a wrong answer in silence. The property
test replaces arguments of good calls by whatever comes to hand, thousands of times in one process.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable

import hypothesis
import k2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlvae.fsa import (
    ColumnLayout,
    MlFsaCompiler,
    best_columns,
    best_path,
    expected_boundaries,
    plan_batches,
    posteriors,
    too_short,
    total_scores,
    unit_loop,
    word_posteriors,
)
from mlvae.fsa.draw import draw_graph, figure, figure_symbol_table, figure_symbols
from mlvae.fsa.topology import TOPOLOGIES

NAMES = ["anna-1", "anna-2"]
UNITS = [[0, 1], [2]]
COMPILERS = {
    topology: MlFsaCompiler(3, topology, deletions=topology == "ml")
    for topology in ("single", "ml", "substitution")
}
COMPILER = COMPILERS["ml"]


def log_probs(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).log_softmax(-1)


def good_scores() -> dict:
    """Good arguments of emissions."""
    return {
        "log_posteriors": log_probs(2, 5, 4),
        "num_frames": torch.tensor([5, 4]),
        "log_prior": log_probs(4),
        "log_boundary": log_probs(2, 5, 2),
        "log_correctness": log_probs(2, 5, 2),
        "acoustic_scale": 0.7,
        "blank": 3,
        "names": NAMES,
    }


def good_search() -> dict:
    return {
        "graphs": COMPILER.compile(UNITS),
        "emissions": COMPILER.emissions(**good_scores()),
    }


def search_of_all(**emissions) -> list:
    """All answers that the emissions of these arguments have."""
    search = {"graphs": COMPILER.compile(UNITS), "emissions": COMPILER.emissions(**emissions)}
    return [best_path(**search), total_scores(**search), posteriors(**search)]


#: Functions, and good arguments of each; later ones depend on earlier ones as calls do.
GOOD: dict[str, tuple[Callable, Callable[[], dict]]] = {
    "compiler": (
        MlFsaCompiler,
        lambda: {
            "num_units": 3,
            "topology": "substitution",
            "states_per_unit": 1,
            "silence": False,
            "deletions": True,
            "insertions": True,
            "competitors": [[1, 2], [0], [0, 1]],
            "deletion_rate": 0.1,
            "insertion_rate": 0.1,
        },
    ),
    "layout": (
        ColumnLayout,
        lambda: {"num_units": 3, "states_per_unit": 1, "topology": "ml", "silence": True},
    ),
    "compile": (
        COMPILER.compile,
        lambda: {"utterances": UNITS, "device": "cpu", "names": NAMES},
    ),
    "emissions": (search_of_all, good_scores),
    "plan_batches": (
        plan_batches,
        lambda: {"num_frames": [5, 4], "num_arcs": [9, 5], "max_cells": 99, "names": NAMES},
    ),
    "unit_loop": (
        unit_loop,
        lambda: {
            "layout": COMPILERS["single"].layout,
            "num_utterances": 2,
            "insertion_score": -1.0,
        },
    ),
    "best_path": (best_path, good_search),
    "best_columns": (best_columns, good_search),
    "too_short": (too_short, good_search),
    "posteriors": (posteriors, lambda: {**good_search(), "frames": True, "output_beam": 9.0}),
    "total_scores": (
        total_scores,
        lambda: {**good_search(), "log_semiring": True, "output_beam": 9.0},
    ),
    "expected_boundaries": (expected_boundaries, lambda: {**good_search(), "output_beam": 9.0}),
    "word_posteriors": (
        word_posteriors,
        lambda: {**good_search(), "words": [[0, 0], [0]], "output_beam": 9.0},
    ),
    "figure": (figure, lambda: {"units": ["n", "aa"], "topology": "ml"}),
    "figure_symbol_table": (figure_symbol_table, lambda: {"units": ["n", "aa"]}),
    "figure_symbols": (
        figure_symbols,
        lambda: {
            "columns": [1, 2],
            "layout": MlFsaCompiler(2).layout,
            "names": ["n", "aa"],
        },
    ),
}


def with_one(values: torch.Tensor, index: tuple, value: float) -> torch.Tensor:
    changed = values.clone()
    changed[index] = value
    return changed


def with_scores(value: float) -> k2.Fsa:
    """Graphs that have one score changed by a caller, in the second utterance."""
    graphs = COMPILER.compile(UNITS)
    graphs.scores = with_one(graphs.scores, (-1,), value)
    return graphs


BEAMS = [0, 0.0, -1.0, math.nan, math.inf, None, "9", True, 1e-60, 1e60, [9.0]]
SEARCHES_WITH_BEAMS = ("posteriors", "total_scores", "expected_boundaries", "word_posteriors")
PRIOR = good_scores()["log_prior"]
#: What was found: function, argument, what it is given, and the message.
TABLE = [
    *(
        (name, "output_beam", beam, "output_beam must be")
        for name in SEARCHES_WITH_BEAMS
        for beam in BEAMS
    ),
    ("emissions", "log_prior", PRIOR.exp(), "log_prior has .* above log 1 = 0.* not probab"),
    ("emissions", "log_prior", -PRIOR, "log_prior has .* above log 1 = 0"),
    ("emissions", "log_prior", torch.full((4,), -1), "log_prior must be floating point"),
    ("emissions", "log_prior", torch.full((4,), True), "log_prior must be floating point"),
    ("emissions", "log_prior", [-1, -1, -1, -1], "log_prior must be floating point"),
    ("emissions", "log_prior", ["a"] * 4, "log_prior must be numbers"),
    ("emissions", "log_prior", torch.full((4,), -3e38), "the log of no probability"),
    ("emissions", "log_prior", with_one(PRIOR, (0,), math.nan), "log_prior must be finite"),
    ("emissions", "log_posteriors", torch.zeros(2, 5, 4, dtype=torch.cfloat), "not torch.complex"),
    ("emissions", "log_posteriors", torch.zeros(2, 5, 4, dtype=torch.int32), "not torch.int32"),
    ("emissions", "log_posteriors", np.zeros((2, 5, 4), dtype=bool), "not torch.bool"),
    ("emissions", "log_posteriors", np.zeros((2, 5, 4), dtype=object), "not object"),
    ("emissions", "log_posteriors", np.zeros((2, 5, 4), dtype=complex), "not torch.complex"),
    ("emissions", "log_posteriors", [[[-1.0] * 4] * 5] * 2, "a tensor or a numpy array"),
    ("emissions", "log_posteriors", log_probs(2, 5, 4).to_sparse(), "must be a dense tensor"),
    ("emissions", "log_posteriors", torch.empty(2, 5, 4, device="meta"), "device meta is not"),
    ("emissions", "log_posteriors", log_probs(0, 5, 4), "log_posteriors is empty"),
    (
        "emissions",
        "log_posteriors",
        with_one(log_probs(2, 5, 4), (1, 3), math.nan),
        "anna-2: log_posteriors is NaN at frame 3",
    ),
    ("emissions", "log_boundary", np.zeros((2, 5, 2), dtype=int), "must be floating point"),
    ("emissions", "log_correctness", [0.1], "log_correctness must be a tensor or a numpy array"),
    (
        "emissions",
        "log_boundary",
        with_one(log_probs(2, 5, 2), (1, 2), math.nan),
        "anna-2: log_boundary is NaN at frame 2",
    ),
    ("emissions", "num_frames", torch.tensor([True, True]), "must be 2 integers, not bool"),
    ("emissions", "num_frames", [True, True], "must be 2 integers, not bool"),
    ("emissions", "num_frames", [5, True], "must be 2 integers, not bool"),
    ("emissions", "num_frames", [5, 4.0], "must be 2 integers, not float64"),
    ("emissions", "num_frames", ["5", "4"], "must be 2 integers, not <U1"),
    ("emissions", "num_frames", np.array([5, 9]), "anna-2 has 9 frames, .* room for 0 to 5"),
    ("emissions", "num_frames", [5, 2**63], "anna-2 has [0-9]* frames"),
    ("emissions", "num_frames", 5, "num_frames must be integers, not 5"),
    ("emissions", "blank", True, "blank must be an integer, not True"),
    ("emissions", "blank", 3.0, "blank must be an integer, not 3.0"),
    ("emissions", "blank", -1, "blank is column -1"),
    ("emissions", "blank", 4, "blank is column 4"),
    ("emissions", "acoustic_scale", True, "acoustic_scale must be a number, not True"),
    ("emissions", "acoustic_scale", "1.0", "acoustic_scale must be a number, not '1.0'"),
    ("emissions", "acoustic_scale", math.nan, "acoustic_scale must be positive and finite"),
    ("emissions", "acoustic_scale", 1e38, "acoustic_scale must be at most 1e"),
    ("emissions", "names", "ab", "names must be a list of strings"),
    ("emissions", "names", [1, 2], "names must be a list of strings"),
    ("compiler", "states_per_unit", 1.5, "states_per_unit must be an integer, not 1.5"),
    ("compiler", "states_per_unit", 2**31, "k2 can number 65535"),
    ("compiler", "states_per_unit", True, "states_per_unit must be an integer, not True"),
    ("compiler", "num_units", 2**31, "k2 can number 65535"),
    ("compiler", "num_units", 3.0, "num_units must be an integer, not 3.0"),
    ("compiler", "num_units", "3", "num_units must be an integer, not '3'"),
    ("compiler", "num_units", None, "num_units must be an integer, not None"),
    ("compiler", "topology", ["ml"], "topology .* is not available"),
    ("compiler", "silence", "no", "silence must be True, False or 'everywhere', not 'no'"),
    ("compiler", "deletions", 0.03, "deletions must be True or False, not 0.03"),
    ("compiler", "insertions", None, "insertions must be True or False, not None"),
    ("compiler", "deletion_rate", "0.1", "deletion_rate must be a number, not '0.1'"),
    ("compiler", "insertion_rate", True, "insertion_rate must be a number, not True"),
    ("compiler", "competitors", [[1, True], [0], [0]], "unit 0 cannot have the competitor True"),
    ("compiler", "competitors", "abc", "competitors must be a list of units for each unit"),
    ("compiler", "competitors", torch.zeros(3, 3, dtype=torch.bool), "must be floating point"),
    ("compiler", "competitors", -np.eye(3, dtype=int), "must be floating point"),
    ("compiler", "competitors", torch.full((3, 3), -1j), "must be floating point"),
    ("compiler", "competitors", torch.full((3, 3), math.nan), "row of unit 0 holds NaN"),
    ("compile", "utterances", [[0, 1], [True]], "anna-2: units must be integers"),
    ("compile", "utterances", [[0, 1], [0, 1.5]], "anna-2: units must be integers"),
    ("compile", "utterances", [[0, 1], [3]], "anna-2: unit 3 is out of range"),
    ("compile", "utterances", [[0, 1], [2**70]], "anna-2: unit .* is out of range"),
    ("compile", "utterances", [[[[0]]], [[[-(2**70)]]]], "anna-2: unit .* is out of range"),
    ("compile", "utterances", [[[[0]]], [[[False]]]], "anna-2, word 0: units must be integers"),
    ("compile", "utterances", [[0, 1], "01"], "anna-2 is '01', not a list"),
    ("compile", "utterances", [[0, 1], {0: 1}], "anna-2 is .*, not a list"),
    ("compile", "utterances", [[0, 1], []], "anna-2 has no units"),
    ("compile", "utterances", [[[[0]]], [["01"]]], "anna-2, word 0: a pronunciation is '01'"),
    ("compile", "utterances", 3, "the list of utterances is 3, not a list"),
    ("compile", "device", "gpu", "device must be a torch.device or its name, not 'gpu'"),
    ("compile", "device", "meta", "device meta is not available"),
    ("compile", "device", "cuda:99", "device cuda:99 is not available"),
    ("compile", "names", ["anna-1"], "1 names for 2 utterances"),
    ("word_posteriors", "words", [[0, 0.5], [0]], "anna-1: words must be integers, not float64"),
    ("word_posteriors", "words", [[0, 1], [0.0]], "anna-2: words must be integers, not float64"),
    ("word_posteriors", "words", [[0, 1], ["a"]], "anna-2: words must be integers"),
    ("word_posteriors", "words", [[0, 1], [-1]], "anna-2: words must be 0, 1, 2"),
    ("word_posteriors", "words", [[0, 1], []], "anna-2: words of 0 slots, but it has 1"),
    ("word_posteriors", "words", 3, "words must be a list for each utterance, not 3"),
    ("posteriors", "frames", "no", "frames must be True or False, not 'no'"),
    ("total_scores", "log_semiring", None, "log_semiring must be True or False, not None"),
    ("best_path", "graphs", None, "graphs must be an FsaVec made by MlFsaCompiler"),
    ("best_path", "emissions", None, "emissions must be those of MlFsaCompiler, not None"),
    ("best_path", "emissions", log_probs(2, 5, 3), "emissions must be those of MlFsaCompiler"),
    ("best_path", "graphs", with_scores(math.nan), "anna-2: a score of its graph is NaN or"),
    ("posteriors", "graphs", with_scores(math.inf), "anna-2: a score of its graph is NaN or"),
    ("too_short", "graphs", COMPILER.compile([[0]]), "1 graphs for emissions of 2 utterances"),
    ("too_short", "graphs", COMPILERS["single"].compile(UNITS), "of different compilers"),
    ("too_short", "emissions", None, "emissions must be those of MlFsaCompiler"),
    ("plan_batches", "num_frames", [5.0, 4], "num_frames must be integers, not float64"),
    ("plan_batches", "num_frames", [5, math.nan], "num_frames must be integers"),
    ("plan_batches", "num_arcs", [True, True], "num_arcs must be integers, not bool"),
    ("plan_batches", "num_arcs", None, "num_arcs must be integers, not None"),
    ("plan_batches", "num_arcs", [9, 99], "anna-2 is too large: 99 arcs x 5 frames"),
    ("plan_batches", "max_cells", math.nan, "max_cells must be an integer, not nan"),
    ("plan_batches", "max_cells", True, "max_cells must be an integer, not True"),
    ("unit_loop", "num_utterances", 2.0, "num_utterances must be an integer, not 2.0"),
    ("unit_loop", "num_utterances", 2**31, "num_utterances must be at most 65535"),
    ("unit_loop", "insertion_score", "1", "insertion_score must be a number, not '1'"),
    ("unit_loop", "insertion_score", 1e300, "insertion_score must be at most 1e"),
    ("unit_loop", "layout", COMPILER, "layout must be that of a compiler"),
    ("layout", "topology", "other", f"there are: {', '.join(TOPOLOGIES)}"),
    ("layout", "num_units", -3, "num_units must be at least 1, not -3"),
    ("figure", "units", "n aa", "units must be a list of names of units, not 'n aa'"),
    ("figure", "units", [1, 2], "units: 1 is no name of a unit"),
    ("figure", "units", ["n", "a a"], "units: 'a a' is no name of a unit"),
    ("figure", "topology", None, "topology None is not available as a figure"),
    ("figure_symbol_table", "units", ["n\n"], "is no name of a unit"),
    ("figure_symbols", "columns", [0], "column 0 is none of a unit: 1 to 8"),
    ("figure_symbols", "columns", [9], "column 9 is none of a unit: 1 to 8"),
    ("figure_symbols", "columns", [1.5], "columns must be integers"),
    ("figure_symbols", "names", ["n"], "1 names for 2 units"),
    ("figure_symbols", "layout", None, "layout must be that of a compiler"),
]


@pytest.mark.parametrize(
    ("name", "argument", "value", "message"),
    TABLE,
    ids=[f"{row[0]}-{row[1]}-{number}" for number, row in enumerate(TABLE)],
)
def test_malformed_arguments_are_refused(name, argument, value, message, capfd):
    function, arguments = GOOD[name]
    with pytest.raises(ValueError, match=message) as error:
        function(**{**arguments(), argument: value})
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


def test_drawing_refuses_what_is_no_list_of_names(tmp_path):
    path = tmp_path / "graph.svg"
    for changes, message in (
        ({"units": "n aa"}, "units must be a list of names of units"),
        ({"units": [1]}, "units: 1 is no name of a unit"),
        ({"form": None}, "form None is not available; there are: figure, frames"),
        ({"path": None}, "path must be that of a file to write, not None"),
        ({"silence": "no"}, "silence must be True or False"),
        ({"states_per_unit": 1.5}, "states_per_unit must be an integer, not 1.5"),
        ({"topology": "substitution", "form": "frames", "competitors": "aa"}, "competitors must"),
    ):
        with pytest.raises(ValueError, match=message):
            draw_graph(**{"units": ["n"], "path": path, **changes})
    assert not path.exists()


def test_what_is_natural_is_taken():
    """Arrays of numpy, lists of lengths, other orders of memory, tensors that want gradients."""
    good = good_scores()
    expected = search_of_all(**good)
    turned = torch.empty(4, 5, 2).permute(2, 1, 0).copy_(good["log_posteriors"])
    arrays = {
        name: value.numpy() if torch.is_tensor(value) else value for name, value in good.items()
    }
    double = {
        name: np.asfortranarray(value, dtype=np.float64)
        for name, value in arrays.items()
        if name.startswith("log_")
    }
    forms = [
        arrays,
        {**good, **double},
        {**good, "num_frames": [5, 4]},
        {**good, "num_frames": np.array([5, 4], dtype=np.uint16)},
        {**good, "log_prior": good["log_prior"].tolist()},
        {**good, "log_posteriors": turned},
        {**good, "log_posteriors": good["log_posteriors"].clone().requires_grad_()},
        {**good, "blank": np.int64(3), "acoustic_scale": np.float64(0.7), "names": tuple(NAMES)},
        {**good, "acoustic_scale": torch.tensor(0.7, dtype=torch.float64)},
    ]
    for form in forms:
        found = search_of_all(**form)
        assert found[0] == expected[0]
        assert torch.equal(found[1].detach(), expected[1])
    graphs = MlFsaCompiler(np.int64(3), deletions=np.bool_(True)).compile(
        (np.array(units, dtype=np.uint8) for units in UNITS), torch.device("cpu")
    )
    assert best_path(graphs, COMPILER.emissions(**good)) == expected[0]


ODD = [
    None, True, False, 0, 1, 2, -1, 3, 1.5, -0.0, 5e-324, math.nan, math.inf, -math.inf, 1e30,
    2**31, 2**31 - 1, -(2**31), 2**63, 2**70, -(2**70), 10**400, 1j, "", "a", "ml", "single",
    "cpu", "cuda", b"x", [], [[]], [[[]]], [None], [0], [0, 0], [5, 4], [True, False], [0.5, 1.5],
    ["a", "b"], [[0], [1]], [[0, 1], [2]], [[[[0]]], [[[1], [2, 2]]]], [[0], ["a"]], [[0], [[0]]],
    (0, 1), {}, {1: 2}, {0, 1}, range(2), range(3), object(), int, len, print, Ellipsis,
    NotImplemented, np.nan, np.int8(1), np.float16(1), np.bool_(True), np.array(1),
    np.array([5, 4]), np.array([5.0, 4]), np.array(["a"]), np.array([None, 1]),
    np.zeros((2, 5, 4)), np.zeros((2, 5, 2)), np.full(4, -1.0), np.zeros((3, 3)),
    np.full((3, 3), -9.0), np.zeros(0), np.array([5, 4], dtype=np.uint64),
    np.zeros((2, 5, 4), dtype=">f4"), np.zeros(2, dtype="datetime64[s]"),
    np.full((2, 5, 4), -1e300), torch.tensor(1), torch.tensor(True), torch.tensor(1.0),
    torch.tensor([5, 4]), torch.tensor([4, 5], dtype=torch.uint8), torch.zeros(2),
    torch.zeros(2, 5, 4), torch.full((2, 5, 4), -9.0), torch.full((2, 5, 4), -math.inf),
    torch.full((2, 5, 4), math.nan), torch.full((2, 5, 2), -0.7), torch.full((2, 5, 2), -3e38),
    torch.full((4,), -2.0), torch.zeros(2, 5, 4, dtype=torch.half),
    torch.zeros(2, 5, 4, dtype=torch.bfloat16), torch.zeros(2, 5, 4, dtype=torch.cfloat),
    torch.zeros(2, 5, 4, dtype=torch.int64), torch.zeros(2, 5, 4, device="meta"),
    torch.zeros(2, 4, 5).transpose(1, 2), torch.zeros(2, 5, 4).to_sparse(),
    torch.zeros(2, 5, 4, requires_grad=True),
    torch.zeros(0, 5, 4),
    torch.zeros(2, 0, 4), torch.device("cpu"), torch.device("meta"), torch.float32, NAMES,
    ["anna-1"], k2.linear_fsa([[1], [2]]), k2.linear_fsa([1]), COMPILER, COMPILER.layout,
    COMPILERS["single"].layout, COMPILERS["single"].compile(UNITS), COMPILER.compile([[0]]),
    COMPILER.compile(UNITS), COMPILER.compile(UNITS)[0], COMPILER.compile([[0] * 9, [1]]),
    with_scores(math.nan), with_scores(-math.inf), with_scores(1e30),
    COMPILER.emissions(log_probs(2, 5, 3), [0, 5]),
    COMPILERS["substitution"].emissions(log_probs(2, 5, 3), [5, 5]),
    COMPILER.emissions(log_probs(1, 5, 3), [5]),
]  # fmt: skip


def call_malformed(draw: random.Random) -> None:
    """Call a function with one or two arguments that are replaced by odd values."""
    name = draw.choice(sorted(GOOD))
    function, arguments = GOOD[name][0], GOOD[name][1]()
    replaced = {
        argument: draw.randrange(len(ODD))
        for argument in draw.sample(sorted(arguments), draw.randint(1, min(2, len(arguments))))
    }
    hypothesis.note(f"{name} with odd values {replaced}")
    try:
        answer = function(**{**arguments, **{key: ODD[at] for key, at in replaced.items()}})
    except ValueError as error:
        message = str(error)
        assert message and "\n" not in message
        if "utterance 0" in message or "utterance 1" in message:
            assert "names" in replaced or "emissions" in replaced, message
        return
    assert answer is not None


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32))
def malformed_calls_answer_or_are_refused(seed):
    draw = random.Random(seed)
    for _ in range(10):  # to draw each by hypothesis takes several times as long as the calls
        call_malformed(draw)


def test_malformed_calls_answer_or_are_refused(capfd, recwarn):
    """One process and no output: neither fatal errors of k2 nor warnings of anybody."""
    malformed_calls_answer_or_are_refused()
    assert capfd.readouterr() == ("", "")
    assert [str(warning.message) for warning in recwarn] == []


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(
    argument=st.sampled_from(["log_posteriors", "log_boundary", "log_correctness"]),
    value=st.sampled_from([math.nan, math.inf, 0.5, 80.0]),
    frame=st.integers(0, 3),
    utterance=st.integers(0, 1),
)
def test_messages_name_the_utterance_and_the_frame(argument, value, frame, utterance):
    good = good_scores()
    changed = with_one(good[argument], (utterance, frame, 0), value)
    with pytest.raises(ValueError, match=f"^{NAMES[utterance]}: {argument} .* at frame {frame}$"):
        COMPILER.emissions(**{**good, argument: changed})


def test_layouts_of_numpy_integers_are_equal():
    layout = ColumnLayout(np.int32(3), np.int64(1), "ml", np.bool_(False))
    assert layout == COMPILER.layout
    assert layout.fingerprint == COMPILER.layout.fingerprint
    assert [field.name for field in dataclasses.fields(layout)][0] == "num_units"
