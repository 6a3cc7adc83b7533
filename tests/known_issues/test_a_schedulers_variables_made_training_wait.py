"""``RANK=0 WORLD_SIZE=2`` in the environment made stage 4 wait in silence for a day.

Schedulers and other launchers leave such variables behind. A program that is alone is alone now;
one that has others says what it waits for, and for minutes.
"""

from __future__ import annotations

import socket
from datetime import timedelta

import pytest
import torch

from mlvae.train import distributed

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")


@pytest.fixture
def environment(monkeypatch):
    """Sets these variables alone, for a launch whose other process does not come."""

    def set_variables(**variables: str) -> None:
        for name in NAMES:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    monkeypatch.setattr(distributed, "PATIENCE", timedelta(seconds=1), raising=False)
    monkeypatch.setattr(distributed, "TIMEOUT", timedelta(seconds=5))
    return set_variables


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return str(one.getsockname()[1])


@pytest.mark.parametrize(
    ("variables", "given"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, ()),
        ({"RANK": "0", "WORLD_SIZE": "2"}, (1,)),
        ({"RANK": "x", "WORLD_SIZE": ""}, ()),
        ({"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}, (1,)),
    ],
)
def test_one_process_is_alone_whatever_is_left_over(environment, variables, given):
    environment(MASTER_ADDR="localhost", MASTER_PORT=free_port(), **variables)
    with distributed.process_group("cpu", *given) as device:
        assert device == torch.device("cpu")
        assert not distributed.is_distributed() and distributed.world_size() == 1


def test_it_says_what_it_waits_for_and_gives_up(environment, capsys):
    port = free_port()
    environment(RANK="0", WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=port)
    with pytest.raises(ValueError) as caught:
        distributed.process_group("cpu", 2).__enter__()
    assert (
        f"process 1 of 2 waits for the others at localhost:{port}, 1 s" in capsys.readouterr().out
    )
    message = str(caught.value)
    assert message.startswith(
        f"process 1 did not meet the others of 2 processes at localhost:{port}"
    )
    assert "\n" not in message and not distributed.is_distributed()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"RANK": ""}, "RANK must be a number from 0 to 1 in the environment .*, not ''"),
        ({"RANK": "2"}, "RANK must be a number from 0 to 1 "),
        ({"RANK": "-1"}, "RANK must be a number from 0 to 1 "),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE must be a number from 1 to 9999 .*, not 'two'"),
        ({"WORLD_SIZE": "3"}, "there are to be 2 processes, but WORLD_SIZE is 3"),
        ({"LOCAL_RANK": "x"}, "LOCAL_RANK must be a number from 0 to 1 "),
        ({"MASTER_PORT": "70000"}, "MASTER_PORT must be a number from 1 to 65535 "),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR is not set"),
    ],
)
def test_variables_of_a_launcher_are_checked(environment, changes, message):
    good = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    environment(**{**good, **changes})
    with pytest.raises(ValueError, match=message):
        distributed.process_group("cpu", 2).__enter__()
