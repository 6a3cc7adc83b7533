"""A label beyond the columns of the emissions reads foreign memory and returns a finite score.

k2 cannot be asked to show it here, as the answer is undefined. What must hold: no label of a graph
lies beyond the columns that its compiler's emissions have, units out of range never become labels,
and graphs of a compiler with more columns are refused.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from mlvae.fsa import MlFsaCompiler, best_path, posteriors, total_scores


@pytest.mark.parametrize("topology", ["single", "ml"])
def test_labels_are_columns(topology):
    for num_units, states, silence in itertools.product((1, 3), (1, 3), (False, True)):
        compiler = MlFsaCompiler(num_units, topology, states_per_unit=states, silence=silence)
        units = list(range(num_units))
        labels = compiler.compile([units, units[::-1]]).labels
        columns = compiler.layout.num_posteriors
        emissions = compiler.emissions(
            torch.zeros(2, 9, columns).log_softmax(-1), torch.tensor([9, 9])
        )
        # k2 adds one column for the final arcs' label -1, in front.
        assert emissions.dense.scores.shape[1] - 1 == compiler.layout.num_columns
        assert int(labels.max()) == compiler.layout.num_columns - 1
        assert int(labels.min()) == -1


@pytest.mark.parametrize("unit", [3, -1, 1000])
def test_unit_out_of_range_is_refused(unit):
    with pytest.raises(ValueError, match=f"utterance 1: unit {unit} is out of range; .* 0 to 2"):
        MlFsaCompiler(3).compile([[0], [1, unit]])


@pytest.mark.parametrize("function", [best_path, posteriors, total_scores])
def test_graphs_with_more_columns_are_refused(function, device):
    emissions = MlFsaCompiler(3).emissions(
        torch.zeros(1, 4, 3, device=device).log_softmax(-1), torch.tensor([4])
    )
    with pytest.raises(ValueError, match="different compilers"):
        function(MlFsaCompiler(4).compile([[3]]), emissions)
