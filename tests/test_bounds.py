from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Literal

import numpy as np
import pytest

from mlvae.bounds import Bounds, Count, Fraction, Rate, Settings, checked


@dataclass
class Inner(Settings):
    share: Fraction = 0.5


@dataclass
class Some(Settings):
    count: Count = 3
    rate: Rate = 0.1
    kind: Literal["a", "b"] = "a"
    on: bool = False
    name: str = ""
    numbers: list[Count] = field(default_factory=list)
    inner: Inner = field(default_factory=Inner)


def test_what_means_something_is_taken():
    some = Some(np.int64(7), 1e-9, "b", True, "x", (1, 2), Inner(0))
    assert asdict(some)["inner"] == {"share": 0}
    assert Some() == Some(3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"count": 0}, "count must be a whole number from 1 to 1000000000, not 0"),
        ({"count": 2**31}, "count must be a whole number"),
        ({"count": True}, "count must be a whole number .*, not True"),
        ({"count": 1.0}, "count must be a whole number .*, not 1.0"),
        ({"count": "3"}, "count must be a whole number .*, not '3'"),
        ({"count": None}, "count must be"),
        ({"rate": 0}, "rate must be a number above 0 and below 1, not 0"),
        ({"rate": 1.0}, "rate must be"),
        ({"rate": float("nan")}, "rate must be .*, not nan"),
        ({"rate": True}, "rate must be .*, not True"),
        ({"kind": "c"}, "kind must be one of a, b, not 'c'"),
        ({"kind": []}, "kind must be one of a, b, not "),
        ({"on": 1}, "on must be true or false, not 1"),
        ({"name": 3}, "name must be text, not 3"),
        ({"numbers": 3}, "numbers must be a list, not 3"),
        ({"numbers": [1, 0]}, r"numbers\[1\] must be a whole number"),
        ({"inner": {"share": 0.1}}, "inner must be a Inner, not "),
        ({"name": ["x" * 1000]}, r"not .{60}\.\.\.$"),
    ],
)
def test_what_means_nothing_is_refused_by_name(given, message):
    with pytest.raises(ValueError, match=message):
        Some(**given)


def test_numbers_without_limits_are_finite():
    assert checked(float, 3, "x") == 3.0 and isinstance(checked(float, 3, "x"), float)
    for value in (float("inf"), -float("inf"), float("nan")):
        with pytest.raises(ValueError, match="x must be a number that is finite"):
            checked(float, value, "x")
    assert str(Bounds(0, 0.5)) == "from 0 to 0.5"
