"""The graphs themselves, and what a caller may do with them between compiling and searching."""

from __future__ import annotations

import logging
import math

import k2
import numpy as np
import pytest
import torch

from mlvae.fsa import MlFsaCompiler, best_path, posteriors, search, total_scores
from mlvae.fsa.layout import ARC_ATTRIBUTES
from tests.fsa.cases import NUM_UNITS, random_case


def _arcs(graph: k2.Fsa) -> list[str]:
    """Lines of k2's text form, sorted: source, target, label, score."""
    return sorted(" ".join(line.split()) for line in k2.to_str_simple(graph).strip().split("\n"))


def _sorted(text: str) -> list[str]:
    return sorted(text.split("; "))


def test_single_is_a_chain():
    """Unit 1, then unit 0, of two states each.

    ::

             start(1)     hold(1,1)     start(0)     hold(0,1)
          (0)------->(1)----------->(2)-------->(3)----------->(4)---->((5))
                     (_) hold(1,0)  (_)         (_) hold(0,0)  (_)
                                    hold(1,1)                  hold(0,1)

    Columns 1 to 8 are hold(unit, state), 9 to 12 start(unit).
    """
    graphs = MlFsaCompiler(4, "single", states_per_unit=2).compile([[1, 0]])
    assert _arcs(graphs[0]) == _sorted(
        "0 1 10 0; 1 1 3 0; 1 2 4 0; 2 2 4 0; 2 3 9 0; 3 3 1 0; 3 4 2 0; 4 4 2 0; 4 5 -1 0; 5"
    )


def test_ml_has_two_branches_a_unit():
    """State 1 is "not 2" and state 2 is unit 2.

    Columns 1 to 3 are hold(unit), 4 to 6 start(unit), 7 to 9 start_mismatch(unit), 10 to 12
    hold_mismatch(unit).
    """
    graphs = MlFsaCompiler(3, "ml").compile([[2]])
    assert _arcs(graphs[0]) == _sorted("0 1 9 0; 1 1 12 0; 0 2 6 0; 2 2 3 0; 1 3 -1 0; 2 3 -1 0; 3")
    names = ("unit_pos", "unit", "perceived", "kind", "is_start", "is_mispronounced", "num_deleted")
    by_label = {
        int(label): tuple(int(getattr(graphs, name)[arc]) for name in names)
        for arc, label in enumerate(graphs.labels)
    }
    assert by_label == {
        9: (0, 2, -1, 0, 1, 1, 0),
        6: (0, 2, 2, 0, 1, 0, 0),
        12: (0, 2, -1, 0, 0, 1, 0),
        3: (0, 2, 2, 0, 0, 0, 0),
        -1: (-1, -1, -1, -1, 0, 0, 0),
    }


def test_substitution_has_a_branch_a_competitor():
    """Unit 2 may be spoken as 0, with log-probability -1, or as 1, with -2.

    Columns 1 to 3 are hold(unit), 4 to 6 start(unit), 7 to 9 start_mismatch(unit).
    """
    table = torch.full((3, 3), -torch.inf)
    table[2, :2] = torch.tensor([-1.0, -2.0])
    graphs = MlFsaCompiler(3, "substitution", competitors=table).compile([[2], [1]])
    assert _arcs(graphs[0]) == _sorted(
        "0 2 7 -1; 0 1 7 -1; 2 2 1 0; 2 1 1 0; 0 3 8 -2; 0 1 8 -2; 3 3 2 0; 3 1 2 0; "
        "0 4 6 0; 0 1 6 0; 4 4 3 0; 4 1 3 0; 1 5 -1 0; 5"
    )
    assert _arcs(graphs[1]) == _sorted("0 2 5 0; 0 1 5 0; 2 2 2 0; 2 1 2 0; 1 3 -1 0; 3")
    perceived = {int(a[2]): int(b) for a, b in zip(graphs.arcs.values(), graphs.perceived)}
    assert perceived == {7: 0, 1: 0, 8: 1, 2: 1, 6: 2, 3: 2, 5: 1, -1: -1}


