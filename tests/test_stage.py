from __future__ import annotations

import sys

import pytest

from mlvae.stage import progress


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_log_has_few_states_of_the_bar_and_a_terminal_many(monkeypatch, capsys, is_terminal):
    """A log keeps what a terminal writes over: the bar of one stage took 300 kB of it."""
    clock = iter(range(10**6))  # a second passes whenever somebody looks
    monkeypatch.setattr("tqdm.std.time", lambda: float(next(clock)))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    assert list(progress(iter(range(100)), "speak", "utt", 100)) == list(range(100))
    states = capsys.readouterr().err.split("\r")
    assert "speak" in states[-1] and "100/100" in states[-1]
    assert len(states) > 50 if is_terminal else len(states) < 10
