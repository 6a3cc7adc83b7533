from __future__ import annotations

import sys

import pytest

from mlvae import stage
from mlvae.stage import Progress, progress


@pytest.fixture
def clock(monkeypatch):
    """A second passes whenever somebody looks."""
    now = iter(range(10**6))
    monkeypatch.setattr("tqdm.std.time", lambda: float(next(now)))
    monkeypatch.setattr(stage.time, "monotonic", lambda: float(next(now)))


def test_a_terminal_has_many_states_of_a_bar(monkeypatch, capsys, clock):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert list(progress(iter(range(100)), "speak", "utt", 100)) == list(range(100))
    states = capsys.readouterr().err.split("\r")
    assert len(states) > 50
    assert any("speak" in state and "/100 [" in state and "utt" in state for state in states)


def test_a_log_has_a_line_every_half_minute_with_rate_and_time_left(monkeypatch, capsys, clock):
    """It keeps what a terminal writes over: the bar of one stage took 300 kB of it."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    assert list(progress(range(100), "speak", "utt")) == list(range(100))
    error = capsys.readouterr().err
    assert "\r" not in error
    first, *_, last = lines = error.splitlines()
    assert 3 <= len(lines) <= 5
    assert first[20:].startswith("speak: 30 of 100 (30%) utts, 1.0 s/utt, 01:") and "left" in first
    assert "speak: 100 of 100 (100%) utts" in last


def test_a_short_loop_says_nothing_in_a_log(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    list(progress(range(100), "speak", "utt"))
    assert capsys.readouterr().err == ""


def test_what_an_earlier_run_has_done_tells_nothing_of_the_rate(monkeypatch, capsys, clock):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    with Progress("search", "frame", 2000) as shown:
        shown.skip(1000)
        for _ in range(40):
            shown.update(10)
    line = capsys.readouterr().err.splitlines()[0]
    assert "search: 1,300 of 2,000 (65%) frames, 9.7 frames/s, 01:12 left" in line


def test_others_than_the_first_process_show_nothing(monkeypatch, capsys, clock):
    for is_terminal in (True, False):
        monkeypatch.setattr(sys.stderr, "isatty", lambda shown=is_terminal: shown)
        with Progress("search", "cut", 100, shown=False) as shown:
            for _ in range(100):
                shown.update()
        assert capsys.readouterr().err == ""
