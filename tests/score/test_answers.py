import dataclasses

import numpy as np
import pytest
from lhotse import MonoCut, SupervisionSegment, SupervisionSet
from lhotse.supervision import AlignmentItem

from mlvae.score.answers import (
    flag_all_answer,
    heard_accuracy,
    known_probabilities,
    oracle_answer,
    outcomes,
    threshold_answer,
    tier_answer,
)
from mlvae.score.metrics import score
from mlvae.score.truth import read_truth, truth_of


def make_cut(name, **tiers):
    """A cut with tiers of (symbol, start, end) or (symbol, start, end, score)."""
    alignment = {
        tier: [AlignmentItem(symbol, start, end - start, *s) for symbol, start, end, *s in items]
        for tier, items in tiers.items()
    }
    supervision = SupervisionSegment(name, name, 0.0, 1.0, alignment=alignment)
    return MonoCut(name, 0.0, 1.0, 0, supervisions=[supervision])


@pytest.fixture
def truth(make_truth):
    return truth_of([make_truth("a", "35", "37"), make_truth("b", "112", "112", speaker="bert")])


A = [("3", 0.0, 0.5), ("5", 0.5, 1.0)]
A_HEARD = [("3", 0.0, 0.5), ("*", 0.5, 1.0)]
B = [("1", 0.0, 0.25), ("1", 0.25, 1.0), ("2", 1.0, 1.0)]


def test_truth_as_arrays(truth):
    assert truth.utterances == ["a", "b"]
    assert truth.first.tolist() == [0, 2, 5]
    assert truth.positive.tolist() == [False, True, False, False, False]
    assert truth.utterance.tolist() == [0, 0, 1, 1, 1]
    assert truth.starts.tolist() == [0, 0.5, 0, 0.5, 1.0]
    assert truth.ends.tolist() == [0.5, 1.0, 0.5, 1.0, 1.5]
    assert truth.clusters("recording").tolist() == [0, 1, 2, 3, 4]
    assert truth.clusters("speaker").tolist() == [0, 0, 1, 1, 1]
    with pytest.raises(ValueError, match="not by 'utterance'"):
        truth.clusters("utterance")


def test_units_of_one_recording_share_a_cluster(make_truth):
    items = [
        make_truth("a", "35", "35", sources=["r", "s"]),
        make_truth("b", "3", "3", sources=["r"]),
    ]
    assert truth_of(items).clusters().tolist() == [0, 1, 0]


def test_reading_one_split(make_truth, tmp_path):
    path = tmp_path / "truth.jsonl.gz"
    items = [make_truth("a", "35", "37", split="train"), make_truth("b", "1", "1")]
    SupervisionSet.from_segments(items).to_file(path)
    assert read_truth(path).utterances == ["b"]
    assert read_truth(path, split="train").positive.tolist() == [False, True]
    with pytest.raises(ValueError, match="no utterance of the split 'valid'"):
        read_truth(path, split="valid")


def test_truth_that_contradicts_itself(make_truth):
    for broken in (make_truth("a", "35", "3"), make_truth("a", "35", "35", sources=["r"])):
        with pytest.raises(ValueError, match="truth of a: .* do not agree"):
            truth_of([broken])


def test_flags_are_where_the_tiers_differ(truth):
    cuts = [make_cut("b", mlvae=B, mlvae_heard=B), make_cut("a", mlvae=A, mlvae_heard=A_HEARD)]
    answer = tier_answer("ML-VAE", truth, cuts, "mlvae", "mlvae_heard", num_params=7)
    assert answer.flags.tolist() == [False, True, False, False, False]
    assert answer.ends.tolist() == [0.5, 1.0, 0.25, 1.0, 1.0]
    assert (answer.num_params, answer.training_seconds, answer.missing) == (7, None, ())
    found = outcomes(truth, answer)
    np.testing.assert_allclose(found.iou, [1, 1, 0.5, 0.5 / 0.75, 0])
    assert score(found).pooled_f1 == 1.0


