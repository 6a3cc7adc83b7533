from __future__ import annotations

import builtins
import re
import xml.etree.ElementTree as ElementTree

import pytest

from mlvae.fsa.draw import draw_graph

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


def test_frames_with_skips_and_fillers(draw):
    _, edges = draw(["n", "aa", "t"], form="frames", topology="single", skip=True)
    skips = [(source, target, label) for source, target, label in edges if "(no" in label]
    assert skips == [
        (0, 2, "start aa (no n)"),
        (0, 3, "start t (no n aa)"),
        (0, 5, "start aa (no n)"),
        (0, 6, "start t (no n aa)"),
        (1, 3, "start t (no aa)"),
        (1, 6, "start t (no aa)"),
        (1, 7, "end (no aa t)"),
        (2, 7, "end (no t)"),
    ]
    _, edges = draw(["n"], form="frames", topology="single", filler=True)
    assert [edge for edge in edges if "filler" in edge[2]] == [
        (0, 0, "start filler"),
        (0, 3, "start filler"),
        (1, 1, "start filler"),
        (1, 4, "start filler"),
        (3, 0, "hold filler"),
        (3, 3, "hold filler"),
        (4, 1, "hold filler"),
        (4, 4, "hold filler"),
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
    for options in ({"silence": True}, {"states_per_unit": 2}, {"skip": True}, {"filler": True}):
        with pytest.raises(ValueError, match="neither silence, skips, fillers nor several states"):
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
