"""Among paths of equal score k2 takes the arc that comes later.

So the arcs of the mispronounced branch must come before those of the correct one at every state:
where nothing speaks for a mispronunciation, none is reported.
"""

from __future__ import annotations

import k2
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


def test_correct_arcs_come_later():
    """At every state, and into every state: later among leaving and among entering arcs."""
    words = [[[[0, 1], [1]], [[1], [1, 0]]]]
    for states in (1, 2):
        for silence in (False, True):
            compiler = MlFsaCompiler(2, "ml", states_per_unit=states, silence=silence)
            graphs = compiler.compile(words)
            arcs = graphs.arcs.values().tolist()
            wrong = graphs.is_mispronounced.tolist()
            slot = graphs.unit_pos.tolist()
            starts = graphs.is_start.tolist()
            entered = {}
            for index, (source, _, _, _) in enumerate(arcs):
                if starts[index]:
                    entered.setdefault((source, slot[index]), []).append(wrong[index])
            assert entered
            assert all(kinds == [1, 0] for kinds in entered.values())


def test_undecided_scores_report_nothing(device):
    """All words, pronunciations, cuts and branches score the same."""
    compiler = MlFsaCompiler(2, "ml")
    half = torch.full((1, 7, 2), 0.5, device=device).log()
    emissions = compiler.emissions(
        half, torch.tensor([7]), log_prior=half[0, 0], log_boundary=half, log_correctness=half
    )
    for utterance in ([0, 1, 1], [[[0, 1], [1]], [[1], [1, 0]]]):
        (spans,) = best_path(compiler.compile([utterance]), emissions)
        assert not any(span.mispronounced for span in spans)
