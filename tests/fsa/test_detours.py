"""Units left out, sounds of no unit, and silence beside them: cases by hand."""

from __future__ import annotations

import math

import pytest
import torch

from mlvae.fsa import MlFsaCompiler, best_path, posteriors, too_short, total_scores
from tests.fsa import brute_force
from tests.fsa.cases import NUM_UNITS, random_case

SILENCE = NUM_UNITS


def _spoken(text: str, num_columns: int = NUM_UNITS + 1, sure: float = 0.99, device="cpu"):
    """Log-posteriors of one utterance from a digit a frame; ``-`` is silence."""
    frames = [SILENCE if character == "-" else int(character) for character in text]
    rest = (1 - sure) / (num_columns - 1)
    probabilities = torch.full((1, len(frames), num_columns), rest, device=device)
    probabilities[0, range(len(frames)), frames] = sure
    return probabilities.log()


def _search(compiler: MlFsaCompiler, units, text: str, device):
    """Best path and posteriors of one utterance."""
    columns = compiler.layout.num_posteriors
    emissions = compiler.emissions(_spoken(text, columns, device=device), torch.tensor([len(text)]))
    graphs = compiler.compile([units])
    return best_path(graphs, emissions)[0], posteriors(graphs, emissions)[0]


def _short(spans) -> list[tuple]:
    """What a span is and where; deleted units have no length."""
    names = {"silence": "-", "insertion": "+"}
    return [(names.get(span.kind, span.unit), span.start, span.end) for span in spans]


@pytest.mark.parametrize("topology", ["single", "ml", "substitution"])
@pytest.mark.parametrize(
    ("units", "text", "expected"),
    [
        # In the middle, at the beginning, at the end, two in a row.
        ([0, 1, 2], "000222", [(0, 0, 3), (1, 3, 3), (2, 3, 6)]),
        ([0, 1, 2], "111222", [(0, 0, 0), (1, 0, 3), (2, 3, 6)]),
        ([0, 1, 2], "000111", [(0, 0, 3), (1, 3, 6), (2, 6, 6)]),
        ([0, 1, 2, 3], "000333", [(0, 0, 3), (1, 3, 3), (2, 3, 3), (3, 3, 6)]),
        ([0, 1, 2], "000", [(0, 0, 3), (1, 3, 3), (2, 3, 3)]),
        ([0, 1, 2], "222", [(0, 0, 0), (1, 0, 0), (2, 0, 3)]),
        # Silence stands before what is left out.
        ([0, 1, 2], "00--22", [(0, 0, 2), ("-", 2, 4), (1, 4, 4), (2, 4, 6)]),
        ([0, 1], "000---", [(0, 0, 3), ("-", 3, 6), (1, 6, 6)]),
        ([0, 1], "---111", [("-", 0, 3), (0, 3, 3), (1, 3, 6)]),
        # Nothing but silence.
        ([0], "----", [("-", 0, 4), (0, 4, 4)]),
        ([0, 1], "----", [("-", 0, 4), (0, 4, 4), (1, 4, 4)]),
        # Inside a word there is no silence; behind its last units that are left out there is.
        ([[[0, 1]], [[2]]], "00--22", [(0, 0, 2), (1, 2, 2), ("-", 2, 4), (2, 4, 6)]),
        ([[[0, 1, 3]]], "000---", [(0, 0, 3), (1, 3, 3), (3, 3, 3), ("-", 3, 6)]),
        ([[[0, 1]], [[2, 3]]], "00--33", [(0, 0, 2), (1, 2, 2), ("-", 2, 4), (2, 4, 4), (3, 4, 6)]),
    ],
)
def test_units_left_out(topology, units, text, expected, device):
    compiler = MlFsaCompiler(NUM_UNITS, topology, silence=True, deletions=True, deletion_rate=0.2)
    spans, found = _search(compiler, units, text, device)
    assert _short(spans) == expected
    for span in spans:
        assert span.is_deletion == (span.start == span.end)
        if span.is_deletion:
            assert (span.kind, span.mispronounced, span.perceived) == ("unit", True, -1)
            assert found.deleted[span.slot] > 0.5
        elif span.kind == "unit":
            assert not span.mispronounced
            assert found.deleted[span.slot] < 0.2
    torch.testing.assert_close(found.used, torch.ones_like(found.used))


