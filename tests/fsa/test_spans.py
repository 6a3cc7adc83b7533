"""Whatever the scores: spans tile the utterance, and each canonical unit has one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlvae.fsa import MlFsaCompiler, best_path, too_short, total_scores
from tests.fsa.cases import NUM_UNITS


@st.composite
def utterances(draw):
    """A batch of unit lists, or of words with pronunciations."""
    unit_list = st.lists(st.integers(0, NUM_UNITS - 1), min_size=1, max_size=6)
    if draw(st.booleans()):
        return draw(st.lists(unit_list, min_size=1))
    word = st.lists(st.lists(st.integers(0, NUM_UNITS - 1), min_size=1, max_size=3), min_size=1)
    return draw(st.lists(st.lists(word, min_size=1, max_size=3), min_size=1, max_size=4))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    units=utterances(),
    seed=st.integers(0, 2**31 - 1),
    topology=st.sampled_from(["single", "ml", "substitution"]),
    states=st.integers(1, 3),
    silence=st.booleans(),
    deletions=st.booleans(),
    insertions=st.booleans(),
    data=st.data(),
)
def test_spans_tile_the_utterance(
    units, seed, topology, states, silence, deletions, insertions, data, device
):
    compiler = MlFsaCompiler(
        NUM_UNITS,
        topology,
        states_per_unit=states,
        silence=silence,
        deletions=deletions,
        insertions=insertions,
        deletion_rate=0.5,
        insertion_rate=0.5,
    )
    num_frames = torch.tensor([data.draw(st.integers(0, 24)) for _ in units])
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(len(units), 24, compiler.layout.num_posteriors, generator=generator)
    emissions = compiler.emissions(scores.log_softmax(-1).to(device), num_frames)
    graphs = compiler.compile(units)
    short = too_short(graphs, emissions)
    best = total_scores(graphs, emissions, log_semiring=False).tolist()
    for index, spans in enumerate(best_path(graphs, emissions)):
        if index in short:
            assert spans == []
            continue
        _check_units(spans, units[index])
        assert spans[0].start == 0
        assert spans[-1].end == num_frames[index]
        for previous, span in zip(spans, spans[1:]):
            assert previous.end == span.start
        assert sum(span.score for span in spans) == pytest.approx(best[index], abs=1e-3)
        run = 0
        for span in spans:
            run = run + 1 if span.is_deletion else 0
            assert run <= (2 if deletions else 0)
            enough = states
            if span.kind != "unit" or (topology == "ml" and span.mispronounced):
                enough = 1
            assert span.is_deletion or span.end - span.start >= enough
            assert span.kind in ("unit", *["silence"] * silence, *["insertion"] * insertions)
            if span.mispronounced:
                assert span.perceived == -1 or topology == "substitution"
                assert span.kind == "unit" and span.perceived != span.unit
            elif span.kind == "unit":
                assert span.perceived == span.unit
            else:
                assert (span.unit, span.perceived, span.word, span.slot) == (-1, -1, -1, -1)


def _check_units(spans, utterance) -> None:
    """There is one span for each unit of one choice of pronunciations, with its numbers."""
    found = [span for span in spans if span.kind == "unit"]
    assert [span.position for span in found] == list(range(len(found)))
    if isinstance(utterance[0], int):
        assert [(span.unit, span.word, span.slot) for span in found] == [
            (unit, position, position) for position, unit in enumerate(utterance)
        ]
        return
    slots = []
    for index, word in enumerate(utterance):
        for pronunciation in dict.fromkeys(map(tuple, word)):
            slots += [(unit, index) for unit in pronunciation]
    for index, word in enumerate(utterance):
        mine = [span for span in found if span.word == index]
        assert [span.unit for span in mine] in word
        first = mine[0].slot
        assert [span.slot for span in mine] == list(range(first, first + len(mine)))
    for span in found:
        assert slots[span.slot] == (span.unit, span.word)
