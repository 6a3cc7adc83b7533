"""Free recognition against every sequence of units that a tiny utterance can hold."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations

import pytest
import torch

from mlvae.fsa import MlFsaCompiler, best_columns, best_path, total_scores, unit_loop

NUM_UNITS = 2
RATE = 0.3


def sequences(frames: int, states: int, silence: bool, start: int = 0) -> Iterator[list[tuple]]:
    """All ways to fill frames ``start`` to ``frames``: (unit, columns by frame), -1 for silence."""
    if start == frames:
        yield []
        return
    if silence:
        for rest in sequences(frames, states, silence, start + 1):
            yield [(-1, [NUM_UNITS * states]), *rest]
    for length in range(states, frames - start + 1):
        for edges in combinations(range(1, length), states - 1):
            bounds = [0, *edges, length]
            for unit in range(NUM_UNITS):
                columns = [
                    unit * states + state
                    for state in range(states)
                    for _ in range(bounds[state + 1] - bounds[state])
                ]
                for rest in sequences(frames, states, silence, start + length):
                    yield [(unit, columns), *rest]


def score(sequence: list[tuple], log_q: torch.Tensor, prior: list[float], insertion: float):
    total, frame = 0.0, 0
    for unit, columns in sequence:
        for place, column in enumerate(columns):
            total += float(log_q[frame, column]) - prior[column]
            starts = unit >= 0 and place == 0
            if frame > 0:
                total += math.log(RATE if starts else 1 - RATE)
            total += insertion if starts else 0.0
            frame += 1
    return total


@pytest.mark.parametrize("insertion", [0.0, -1.5])
@pytest.mark.parametrize(("states", "silence"), [(1, False), (1, True), (2, False), (3, True)])
def test_best_path_and_total_score_are_those_of_all_sequences(states, silence, insertion):
    torch.manual_seed(states)
    compiler = MlFsaCompiler(NUM_UNITS, "single", states_per_unit=states, silence=silence)
    columns = compiler.layout.num_posteriors
    num_frames = torch.tensor([4, 6, 3])
    log_q = (2 * torch.randn(3, 6, columns)).log_softmax(2)
    prior = torch.randn(columns).log_softmax(0)
    boundary = torch.tensor([1 - RATE, RATE]).log().expand(3, 6, 2)
    emissions = compiler.emissions(log_q, num_frames, log_prior=prior, log_boundary=boundary)
    loops = unit_loop(compiler.layout, 3, insertion)
    found = best_path(loops, emissions)
    totals = total_scores(loops, emissions, output_beam=1e4)
    columns_found = best_columns(loops, emissions)
    for index, length in enumerate(num_frames.tolist()):
        every = list(sequences(length, states, silence))
        scores = [score(each, log_q[index], prior.tolist(), insertion) for each in every]
        best = every[max(range(len(every)), key=scores.__getitem__)]
        assert sum(span.score for span in found[index]) == pytest.approx(max(scores), abs=1e-4)
        sums = torch.tensor(scores, dtype=torch.float64).logsumexp(0)
        assert float(totals[index]) == pytest.approx(float(sums), abs=1e-3)
        expected = [(unit, len(row)) for unit, row in best if unit >= 0]
        units = [span for span in found[index] if span.kind == "unit"]
        assert [(span.unit, span.end - span.start) for span in units] == expected
        assert [span.position for span in units] == list(range(len(units)))
        assert all(span.perceived == span.unit and not span.mispronounced for span in units)
        bounds = [0, *(span.end for span in found[index])]
        assert bounds == [*(span.start for span in found[index]), length]
        frames = [column for _, row in best for column in row]
        assert columns_found[index, :length].tolist() == frames


def test_equal_neighbours_stay_apart():
    compiler = MlFsaCompiler(NUM_UNITS, "single", states_per_unit=2)
    log_q = torch.full((1, 6, 4), -9.0)
    for frame, column in enumerate([0, 0, 1, 0, 1, 1]):
        log_q[0, frame, column] = 0.0
    emissions = compiler.emissions(log_q, torch.tensor([6]))
    (spans,) = best_path(unit_loop(compiler.layout, 1), emissions)
    assert [(span.unit, span.start, span.end) for span in spans] == [(0, 0, 3), (0, 3, 6)]


def test_a_higher_insertion_score_never_means_fewer_units():
    torch.manual_seed(0)
    compiler = MlFsaCompiler(3, "single", states_per_unit=2)
    log_q = torch.randn(4, 40, 6).log_softmax(2)
    emissions = compiler.emissions(log_q, torch.tensor([40, 31, 17, 24]))
    counts = [
        sum(map(len, best_path(unit_loop(compiler.layout, 4, value), emissions)))
        for value in (-30.0, -4.0, -1.0, 0.0, 2.0, 30.0)
    ]
    assert counts == sorted(counts)
    assert counts[0] == 4  # without silence one unit fills an utterance
    assert counts[-1] == 20 + 15 + 8 + 12  # as many as have room


def test_what_has_no_room_for_a_unit_is_too_short():
    compiler = MlFsaCompiler(NUM_UNITS, "single", states_per_unit=3)
    log_q = torch.zeros(2, 3, 6).log_softmax(2)
    emissions = compiler.emissions(log_q, torch.tensor([2, 3]))
    short, found = best_path(unit_loop(compiler.layout, 2), emissions)
    assert (len(short), len(found)) == (0, 1)


@pytest.mark.parametrize(
    ("options", "count", "insertion", "message"),
    [
        ({"topology": "ml"}, 1, 0.0, "goes with topology single without insertions"),
        ({"topology": "single", "insertions": True}, 1, 0.0, "without insertions"),
        ({"topology": "single"}, 0, 0.0, "num_utterances must be at least 1, not 0"),
        ({"topology": "single"}, 1, math.inf, "insertion_score must be finite, not inf"),
    ],
)
def test_what_does_not_go_is_refused(options, count, insertion, message):
    with pytest.raises(ValueError, match=message):
        unit_loop(MlFsaCompiler(3, **options).layout, count, insertion)
