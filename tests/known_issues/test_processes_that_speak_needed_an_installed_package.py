"""The processes that speak were given a folder to find the package in that does not hold it: only
where mlvae was installed, or on the path already, did they start.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlvae.corpora import espeak
from mlvae.corpora.digits.espeak import _run
from mlvae.corpora.simulate.build import _speak


class Started(Exception):
    """What would have been started."""


@pytest.mark.parametrize("start", [_run, _speak])
def test_they_are_given_the_folder_of_the_package(monkeypatch, start):
    def note(command, **options):
        raise Started(command, options["env"])

    monkeypatch.setattr(espeak.subprocess, "run", note)
    with pytest.raises(Started) as started:
        start({})
    command, env = started.value.args
    first = Path(env["PYTHONPATH"].split(os.pathsep)[0])
    assert (first / (command[2].replace(".", "/") + ".py")).is_file()
