"""The processes that speak were given a folder to find the package in that does not hold it: only
where mlvae was installed, or on the path already, did they start.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlvae.corpora.digits import espeak
from mlvae.corpora.simulate import build


class Started(Exception):
    """What would have been started."""


@pytest.mark.parametrize(
    ("module", "function", "start"),
    [
        (build, "Popen", build._start),
        (espeak, "run", lambda: espeak._run({})),
    ],
)
def test_they_are_given_the_folder_of_the_package(monkeypatch, module, function, start):
    def note(command, **options):
        raise Started(command, options["env"])

    monkeypatch.setattr(module.subprocess, function, note)
    with pytest.raises(Started) as started:
        start()
    command, env = started.value.args
    first = Path(env["PYTHONPATH"].split(os.pathsep)[0])
    assert (first / (command[2].replace(".", "/") + ".py")).is_file()
