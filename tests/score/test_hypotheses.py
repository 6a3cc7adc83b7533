import numpy as np
import pytest
from lhotse import MonoCut, SupervisionSegment, SupervisionSet
from lhotse.supervision import AlignmentItem

from mlvae.score.hypotheses import (
    flag_all_hypothesis,
    known_probabilities,
    oracle_hypothesis,
    outcomes,
    perceived_accuracy,
    tier_hypothesis,
)
from mlvae.score.metrics import score
from mlvae.score.reference import read_reference, reference_of


def make_cut(name, **tiers):
    """A cut with tiers of (symbol, start, end) or (symbol, start, end, score)."""
    alignment = {
        tier: [AlignmentItem(symbol, start, end - start, *s) for symbol, start, end, *s in items]
        for tier, items in tiers.items()
    }
    supervision = SupervisionSegment(name, name, 0.0, 1.0, alignment=alignment)
    return MonoCut(name, 0.0, 1.0, 0, supervisions=[supervision])


@pytest.fixture
def reference(make_reference):
    return reference_of(
        [make_reference("a", "35", "37"), make_reference("b", "112", "112", speaker="bert")]
    )


A = [("3", 0.0, 0.5), ("5", 0.5, 1.0)]
A_PERCEIVED = [("3", 0.0, 0.5), ("*", 0.5, 1.0)]
B = [("1", 0.0, 0.25), ("1", 0.25, 1.0), ("2", 1.0, 1.0)]


def test_reference_as_arrays(reference):
    assert reference.utterances == ["a", "b"]
    assert reference.first.tolist() == [0, 2, 5]
    assert reference.positive.tolist() == [False, True, False, False, False]
    assert reference.utterance.tolist() == [0, 0, 1, 1, 1]
    assert reference.starts.tolist() == [0, 0.5, 0, 0.5, 1.0]
    assert reference.ends.tolist() == [0.5, 1.0, 0.5, 1.0, 1.5]
    assert reference.clusters("recording").tolist() == [0, 1, 2, 3, 4]
    assert reference.clusters("speaker").tolist() == [0, 0, 1, 1, 1]
    with pytest.raises(ValueError, match="not by 'utterance'"):
        reference.clusters("utterance")


def test_units_of_one_recording_share_a_cluster(make_reference):
    items = [
        make_reference("a", "35", "35", sources=["r", "s"]),
        make_reference("b", "3", "3", sources=["r"]),
    ]
    assert reference_of(items).clusters().tolist() == [0, 1, 0]


def test_only_test_utterances_are_read(make_reference, tmp_path):
    path = tmp_path / "reference.jsonl.gz"
    items = [make_reference("a", "35", "37", split="train"), make_reference("b", "1", "1")]
    SupervisionSet.from_segments(items).to_file(path)
    assert read_reference(path).utterances == ["b"]
    SupervisionSet.from_segments(items[:1]).to_file(path)
    with pytest.raises(ValueError, match="no utterance of the split 'test'"):
        read_reference(path)


def test_reference_that_contradicts_itself(make_reference):
    for broken in (make_reference("a", "35", "3"), make_reference("a", "35", "35", sources=["r"])):
        with pytest.raises(ValueError, match="reference of a: .* do not agree"):
            reference_of([broken])


def test_flags_are_where_the_tiers_differ(reference):
    cuts = [
        make_cut("b", mlvae=B, mlvae_perceived=B),
        make_cut("a", mlvae=A, mlvae_perceived=A_PERCEIVED),
    ]
    hypothesis = tier_hypothesis("ML-VAE", reference, cuts, "mlvae", "mlvae_perceived")
    assert hypothesis.flags.tolist() == [False, True, False, False, False]
    assert hypothesis.ends.tolist() == [0.5, 1.0, 0.25, 1.0, 1.0]
    assert hypothesis.missing == ()
    found = outcomes(reference, hypothesis)
    np.testing.assert_allclose(found.iou, [1, 1, 0.5, 0.5 / 0.75, 0])
    assert score(found).pooled_f1 == 1.0


def test_a_span_without_length_whose_start_is_not_rounded_has_none(reference):
    """lhotse rounds the end of an item to four decimals, which may be before its start."""
    at = 0.12345678
    units = [("3", 0.0, at), ("5", at, at)]
    perceived = [("3", 0.0, at), ("-", at, at)]
    hypothesis = tier_hypothesis(
        "two-pass", reference, [make_cut("a", s=units, h=perceived)], "s", "h"
    )
    assert hypothesis.starts[1] == hypothesis.ends[1] == at
    assert hypothesis.flags[:2].tolist() == [False, True] and hypothesis.probabilities is None
    assert outcomes(reference, hypothesis).iou[1] == 0


def test_forced_alignment_flags_nothing_and_flag_all_everything(reference):
    cuts = [make_cut("a", fa=A), make_cut("b", fa=B)]
    assert not tier_hypothesis("FA", reference, cuts, "fa").flags.any()
    fa = tier_hypothesis("FA", reference, cuts, "fa")
    every = flag_all_hypothesis("flag-all (FA)", reference, fa)
    assert every.flags.all() and every.starts is fa.starts
    assert every.name == "flag-all (FA)"


def test_oracle(reference):
    assert score(outcomes(reference, oracle_hypothesis(reference))).pooled_f1 == 1.0


