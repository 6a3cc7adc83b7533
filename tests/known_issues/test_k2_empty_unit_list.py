"""An utterance without units is a fatal error inside k2, which ends the process.

It is refused first, wherever it may come in.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlvae.fsa import MlFsaCompiler


@pytest.mark.parametrize(
    ("utterances", "message"),
    [
        ([], "no utterances to compile"),
        ([[]], "utterance 0 has no units"),
        ([[0], [], [1]], "utterance 1 has no units"),
        ([[0], np.array([], dtype=np.int64)], "utterance 1 has no units"),
        ([torch.tensor([], dtype=torch.int64)], "utterance 0 has no units"),
        ([[[]]], "utterance 0, word 0 has no pronunciation"),
        ([[[[]]]], "utterance 0, word 0 has a pronunciation without units"),
        ([[[[0]], [[1], []]]], "utterance 0, word 1 has a pronunciation without units"),
    ],
)
@pytest.mark.parametrize("topology", ["single", "ml"])
def test_refused(utterances, message, topology):
    with pytest.raises(ValueError, match=message):
        MlFsaCompiler(2, topology).compile(utterances)


def test_generators_are_read_once():
    """A batch may be any sequence of iterables, empty ones included."""
    compiler = MlFsaCompiler(2)
    assert compiler.compile([(unit for unit in (0, 1))]).shape[0] == 1
    with pytest.raises(ValueError, match="utterance 0 has no units"):
        compiler.compile([iter(())])
