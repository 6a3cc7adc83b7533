"""Drawings, and the paper's figure, which accepts the same sequences as what is decoded."""

from __future__ import annotations

import builtins
import math
import re
import xml.etree.ElementTree as ElementTree

import k2
import pytest

from mlvae.fsa import MlFsaCompiler
from mlvae.fsa.draw import draw_graph, figure, figure_symbol_table, figure_symbols

SVG = "{http://www.w3.org/2000/svg}"

DRAWN = [(form, topology) for form in ("figure", "frames") for topology in ("single", "ml")]
DRAWN.append(("frames", "substitution"))


@pytest.fixture
def draw(tmp_path):
    """Draws, and returns the texts of nodes and edges and the nodes' ellipses."""
    pytest.importorskip("pygraphviz")

    def draw_and_read(units, **options):
        path = tmp_path / "graph.svg"
        draw_graph(units, path, **options)
        nodes, edges = {}, []
        for group in ElementTree.parse(path).getroot().iter(f"{SVG}g"):
            title = group.findtext(f"{SVG}title")
            label = (group.findtext(f"{SVG}text") or "").strip()
            if group.get("class") == "node":
                nodes[int(title)] = (label, group.findall(f"{SVG}ellipse"))
            elif group.get("class") == "edge":
                source, target = map(int, re.findall(r"\d+", title))
                edges.append((source, target, label))
        return nodes, sorted(edges)

    return draw_and_read


def test_figure_of_one_unit(draw):
    nodes, edges = draw(["n"])
    assert [nodes[state][0] for state in range(6)] == ["0", "1", "2", "3", "4", "5"]
    assert edges == [
        (0, 1, "R"),
        (0, 3, "W"),
        (1, 2, "n"),
        (2, 1, "H"),
        (2, 5, "S"),
        (3, 4, "n*"),
        (4, 3, "H"),
        (4, 5, "S"),
    ]


@pytest.mark.parametrize(("form", "topology"), DRAWN)
def test_start_is_bold_and_end_is_double(form, topology, draw):
    nodes, _ = draw(["n", "aa", "t"], form=form, topology=topology)
    last = max(nodes)
    for state, (_, ellipses) in nodes.items():
        assert len(ellipses) == (2 if state == last else 1)
        bold = float(ellipses[0].get("stroke-width", 1)) > 1
        assert bold == (state == 0)


@pytest.mark.parametrize(("form", "topology"), DRAWN)
def test_time_runs_from_left_to_right(form, topology, draw):
    nodes, edges = draw(["n", "aa", "t"], form=form, topology=topology)
    place = {state: float(ellipses[0].get("cx")) for state, (_, ellipses) in nodes.items()}
    for source, target, label in edges:
        if label != "H" and source != target:
            assert place[source] < place[target]


def test_frames_of_one_unit(draw):
    """Below the state of "not n", above that of n."""
    nodes, edges = draw(["n"], form="frames")
    assert edges == [
        (0, 1, "start n*"),
        (0, 2, "start n"),
        (1, 1, "hold n*"),
        (1, 3, "end"),
        (2, 2, "hold n"),
        (2, 3, "end"),
    ]
    height = {state: float(ellipses[0].get("cy")) for state, (_, ellipses) in nodes.items()}
    assert height[2] < height[0] < height[1]
    fill = {state: ellipses[0].get("fill") for state, (_, ellipses) in nodes.items()}
    assert fill[0] != "none"
    assert fill[1] == fill[2] == fill[3] == "none"


def test_frames_of_a_chain(draw):
    _, edges = draw(["n", "n"], form="frames", topology="single")
    assert edges == [
        (0, 1, "start n"),
        (1, 1, "hold n"),
        (1, 2, "start n"),
        (2, 2, "hold n"),
        (2, 3, "end"),
    ]


def test_frames_with_silence_and_states(draw):
    _, edges = draw(["n"], form="frames", topology="single", states_per_unit=2, silence=True)
    assert edges == [
        (0, 0, "silence"),
        (0, 2, "start n"),
        (1, 1, "silence"),
        (1, 4, "end"),
        (2, 1, "hold n"),
        (2, 2, "hold n"),
        (2, 3, "hold n"),
        (3, 1, "hold n"),
        (3, 3, "hold n"),
    ]


