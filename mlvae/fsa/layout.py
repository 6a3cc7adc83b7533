"""Which column of an emission matrix holds which score.

Graphs carry column numbers as labels and emissions carry the columns, so both sides must agree.
A :class:`ColumnLayout` is that agreement. Its fingerprint travels on the arcs of every graph.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import torch

from .checks import UINT16_MAX, checked_bool, checked_choice, checked_int

TOPOLOGIES = ("single", "ml", "substitution")

#: Values of the arc attribute ``kind`` and, by name, of ``UnitSpan.kind``.
KIND_NAMES = ("unit", "silence", "filler")
KIND_UNIT, KIND_SILENCE, KIND_FILLER = range(3)

#: Value of the arc attributes unit, heard, unit_pos and word_pos where none applies.
NONE = -1


#: The slots that an arc leaves out, the last one first: as many as may be left out in a row.
SKIPPED_ATTRIBUTES = ("skipped_pos", "skipped_before_pos")
#: Arc attributes of every graph, all int32; they survive intersection and shortest path.
ARC_ATTRIBUTES = (
    "unit_pos",
    "word_pos",
    "unit",
    "heard",
    "kind",
    "is_start",
    "is_mispronounced",
    "num_skipped",
    *SKIPPED_ATTRIBUTES,
)
SLOT_ATTRIBUTES = ARC_ATTRIBUTES[:3]


@dataclass(frozen=True)
class ColumnLayout:
    """Columns of the emission matrix of one compiler.

    ======================  =========================================  =======================
    columns                 score                                      where
    ======================  =========================================  =======================
    0                       silence (0 where there is none)            always
    ``hold(u, s)``          frame goes on in state s of unit u         always
    ``start(u)``            frame starts unit u, as it should be       always
    ``start_mismatch(u)``   frame starts u in place of another unit    ``substitution``
    ``start_mismatch(u)``   frame starts "not u"                       ``ml``
    ``hold_mismatch(u)``    frame goes on in "not u"                   ``ml``
    ``start_filler``        frame starts a sound that has no unit      with filler
    ``hold_filler``         frame goes on in it                        with filler
    ======================  =========================================  =======================

    Column 0 is never a unit, so that no unit's label is k2's epsilon.

    Attributes:
        num_units: number of units N; units are 0 .. N - 1.
        states_per_unit: left-to-right states S of a unit; "not u" always has one.
        topology: ``single``, ``ml`` or ``substitution``.
        silence: whether the posteriors have a silence column.
        filler: whether there may be sounds between units.

    Raises:
        ValueError: a value is of the wrong type or out of range, or there are more columns than k2
            can number.
    """

    num_units: int
    states_per_unit: int
    topology: str
    silence: bool
    filler: bool = False

    def __post_init__(self) -> None:
        # Whatever numpy or torch has as integers becomes int, so that equal layouts look alike.
        for name in ("num_units", "states_per_unit"):
            object.__setattr__(self, name, checked_int(getattr(self, name), name, 1))
        checked_choice(self.topology, "topology", TOPOLOGIES)
        for name in ("silence", "filler"):
            object.__setattr__(self, name, checked_bool(getattr(self, name), name))
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
        return self.num_states + int(self.silence)

    @property
    def has_mismatch(self) -> bool:
        """Whether anything may be mispronounced, so that q(pi) plays a part."""
        return self.topology != "single" or self.filler

    @property
    def blocks(self) -> int:
        """Columns a unit besides those of its states."""
        return {"single": 1, "substitution": 2, "ml": 3}[self.topology]

    @property
    def num_columns(self) -> int:
        """Number of columns of the emission matrix."""
        return 1 + self.num_states + self.blocks * self.num_units + 2 * int(self.filler)

    def hold(self, unit, state):
        """Column(s) of going on in ``state`` of ``unit``; integers or arrays."""
        return 1 + unit * self.states_per_unit + state

    def start(self, unit):
        """Column(s) of starting ``unit`` correctly."""
        return 1 + self.num_states + unit

    def start_mismatch(self, unit):
        """Column(s) of starting a mispronunciation: ``unit`` itself, or "not ``unit``"."""
        return 1 + self.num_states + self.num_units + unit

    def hold_mismatch(self, unit):
        """Column(s) of going on in "not ``unit``"."""
        return 1 + self.num_states + 2 * self.num_units + unit

    @property
    def start_filler(self) -> int:
        """Column of starting a filler."""
        return 1 + self.num_states + self.blocks * self.num_units

    @property
    def hold_filler(self) -> int:
        """Column of going on in a filler."""
        return self.start_filler + 1

    def column_of_label(self, label: torch.Tensor) -> torch.Tensor:
        """Posterior column behind each emission column, int64; -1 for "not a unit" and fillers."""
        block, unit = (
            torch.div(label - self.start(0), self.num_units, rounding_mode="floor"),
            (label - self.start(0)) % self.num_units,
        )
        starts = block < (2 if self.topology == "substitution" else 1)
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
            self.topology,
            self.silence,
            self.filler,
        )
        return zlib.crc32(repr(fields).encode()) & 0x7FFFFFFF
