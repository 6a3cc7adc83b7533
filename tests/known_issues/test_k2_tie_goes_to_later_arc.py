"""Among paths of equal score k2 takes the arc that comes later.

So the arcs of the mispronounced branch must come before those of the correct one at every state:
where nothing speaks for a mispronunciation, none is reported.
"""

from __future__ import annotations

import k2
import pytest
import torch

from mlvae.fsa import MlFsaCompiler, best_path


def test_k2_takes_the_later_arc(device):
    dense = k2.DenseFsaVec(
        torch.zeros(1, 1, 3, device=device), torch.tensor([[0, 0, 1]], dtype=torch.int32)
    )
    for first, second in ((1, 2), (2, 1)):
        graph = k2.Fsa.from_str(f"0 1 {first} 0\n0 1 {second} 0\n1 2 -1 0\n2")
        graphs = k2.create_fsa_vec([graph]).to(device)
        path = k2.shortest_path(k2.intersect_dense(graphs, dense, output_beam=1), True)
        assert path.labels.tolist() == [second, -1]


@pytest.mark.parametrize("topology", ["ml", "substitution"])
@pytest.mark.parametrize("num_states", [1, 2])
@pytest.mark.parametrize(
    "options", [{}, {"silence": True}, {"deletions": True, "insertions": True}]
)
def test_correct_arcs_come_later(topology, num_states, options):
    """Of each unit, among the arcs that enter a state with the same past.

    k2 goes through arcs by source state, so the states of the correct branch must be later, too.
    """
    compiler = MlFsaCompiler(2, topology, states_per_unit=num_states, **options)
    # One utterance: slots are numbered within utterances.
    graphs = compiler.compile([[[[0, 1], [1]], [[1], [1, 0]]]])
    names = ("unit_pos", "is_start", "deleted_pos", "deleted_before_pos", "is_mispronounced")
    groups, states = {}, {}
    for (source, target, _, _), slot, starts, *deleted, wrong in zip(
        graphs.arcs.values().tolist(), *(getattr(graphs, name).tolist() for name in names)
    ):
        if slot >= 0:
            past = (source, *deleted) if starts else ()
            groups.setdefault((slot, target, *past), []).append(wrong)
            # Without junctions the branches of a unit have no state in common to end in; what
            # follows comes from the states of both.
            states.setdefault(slot, {True: set(), False: set()})[bool(wrong)].add(target)
    direct = topology == "ml" and not options
    assert direct or any(len(set(group)) == 2 for group in groups.values())
    for key, group in groups.items():
        assert group == sorted(group, reverse=True), key
    for of_slot in states.values() if direct else ():
        assert max(of_slot[True]) < min(of_slot[False])


@pytest.mark.parametrize("topology", ["ml", "substitution"])
def test_undecided_scores_report_nothing(topology, device):
    """All words, pronunciations, cuts and branches score the same."""
    compiler = MlFsaCompiler(2, topology)
    half = torch.full((1, 7, 2), 0.5, device=device).log()
    emissions = compiler.emissions(
        half, torch.tensor([7]), log_prior=half[0, 0], log_boundary=half, log_correctness=half
    )
    for utterance in ([0, 1, 1], [[[0, 1], [1]], [[1], [1, 0]]]):
        (spans,) = best_path(compiler.compile([utterance]), emissions)
        assert not any(span.mispronounced for span in spans)
