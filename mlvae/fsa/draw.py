r"""Drawings of acceptors, for looking at and for teaching; and the paper's figure as a k2.Fsa.

Nothing is decoded with the figure; :mod:`mlvae.fsa.compiler` tells how it and the frame-synchronous
form, which is decoded, become each other, and :func:`figure_symbols` does it. A unit ``n``::

              R         n         S
       ((0)) ---> (1) ---> (2) ------->(5)     R right, W wrong: correctness of the unit
         |         ^---H---/            ^      n, n*: a frame of n, of anything but n
         |   W         n*        S      |      H hold: one frame more
         +------> (3) ---> (4) ---------+      S: on to the next unit
                   ^---H---/

State 5 of a unit is state 0 of the next. The single-path acceptor of the paper's appendix has no R
and W, hence the states 0, 1 and 2 and the symbols n, H and S.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import k2

from .checks import (
    checked_bool,
    checked_choice,
    checked_int,
    checked_integers,
    checked_unit_names,
    shown,
)
from .compiler import MlFsaCompiler
from .layout import KIND_INSERTION, KIND_SILENCE, ColumnLayout
from .topology import TOPOLOGIES, competitors_refused, find_topology

FORMS = ("figure", "frames")
#: Topologies that the paper draws.
FIGURE_TOPOLOGIES = tuple(name for name, one in TOPOLOGIES.items() if one.in_paper)
RIGHT, WRONG, HOLD, LEAVE = CONTROL_SYMBOLS = ("R", "W", "H", "S")
_CORRECT, _BETWEEN, _WRONG, _INSERTION = "correct", "between", "wrong", "insertion"
_INK, _WRONG_INK, _FAINT_INK, _JUNCTION_FILL = "#1f2933", "#b3361b", "#7b8794", "#d9e2ec"
_DELETION = {"style": "dashed", "weight": 0}


def draw_graph(
    units: Sequence[str],
    path: Path | str,
    form: str = "figure",
    topology: str = "ml",
    states_per_unit: int = 1,
    silence: bool = False,
    deletions: bool = False,
    insertions: bool = False,
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
        deletions: whether units may be deleted; only for ``frames``.
        insertions: whether sounds of no unit are allowed; only for ``frames``.
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
    if len(competitors) and not find_topology(topology).takes_competitors:
        raise ValueError(competitors_refused(find_topology(topology)))
    if form == "figure":
        options = [checked_bool(silence, "silence"), checked_bool(deletions, "deletions")]
        options.append(checked_bool(insertions, "insertions"))
        if any(options) or checked_int(states_per_unit, "states_per_unit", 1) != 1:
            raise ValueError(
                "the figure has neither silence, deletions, insertions nor several states a unit"
            )
        drawing = _draw_figure(units, topology)
    else:
        names = list(dict.fromkeys([*units, *competitors]))
        compiler = MlFsaCompiler(
            max(len(names), 1),
            topology,
            states_per_unit,
            silence,
            deletions=deletions,
            insertions=insertions,
        )
        drawing = _draw_frames(units, names, compiler)
    path = Path(path)
    # Graphviz ends the process where it cannot write.
    path.write_bytes(drawing.draw(format=path.suffix[1:] or "svg", prog="dot"))


def figure(units: Sequence[str], topology: str = "ml") -> k2.Fsa:
    """Build the figure's acceptor of one unit, or of a sentence.

    Args:
        units: names of the canonical units in order, such as ``["n", "aa", "t"]``.
        topology: ``ml``, five states a unit, or ``single``, two; and the accepting state.

    Returns:
        A k2.Fsa with all scores 0 and the symbol table ``labels_sym``. Its last state but one is
        the accepting one of the figure: k2 writes acceptance as an arc of label -1 to a last state.
        Symbols are R, W, H, S and for each unit its name and its name with ``*``. A name that would
        be mistaken for another symbol (there are phones R, W and S) is put in quotation marks.

    Raises:
        ValueError: no units, one that is no word, or a topology that the paper does not draw.
    """
    units = checked_unit_names(units)
    if len(units) == 0:
        raise ValueError("no units to draw")
    if not isinstance(topology, str) or topology not in FIGURE_TOPOLOGIES:
        known = ", ".join(FIGURE_TOPOLOGIES)
        raise ValueError(
            f"topology {shown(topology)} is not available as a figure; there are: {known}"
        )
    table = figure_symbol_table(units)
    has_mismatch = TOPOLOGIES[topology].has_mismatch
    arcs, states = [], 5 if has_mismatch else 2
    for position, unit in enumerate(units):
        begin, name = position * states, _unit_symbol(unit)
        end = begin + states
        if not has_mismatch:
            arcs += [(begin, begin + 1, name), (begin + 1, begin, HOLD), (begin + 1, end, LEAVE)]
            continue
        for first, correctness, emitted in (
            (begin + 1, RIGHT, name),
            (begin + 3, WRONG, name + "*"),
        ):
            arcs += [
                (begin, first, correctness),
                (first, first + 1, emitted),
                (first + 1, first, HOLD),
                (first + 1, end, LEAVE),
            ]
    accepting = len(units) * states
    lines = [f"{source} {target} {table[symbol]} 0" for source, target, symbol in sorted(arcs)]
    lines += [f"{accepting} {accepting + 1} -1 0", str(accepting + 1)]
    fsa = k2.Fsa.from_str("\n".join(lines))
    fsa.labels_sym = table
    return fsa


def figure_symbol_table(units: Sequence[str]) -> k2.SymbolTable:
    """Symbols of the figure: R, W, H, S, then ``n`` and ``n*`` for each distinct unit in order."""
    symbols = list(CONTROL_SYMBOLS)
    for unit in dict.fromkeys(checked_unit_names(units)):
        symbols += [_unit_symbol(unit), _unit_symbol(unit) + "*"]
    return k2.SymbolTable.from_str(
        "\n".join(f"{symbol} {index}" for index, symbol in enumerate(symbols, start=1))
    )


def figure_symbols(columns: Sequence[int], layout: ColumnLayout, names: Sequence[str]) -> list[str]:
    """Translate a path of the frame-synchronous form into the figure's symbols.

    Args:
        columns: labels of the path's emitting arcs, one a frame, as in the graphs of
            ``MlFsaCompiler.compile``; of one state a unit and without silence, insertions and
            deletions, which the figure does not have.
        layout: column layout of the compiler.
        names: names of the units 0 to N - 1.

    Returns:
        The symbols: for n frames of unit c, ``R c H c ... S`` with n times c.

    Raises:
        ValueError: the layout has what the figure does not have, a column is none of a unit, or
            there are not as many names as units.
    """
    if not isinstance(layout, ColumnLayout):
        raise ValueError(f"layout must be that of a compiler, not {shown(layout)}")
    if not layout.topology.in_paper:
        raise ValueError(f"topology {layout.topology!r} is not available as a figure")
    if layout.silence or layout.insertions or layout.states_per_unit != 1:
        raise ValueError("the figure has neither silence, insertions nor several states a unit")
    names = checked_unit_names(names, "names")
    if len(names) != layout.num_units:
        raise ValueError(f"{len(names)} names for {layout.num_units} units")
    symbols: list[str] = []
    for column in checked_integers(columns, "columns").tolist():
        if not 0 < column < layout.num_columns:
            raise ValueError(f"column {column} is none of a unit: 1 to {layout.num_columns - 1}")
        unit = (column - 1) % layout.num_units
        # Holds, starts, and with mispronunciations as many again, starts first.
        block = (column - 1) // layout.num_units
        is_start, is_wrong = block in (1, 2), block >= 2
        if not is_start:
            symbols.append(HOLD)
        else:
            if symbols:
                symbols.append(LEAVE)
            if layout.has_mismatch:
                symbols.append(WRONG if is_wrong else RIGHT)
        symbols.append(_unit_symbol(names[unit]) + "*" * is_wrong)
    return [*symbols, LEAVE] if symbols else symbols


def _unit_symbol(unit: str) -> str:
    """The unit's name, in quotation marks where it could be taken for another symbol."""
    reserved = (*CONTROL_SYMBOLS, "<eps>")
    if unit in reserved or unit.endswith("*") or unit.startswith('"'):
        return f'"{unit}"'
    return unit


