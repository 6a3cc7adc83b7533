"""Which column of an emission matrix holds which score.

Graphs carry column numbers as labels and emissions carry the columns, so both sides must agree.
A :class:`ColumnLayout` is that agreement. Its fingerprint travels on the arcs of every graph.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import torch

TOPOLOGIES = ("single", "ml")

#: Values of the arc attribute ``kind`` and, by name, of ``UnitSpan.kind``.
KIND_NAMES = ("unit", "silence", "filler")
KIND_UNIT, KIND_SILENCE, KIND_FILLER = range(3)

#: Value of the arc attributes unit, heard, unit_pos and word_pos where none applies.
NONE = -1


@dataclass(frozen=True)
class ColumnLayout:
    """Columns of the emission matrix of one compiler.

    ======================  =====================================  ==============
    columns                 score                                  topologies
    ======================  =====================================  ==============
    0                       silence (0 where there is none)        all
    ``hold(u, s)``          frame goes on in state s of unit u     all
    ``start(u)``            frame starts unit u, said correctly    all
    ``hold_mismatch(u)``    frame goes on in "not u"               ``ml``
    ``start_mismatch(u)``   frame starts "not u"                   ``ml``
    ======================  =====================================  ==============

    Column 0 is never a unit, so that no unit's label is k2's epsilon.

    Attributes:
        num_units: number of units N; units are 0 .. N - 1.
        states_per_unit: left-to-right states S of a correct unit; "not u" always has one.
        topology: ``single`` or ``ml``.
        silence: whether the posteriors have a silence column.
    """

    num_units: int
    states_per_unit: int
    topology: str
    silence: bool

    @property
    def num_states(self) -> int:
        """Number of unit states, N * S."""
        return self.num_units * self.states_per_unit

    @property
    def num_posteriors(self) -> int:
        """Number of columns that the posteriors must have, without a blank."""
        return self.num_states + int(self.silence)

    @property
    def has_mismatch(self) -> bool:
        """Whether a unit has a branch for "mispronounced"."""
        return self.topology != "single"

    @property
    def num_columns(self) -> int:
        """Number of columns of the emission matrix."""
        blocks = 3 if self.has_mismatch else 1
        return 1 + self.num_states + blocks * self.num_units

    def hold(self, unit, state):
        """Column(s) of going on in ``state`` of ``unit``; integers or arrays."""
        return 1 + unit * self.states_per_unit + state

    def start(self, unit):
        """Column(s) of starting ``unit`` correctly."""
        return 1 + self.num_states + unit

    def hold_mismatch(self, unit):
        """Column(s) of going on in "not ``unit``"."""
        return 1 + self.num_states + self.num_units + unit

    def start_mismatch(self, unit):
        """Column(s) of starting "not ``unit``"."""
        return 1 + self.num_states + 2 * self.num_units + unit

    def column_of_label(self, label: torch.Tensor) -> torch.Tensor:
        """Posterior column behind each emission column, -1 for "not a unit"; int64 tensors."""
        unit = label - self.start(0)
        state = torch.where(unit < 0, label - 1, unit * self.states_per_unit)
        state = torch.where(unit >= self.num_units, torch.full_like(state, -1), state)
        return torch.where(label == 0, torch.full_like(state, self.num_states), state)

    @property
    def fingerprint(self) -> int:
        """A 31-bit number that differs between layouts; an int32 arc attribute can hold it."""
        text = f"{self.num_units},{self.states_per_unit},{self.topology},{self.silence}"
        return zlib.crc32(text.encode()) & 0x7FFFFFFF