def test_silence_is_a_loop_on_junctions_between_words():
    """One word of two units: silence (column 0) at the edges 0 and 1, not inside at 2."""
    graphs = MlFsaCompiler(2, "single", silence=True).compile([[[[0, 1]]]])
    assert _arcs(graphs[0]) == _sorted(
        "0 0 0 0; 0 3 3 0; 0 2 3 0; 3 3 1 0; 3 2 1 0; "
        "2 4 4 0; 2 1 4 0; 4 4 2 0; 4 1 2 0; 1 1 0 0; 1 5 -1 0; 5"
    )
    silent = graphs.labels == 0
    assert graphs.kind[silent].eq(1).all()
    assert not graphs.is_start[silent].any()


def test_deletions_are_arcs_past_units():
    """Three units; the odds of a deletion are 1 to e: leaving out n units scores -n."""
    rate = 1 / (1 + math.e)
    graphs = MlFsaCompiler(3, "single", deletions=True, deletion_rate=rate).compile([[0, 1, 2]])
    arcs = [
        (*arc[:3], round(float(score), 5), *rest)
        for arc, score, *rest in zip(
            graphs.arcs.values().tolist(),
            graphs.scores,
            graphs.deleted_before_pos.tolist(),
            graphs.deleted_pos.tolist(),
            graphs.num_deleted.tolist(),
        )
    ]
    # Source, target, column, score, units left out (-1: none) and their number.
    assert [arc for arc in arcs if arc[-1]] == [
        (0, 5, 5, -1.0, -1, 0, 1),
        (0, 2, 5, -1.0, -1, 0, 1),
        (0, 6, 6, -2.0, 0, 1, 2),
        (0, 3, 6, -2.0, 0, 1, 2),
        (1, 6, 6, -1.0, -1, 1, 1),
        (1, 3, 6, -1.0, -1, 1, 1),
        (1, 7, -1, -2.0, 1, 2, 2),
        (2, 7, -1, -1.0, -1, 2, 1),
    ]
    # Each unit has an arc in, one to stay, one out and one for a single frame; and there is an end.
    assert len(arcs) - 8 == 3 * 4 + 1


def test_insertions_stand_beside_junctions():
    """Columns 3 and 4 are start and hold of an insertion; its odds are 1 to e."""
    rate = 1 / (1 + math.e)
    graphs = MlFsaCompiler(1, "single", insertions=True, insertion_rate=rate).compile([[0]])
    assert _arcs(graphs[0]) == _sorted(
        "0 2 2 0; 0 1 2 0; 2 2 1 0; 2 1 1 0; 1 5 -1 0; 5; "
        "0 3 3 -1; 0 0 3 -1; 3 3 4 0; 3 0 4 0; 1 4 3 -1; 1 1 3 -1; 4 4 4 0; 4 1 4 0"
    )


@pytest.mark.parametrize("deletions", [False, True])
@pytest.mark.parametrize("detours", [{}, {"silence": True, "insertions": True}])
def test_arcs_grow_linearly(detours, deletions):
    """Competitors, states and units each add a constant number of arcs."""

    def arcs(units, states, competitors):
        lists = [[(unit + i) % 9 for i in range(1, competitors + 1)] for unit in range(9)]
        compiler = MlFsaCompiler(
            9, "substitution", states, deletions=deletions, competitors=lists, **detours
        )
        return compiler.compile([[unit % 9 for unit in range(units)]]).num_arcs

    steps = [
        np.diff([arcs(units, 2, 3) for units in range(3, 9)]),
        # A unit of one state may last one frame, which takes arcs of their own.
        np.diff([arcs(5, states, 3) for states in range(2, 7)]),
        np.diff([arcs(5, 2, competitors) for competitors in range(9)]),
        np.diff([arcs(5, 1, competitors) for competitors in range(9)]),
    ]
    for step in steps:
        assert len(set(step.tolist())) == 1, steps


