"""Best paths, posteriors and total scores are those of listing every path."""

from __future__ import annotations

import zlib

import pytest
import torch

from mlvae.fsa import best_path, posteriors, search, too_short, total_scores
from tests.fsa import brute_force
from tests.fsa.cases import INPUTS, random_case

# Wide enough for sums over all paths.
ALL = 1e4


@pytest.fixture(params=["single", "ml"])
def topology(request):
    return request.param


@pytest.fixture(params=[1, 2, 3], ids="{}-state".format)
def states(request):
    return request.param


@pytest.fixture(params=[False, True, "everywhere"], ids=["", "silence", "everywhere"])
def silence(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["units", "words"])
def alternatives(request):
    return request.param


@pytest.fixture(params=list(INPUTS))
def inputs(request):
    return request.param


def test_all_answers(topology, states, silence, alternatives, inputs, device):
    settings = (topology, states, silence, alternatives, inputs)
    case = random_case(zlib.crc32(repr(settings).encode()), *settings, batch=6)
    _check_all(case, device)


@pytest.mark.parametrize("insertions", [False, True], ids=["", "insertions"])
@pytest.mark.parametrize("deletions", [False, True], ids=["", "deletions"])
@pytest.mark.parametrize("topology", ["single", "ml", "substitution"])
def test_all_answers_with_detours(
    topology, deletions, insertions, states, silence, alternatives, device
):
    """Substitution, units left out and sounds of no unit, each with everything else."""
    settings = (topology, states, silence, alternatives)
    seed = zlib.crc32(repr((*settings, deletions, insertions)).encode())
    case = random_case(
        seed,
        *settings,
        inputs=list(INPUTS)[seed % len(INPUTS)],
        competitors=("all", "lists", "table")[seed % 3],
        num_units=3,
        max_frames=4 if bool(silence) + deletions + insertions > 1 else 5,
        deletions=deletions,
        insertions=insertions,
    )
    _check_all(case, device)


def _check_all(case, device) -> None:
    graphs, emissions = case.graphs(device), case.emissions(device)
    paths = best_path(graphs, emissions)
    probabilities = posteriors(graphs, emissions, frames=True, output_beam=ALL)
    totals = total_scores(graphs, emissions, output_beam=ALL)
    bests = total_scores(graphs, emissions, log_semiring=False)
    assert totals.device.type == bests.device.type == torch.device(device).type
    short = []
    for index in range(len(case.utterances)):
        hypotheses = case.hypotheses(index)
        if not hypotheses:
            short.append(index)
            assert paths[index] == []
            assert len(probabilities[index].used) == 0
            assert totals[index] == bests[index] == -torch.inf
            continue
        answer = case.answer(index)
        _check_path(paths[index], hypotheses, answer)
        _check_posteriors(probabilities[index], answer, case.words[index])
        assert float(totals[index]) == pytest.approx(answer.total, abs=2e-4)
        assert float(bests[index]) == pytest.approx(answer.best, abs=2e-4)
    assert too_short(graphs, emissions) == short


def _check_path(spans, hypotheses, answer) -> None:
    """The path is one of the best hypotheses: several may have the same score."""
    assert sum(span.score for span in spans) == pytest.approx(answer.best, abs=2e-4)
    found = [
        (s.kind, s.unit, s.mispronounced, s.perceived, s.start, s.end, s.word, s.slot)
        for s in spans
    ]
    near = [h for h in hypotheses if h.score > answer.best - 2e-4]
    same = [h for h in near if [tuple(segment[:-1]) for segment in h.segments] == found]
    assert same, (found, near)
    for span, score in zip(spans, _span_scores(max(same).segments)):
        assert span.score == pytest.approx(score, abs=2e-4)
    units = [span for span in spans if span.kind == "unit"]
    assert [span.position for span in units] == list(range(len(units)))
    for span in spans:
        assert span.is_deletion == (span.start == span.end)
        if span.kind != "unit":
            assert span[:2] == (-1, -1)


