"""Metrics of a corpus with annotators: error types, times, words, units, insertions."""

from __future__ import annotations

import json

import pytest
from lhotse import CutSet, LilcomChunkyWriter, MonoCut, SupervisionSegment, SupervisionSet
from lhotse.supervision import AlignmentItem

from mlvae.score.experiment import score_experiment
from mlvae.score.hypotheses import outcomes, tier_hypothesis
from mlvae.score.metrics import score
from mlvae.score.reference import reference_of
from mlvae.score.tables import by_error, by_unit, details_of, format_details, times
from mlvae.score.words import word_hypothesis
from mlvae.tiers import tier, with_tiers
from tests.score.experiments import SYSTEMS, with_features

# Two words: the second unit is said as d, the third left out, the fourth has no interval.
UNITS = (
    ("a", "a", "", 0.0, 0.2),
    ("b", "d", "s", 0.2, 0.2),
    ("c", "-", "d", 0.4, 0.2),
    ("d", "d", "", 0.6, 0.0),
    ("b", "b", "", 0.6, 0.4),
)
WORD_OF = [0, 0, 1, 1, 1]
WORDS = ("ab", "cdb")


def annotated(unit: str = "phone", name: str = "x") -> SupervisionSegment:
    records = [
        {"word": "ab", "start": 0.0, "duration": 0.4, "wrong": True, "marked": True},
        {"word": "cdb", "start": 0.4, "duration": 0.6, "wrong": True, "marked": True},
    ]
    records = [{**record, "insertions": place} for place, record in enumerate(records)]
    units = UNITS
    if unit == "bpe":
        units = [(r["word"], "*", "s", r["start"], r["duration"]) for r in records]
    return SupervisionSegment(
        name,
        name,
        0.0,
        1.0,
        speaker="NJS",
        custom={
            "split": "test",
            "units_from": [name] * len(units),
            "error": [error for _, _, error, _, _ in units],
            "annotated": [duration > 0 for *_, duration in units],
            "words": records,
            "insertions": [{"symbol": "k", "start": 0.9, "duration": 0.1, "word": 1}],
            "unplaced": [],
            "excused": [],
        },
        alignment={
            "canonical": [AlignmentItem(c, start, length) for c, _, _, start, length in units],
            "perceived": [AlignmentItem(p, start, length) for _, p, _, start, length in units],
        },
    )


def covered(perceived: str = "aD-db", name: str = "x", late: float = 0.0) -> MonoCut:
    """``D`` stands for a rightly perceived d; a unit that was left out has no length."""
    starts = [0.0, 0.2 + late, 0.4, 0.4, 0.6]
    ends = [*starts[1:], 1.0]
    spans = [(s, 0.0 if h == "-" else e - s) for s, e, h in zip(starts, ends, perceived)]
    symbols = [unit[0] for unit in UNITS]
    custom = {"units": symbols, "words": list(WORDS), "word_of_unit": WORD_OF}
    supervision = SupervisionSegment(name, name, 0.0, 1.0, custom=custom)
    cut = MonoCut(name, 0.0, 1.0, 0, supervisions=[supervision])
    said = perceived.lower()
    scores = [0.9 if a != b else 0.2 for a, b in zip(symbols, said)]
    return with_tiers(
        cut,
        {
            "fa": [AlignmentItem(u, *span) for u, span in zip(symbols, spans)],
            "mlvae": [AlignmentItem(u, *s, p) for u, s, p in zip(symbols, spans, scores)],
            "mlvae_perceived": [AlignmentItem(u, *s, p) for u, s, p in zip(said, spans, scores)],
            "mlvae_word": [
                AlignmentItem("ab", 0.0, 0.4, 0.95),
                AlignmentItem("cdb", 0.4, 0.6, 0.9),
            ],
        },
    )


def hypothesis_of(reference, cut):
    return tier_hypothesis("ours", reference, [cut], "mlvae", "mlvae_perceived")


def test_errors_count_by_their_type():
    reference = reference_of([annotated()])
    found = by_error(reference, hypothesis_of(reference, covered()))
    assert (found["num_substituted"], found["num_deleted"], found["num_correct"]) == (1, 1, 3)
    assert (found["substituted_flagged"], found["deleted_flagged"]) == (1.0, 1.0)
    assert found["correct_flagged"] == 0.0
    assert found["deletion_f1"] == 1.0
    worse = by_error(reference, hypothesis_of(reference, covered("a--db")))
    assert worse["deletion_precision"] == 0.5
    assert worse["deletion_f1"] == pytest.approx(2 / 3)
    never = by_error(reference, hypothesis_of(reference, covered("abcdd")))
    assert (never["substituted_flagged"], never["deletion_f1"]) == (0.0, None)
    assert never["correct_flagged"] == pytest.approx(1 / 3)


