"""The private names of k2 that are used do what their public counterparts do."""

from __future__ import annotations

import k2
import pytest
import torch

from mlvae.fsa import graph, k2_private, search
from tests.fsa.cases import random_case


@pytest.fixture
def prepared(device):
    case = random_case(1, "ml", batch=5, max_frames=9, deletions=True)
    emissions = case.emissions(device)
    return search.prepared(case.graphs(), emissions)[1], emissions


@pytest.mark.parametrize("beam", [0.03, 8.0])
def test_intersection_is_that_of_k2(prepared, beam):
    bare, emissions = prepared
    expected = k2.intersect_dense(bare, emissions.dense, output_beam=beam)
    among = torch.arange(bare.shape[0], dtype=torch.int32, device=bare.device)
    arcs, arc_map = k2_private.intersect_dense(bare.arcs, emissions.dense, among, beam)
    assert str(arcs.shape()) == str(expected.arcs.shape())
    assert torch.equal(arcs.values(), expected.arcs.values())
    assert torch.equal(bare.graph_arc[arc_map.long()], expected.graph_arc)


def test_choice_of_fsas_is_that_of_k2(prepared):
    bare, _ = prepared
    chosen = torch.tensor([0, 2, 3], dtype=torch.int32, device=bare.device)
    expected = k2.index_fsa(bare, chosen)
    arcs, which = k2_private.index_arcs(bare.arcs, chosen)
    assert str(arcs.shape()) == str(expected.arcs.shape())
    assert torch.equal(arcs.values(), expected.arcs.values())
    assert torch.equal(bare.graph_arc[which.long()], expected.graph_arc)


def test_layout_of_fsas_is_that_of_k2(prepared):
    bare, _ = prepared
    arcs, (of_fsa, of_state) = bare.arcs, (bare.arcs.shape().row_splits(axis) for axis in (1, 2))
    sizes = of_fsa.diff().cpu().numpy(), of_state[of_fsa.long()].diff().cpu().numpy()
    found = graph.fsa_vec_tensor(arcs.values().cpu().numpy(), *sizes)
    assert torch.equal(found, bare.as_dict()["arcs"].cpu())


def test_emissions_in_rows_are_those_of_a_padded_tensor(device):
    scores = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0)).to(device)
    segments = torch.tensor([[0, 0, 4], [1, 0, 2]], dtype=torch.int32)
    expected = k2.DenseFsaVec(scores, segments)
    splits = torch.tensor([0, 5, 8], dtype=torch.int32, device=device)
    found = k2_private.dense_fsa_vec(expected.scores.clone(), splits)
    assert isinstance(found, k2.DenseFsaVec)
    assert torch.equal(found.scores, expected.scores)
    assert found.dense_fsa_vec.to_str() == expected.dense_fsa_vec.to_str()
    assert found.device == expected.device