@pytest.mark.parametrize("flag_all", [False, True])
def test_missing_utterances_count_as_missed(reference, flag_all):
    without_perceived = make_cut("a", mlvae=A)
    for cuts in ([], [without_perceived]):
        whole = [*cuts, make_cut("b", mlvae=B, mlvae_perceived=B)]
        hypothesis = tier_hypothesis("ours", reference, whole, "mlvae", "mlvae_perceived")
        if flag_all:
            hypothesis = flag_all_hypothesis("all", reference, hypothesis)
            assert hypothesis.flags[2:].all()
        assert hypothesis.missing == ("a",)
        assert not hypothesis.flags[:2].any()
        found = outcomes(reference, hypothesis)
        assert found.iou[:2].tolist() == [0, 0]
        assert score(found).pooled_recall == 0.0
        assert len(found.iou) == 5


def test_hypotheses_to_other_units_are_errors(reference):
    other = [("3", 0.0, 0.5), ("6", 0.5, 1.0)]
    with pytest.raises(ValueError, match="FA: utterance a has the units '3 6' in tier fa"):
        tier_hypothesis("FA", reference, [make_cut("a", fa=other)], "fa")
    with pytest.raises(ValueError, match="utterance a has the units '3'"):
        tier_hypothesis("FA", reference, [make_cut("a", fa=A[:1])], "fa")
    with pytest.raises(ValueError, match=r"utterance a .*\(1 perceived\)"):
        tier_hypothesis("x", reference, [make_cut("a", fa=A, perceived=A[:1])], "fa", "perceived")
    with pytest.raises(ValueError, match="no reference for utterance c"):
        tier_hypothesis("FA", reference, [make_cut("c", fa=A)], "fa")
    with pytest.raises(ValueError, match="two hypotheses for utterance a"):
        tier_hypothesis("FA", reference, [make_cut("a", fa=A)] * 2, "fa")


def scored(items, scores):
    return [(*item, score) for item, score in zip(items, scores)]


def test_probabilities_are_the_scores_of_the_spans(reference):
    cuts = [
        make_cut("b", mlvae=scored(B, (0.25, 1.00001, 0.5)), mlvae_perceived=B),
        make_cut("a", mlvae=scored(A, (0.0, 0.75)), mlvae_perceived=A),
    ]
    hypothesis = tier_hypothesis("ours", reference, cuts, "mlvae", "mlvae_perceived")
    assert hypothesis.probabilities.tolist() == [0.0, 0.75, 0.25, 1.0, 0.5]
    assert not hypothesis.flags.any()
    probability, positive = known_probabilities(reference, hypothesis)
    assert probability.tolist() == [0.0, 0.75, 0.25, 1.0, 0.5]
    assert positive.tolist() == [False, True, False, False, False]


def test_probabilities_of_missing_utterances_are_unknown(reference):
    cut = make_cut("b", mlvae=scored(B, (0.25, 0.75, 0.5)), mlvae_perceived=B)
    hypothesis = tier_hypothesis("ours", reference, [cut], "mlvae", "mlvae_perceived")
    assert np.isnan(hypothesis.probabilities).tolist() == [True, True, False, False, False]
    probability, positive = known_probabilities(reference, hypothesis)
    assert probability.tolist() == [0.25, 0.75, 0.5]
    assert not positive.any()
    assert hypothesis.missing == ("a",)


def test_systems_without_probabilities(reference):
    cuts = [make_cut("a", fa=scored(A, (-3.0, 7.0)), said=A), make_cut("b", fa=B, said=B)]
    hypothesis = tier_hypothesis("FA", reference, cuts, "fa")
    assert hypothesis.probabilities is None and hypothesis.perceived is None
    assert known_probabilities(reference, hypothesis) is None
    silent = tier_hypothesis("x", reference, cuts[1:], "fa", "said")
    assert silent.probabilities is None
    assert tier_hypothesis("x", reference, [], "fa", "said").probabilities is None


@pytest.mark.parametrize("scores", [(0.5, None), (0.5, 1.1), (-0.1, 0.5), (0.5, float("nan"))])
def test_scores_that_are_no_probabilities_are_errors(reference, scores):
    cut = make_cut("a", mlvae=scored(A, scores), mlvae_perceived=A)
    with pytest.raises(ValueError, match=r"x: utterance a has a P\(mispronounced\) that is"):
        tier_hypothesis("x", reference, [cut], "mlvae", "mlvae_perceived")


def test_probabilities_of_some_utterances_only_are_errors(reference):
    cuts = [
        make_cut("a", mlvae=scored(A, (0.5, 0.5)), mlvae_perceived=A),
        make_cut("b", mlvae=B, mlvae_perceived=B),
    ]
    with pytest.raises(ValueError, match=r"x: utterance b has no P\(mispronounced\), others"):
        tier_hypothesis("x", reference, cuts, "mlvae", "mlvae_perceived")


@pytest.mark.parametrize(
    ("said", "perceived", "expected"),
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
def test_perceived_accuracy(make_reference, said, perceived, expected):
    text = "3576"
    reference = reference_of([make_reference("u", text, said), make_reference("v", "1", "2")])
    units = [(symbol, i / 2, i / 2 + 0.5) for i, symbol in enumerate(text)]
    cut = make_cut(
        "u", mlvae=units, mlvae_perceived=[(h, *u[1:]) for h, u in zip(perceived, units)]
    )
    hypothesis = tier_hypothesis("x", reference, [cut], "mlvae", "mlvae_perceived")
    assert hypothesis.perceived == (*perceived, "*")
    found = perceived_accuracy(reference, hypothesis)
    assert (found and (found.fraction, found.num_named)) == expected
    assert perceived_accuracy(reference, flag_all_hypothesis("all", reference, hypothesis)) is None
