"""Drawings of acceptors, for looking at and for teaching."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from .checks import checked_bool, checked_choice, checked_int, checked_unit_names, shown
from .compiler import MlFsaCompiler
from .figure import figure
from .layout import KIND_FILLER, KIND_SILENCE

FORMS = ("figure", "frames")

_CORRECT, _BETWEEN, _WRONG, _FILLER = "correct", "between", "wrong", "filler"
_INK, _WRONG_INK, _FAINT_INK, _JUNCTION_FILL = "#1f2933", "#b3361b", "#7b8794", "#d9e2ec"

_SKIP = {"style": "dashed", "weight": 0}


def draw_graph(
    units: Sequence[str],
    path: Path | str,
    form: str = "figure",
    topology: str = "ml",
    states_per_unit: int = 1,
    silence: bool = False,
    skip: bool = False,
    filler: bool = False,
    competitors: Sequence[str] = (),
) -> None:
    """Draw the acceptor of a unit sequence with Graphviz.

    The start state has a bold circle and the accepting state a double one, as in the paper. What
    belongs to mispronunciations is drawn in red; junctions, where units meet, are filled.

    Args:
        units: names of the canonical units in order, such as ``["n", "aa", "t"]``.
        path: file to write; its suffix tells the format: ``.svg``, or another one of Graphviz.
        form: ``figure``, the paper's figure with the symbols R, W, n, n*, H and S; or ``frames``,
            the frame-synchronous form that is decoded, with arcs such as ``start n``, ``hold n*``.
        topology: ``single``, ``ml``, or, only for ``frames``, ``substitution``.
        states_per_unit: states of a correct unit; only for ``frames``.
        silence: whether optional silence is allowed; only for ``frames``.
        skip: whether units may be left out; only for ``frames``.
        filler: whether sounds of no unit are allowed; only for ``frames``.
        competitors: names of what may be spoken in place of the units, besides ``units``
            themselves; only for ``substitution``.

    Raises:
        ImportError: pygraphviz is not installed.
        ValueError: no units, or an unknown or unavailable form, topology or option.
        OSError: the file cannot be written.
    """
    checked_choice(form, "form", FORMS)
    units = checked_unit_names(units)
    competitors = checked_unit_names(competitors, "competitors")
    if not isinstance(path, (str, os.PathLike)):
        raise ValueError(f"path must be that of a file to write, not {shown(path)}")
    if len(competitors) and topology != "substitution":
        raise ValueError(f"competitors go with topology 'substitution', not {shown(topology)}")
    if form == "figure":
        options = [checked_bool(silence, "silence"), checked_bool(skip, "skip")]
        options.append(checked_bool(filler, "filler"))
        if any(options) or checked_int(states_per_unit, "states_per_unit", 1) != 1:
            raise ValueError(
                "the figure has neither silence, skips, fillers nor several states a unit"
            )
        drawing = _draw_figure(units, topology)
    else:
        names = list(dict.fromkeys([*units, *competitors]))
        compiler = MlFsaCompiler(
            max(len(names), 1), topology, states_per_unit, silence, skip=skip, filler=filler
        )
        drawing = _draw_frames(units, names, compiler)
    path = Path(path)
    # Graphviz ends the process where it cannot write.
    path.write_bytes(drawing.draw(format=path.suffix[1:] or "svg", prog="dot"))


def _new_drawing():
    try:
        import pygraphviz
    except ImportError as error:
        raise ImportError("drawing needs pygraphviz: pip install pygraphviz") from error
    drawing = pygraphviz.AGraph(directed=True, strict=False)
    drawing.graph_attr.update(rankdir="LR", bgcolor="white", pad=0.2, nodesep=0.35, ranksep=0.55)
    drawing.node_attr.update(
        shape="circle", fixedsize="true", width=0.45, fontsize=12, fontname="Helvetica", color=_INK
    )
    drawing.edge_attr.update(fontsize=12, fontname="Helvetica", arrowsize=0.7, color=_INK)
    return drawing


def _add_states(drawing, rows: Sequence[str]) -> None:
    """Add a state for each item of ``rows``, which says where it belongs; the last one accepts."""
    # Graphviz puts what comes first on top, and nodes of one group in line.
    for row in (_CORRECT, _BETWEEN, _WRONG, _FILLER):
        ink = _WRONG_INK if row == _WRONG else _INK
        for state in (state for state, its_row in enumerate(rows) if its_row == row):
            drawing.add_node(state, color=ink, fontcolor=ink, group=row)
    drawing.get_node(0).attr.update(penwidth=2.5)
    drawing.get_node(len(rows) - 1).attr.update(shape="doublecircle", width=0.4)


def _add_arc(drawing, source: int, target: int, label: str, wrong: bool, **attributes) -> None:
    ink = _WRONG_INK if wrong else _INK
    # Both characters begin escapes of Graphviz.
    label = label.replace("&", "&amp;").replace("\\", "\\\\")
    attributes = {"color": ink, "fontcolor": ink, "label": f" {label} ", **attributes}
    drawing.add_edge(source, target, **attributes)


def _draw_figure(units: Sequence[str], topology: str):
    fsa = figure(units, topology)
    drawing = _new_drawing()
    num_states = fsa.arcs.dim0() - 1  # without the one that k2 has for accepting
    rows_of_a_unit = [_BETWEEN, _CORRECT, _CORRECT, _WRONG, _WRONG]
    if topology == "single":
        rows_of_a_unit = [_BETWEEN, _BETWEEN]
    rows = [rows_of_a_unit[state % len(rows_of_a_unit)] for state in range(num_states)]
    _add_states(drawing, rows)
    for source, target, label, _ in fsa.arcs.values().tolist():
        if label != -1:
            wrong = _WRONG in (rows[source], rows[target])
            forward = "true" if target > source else "false"
            _add_arc(drawing, source, target, fsa.labels_sym[label], wrong, constraint=forward)
    return drawing


def _draw_frames(units: Sequence[str], names: Sequence[str], compiler: MlFsaCompiler):
    graph = compiler.compile([[names.index(unit) for unit in units]])[0]
    columns = ("kind", "unit_pos", "heard", "is_start", "is_mispronounced", "num_skipped")
    arcs = list(
        zip(graph.arcs.values().tolist(), *(getattr(graph, name).tolist() for name in columns))
    )
    arcs.sort(key=lambda arc: arc[columns.index("is_mispronounced") + 1])  # the first go on top
    rows = [_BETWEEN] * graph.arcs.dim0()
    # Whatever can go on for another frame is no junction, and neither is the final state.
    holding = {
        arc[0]
        for arc, kind, _, _, is_start, *_ in arcs
        if arc[0] == arc[1] and kind != KIND_SILENCE and not is_start
    }
    junctions = [state for state in range(len(rows) - 1) if state not in holding]
    for (_, target, label, _), kind, *_, is_wrong, _ in arcs:
        if label != -1 and target not in junctions:
            rows[target] = _FILLER if kind == KIND_FILLER else _WRONG if is_wrong else _CORRECT
    drawing = _new_drawing()
    _add_states(drawing, rows)
    for junction in junctions:
        drawing.get_node(junction).attr.update(style="filled", fillcolor=_JUNCTION_FILL)
    for (source, target, label, _), kind, position, heard, is_start, is_wrong, skipped in arcs:
        attributes = {}
        if label == -1:
            # What follows the units left out before the end is the end of the last unit.
            text, position, attributes = "end", len(units), {"style": "dashed"}
        elif kind == KIND_SILENCE:
            text, attributes = "silence", {"color": _FAINT_INK}
        else:
            name = "filler" if kind == KIND_FILLER else names[heard] if heard >= 0 else ""
            text = ("start " if is_start else "hold ") + (name or units[position] + "*")
            if kind == KIND_FILLER:
                attributes = {"color": _FAINT_INK}
        if skipped:
            left_out = " ".join(units[position - skipped : position])
            text, attributes = f"{text} (no {left_out})", {**attributes, **_SKIP}
        if source == target and target not in junctions and (heard < 0 or kind == KIND_FILLER):
            attributes = {**attributes, "tailport": "s", "headport": "s"}  # the loop hangs below
        _add_arc(drawing, source, target, text, bool(is_wrong), **attributes)
    return drawing