def _span_scores(segments) -> list[float]:
    """What units left out cost is charged to the sound after them, if there is one."""
    scores, owed = [], 0.0
    for index, segment in enumerate(segments):
        if segment.deleted and index + 1 < len(segments):
            owed += segment.score
            scores.append(0.0)
        else:
            scores.append(segment.score + owed)
            owed = 0.0
    return scores


def _check_posteriors(found, answer, words) -> None:
    def close(values, expected):
        expected = torch.tensor(expected, dtype=torch.float64)
        torch.testing.assert_close(values, expected, atol=1e-4, rtol=0)

    close(found.used, answer.used)
    close(found.mispronounced, answer.mispronounced)
    close(found.deleted, answer.deleted)
    close(found.perceived, answer.perceived)
    close(found.occupancy, answer.occupancy)
    close(found.frame_mispronounced, answer.frame_mispronounced)
    slots = []
    for index, word in enumerate(words):
        for units in dict.fromkeys(map(tuple, word)):
            slots += [(unit, index) for unit in units]
    assert list(zip(found.unit.tolist(), found.word.tolist())) == slots


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "options",
    [{}, {"topology": "single", "silence": True, "insertions": True}],
    ids=["ml", "insertions"],
)
def test_peaky_posteriors_meet_the_floor(options, seed, device):
    """Estimators that are all but sure: the floors of "not c" and of "any unit" decide."""
    case = random_case(seed, batch=6, spread=14.0, max_frames=5, **options)
    graphs, emissions = case.graphs(device), case.emissions(device)
    paths = best_path(graphs, emissions)
    probabilities = posteriors(graphs, emissions, frames=True, output_beam=ALL)
    for index in range(len(case.utterances)):
        hypotheses = case.hypotheses(index)
        answer = case.answer(index)
        _check_path(paths[index], hypotheses, answer)
        _check_posteriors(probabilities[index], answer, case.words[index])


@pytest.mark.parametrize("topology", ["single", "ml", "substitution"])
@pytest.mark.parametrize("detours", [False, True])
def test_default_beam_of_posteriors_is_wide_enough(topology, detours, device):
    """What the default leaves out of the sums does not show in probabilities."""
    for seed in range(10):
        case = random_case(
            seed,
            topology,
            silence=True,
            batch=8,
            max_frames=24,
            max_units=7,
            deletions=detours,
            insertions=detours,
        )
        graphs, emissions = case.graphs(device), case.emissions(device)
        torch.testing.assert_close(
            total_scores(graphs, emissions),
            total_scores(graphs, emissions, output_beam=ALL),
            atol=1e-3,
            rtol=0,
        )
        for found, exact in zip(
            posteriors(graphs, emissions), posteriors(graphs, emissions, output_beam=ALL)
        ):
            torch.testing.assert_close(found.mispronounced, exact.mispronounced, atol=1e-3, rtol=0)


def test_reference_counts_paths_as_combinatorics_does():
    """Two units in T frames: T - 1 cuts times four choices of branch, all equally likely."""
    row = [0.0] * 4
    model = brute_force.Model(num_units=4, states=1, posteriors=[row] * 5)
    assert len(brute_force.hypotheses([[[0]], [[1]]], 5, model)) == 4 * 4
    model.has_silence = True
    one_unit = brute_force.hypotheses([[[0]]], 5, model)
    # A stretch of 1 to 5 frames anywhere: 15, each said in one of two ways.
    assert len(one_unit) == 2 * 15


@pytest.mark.parametrize("name", ["ml", "single", "substitution"])
@pytest.mark.parametrize("detours", [False, True])
def test_narrow_beam_finds_the_best_of_many_random_batches(name, detours, device, monkeypatch):
    """best_path searches with a narrow beam; the answer is that of an unpruned search."""
    for seed in range(20):
        case = random_case(
            seed,
            name,
            silence=detours,
            batch=8,
            max_frames=24,
            max_units=7,
            inputs="boundary and correctness",
            deletions=detours,
            insertions=detours,
        )
        graphs, emissions = case.graphs(device), case.emissions(device)
        narrow = best_path(graphs, emissions)
        with monkeypatch.context() as patch:
            patch.setattr(search, "BEST_PATH_BEAM", ALL)
            assert best_path(graphs, emissions) == narrow