def test_a_span_without_length_whose_start_is_not_rounded_has_none(truth):
    """lhotse rounds the end of an item to four decimals, which may be before its start."""
    at = 0.12345678
    units = [("3", 0.0, at), ("5", at, at)]
    heard = [("3", 0.0, at), ("-", at, at)]
    answer = tier_answer("two-pass", truth, [make_cut("a", s=units, h=heard)], "s", "h")
    assert answer.starts[1] == answer.ends[1] == at
    assert answer.flags[:2].tolist() == [False, True] and answer.probabilities is None
    assert outcomes(truth, answer).iou[1] == 0


def test_forced_alignment_flags_nothing_and_flag_all_everything(truth):
    cuts = [make_cut("a", fa=A), make_cut("b", fa=B)]
    assert not tier_answer("FA", truth, cuts, "fa").flags.any()
    fa = tier_answer("FA", truth, cuts, "fa", num_params=3)
    every = flag_all_answer("flag-all (FA)", truth, fa)
    assert every.flags.all() and every.starts is fa.starts
    assert (every.name, every.num_params) == ("flag-all (FA)", 3)


def test_oracle(truth):
    assert score(outcomes(truth, oracle_answer(truth))).pooled_f1 == 1.0


@pytest.mark.parametrize("flag_all", [False, True])
def test_missing_utterances_count_as_missed(truth, flag_all):
    without_heard = make_cut("a", mlvae=A)
    for cuts in ([], [without_heard]):
        whole = [*cuts, make_cut("b", mlvae=B, mlvae_heard=B)]
        answer = tier_answer("ours", truth, whole, "mlvae", "mlvae_heard")
        if flag_all:
            answer = flag_all_answer("all", truth, answer)
            assert answer.flags[2:].all()
        assert answer.missing == ("a",)
        assert not answer.flags[:2].any()
        found = outcomes(truth, answer)
        assert found.iou[:2].tolist() == [0, 0]
        assert score(found).pooled_recall == 0.0
        assert len(found.iou) == 5


def test_answers_to_other_units_are_errors(truth):
    other = [("3", 0.0, 0.5), ("6", 0.5, 1.0)]
    with pytest.raises(ValueError, match="FA: utterance a has the units '3 6' in tier fa"):
        tier_answer("FA", truth, [make_cut("a", fa=other)], "fa")
    with pytest.raises(ValueError, match="utterance a has the units '3'"):
        tier_answer("FA", truth, [make_cut("a", fa=A[:1])], "fa")
    with pytest.raises(ValueError, match=r"utterance a .*\(1 heard\)"):
        tier_answer("x", truth, [make_cut("a", fa=A, heard=A[:1])], "fa", "heard")
    with pytest.raises(ValueError, match="no truth for utterance c"):
        tier_answer("FA", truth, [make_cut("c", fa=A)], "fa")
    with pytest.raises(ValueError, match="utterance a is answered twice"):
        tier_answer("FA", truth, [make_cut("a", fa=A)] * 2, "fa")


def test_answers_are_values(truth):
    with pytest.raises(dataclasses.FrozenInstanceError):
        oracle_answer(truth).name = "x"


def scored(items, scores):
    return [(*item, score) for item, score in zip(items, scores)]


def test_probabilities_are_the_scores_of_the_spans(truth):
    cuts = [
        make_cut("b", mlvae=scored(B, (0.25, 1.00001, 0.5)), mlvae_heard=B),
        make_cut("a", mlvae=scored(A, (0.0, 0.75)), mlvae_heard=A),
    ]
    answer = tier_answer("ours", truth, cuts, "mlvae", "mlvae_heard")
    assert answer.probabilities.tolist() == [0.0, 0.75, 0.25, 1.0, 0.5]
    assert not answer.flags.any()
    probability, positive = known_probabilities(truth, answer)
    assert probability.tolist() == [0.0, 0.75, 0.25, 1.0, 0.5]
    assert positive.tolist() == [False, True, False, False, False]
    above = threshold_answer("ours, P > 0.5", answer)
    assert above.flags.tolist() == [False, True, False, True, False]
    assert above.starts is answer.starts and above.name == "ours, P > 0.5"
    assert above.probabilities is None and above.heard is None
    assert threshold_answer("x", answer, threshold=0.2).flags.tolist() == [False] + [True] * 4