def test_at_most_two_in_a_row(device):
    """Of three units without a sound one has to take frames."""
    compiler = MlFsaCompiler(
        NUM_UNITS, "substitution", silence=True, deletions=True, deletion_rate=0.5
    )
    spans, found = _search(compiler, [0, 1, 2], "-----", device)
    assert sum(span.is_deletion for span in spans) == 2
    assert sum(span.kind == "unit" for span in spans) == 3
    assert float(found.deleted.sum()) < 2 + 1e-6


@pytest.mark.parametrize("states", [1, 2, 3])
@pytest.mark.parametrize(
    ("units", "options", "fewest"),
    [
        # Frames for each state of a unit, and frames besides.
        ([0], {}, (1, 0)),
        ([0, 1], {}, (1, 0)),
        ([0, 1, 2], {}, (1, 0)),
        ([0, 1, 2, 3, 0], {}, (1, 0)),
        ([0, 1, 2, 3, 0, 1], {}, (2, 0)),
        ([0, 1, 2, 3, 0, 1, 2, 3, 0], {}, (3, 0)),
        # Units may be left out altogether where something else is there.
        ([0], {"silence": True}, (0, 1)),
        ([0, 1], {"insertions": True}, (0, 1)),
        ([0, 1, 2], {"silence": True, "insertions": True}, (1, 0)),
        # The shorter pronunciation counts.
        ([[[0, 1, 2, 3, 0, 1], [2, 3]]], {}, (1, 0)),
        ([[[0, 1, 2, 3, 0, 1], [2, 3]]], {"silence": True}, (0, 1)),
        # A frame of silence behind a word parts two times two units.
        ([[[0, 1, 2, 3, 0]], [[1]], [[2]]], {}, (2, 0)),
        ([[[0, 1, 2, 3, 0]], [[1]], [[2]]], {"silence": True}, (1, 1)),
    ],
)
def test_fewest_frames(states, units, options, fewest, device):
    compiler = MlFsaCompiler(NUM_UNITS, "single", states, deletions=True, **options)
    least = fewest[0] * states + fewest[1]
    graphs = compiler.compile([units] * (least + 2))
    assert graphs.min_frames.eq(least).all()
    scores = torch.zeros(least + 2, least + 1, compiler.layout.num_posteriors, device=device)
    emissions = compiler.emissions(scores.log_softmax(-1), torch.arange(least + 2))
    assert too_short(graphs, emissions) == list(range(least))
    assert [bool(spans) for spans in best_path(graphs, emissions)] == [False] * least + [True] * 2
    totals = total_scores(graphs, emissions)
    assert totals.isneginf().tolist() == [True] * least + [False] * 2


@pytest.mark.parametrize("topology", ["single", "ml", "substitution"])
def test_sounds_of_no_unit(topology, device):
    """Unit 3 is spoken where the text has nothing; elsewhere nothing is added."""
    compiler = MlFsaCompiler(NUM_UNITS, topology, silence=True, insertions=True, insertion_rate=0.2)
    for text, expected in [
        ("0003322", [(0, 0, 3), ("+", 3, 5), (1, 5, 7)]),
        ("3300022", [("+", 0, 2), (0, 2, 5), (1, 5, 7)]),
        ("0002233", [(0, 0, 3), (1, 3, 5), ("+", 5, 7)]),
        ("00-33-22", [(0, 0, 2), ("-", 2, 3), ("+", 3, 5), ("-", 5, 6), (1, 6, 8)]),
        ("0000222", [(0, 0, 4), (1, 4, 7)]),
    ]:
        text = text.replace("2", "1")
        spans, found = _search(compiler, [0, 1], text, device)
        assert _short(spans) == expected
        insertions = [span for span in spans if span.kind == "insertion"]
        for span in insertions:
            assert not span.mispronounced and not span.is_deletion
            assert (span.position, span.unit, span.perceived, span.word, span.slot) == (-1,) * 5
        assert found.mispronounced.max() < 0.2
        assert found.deleted.eq(0).all()