def test_only_kinds_that_are_there_have_a_column():
    """Where silence is a unit, an insertion is one as well."""
    segment = annotated()
    segment.custom["error"][2] = "a"
    segment.custom["insertions"] = []
    reference = reference_of([segment])
    details = details_of(reference, [tier_hypothesis("oracle", reference, [covered()], "fa")], [])
    assert details["errors"]["oracle"]["num_inserted"] == 1
    text = format_details(details, "x")
    metrics = text.split("Metrics are in percent")[0]
    (errors,) = [line for line in metrics.splitlines() if line.startswith("errors")]
    (times,) = [line for line in metrics.splitlines() if line.startswith("times")]
    assert all(kind in errors for kind in ("substituted (1)", "inserted (1)", "correct (3)"))
    assert "deleted" not in errors and "deleted" not in times
    assert " ".join(times.split()) == "times average IoU substituted inserted correct start 20 ms"
    assert "Every annotated error is in these metrics." in text
    assert "\nwords" not in metrics


def test_units_without_an_interval_do_not_count_for_times():
    reference = reference_of([annotated()])
    hypothesis = hypothesis_of(reference, covered(late=0.05))
    found = times(reference, hypothesis)
    iou = [0.2 / 0.25, 0.15 / 0.2, 0.0, 1.0]
    assert found["average_iou"] == pytest.approx(sum(iou) / 4)
    assert score(outcomes(reference, hypothesis)).average_iou == pytest.approx(sum(iou) / 4)
    assert found["iou_deleted"] == 0.0
    assert found["iou_correct"] == pytest.approx((iou[0] + 1) / 2)
    assert found["median_start_error"] == pytest.approx(0.0)
    assert found["starts_within_tolerance"] == pytest.approx(2 / 3)


def test_every_unit_has_metrics_of_its_own():
    reference = reference_of([annotated()])
    found = by_unit(reference, hypothesis_of(reference, covered("aD-dd")))
    assert found["b"] == {
        "num_units": 2,
        "num_mispronounced": 1,
        "precision": 0.5,
        "recall": 1.0,
        "f1": pytest.approx(2 / 3),
    }
    assert found["a"]["f1"] == 0.0


def test_a_word_is_flagged_where_any_of_its_units_is():
    cut = word_hypothesis(covered("aDcdb"), "mlvae", "mlvae_perceived")
    assert [(i.symbol, i.start, i.score) for i in tier(cut, "mlvae")] == [
        ("ab", 0.0, 0.95),
        ("cdb", 0.4, 0.9),
    ]
    assert [item.symbol for item in tier(cut, "mlvae_perceived")] == ["*", "cdb"]
    assert [item.duration for item in tier(cut, "fa")] == pytest.approx([0.4, 0.6])
    words = reference_of([annotated()]).annotation.words
    assert words.canonical == list(WORDS)
    assert score(outcomes(words, hypothesis_of(words, cut))).hard_recall == 0.5
    plain = covered()
    del plain.supervisions[0].custom["words"]
    assert word_hypothesis(plain, "mlvae", "mlvae_perceived") is None


def test_what_is_apart_is_said():
    reference = reference_of([annotated(), annotated(name="y")])
    hypothesis = hypothesis_of(reference, covered())
    details = details_of(reference, [hypothesis_of(reference, covered()), hypothesis], [])
    assert details["counts"] == {
        "insertions": 2,
        "words with insertions": 2,
        "unplaced": 0,
        "excused": 0,
    }
    assert details["errors"]["ours"]["num_correct"] == 6


def test_a_corpus_whose_mismatches_were_made_has_no_details(folders):
    assert score_experiment(*folders, SYSTEMS) == 0
    assert not (folders[1] / "details.txt").exists()


def test_of_many_kinds_of_units_the_most_frequent_are_listed():
    reference = reference_of([annotated()])
    details = details_of(reference, [tier_hypothesis("oracle", reference, [covered()], "fa")], [])
    row = {"num_mispronounced": 0, "precision": 0.0, "recall": 0.0, "f1": 0.0}
    many = {f"w{number}": {"num_units": number, **row} for number in range(100, 200)}
    details["units"] = {"oracle": many}
    lines = format_details(details, "x").splitlines()
    shown = [line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in many]
    assert shown == [f"w{number}" for number in range(150, 200)]


