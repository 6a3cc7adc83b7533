"""The posterior column of each frame on the best path, which training takes for its target."""

from __future__ import annotations

import pytest
import torch

from mlvae.fsa import best_columns, best_path
from tests.fsa.cases import random_case


@pytest.mark.parametrize("topology", ["single", "ml", "substitution"])
@pytest.mark.parametrize("states", [1, 2, 3])
@pytest.mark.parametrize("silence", [False, True])
@pytest.mark.parametrize("detours", [False, True])
def test_columns_spell_out_the_spans(topology, states, silence, detours, device):
    """Those of what was heard; -1 where that cannot be said."""
    case = random_case(
        31,
        topology,
        states,
        silence,
        batch=8,
        max_frames=16,
        inputs="prior",
        skip=detours,
        filler=detours,
    )
    case.num_frames[2] = 0
    graphs, emissions = case.graphs(), case.emissions(device)
    columns = best_columns(graphs, emissions)
    assert columns.dtype == torch.int64
    assert columns.shape == (8, int(case.num_frames.max()))
    silence_column = case.compiler.layout.num_states
    for index, spans in enumerate(best_path(graphs, emissions)):
        end = spans[-1].end if spans else 0
        assert columns[index, end:].eq(-1).all()
        model = case.model(index)
        for span in spans:
            inside = columns[index, span.start : span.end].tolist()
            if span.kind == "silence":
                assert set(inside) == {silence_column}
            elif span.heard == -1:
                assert set(inside) <= {-1}
            else:
                # Every state of the unit, in order, and these are the ones that score best.
                assert sorted(inside) == inside
                assert sorted(set(inside)) == [span.heard * states + s for s in range(states)]
                if detours:
                    continue  # the score may hold that of units left out before
                score = 0.0
                if topology != "single":
                    score = model.log_pi(span.start, wrong=span.mispronounced)
                if span.mispronounced:
                    score += case.confusion[span.unit][span.heard]
                for frame, column in enumerate(inside, start=span.start):
                    score += model.correct(frame, span.heard, column % states)
                    score += model.log_b(frame, starts=frame == span.start)
                assert score == pytest.approx(span.score, abs=1e-4)