def _draw_figure(units: Sequence[str], topology: str):
    fsa = figure(units, topology)
    drawing = _new_drawing()
    num_states = fsa.arcs.dim0() - 1  # without the one that k2 has for accepting
    rows_of_a_unit = [_BETWEEN, _CORRECT, _CORRECT, _WRONG, _WRONG]
    if not TOPOLOGIES[topology].has_mismatch:
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
    columns = ("kind", "unit_pos", "perceived", "is_start", "is_mispronounced", "num_deleted")
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
            rows[target] = (
                _INSERTION if kind == KIND_INSERTION else _WRONG if is_wrong else _CORRECT
            )
    drawing = _new_drawing()
    _add_states(drawing, rows)
    for junction in junctions:
        drawing.get_node(junction).attr.update(style="filled", fillcolor=_JUNCTION_FILL)
    for (source, target, label, _), kind, position, perceived, is_start, is_wrong, deleted in arcs:
        attributes = {}
        if label == -1:
            # What follows the deletions before the end is the end of the last unit.
            text, position, attributes = "end", len(units), {"style": "dashed"}
        elif kind == KIND_SILENCE:
            text, attributes = "silence", {"color": _FAINT_INK}
        else:
            name = (
                "insertion"
                if kind == KIND_INSERTION
                else names[perceived]
                if perceived >= 0
                else ""
            )
            text = ("start " if is_start else "hold ") + (name or units[position] + "*")
            if kind == KIND_INSERTION:
                attributes = {"color": _FAINT_INK}
        if deleted:
            left_out = " ".join(units[position - deleted : position])
            text, attributes = f"{text} (no {left_out})", {**attributes, **_DELETION}
        if (
            source == target
            and target not in junctions
            and (perceived < 0 or kind == KIND_INSERTION)
        ):
            attributes = {**attributes, "tailport": "s", "headport": "s"}  # the loop hangs below
        _add_arc(drawing, source, target, text, bool(is_wrong), **attributes)
    return drawing


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
    for row in (_CORRECT, _BETWEEN, _WRONG, _INSERTION):
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
