"""k2 refuses a lattice that rounding has cut in pieces, and one utterance ended a whole batch.

Best paths were searched again with a wider beam, and posteriors, edges and scores of words were
not: a bare ValueError about properties of FSAs came through. Now that utterance alone is searched
again, with wider beams.
"""

from __future__ import annotations

import k2
import pytest
import torch

from mlvae.fsa import expected_boundaries, posteriors, total_scores, word_posteriors
from mlvae.fsa.search import arc_row_splits
from tests.fsa.cases import random_case

SEARCHES = [posteriors, expected_boundaries, word_posteriors, total_scores]
BEAM = 20.0


def answers(search, case) -> list:
    """What a search says of each utterance, as lists of numbers."""
    # Posteriors of frames need a lattice, those of units alone need none on CPU.
    more = {"frames": True} if search is posteriors else {}
    found = search(case.graphs(), case.emissions(), output_beam=BEAM, **more)
    if search is posteriors:
        found = [torch.stack([one.used, one.mispronounced, one.deleted]) for one in found]
    return [torch.as_tensor(one).double() for one in found]


@pytest.fixture
def case():
    made = random_case(3, "ml", batch=5, max_frames=9)
    made.num_frames[:] = torch.tensor([6, 9, 8, 7, 1])
    made.utterances[:] = [[0, 1], [2, 3], [1], [3, 0], [0, 1, 2]]  # the last one is too short
    return made


@pytest.fixture
def refusing(monkeypatch):
    """Let k2 refuse lattices of the graph with an arc, below a beam."""
    searched: list[tuple[int, float]] = []
    intersect = k2.intersect_dense

    def set_up(arc: int, below: float) -> list[tuple[int, float]]:
        def lossy(graphs, dense, output_beam, **options):
            lost = bool((graphs.graph_arc == arc).any()) and output_beam < below
            searched.append((graphs.shape[0], output_beam))
            if lost:
                raise ValueError("The fsas have invalid properties")
            return intersect(graphs, dense, output_beam=output_beam, **options)

        monkeypatch.setattr(k2, "intersect_dense", lossy)
        return searched

    return set_up


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.__name__)
def test_one_lattice_that_k2_refuses_is_found_with_a_wider_beam(search, case, refusing):
    expected = answers(search, case)
    graphs = case.graphs()
    first_arc_of_the_third = int(arc_row_splits(graphs)[2])
    searched = refusing(first_arc_of_the_third, below=500.0)
    found = answers(search, case)
    for one, other in zip(found, expected):
        assert torch.allclose(one, other, atol=1e-5)
    # All, halves down to the one, and this one alone with wider beams.
    assert searched[0] == (4, BEAM)
    assert [beam for number, beam in searched if number == 1 and beam > BEAM] == [1e3]


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.__name__)
def test_what_k2_always_refuses_has_no_path_and_the_others_are_unharmed(search, case, refusing):
    expected = answers(search, case)
    refusing(int(arc_row_splits(case.graphs())[2]), below=float("inf"))
    found = answers(search, case)
    for index in (0, 1, 3, 4):
        assert torch.allclose(found[index], expected[index], atol=1e-6)
    assert not torch.equal(found[2], expected[2])
