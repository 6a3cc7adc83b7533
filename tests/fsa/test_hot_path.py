"""What a search does for each batch, and not for each utterance, frame or arc.

On a GPU each copy to the CPU waits for all that was begun, and on either device a loop of Python
takes longer than the search.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import mlvae.fsa
from mlvae.fsa import MlFsaCompiler, best_columns, best_path, search, total_scores
from tests.fsa.pretended_gpu import PRETENDED, pretended_gpu

DETOURS = dict(states_per_unit=2, silence=True, deletions=True, insertions=True)
KINDS = {
    "single": dict(topology="single"),
    "ml": dict(topology="ml"),
    "substitution": dict(topology="substitution", **DETOURS),
}
#: Waits for the GPU in a search: two of checks, two of sizes and three of results; and some more
#: where a wider beam is tried.
MOST_WAITS = 12
#: And to read graphs that lie there: checks, sizes and attributes.
MORE_WAITS = 9
#: Lines of Python that a wider beam, or k2's shortest path where a lattice has a choice, may take.
MORE_LINES = 500
NUM_UNITS = 14


@pytest.fixture(autouse=True)
def whole_batches(monkeypatch):
    """Batches are not cut in parts, as on a GPU; on the CPU they are, for the sake of its cache."""
    monkeypatch.setattr(search, "parts", search.stretches)


def batch(utterances: int, frames: int, units: int, kind: str, competitors: int = 3):
    """A compiler, units, and inputs of emissions, with all of the optional ones."""
    options = dict(KINDS[kind])
    if options["topology"] == "substitution":
        options["competitors"] = [
            [(unit + 1 + step) % NUM_UNITS for step in range(competitors)]
            for unit in range(NUM_UNITS)
        ]
    compiler = MlFsaCompiler(NUM_UNITS, **options)
    generator = torch.Generator().manual_seed(utterances + frames)

    def log_probs(*shape: int) -> torch.Tensor:
        return (3.0 * torch.randn(*shape, generator=generator)).log_softmax(-1)

    lists = [
        [(3 * place + index) % NUM_UNITS for place in range(units)] for index in range(utterances)
    ]
    inputs = dict(
        log_posteriors=log_probs(utterances, frames, compiler.layout.num_posteriors),
        log_prior=log_probs(compiler.layout.num_posteriors),
        log_boundary=log_probs(utterances, frames, 2),
        log_correctness=log_probs(utterances, frames, 2),
    )
    lengths = torch.tensor([frames - index % 3 for index in range(utterances)])
    return compiler, lists, lengths, inputs


@pytest.mark.parametrize("compiled", ["cpu", PRETENDED], ids=["graphs on CPU", "graphs on GPU"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(2, 30, 3), (40, 30, 3), (2, 300, 3), (2, 60, 25)])
def test_a_search_on_a_gpu_waits_a_few_times(size, kind, compiled):
    compiler, units, lengths, inputs = batch(*size, kind)
    expected = best_path(compiler.compile(units), compiler.emissions(num_frames=lengths, **inputs))
    assert all(expected)
    graphs = compiler.compile(units)
    with pretended_gpu() as gpu, torch.no_grad():
        graphs = graphs.to(compiled)
        moved = {name: values.to(PRETENDED) for name, values in inputs.items()}
        emissions = compiler.emissions(num_frames=lengths, **moved)
        assert emissions.device == PRETENDED
        found = best_path(graphs, emissions)
    assert gpu.wrong == []
    most = MOST_WAITS + MORE_WAITS * (compiled == PRETENDED)
    assert 3 <= sum(gpu.waits.values()) <= most, gpu.waits
    assert found == expected


@pytest.mark.parametrize("kind", KINDS)
def test_columns_and_scores_of_best_paths_are_found_there(kind):
    compiler, units, lengths, inputs = batch(5, 40, 4, kind)
    graphs = compiler.compile(units)
    emissions = compiler.emissions(num_frames=lengths, **inputs)
    columns, scores = best_columns(graphs, emissions), total_scores(graphs, emissions, False)
    with pretended_gpu() as gpu, torch.no_grad():
        moved = {name: values.to(PRETENDED) for name, values in inputs.items()}
        emissions = compiler.emissions(num_frames=lengths, **moved)
        assert best_columns(graphs, emissions).equal(columns)
        there = total_scores(graphs, emissions, log_semiring=False)
        assert there.device == PRETENDED and gpu.wrong == []
    assert torch.equal(there, scores)


def test_the_pretended_gpu_knows_what_waits_and_what_fails():
    with pretended_gpu() as gpu:
        there = torch.arange(4.0).to(PRETENDED)
        assert there.device == (there + 1)[1:].device == there.new_zeros(1).device == PRETENDED
        assert torch.zeros(4).device == there.cpu().device == torch.zeros(4, device="cpu").device
        before = sum(gpu.waits.values())
        there[there > 1]
        bool((there > 1).all())
        there.tolist()
        assert sum(gpu.waits.values()) == before + 3
        for number, fails in enumerate(
            (lambda: there + torch.zeros(4), there.numpy, lambda: torch.zeros(4)[there.long()]), 1
        ):
            fails()
            assert len(gpu.wrong) == number


def lines_of(function) -> int:
    """Lines of this package and of k2 that Python runs within a call, loops counted each time."""
    folders = tuple(str(Path(one.__file__).parent) for one in (mlvae.fsa, search.k2))
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        if not frame.f_code.co_filename.startswith(folders):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("kind", KINDS)
def test_no_loop_of_python_is_over_frames_or_arcs(kind):
    def lines(frames: int, competitors: int) -> int:
        compiler, units, lengths, inputs = batch(4, frames, 6, kind, competitors)

        def e_step() -> None:
            graphs = compiler.compile(units)
            best_path(graphs, compiler.emissions(num_frames=lengths, **inputs))

        return lines_of(e_step)

    few = lines(40, 2)
    assert few > 100
    assert lines(2000, 2) < few + MORE_LINES
    assert lines(40, 12) < few + MORE_LINES


@pytest.mark.parametrize("kind", KINDS)
def test_no_loop_of_python_is_over_units_in_a_search(kind):
    def lines(units: int) -> int:
        compiler, utterances, lengths, inputs = batch(4, 700, units, kind)
        graphs = compiler.compile(utterances)
        emissions = compiler.emissions(num_frames=lengths, **inputs)
        return lines_of(lambda: best_path(graphs, emissions))

    assert lines(300) < lines(3) + MORE_LINES