def test_frames_of_substitution_name_what_is_heard(draw):
    _, edges = draw(["n", "n"], form="frames", topology="substitution", competitors=["m", "n"])
    assert edges == [
        (0, 1, "start m"),
        (0, 1, "start n"),
        (0, 3, "start m"),
        (0, 4, "start n"),
        (1, 2, "start m"),
        (1, 2, "start n"),
        (1, 5, "start m"),
        (1, 6, "start n"),
        (2, 7, "end"),
        (3, 1, "hold m"),
        (3, 3, "hold m"),
        (4, 1, "hold n"),
        (4, 4, "hold n"),
        (5, 2, "hold m"),
        (5, 5, "hold m"),
        (6, 2, "hold n"),
        (6, 6, "hold n"),
    ]


def test_frames_with_deletions_and_insertions(draw):
    _, edges = draw(["n", "aa", "t"], form="frames", topology="single", deletions=True)
    deletions = [(source, target, label) for source, target, label in edges if "(no" in label]
    assert deletions == [
        (0, 2, "start aa (no n)"),
        (0, 3, "start t (no n aa)"),
        (0, 5, "start aa (no n)"),
        (0, 6, "start t (no n aa)"),
        (1, 3, "start t (no aa)"),
        (1, 6, "start t (no aa)"),
        (1, 7, "end (no aa t)"),
        (2, 7, "end (no t)"),
    ]
    _, edges = draw(["n"], form="frames", topology="single", insertions=True)
    assert [edge for edge in edges if "insertion" in edge[2]] == [
        (0, 0, "start insertion"),
        (0, 3, "start insertion"),
        (1, 1, "start insertion"),
        (1, 4, "start insertion"),
        (3, 0, "hold insertion"),
        (3, 3, "hold insertion"),
        (4, 1, "hold insertion"),
        (4, 4, "hold insertion"),
    ]


def test_names_that_graphviz_could_misread(draw):
    names = ["<b>", "a\\n", "R", "ʃ", "&amp;", '"']
    _, edges = draw(names, form="figure")
    drawn = {label for _, _, label in edges}
    for name in ("<b>", "a\\n", '"R"', "ʃ", "&amp;", '"""'):
        assert {name, name + "*"} <= drawn, name


def test_other_formats_by_suffix(tmp_path):
    pytest.importorskip("pygraphviz")
    draw_graph(["n"], tmp_path / "graph.png")
    assert (tmp_path / "graph.png").read_bytes().startswith(b"\x89PNG")
    draw_graph(["n"], str(tmp_path / "graph"))
    assert "<svg" in (tmp_path / "graph").read_text()


def test_refusals(tmp_path):
    path = tmp_path / "graph.svg"
    with pytest.raises(ValueError, match="form 'tree' is not available; there are: figure, frames"):
        draw_graph(["n"], path, form="tree")
    for form in ("figure", "frames"):
        with pytest.raises(ValueError, match="no units"):
            draw_graph([], path, form=form)
        with pytest.raises(ValueError, match="'both' is not available"):
            draw_graph(["n"], path, form=form, topology="both")
    for options in (
        {"silence": True},
        {"states_per_unit": 2},
        {"deletions": True},
        {"insertions": True},
    ):
        with pytest.raises(
            ValueError, match="neither silence, deletions, insertions nor several states"
        ):
            draw_graph(["n"], path, **options)
    with pytest.raises(ValueError, match="'substitution' is not available as a figure"):
        draw_graph(["n"], path, topology="substitution")
    with pytest.raises(ValueError, match="competitors go with topology 'substitution', not 'ml'"):
        draw_graph(["n"], path, form="frames", competitors=["m"])
    assert not path.exists()


def test_missing_pygraphviz_is_named(tmp_path, monkeypatch):
    real_import = builtins.__import__

    def without_pygraphviz(name, *arguments, **keywords):
        if name.startswith("pygraphviz"):
            raise ImportError("No module named 'pygraphviz'")
        return real_import(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without_pygraphviz)
    with pytest.raises(ImportError, match="pip install pygraphviz"):
        draw_graph(["n"], tmp_path / "graph.svg")


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


def test_figures_that_are_refused():
    with pytest.raises(ValueError, match="no units"):
        figure([])
    with pytest.raises(ValueError, match="'both' is not available"):
        figure(["n"], topology="both")
    with pytest.raises(
        ValueError, match="'substitution' is not .* a figure; there are: single, ml"
    ):
        figure(["n"], "substitution")
    for options in ({"states_per_unit": 2}, {"silence": True}, {"insertions": True}):
        layout = MlFsaCompiler(2, **options).layout
        with pytest.raises(ValueError, match="neither silence, insertions nor several states"):
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
