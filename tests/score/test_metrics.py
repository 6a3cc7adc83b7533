import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlvae.score.metrics import METRICS, Outcomes, interval_iou, score


def loop_ratio(above, below):
    return above / below if below > 0 else 0.0


def loop_f1(precision, recall):
    return loop_ratio(2 * precision * recall, precision + recall)


def loop_counts(units):
    """Sums over (positive, flagged, iou) triples, one unit at a time."""
    tp = fp = fn = tp_ml = 0.0
    for positive, flagged, iou in units:
        if positive and flagged:
            tp += 1
            tp_ml += iou
        elif flagged:
            fp += 1
        elif positive:
            fn += 1
    return tp, fp, fn, tp_ml


def loop_scores(utterances):
    """The definitions of the metrics, written out without arrays."""
    units = [unit for utterance in utterances for unit in utterance]
    tp, fp, fn, tp_ml = loop_counts(units)
    pooled = (loop_ratio(tp_ml, tp + fp), loop_ratio(tp_ml, tp + fn))
    hard = (loop_ratio(tp, tp + fp), loop_ratio(tp, tp + fn))
    each = []
    for utterance in utterances:
        tp, fp, fn, tp_ml = loop_counts(utterance)
        precision, recall = loop_ratio(tp_ml, tp + fp), loop_ratio(tp_ml, tp + fn)
        each.append((precision, recall, loop_f1(precision, recall)))
    macro = [sum(values) / len(values) for values in zip(*each)]
    average_iou = sum(iou for _, _, iou in units) / len(units)
    return [*pooled, loop_f1(*pooled), *macro, *hard, loop_f1(*hard), average_iou]


def to_outcomes(utterances):
    units = [unit for utterance in utterances for unit in utterance]
    return Outcomes(
        positive=np.array([unit[0] for unit in units], dtype=bool),
        flagged=np.array([unit[1] for unit in units], dtype=bool),
        iou=np.array([unit[2] for unit in units], dtype=np.float64),
        utterance=np.repeat(np.arange(len(utterances)), [len(each) for each in utterances]),
    )


def values(outcomes):
    return list(score(outcomes).as_dict().values())


unit = st.tuples(st.booleans(), st.booleans(), st.floats(0, 1))
sets = st.lists(st.lists(unit, min_size=1, max_size=7), min_size=1, max_size=12)


@given(sets)
@settings(max_examples=200, deadline=None)
def test_against_plain_loops(utterances):
    np.testing.assert_allclose(values(to_outcomes(utterances)), loop_scores(utterances), atol=1e-12)


@given(sets)
@settings(max_examples=100, deadline=None)
def test_invariants(utterances):
    found = score(to_outcomes(utterances))
    assert found.pooled_f1 <= found.hard_f1 + 1e-12
    assert found.pooled_precision <= found.hard_precision + 1e-12
    assert all(0 <= value <= 1 for value in found.as_dict().values())

    backwards = values(to_outcomes(utterances[::-1]))
    np.testing.assert_allclose(backwards, values(to_outcomes(utterances)), atol=1e-12)

    oracle = score(to_outcomes([[(p, p, 1.0) for p, _, _ in each] for each in utterances]))
    share = np.mean([any(p for p, _, _ in each) for each in utterances])
    assert oracle.pooled_f1 == oracle.hard_f1 == (1.0 if share else 0.0)
    assert oracle.macro_f1 == pytest.approx(share)
    assert oracle.average_iou == 1.0

    nothing = score(to_outcomes([[(p, False, iou) for p, _, iou in each] for each in utterances]))
    ours = nothing.as_dict()
    assert ours.pop("average_iou") == pytest.approx(found.average_iou)
    assert set(ours.values()) == {0.0}


def test_the_papers_example():
    # Two hits with IoU 0.3 and 0.6, one false alarm, one miss: TP_ML is 0.9, not 2.
    units = [(True, True, 0.3), (True, True, 0.6), (False, True, 0.9), (True, False, 0.9)]
    found = score(to_outcomes([units]))
    assert found.pooled_precision == pytest.approx(0.9 / 3)
    assert found.pooled_recall == pytest.approx(0.9 / 3)
    assert found.hard_precision == pytest.approx(2 / 3)
    assert found.average_iou == pytest.approx(2.7 / 4)


def test_known_values_of_flag_all_and_oracle_on_mismatch_audiomnist():
    rng = np.random.default_rng(0)
    utterance = np.repeat(np.arange(40_000), rng.integers(3, 8, 40_000))
    positive = rng.random(len(utterance)) < 0.201
    perfect = np.ones(len(utterance))
    flag_all = score(Outcomes(positive, np.ones_like(positive), perfect, utterance))
    assert 100 * flag_all.macro_f1 == pytest.approx(29.7, abs=0.5)
    assert 100 * flag_all.pooled_f1 == pytest.approx(33.5, abs=0.5)
    oracle = score(Outcomes(positive, positive, perfect, utterance))
    assert 100 * oracle.macro_f1 == pytest.approx(65.8, abs=0.7)


def loop_iou(start, end, true_start, true_end):
    shared = max(0.0, min(end, true_end) - max(start, true_start))
    union = (end - start) + (true_end - true_start) - shared
    return shared / union if union > 0 else 0.0


@given(st.lists(st.tuples(*[st.floats(0, 5)] * 4), min_size=1, max_size=20))
@settings(deadline=None)
def test_iou_against_a_loop(spans):
    spans = np.array(spans)
    found, true = np.sort(spans[:, :2], axis=1), np.sort(spans[:, 2:], axis=1)
    iou = interval_iou(found[:, 0], found[:, 1], true[:, 0], true[:, 1])
    np.testing.assert_allclose(iou, [loop_iou(*f, *t) for f, t in zip(found, true)], atol=1e-12)
    assert ((iou >= 0) & (iou <= 1)).all()
    same = interval_iou(true[:, 0], true[:, 1], true[:, 0], true[:, 1])
    assert (same == (true[:, 1] > true[:, 0])).all()


@pytest.mark.parametrize(
    ("found", "true", "expected"),
    [
        ((0.0, 1.0), (0.0, 1.0), 1.0),
        ((0.0, 1.0), (0.5, 1.5), 1 / 3),
        ((0.0, 1.0), (1.0, 2.0), 0.0),
        ((0.0, 1.0), (0.25, 0.5), 0.25),
        ((0.5, 0.5), (0.0, 1.0), 0.0),  # a deleted unit
        ((0.5, 0.5), (0.5, 0.5), 0.0),  # also where the reference has no length either
    ],
)
def test_iou_of_single_spans(found, true, expected):
    iou = interval_iou(*(np.array([time]) for time in (*found, *true)))
    assert iou.item() == pytest.approx(expected)


def test_refused_input():
    yes, one, first = np.array([True]), np.array([1.0]), np.array([0])
    with pytest.raises(ValueError, match="one shape"):
        Outcomes(yes, yes, np.ones(2), first)
    with pytest.raises(ValueError, match="no unit to score"):
        Outcomes(yes[:0], yes[:0], one[:0], first[:0])
    with pytest.raises(ValueError, match="outside 0..1"):
        Outcomes(yes, yes, np.array([np.nan]), first)
    with pytest.raises(ValueError, match="an utterance has no unit"):
        Outcomes(yes, yes, one, np.array([1]))
    with pytest.raises(ValueError, match="ends before it starts"):
        interval_iou(one, one - 1, one, one)


def test_metrics_are_named_once():
    assert len(set(METRICS)) == len(METRICS) == 10