@pytest.mark.parametrize("unit", ["phone", "bpe"])
def test_stage_6_of_phones_and_of_tokens(unit, tmp_path, capsys):
    data, exp = tmp_path / "data", tmp_path / "exp"
    data.mkdir()
    corpus = {"title": "L2-ARCTIC (simulated)", "synthetic": True, "unit": unit}
    (data / "corpus.json").write_text(json.dumps(corpus))
    names = ("x", "y")
    reference = SupervisionSet.from_segments(annotated(unit, name) for name in names)
    reference.to_file(data / "reference.jsonl.gz")
    with LilcomChunkyWriter(tmp_path / "feats") as writer:
        cuts = [with_features(covered(name=name), writer) for name in names]
    for system in ("fa", "ml-vae-sub"):
        (exp / system).mkdir(parents=True)
        CutSet.from_cuts(cuts).to_file(exp / system / "cuts_test.jsonl.gz")
        training = {"num_params": 20, "training_seconds": 1.5}
        (exp / system / "training.json").write_text(json.dumps(training))
    assert score_experiment(data, exp, SYSTEMS, num_resamples=50) == 0
    results = json.loads((exp / "results.json").read_text())
    heading = (exp / "table.txt").read_text().splitlines()[0]
    number, kind = (10, "units") if unit == "phone" else (4, "words")
    assert heading.startswith(f"L2-ARCTIC (simulated): 2 test utterances, {number} {kind}, ")
    assert results["counts"]["num_units"] == number
    assert results["systems"]["ML-VAE-sub"]["hard_f1"] == 1.0
    words = results["details"]["words"]["ML-VAE-sub"]
    assert (words["hard_f1"], words["average_iou"]) == (1.0, pytest.approx(1.0))
    assert ("words" in results and bool(results["words"])) == (unit == "phone")
    text = (exp / "details.txt").read_text()
    assert text.startswith(heading)
    assert "2 inserted sounds in 2 words" in text
    assert max(map(len, text.splitlines())) <= 120
    assert (exp / "utterance.png").exists()


def test_stage_6_without_words_says_nothing_of_words(tmp_path, capsys):
    """As in protocol annotation: the reference knows words, the hypotheses do not."""
    data, exp = tmp_path / "data", tmp_path / "exp"
    data.mkdir()
    (data / "corpus.json").write_text(json.dumps({"title": "L2-ARCTIC", "synthetic": False}))
    SupervisionSet.from_segments([annotated()]).to_file(data / "reference.jsonl.gz")
    cut = covered()
    for name in ("words", "word_of_unit"):
        del cut.supervisions[0].custom[name]
    (exp / "fa").mkdir(parents=True)
    with LilcomChunkyWriter(tmp_path / "feats") as writer:
        CutSet.from_cuts([with_features(cut, writer)]).to_file(exp / "fa" / "cuts_test.jsonl.gz")
    (exp / "fa" / "training.json").write_text(json.dumps({"num_params": 1, "training_seconds": 1}))
    assert score_experiment(data, exp, SYSTEMS, num_resamples=20) == 0
    assert json.loads((exp / "results.json").read_text())["details"]["words"] == {}
    assert not any(
        line.startswith("words ") and "hard" in line
        for line in (exp / "details.txt").read_text().splitlines()
    )


def test_a_table_of_many_systems_stays_readable():
    reference = reference_of([annotated()])
    hypothesis = hypothesis_of(reference, covered())
    details = details_of(reference, [tier_hypothesis("oracle", reference, [covered()], "fa")], [])
    details["units"].update({name: details["units"]["oracle"] for name in ("A", "FA")})
    (line,) = [line for line in format_details(details, "x").splitlines() if "wrong  " in line]
    assert line.split() == ["units", "number", "wrong", "A"]
    assert hypothesis.flags.any()
    # Every system of the paper and ours; what flags the same has no column of its own.
    for number, system in enumerate(SYSTEMS):
        own = by_unit(reference, hypothesis)
        next(iter(own.values()))["f1"] = number / 100
        details["units"][system.label] = own
    details["units"]["GOP-FA-ratio"] = details["units"]["GOP-FA"]
    lines = format_details(details, "x").splitlines()
    assert max(map(len, lines)) <= 120
    heads = [line.split("  ") for line in lines if "wrong  " in line]
    names = [[name.strip() for name in head if name.strip()][3:] for head in heads]
    labels = [system.label for system in SYSTEMS if system.label not in ("FA", "GOP-FA-ratio")]
    assert [name for own in names for name in own] == ["A", *labels]
