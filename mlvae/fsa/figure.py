r"""The paper's figure of an ML-FSA as a k2.Fsa, for drawing and teaching.

Nothing is decoded with this form; :mod:`mlvae.fsa.compiler` tells how it and the frame-synchronous
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

from collections.abc import Sequence

import k2

from .checks import checked_integers, checked_unit_names, shown
from .layout import ColumnLayout

#: Topologies that the paper draws.
FIGURE_TOPOLOGIES = ("single", "ml")
RIGHT, WRONG, HOLD, LEAVE = CONTROL_SYMBOLS = ("R", "W", "H", "S")


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
    arcs, states = [], 2 if topology == "single" else 5
    for position, unit in enumerate(units):
        begin, name = position * states, _unit_symbol(unit)
        end = begin + states
        if topology == "single":
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
            ``MlFsaCompiler.compile``; of one state a unit and without silence, fillers and units
            left out, which the figure does not have.
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
    if layout.topology not in FIGURE_TOPOLOGIES:
        raise ValueError(f"topology {layout.topology!r} is not available as a figure")
    if layout.silence or layout.filler or layout.states_per_unit != 1:
        raise ValueError("the figure has neither silence, fillers nor several states a unit")
    names = checked_unit_names(names, "names")
    if len(names) != layout.num_units:
        raise ValueError(f"{len(names)} names for {layout.num_units} units")
    symbols: list[str] = []
    for column in checked_integers(columns, "columns").tolist():
        if not 0 < column < layout.num_columns:
            raise ValueError(f"column {column} is none of a unit: 1 to {layout.num_columns - 1}")
        unit = (column - 1) % layout.num_units
        is_start = column in (layout.start(unit), layout.start_mismatch(unit))
        is_wrong = column >= layout.start_mismatch(0)
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
