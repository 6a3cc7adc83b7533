"""The paper's figure, and that it accepts the same sequences as what is decoded."""

from __future__ import annotations

import math

import k2
import pytest

from mlvae.fsa import MlFsaCompiler
from mlvae.fsa.draw import figure, figure_symbol_table, figure_symbols


def _arcs(fsa: k2.Fsa) -> list[tuple[int, int, str]]:
    return [
        (source, target, fsa.labels_sym[label] if label != -1 else "")
        for source, target, label, _ in fsa.arcs.values().tolist()
    ]


def _paths(fsa: k2.Fsa, consumes_frame, num_frames: int) -> list[tuple[int, ...]]:
    """Labels of every accepted path on which ``num_frames`` labels consume a frame."""
    leaving: dict[int, list[tuple[int, int]]] = {}
    for source, target, label, _ in fsa.arcs.values().tolist():
        leaving.setdefault(source, []).append((target, label))
    result, stack = [], [(0, 0, ())]
    while stack:
        state, frames, labels = stack.pop()
        for target, label in leaving.get(state, []):
            if label == -1:
                if frames == num_frames:
                    result.append(labels)
                continue
            used = frames + consumes_frame(label)
            if used <= num_frames:
                stack.append((target, used, (*labels, label)))
    return result


def test_one_unit_has_the_papers_six_states():
    fsa = figure(["n"])
    assert sorted(_arcs(fsa)) == [
        (0, 1, "R"),
        (0, 3, "W"),
        (1, 2, "n"),
        (2, 1, "H"),
        (2, 5, "S"),
        (3, 4, "n*"),
        (4, 3, "H"),
        (4, 5, "S"),
        (5, 6, ""),  # k2's way to say that state 5 accepts
    ]
    assert fsa.properties & k2.fsa_properties.VALID
    assert fsa.scores.eq(0).all()


def test_one_unit_of_the_single_path():
    fsa = figure(["n"], topology="single")
    assert sorted(_arcs(fsa)) == [(0, 1, "n"), (1, 0, "H"), (1, 2, "S"), (2, 3, "")]


def test_a_sentence_joins_units_by_their_ends():
    """The arcs of each unit are those of the unit alone, moved by five states."""
    units = ["n", "aa", "n"]
    fsa = figure(units)
    assert fsa.arcs.dim0() == 5 * 3 + 2
    expected = [(15, 16, "")]
    for position, unit in enumerate(units):
        expected += [
            (source + 5 * position, target + 5 * position, symbol)
            for source, target, symbol in _arcs(figure([unit]))
            if symbol
        ]
    assert sorted(_arcs(fsa)) == sorted(expected)


def test_symbols_that_would_be_mistaken_are_quoted():
    table = figure_symbol_table(["R", "n", "S", "n*", "R"])
    assert [table[index] for index in range(5, 13)] == [
        '"R"',
        '"R"*',
        "n",
        "n*",
        '"S"',
        '"S"*',
        '"n*"',
        '"n*"*',
    ]
    assert table["R"] == 1
    fsa = figure(["R", "W"])
    assert {symbol for _, _, symbol in _arcs(fsa)} == {
        *("R", "W", "H", "S", '"R"', '"R"*', '"W"', '"W"*', "")
    }


def test_refusals():
    with pytest.raises(ValueError, match="no units"):
        figure([])
    with pytest.raises(ValueError, match="'both' is not available"):
        figure(["n"], topology="both")
    with pytest.raises(
        ValueError, match="'substitution' is not .* a figure; there are: single, ml"
    ):
        figure(["n"], "substitution")
    for options in ({"states_per_unit": 2}, {"silence": True}, {"filler": True}):
        layout = MlFsaCompiler(2, **options).layout
        with pytest.raises(ValueError, match="neither silence, fillers nor several states"):
            figure_symbols([1], layout, ["n", "aa"])
    layout = MlFsaCompiler(2, "substitution").layout
    with pytest.raises(ValueError, match="'substitution' is not available as a figure"):
        figure_symbols([1], layout, ["n", "aa"])


def test_translation_by_hand():
    layout = MlFsaCompiler(2, "ml").layout
    start, hold = layout.start, layout.hold
    columns = [start(0), hold(0, 0), layout.column(0, 0, 1), layout.column(0, 1, 1), start(1)]
    symbols = " ".join(figure_symbols(columns, layout, ["n", "aa"]))
    assert symbols == "R n H n S W aa* H aa* S R aa S"
    layout = MlFsaCompiler(2, "single").layout
    columns = [layout.start(1), layout.start(0), layout.hold(0, 0)]
    assert " ".join(figure_symbols(columns, layout, ["n", "aa"])) == "aa S n H n S"
    assert figure_symbols([], layout, ["n", "aa"]) == []


@pytest.mark.parametrize("topology", ["single", "ml"])
@pytest.mark.parametrize(
    "units", [["n"], ["n", "aa"], ["n", "n"], ["n", "aa", "n"], ["S", "R"]], ids="-".join
)
def test_figure_and_frames_accept_the_same_sequences(units, topology):
    names = sorted(set(units))
    compiler = MlFsaCompiler(len(names), topology)
    frames = compiler.compile([[names.index(unit) for unit in units]])[0]
    drawn = figure(units, topology)
    table = drawn.labels_sym
    control = {table[symbol] for symbol in "RWHS"}
    for num_frames in range(1, 6):
        from_frames = [
            tuple(table[s] for s in figure_symbols(columns, compiler.layout, names))
            for columns in _paths(frames, lambda label: 1, num_frames)
        ]
        from_figure = _paths(drawn, lambda label: label not in control, num_frames)
        cuts = math.comb(num_frames - 1, len(units) - 1)
        branches = 2 ** len(units) if topology == "ml" else 1
        assert len(from_frames) == len(from_figure) == cuts * branches
        assert sorted(from_frames) == sorted(from_figure)
        assert len(set(from_frames)) == len(from_frames), "one path a sequence"
        # k2 agrees: each translated sequence is accepted by the figure.
        if from_frames:
            linear = k2.linear_fsa([list(labels) for labels in from_frames])
            one = k2.create_fsa_vec([drawn])
            both = k2.intersect(one, linear, treat_epsilons_specially=False)
            sizes = [k2.connect(both[index]).num_arcs for index in range(len(from_frames))]
            assert sizes == [len(labels) + 1 for labels in from_frames]


def test_k2_refuses_what_the_figure_does_not_accept():
    fsa = figure(["n", "aa"])
    table = fsa.labels_sym
    for text, accepted in [
        ("R n S W aa* H aa* S", True),
        ("R n S", False),  # a unit is missing
        ("R n n S R aa S", False),  # no frame without H between
        ("R n* S R aa S", False),  # right, yet something else
        ("W n* H n S R aa S", False),  # a change of mind within a unit
        ("R aa S R n S", False),  # in the wrong order
    ]:
        linear = k2.linear_fsa([table[symbol] for symbol in text.split()])
        both = k2.connect(k2.intersect(fsa, linear, treat_epsilons_specially=False))
        assert (both.num_arcs > 0) == accepted, text