def test_graphs_are_valid_k2():
    """Arcs are sorted by state, all states are of use, attributes are int32."""
    for seed in range(48):
        case = random_case(
            seed,
            ("single", "ml", "substitution")[seed // 16],
            silence=seed % 2 > 0,
            alternatives=seed % 4 > 1,
            states=1 + seed // 4 % 2,
            deletions=seed // 8 % 2 > 0,
            insertions=seed % 3 > 0,
            competitors="table",
        )
        graphs = case.graphs()
        for index in range(len(case.utterances)):
            graph = graphs[index]
            assert graph.properties & k2.fsa_properties.VALID
            assert k2.connect(graph).num_arcs == graph.num_arcs
        for name in (*ARC_ATTRIBUTES, "min_frames", "layout_id"):
            assert getattr(graphs, name).dtype == torch.int32


def test_repeated_pronunciation_counts_once():
    compiler = MlFsaCompiler(4)
    twice = compiler.compile([[[[1, 2], [3], [1, 2]]]])
    once = compiler.compile([[[[1, 2], [3]]]])
    assert _arcs(twice[0]) == _arcs(once[0])


def test_unit_lists_may_be_arrays_or_tensors():
    compiler = MlFsaCompiler(4)
    graphs = compiler.compile([[3, 1], [2]])
    for kind in (np.array, torch.tensor, tuple):
        assert _arcs(compiler.compile([kind([3, 1]), kind([2])])[0]) == _arcs(graphs[0])


@pytest.mark.parametrize(
    "rebuild",
    [
        lambda graphs, parts: graphs,
        lambda graphs, parts: k2.cat(parts),
        lambda graphs, parts: k2.create_fsa_vec([graphs[i] for i in range(graphs.shape[0])]),
        lambda graphs, parts: k2.index_fsa(
            k2.cat(parts[::-1]), torch.tensor([5, 3, 4, 0, 1, 2], dtype=torch.int32)
        ),
        lambda graphs, parts: k2.Fsa.from_dict(graphs.as_dict()),
    ],
    ids=["cached", "cat", "create_fsa_vec", "index_fsa", "from_dict"],
)
@pytest.mark.parametrize("topology", ["ml", "substitution"])
def test_graphs_may_be_kept_selected_and_joined(topology, rebuild, device):
    more = topology == "substitution"
    case = random_case(
        23,
        topology,
        batch=6,
        max_frames=12,
        silence=True,
        alternatives=True,
        deletions=more,
        insertions=more,
    )
    graphs, emissions = case.graphs(), case.emissions(device)
    expected = best_path(graphs, emissions)
    assert any(span.is_deletion for spans in expected for span in spans) == more
    total = total_scores(graphs, emissions)
    parts = [case.compiler.compile(case.utterances[a:b]) for a, b in ((0, 1), (1, 3), (3, 6))]
    rebuilt = rebuild(graphs, parts)
    for _ in range(2):  # the graphs are not used up
        assert best_path(rebuilt, emissions) == expected
        assert torch.equal(total_scores(rebuilt, emissions), total)
    for found, before in zip(posteriors(rebuilt, emissions), posteriors(graphs, emissions)):
        assert torch.equal(found.mispronounced, before.mispronounced)


def test_graphs_follow_the_emissions_to_their_device(device):
    case = random_case(22, batch=4)
    emissions = case.emissions(device)
    assert best_path(case.graphs(device), emissions) == best_path(case.graphs("cpu"), emissions)
    assert case.graphs(device).device == torch.device(device)


def _broken_by_rounding(broken: str, lengths: list[int], beam: float, device):
    """Graphs and emissions for which rounding breaks lattices in the wanted way.

    Which way they break depends on the last bits of the scores, so several are tried.
    """
    fewest = max(4, min(lengths) * 2)
    positions = list(range(len(lengths)))
    for seed in range(40):
        case = random_case(
            seed,
            batch=len(lengths),
            max_frames=200,
            spread=6.0,
            inputs="boundary and correctness",
        )
        case.utterances = [list(np.arange(fewest + i) % NUM_UNITS) for i in positions]
        case.num_frames = torch.tensor(lengths)
        graphs, emissions = case.graphs(device), case.emissions(device)
        _, bare, _ = search.prepared(graphs, emissions)
        lattice = search.intersect(bare, emissions, positions, beam)
        if lattice is None:
            if broken == "invalid":
                return graphs, emissions
        elif broken == "empty" and lattice.get_tot_scores(False, False).isneginf().sum() > 1:
            return graphs, emissions
    raise AssertionError("nothing to retry")


@pytest.mark.parametrize("broken", ["empty", "invalid"])
def test_search_is_retried_wider_where_rounding_breaks_lattices(
    broken, monkeypatch, caplog, device
):
    """A beam below rounding error loses paths or breaks lattices; answers do not change."""
    lengths = [200, 20, 180, 199, 150, 120, 90, 200] if broken == "invalid" else [9, 3, 8, 11]
    beam = 1e-7
    graphs, emissions = _broken_by_rounding(broken, lengths, beam, device)
    expected = best_path(graphs, emissions)
    best = total_scores(graphs, emissions, log_semiring=False)
    assert [index for index, spans in enumerate(expected) if not spans] == [1]
    monkeypatch.setattr(search, "BEST_PATH_BEAM", beam)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert best_path(graphs, emissions) == expected
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [f"utterance 1 is too short: {lengths[1]} frames"]
    torch.testing.assert_close(total_scores(graphs, emissions, log_semiring=False), best)


def test_scores_that_a_caller_gives_to_arcs_are_in_the_spans(device):
    """Also those of final arcs, behind units that are left out or not."""
    case = random_case(6, silence=True, deletions=True, insertions=True, batch=8, max_frames=9)
    graphs = case.graphs(device)
    generator = torch.Generator().manual_seed(1)
    graphs.scores = 3 * torch.randn(graphs.num_arcs, generator=generator).to(device)
    emissions = case.emissions(device)
    best = total_scores(graphs, emissions, log_semiring=False).tolist()
    paths = best_path(graphs, emissions)
    assert {spans[-1].is_deletion for spans in paths} == {False, True}
    for spans, score in zip(paths, best):
        assert sum(span.score for span in spans) == pytest.approx(score, abs=1e-4)


def test_impossible_utterance_has_no_path(device):
    """Where every path has a score of -inf there is none, and the others are unharmed."""
    compiler = MlFsaCompiler(NUM_UNITS, "single")
    log_posteriors = torch.full((2, 4, NUM_UNITS), 0.25, device=device).log()
    log_posteriors[0, 1:3, 2] = -torch.inf
    emissions = compiler.emissions(log_posteriors, torch.tensor([4, 4]))
    graphs = compiler.compile([[2], [2]])
    first, second = best_path(graphs, emissions)
    assert first == []
    assert [(span.start, span.end) for span in second] == [(0, 4)]
    assert total_scores(graphs, emissions).isneginf().tolist() == [True, False]


def test_attributes_survive_intersection_and_shortest_path(device):
    """A caller may search with k2 directly; every attribute is still on the path's arcs."""
    compiler = MlFsaCompiler(NUM_UNITS, silence=True)
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(2, 9, NUM_UNITS + 1, generator=generator).log_softmax(-1).to(device)
    emissions = compiler.emissions(scores, torch.tensor([9, 7]))
    graphs = compiler.compile([[0, 0, 3], [2]], device=device)
    paths = k2.shortest_path(k2.intersect_dense(graphs, emissions.dense, output_beam=10), True)
    for index, spans in enumerate(best_path(graphs, emissions)):
        path = paths[index]
        expected = {
            "unit_pos": [span.slot for span in spans for _ in range(span.start, span.end)],
            "word_pos": [span.word for span in spans for _ in range(span.start, span.end)],
            "unit": [span.unit for span in spans for _ in range(span.start, span.end)],
            "perceived": [span.perceived for span in spans for _ in range(span.start, span.end)],
            "kind": [
                int(span.kind == "silence") for span in spans for _ in range(span.start, span.end)
            ],
            "is_start": [
                int(frame == span.start and span.kind == "unit")
                for span in spans
                for frame in range(span.start, span.end)
            ],
            "is_mispronounced": [
                int(span.mispronounced) for span in spans for _ in range(span.start, span.end)
            ],
        }
        expected["num_deleted"] = [0] * len(expected["unit"])
        expected["deleted_pos"] = expected["deleted_before_pos"] = [-1] * len(expected["unit"])
        assert set(expected) == set(ARC_ATTRIBUTES)
        for name, values in expected.items():
            assert getattr(path, name).tolist()[:-1] == values, name
