"""Limits of settings, declared beside each field and checked wherever one is made.

    @dataclass
    class SomeConfig(Settings):
        iterations: Count = 50
        dropout: Fraction = 0.1
        kind: Literal["lstm", "convolution"] = "lstm"

    SomeConfig(dropout=2.0)
    # ValueError: dropout must be a number from 0 and below 1, not 2.0

Infinite numbers and NaN are refused everywhere, and so is ``True`` in the place of a number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, is_dataclass
from numbers import Integral, Real
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Bounds:
    """An interval of numbers; its ends belong to it unless they are open."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return above and below and math.isfinite(value)

    def __str__(self) -> str:
        if math.isinf(self.low) or math.isinf(self.high):
            return "that is finite"
        ends = (self.low, self.high)
        low, high = (str(int(end)) if end == int(end) else str(end) for end in ends)
        if not (self.open_low or self.open_high):
            return f"from {low} to {high}"
        above, below = "above" if self.open_low else "from", "below" if self.open_high else "up to"
        return f"{above} {low} and {below} {high}"


#: How often, how many: at least one. The upper end keeps products within 64 bits.
Count = Annotated[int, Bounds(1, 10**9)]
#: The same where 0 means never, none or no limit.
CountOrNone = Annotated[int, Bounds(0, 10**9)]
#: Width of a layer.
Size = Annotated[int, Bounds(1, 10**5)]
#: Layers on top of one another; states per unit.
Depth = Annotated[int, Bounds(1, 100)]
#: Frames on each side of a frame.
Context = Annotated[int, Bounds(0, 1000)]
#: Of an optimizer.
LearningRate = Annotated[float, Bounds(0.0, 1.0, open_low=True)]
#: Dropout, smoothing: a fraction below 1.
Fraction = Annotated[float, Bounds(0.0, 1.0, open_high=True)]
#: A rate of events, of which there are some but not only these.
Rate = Annotated[float, Bounds(0.0, 1.0, open_low=True, open_high=True)]
#: An exponent or final learning rate that may be nothing and may be all.
Part = Annotated[float, Bounds(0.0, 1.0)]
#: A temperature, a factor of scores.
Positive = Annotated[float, Bounds(0.0, 1e6, open_low=True)]
#: A weight of a loss, a length that may be nothing.
Weight = Annotated[float, Bounds(0.0, 1e6)]


class Settings:
    """Base of dataclasses that check their fields: ValueError names one of another type.

    A subclass that checks how its fields go together calls ``super().__post_init__()`` first.
    """

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self), include_extras=True).items():
            checked(kind, getattr(self, name), name)


def checked(kind: Any, value: Any, place: str) -> Any:
    """The value of a setting, a whole number as a float where a number is wanted.

    Kinds are bool, int, float or str, each also with :class:`Bounds` by ``Annotated``; a
    ``Literal``; a list of these; or a dataclass.

    Raises:
        ValueError: the value is something else; begins with its place.
    """
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        if value not in choices:
            known = ", ".join(map(str, choices))
            raise ValueError(f"{place} must be one of {known}, not {_shown(value)}")
        return value
    if get_origin(kind) is list:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{place} must be a list, not {_shown(value)}")
        (inner,) = get_args(kind)
        return [checked(inner, item, f"{place}[{index}]") for index, item in enumerate(value)]
    if get_origin(kind) is dict:
        return _of_type(dict, value, place, "settings by name")
    bounds = Bounds()
    if get_origin(kind) is Annotated:
        kind, bounds = get_args(kind)
    if is_dataclass(kind):
        return _of_type(kind, value, place, f"a {kind.__name__}")
    if kind is bool:
        return _of_type(bool, value, place, "true or false")
    if kind is str:
        return _of_type(str, value, place, "text")
    whole = kind is int
    wanted = f"a {'whole ' if whole else ''}number {bounds}"
    is_number = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
    if not is_number or value not in bounds:
        raise ValueError(f"{place} must be {wanted}, not {_shown(value)}")
    return value if whole else float(value)


def _of_type(kind: type, value: Any, place: str, wanted: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{place} must be {wanted}, not {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    """A value on one line, as a file or program would write it; a long one is cut."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