def test_insertions_in_a_row_are_separate(device):
    """Where the detector hears two starts there are two."""
    compiler = MlFsaCompiler(NUM_UNITS, "single", insertions=True, insertion_rate=0.5)
    rate = torch.full((1, 8), 0.02)
    rate[0, [2, 5]] = 0.98
    emissions = compiler.emissions(
        _spoken("00332211", NUM_UNITS, device=device),
        torch.tensor([8]),
        log_boundary=torch.stack([1 - rate, rate], -1).log().to(device),
    )
    spans = best_path(compiler.compile([[0]]), emissions)[0]
    assert _short(spans) == [(0, 0, 2), ("+", 2, 5), ("+", 5, 8)]


def test_an_insertion_is_any_unit(device):
    """Its score does not depend on which unit it sounds like, and silence speaks against it."""
    compiler = MlFsaCompiler(NUM_UNITS, "single", silence=True, insertions=True)
    scores = []
    for text in ("0000", "3333", "0123", "----"):
        emissions = compiler.emissions(_spoken(text, device=device), torch.tensor([4]))
        scores.append(emissions.dense.scores[:4, -2:].cpu())
    torch.testing.assert_close(scores[0], scores[1])
    torch.testing.assert_close(scores[0], scores[2])
    assert (scores[3] < scores[0] - 4).all()
    # Even where silence is all but certain an insertion is not impossible.
    certain = torch.tensor([-40.0, -41.0, -42.0, -43.0, 0.0], device=device).expand(1, 2, 5)
    columns = compiler.emissions(certain, torch.tensor([2])).dense.scores[1, -2:].cpu()
    floor = math.log(1e-5) - math.log(4 / 5)
    expected = [floor + math.log(0.1) + math.log(0.15), floor + math.log(0.9)]
    torch.testing.assert_close(columns, torch.tensor(expected))


def test_alternative_left_out_altogether_counts_once_a_pronunciation(device):
    """All scores are zero, so that totals count paths: one frame of silence, and no unit."""
    compiler = MlFsaCompiler(NUM_UNITS, "single", silence=True, deletions=True, deletion_rate=0.5)
    zero = torch.zeros(1, 1, 2, device=device)
    uniform = torch.zeros(1, 1, NUM_UNITS + 1, device=device).log_softmax(-1)
    emissions = compiler.emissions(uniform, torch.tensor([1]), log_boundary=zero)
    for word, deletions, spoken in [
        ([[0]], 1, 1),
        ([[0], [1]], 2, 2),
        ([[0, 1], [1]], 2, 3),  # of two units one may be spoken and the other left out
    ]:
        graphs = compiler.compile([[word]])
        total = float(total_scores(graphs, emissions, output_beam=100.0).exp())
        assert total == pytest.approx(deletions + spoken, abs=1e-3)
        (found,) = posteriors(graphs, emissions, output_beam=100.0)
        assert float(found.used.sum()) >= 1 - 1e-6


