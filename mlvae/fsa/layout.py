"""Which column of an emission matrix holds which score.

Graphs carry column numbers as labels and emissions carry the columns, so both sides must agree.
A :class:`ColumnLayout` is that agreement. Its fingerprint travels on the arcs of every graph.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import torch

from .checks import UINT16_MAX, checked_bool, checked_int, shown
from .topology import INSERTION, Columns, Topology, find_topology

#: Values of the arc attribute ``kind`` and, by name, of ``UnitSpan.kind``.
KIND_NAMES = ("unit", "silence", "insertion")
KIND_UNIT, KIND_SILENCE, KIND_INSERTION = range(3)

#: Value of ``silence`` where it may stand between any two units.
EVERYWHERE = "everywhere"

#: The slots that an arc deletes, the last one first: as many as may be deleted in a row.
DELETED_ATTRIBUTES = ("deleted_pos", "deleted_before_pos")
#: Arc attributes of every graph, all int32; they survive intersection and shortest path.
ARC_ATTRIBUTES = (
    "unit_pos",
    "word_pos",
    "unit",
    "perceived",
    "kind",
    "is_start",
    "is_mispronounced",
    "num_deleted",
    *DELETED_ATTRIBUTES,
)


@dataclass(frozen=True)
class ColumnLayout:
    """Columns of the emission matrix of one compiler.

    =====================  =========================================  =======================
    columns                score                                      where
    =====================  =========================================  =======================
    0                      silence (0 where there is none)            always
    ``hold(u, s)``         frame goes on in state s of unit u         always
    ``start(u)``           frame starts unit u, as it should be       always
    ``start(u, 1)``        frame starts u in place of another unit    ``substitution``
    ``column(0, 0, u)``    frame starts "not u"                       ``ml``
    ``column(0, 1, u)``    frame goes on in "not u"                   ``ml``
    ``column(-1, 0)``      frame starts a sound that has no unit      with insertions
    ``column(-1, 1)``      frame goes on in it                        with insertions
    =====================  =========================================  =======================

    Column 0 is never a unit, so that no unit's label is k2's epsilon.

    Attributes:
        num_units: number of units N; units are 0 .. N - 1.
        states_per_unit: left-to-right states S of a unit; "not u" always has one.
        topology: what a unit can be; its name is taken, too.
        silence: whether the posteriors have a silence column; ``everywhere``: they have, and it may
            stand between any two units, also inside words.
        insertions: whether there may be sounds between units.

    Raises:
        ValueError: a value is of the wrong type or out of range, or there are more columns than k2
            can number.
    """

    num_units: int
    states_per_unit: int
    topology: Topology
    silence: bool | str
    insertions: bool = False

    def __post_init__(self) -> None:
        # Whatever numpy or torch has as integers becomes int, so that equal layouts look alike.
        for name in ("num_units", "states_per_unit"):
            object.__setattr__(self, name, checked_int(getattr(self, name), name, 1))
        object.__setattr__(self, "topology", find_topology(self.topology))
        object.__setattr__(self, "insertions", checked_bool(self.insertions, "insertions"))
        if isinstance(self.silence, str):
            if self.silence != EVERYWHERE:
                raise ValueError(
                    f"silence must be True, False or {EVERYWHERE!r}, not {shown(self.silence)}"
                )
        else:
            object.__setattr__(self, "silence", checked_bool(self.silence, "silence"))
        # k2 adds one, for the label -1 of final arcs.
        if self.num_columns > UINT16_MAX:
            raise ValueError(
                f"{self.num_units} units of {self.states_per_unit} states need {self.num_columns} "
                f"columns of emissions, and k2 can number {UINT16_MAX}"
            )

    @property
    def num_states(self) -> int:
        """Number of unit states, N * S."""
        return self.num_units * self.states_per_unit

    @property
    def num_posteriors(self) -> int:
        """Number of columns that the posteriors must have, without a blank."""
        return self.num_states + bool(self.silence)

    @property
    def has_mismatch(self) -> bool:
        """Whether anything may be mispronounced, so that q(pi) plays a part."""
        return self.topology.has_mismatch or self.insertions

    @property
    def columns(self) -> tuple[Columns, ...]:
        """What comes after the columns of units: the topology's, then those of insertions."""
        return (*self.topology.columns, *[INSERTION] * self.insertions)

    @property
    def num_columns(self) -> int:
        """Number of columns of the emission matrix."""
        return self._end_of(len(self.columns))

    def hold(self, unit: int | np.ndarray, state: int | np.ndarray) -> int | np.ndarray:
        """Column(s) of going on in ``state`` of ``unit``."""
        return 1 + unit * self.states_per_unit + state

    def holds(self, units: np.ndarray) -> np.ndarray:
        """Columns of going on in each state of units (n,), int64 (n, S)."""
        return self.hold(units[:, None], np.arange(self.states_per_unit))

    def start(self, unit: int | np.ndarray, term: int | np.ndarray = 0) -> int | np.ndarray:
        """Column(s) of starting ``unit``, by the number of one of the topology's start terms."""
        return 1 + self.num_states + term * self.num_units + unit

    def column(self, index: int, term: int, unit: int | np.ndarray = 0) -> int | np.ndarray:
        """Column(s) of one of ``columns``, by its index and the number of its term."""
        index %= len(self.columns)
        size = self.num_units if self.columns[index].per_unit else 1
        return self._end_of(index) + term * size + unit

    def _end_of(self, count: int) -> int:
        """The column behind those of units and the first ``count`` of ``columns``."""
        end = self.start(0, len(self.topology.starts))
        for columns in self.columns[:count]:
            end += len(columns.terms) * (self.num_units if columns.per_unit else 1)
        return end

    def column_of_label(self, label: torch.Tensor) -> torch.Tensor:
        """Posterior column behind each emission column, int64; -1 for "not u" and insertions."""
        block, unit = (
            torch.div(label - self.start(0), self.num_units, rounding_mode="floor"),
            (label - self.start(0)) % self.num_units,
        )
        starts = block < len(self.topology.starts)
        none = torch.full_like(label, -1)
        state = torch.where(starts, unit * self.states_per_unit, none)
        state = torch.where(label < self.start(0), label - 1, state)
        return torch.where(label == 0, torch.full_like(state, self.num_states), state)

    @property
    def fingerprint(self) -> int:
        """A 31-bit number that differs between layouts; an int32 arc attribute can hold it."""
        fields = (
            self.num_units,
            self.states_per_unit,
            self.topology.name,
            self.silence,
            self.insertions,
            self.num_columns,  # two topologies of one's own may have one name
        )
        return zlib.crc32(repr(fields).encode()) & 0x7FFFFFFF
