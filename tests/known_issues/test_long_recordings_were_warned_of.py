"""Stages printed a warning of lhotse for each recording that was longer than a batch."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import numpy as np
from mlvae.program import start_program
start_program()
from lhotse import CutSet
from mlvae.data.dataset import make_sampler
from tests.train.tiny import make_cut
cuts = CutSet.from_cuts(make_cut(f"c{n}", np.zeros((30, 2)), ["a"]) for n in range(count))
print(sum(len(batch) for batch in make_sampler(cuts, 20, shuffle)))
"""


def test_a_recording_that_is_a_batch_of_its_own_is_not_warned_of():
    for count, shuffle in ((3, False), (50, True)):  # lhotse's two samplers
        code = f"count, shuffle = {count}, {shuffle}\n{CODE}"
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert run.returncode == 0 and run.stdout.split() == [str(count)], run.stderr
        assert "max_duration" not in run.stderr
        code = code.replace("start_program()\n", "", 1)
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "max_duration" in run.stderr  # or this test could not fail