def _free_keys(words, num_frames: int) -> set:
    """What can be told apart, of every way to put silences, insertions, units in one frame or more.

    Silences and insertions may stand anywhere here, so several ways sound the same.
    """
    places = [place for word in brute_force.number_slots(words) for place in word[0]]
    keys = set()

    def go_on(index, frame, sounds, deleted, run):
        edge = index in (0, len(places)) or places[index - 1].word != places[index].word
        for end in range(frame + 1, num_frames + 1):
            for kind in ["insertion"] + ["silence"] * edge:
                if kind == "silence" and sounds and sounds[-1][0] == "silence":
                    continue  # one silence, no two
                go_on(index, end, (*sounds, (kind, -1, frame, end)), deleted, 0)
        if index == len(places):
            if frame == num_frames:
                keys.add((sounds, deleted))
            return
        slot = places[index].slot
        for end in range(frame + 1, num_frames + 1):
            go_on(index + 1, end, (*sounds, ("unit", slot, frame, end)), deleted, 0)
        if run < 2:
            go_on(index + 1, frame, sounds, (*deleted, slot), run + 1)

    go_on(0, 0, (), (), 0)
    return keys


@pytest.mark.parametrize(
    "words",
    [
        [[[0]], [[1]], [[2]], [[3]]],
        [[[0, 1]], [[2, 3]]],
        [[[0, 1, 2]], [[3]]],
        [[[0]], [[1, 2, 3]]],
        [[[0, 1, 2, 3]]],
    ],
    ids=str,
)
def test_what_sounds_the_same_is_one_path(words):
    """Wherever silence may stand beside units left out, the reference lists that once.

    The reference is what the graphs are held to; here it is held to a list of everything.
    """
    num_frames = 3
    model = brute_force.Model(
        NUM_UNITS,
        states=1,
        posteriors=[[-1.7] * (NUM_UNITS + 1)] * num_frames,
        has_silence=True,
        topology="single",
        deletion_rate=0.5,
        insertion_rate=0.5,
    )
    keys = []
    for hypothesis in brute_force.hypotheses(words, num_frames, model):
        sounds = [s for s in hypothesis.segments if not s.deleted]
        deleted = tuple(s.slot for s in hypothesis.segments if s.deleted)
        keys.append((tuple((s.kind, s.slot, s.start, s.end) for s in sounds), deleted))
    assert len(set(keys)) == len(keys)
    assert set(keys) <= _free_keys(words, num_frames)
    # What has been moved together is no more than two units in a row.
    for _, deleted in _free_keys(words, num_frames) - set(keys):
        assert any(slot + 1 in deleted and slot + 2 in deleted for slot in deleted)


def _paths(graph, num_frames: int) -> list[tuple]:
    """Every path of so many frames, as what its arcs say."""
    names = ("kind", "unit_pos", "perceived", "is_start", "num_deleted")
    names += ("deleted_pos", "deleted_before_pos")
    leaving: dict[int, list] = {}
    for (source, target, label, _), *said in zip(
        graph.arcs.values().tolist(), *(getattr(graph, name).tolist() for name in names)
    ):
        leaving.setdefault(source, []).append((target, label, said))
    result, stack = [], [(0, 0, (), ())]
    while stack:
        state, frames, path, deleted = stack.pop()
        for target, label, (*said, deletions, last, before) in leaving.get(state, []):
            out = (*deleted, *(slot for slot in (before, last) if slot >= 0))
            assert deletions == len(out) - len(deleted)
            if label == -1:
                if frames == num_frames:
                    result.append((path, out))
            elif frames < num_frames:
                stack.append((target, frames + 1, (*path, (label, *said)), out))
    return result


@pytest.mark.parametrize("seed", range(12))
def test_each_combination_is_exactly_one_path(seed):
    """No two paths of a graph say the same, and there are as many as hypotheses."""
    case = random_case(
        seed,
        ("single", "ml", "substitution")[seed % 3],
        states=1 + seed % 2,
        silence=seed % 4 < 3,
        alternatives=seed % 3 > 0,
        num_units=3,
        max_frames=4,
        deletions=True,
        insertions=seed % 2 > 0,
    )
    graphs = case.graphs()
    for index, frames in enumerate(case.num_frames.tolist()):
        paths = _paths(graphs[index], frames)
        assert len(set(paths)) == len(paths) == len(case.hypotheses(index))