def test_probabilities_of_missing_utterances_are_unknown(truth):
    cut = make_cut("b", mlvae=scored(B, (0.25, 0.75, 0.5)), mlvae_heard=B)
    answer = tier_answer("ours", truth, [cut], "mlvae", "mlvae_heard")
    assert np.isnan(answer.probabilities).tolist() == [True, True, False, False, False]
    probability, positive = known_probabilities(truth, answer)
    assert probability.tolist() == [0.25, 0.75, 0.5]
    assert not positive.any()
    assert threshold_answer("x", answer).flags.tolist() == [False, False, False, True, False]
    assert threshold_answer("x", answer).missing == ("a",)


def test_systems_without_probabilities(truth):
    cuts = [make_cut("a", fa=scored(A, (-3.0, 7.0)), said=A), make_cut("b", fa=B, said=B)]
    answer = tier_answer("FA", truth, cuts, "fa")
    assert answer.probabilities is None and answer.heard is None
    assert known_probabilities(truth, answer) is None
    with pytest.raises(ValueError, match=r"FA has no P\(mispronounced\)"):
        threshold_answer("x", answer)
    silent = tier_answer("x", truth, cuts[1:], "fa", "said")
    assert silent.probabilities is None
    assert tier_answer("x", truth, [], "fa", "said").probabilities is None


@pytest.mark.parametrize("scores", [(0.5, None), (0.5, 1.1), (-0.1, 0.5), (0.5, float("nan"))])
def test_scores_that_are_no_probabilities_are_errors(truth, scores):
    cut = make_cut("a", mlvae=scored(A, scores), mlvae_heard=A)
    with pytest.raises(ValueError, match=r"x: utterance a has a P\(mispronounced\) that is"):
        tier_answer("x", truth, [cut], "mlvae", "mlvae_heard")


def test_probabilities_of_some_utterances_only_are_errors(truth):
    cuts = [
        make_cut("a", mlvae=scored(A, (0.5, 0.5)), mlvae_heard=A),
        make_cut("b", mlvae=B, mlvae_heard=B),
    ]
    with pytest.raises(ValueError, match=r"x: utterance b has no P\(mispronounced\), others"):
        tier_answer("x", truth, cuts, "mlvae", "mlvae_heard")


@pytest.mark.parametrize(
    ("said", "heard", "expected"),
    [
        ("3978", "3978", (1.0, 2)),
        ("3978", "3972", (0.5, 2)),
        ("3978", "397*", (1.0, 1)),  # unknown
        ("3978", "397-", (1.0, 1)),  # taken as left out
        ("3978", "3976", (1.0, 1)),  # not flagged
        ("397-", "3972", (1.0, 1)),  # left out indeed: no substitution
        ("3978", "1978", (1.0, 2)),  # a false alarm
        ("3978", "3*7*", None),
        ("3578", "3576", None),
        ("3576", "3978", None),
    ],
)
def test_heard_accuracy(make_truth, said, heard, expected):
    text = "3576"
    truth = truth_of([make_truth("u", text, said), make_truth("v", "1", "2")])
    units = [(symbol, i / 2, i / 2 + 0.5) for i, symbol in enumerate(text)]
    cut = make_cut("u", mlvae=units, mlvae_heard=[(h, *u[1:]) for h, u in zip(heard, units)])
    answer = tier_answer("x", truth, [cut], "mlvae", "mlvae_heard")
    assert answer.heard == (*heard, "*")
    found = heard_accuracy(truth, answer)
    assert (found and (found.share, found.num_named)) == expected
    assert heard_accuracy(truth, flag_all_answer("all", truth, answer)) is None
