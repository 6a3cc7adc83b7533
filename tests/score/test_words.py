"""Probabilities of words against the reference of their units."""

from __future__ import annotations

import json

import pytest
from lhotse import CutSet, MonoCut, SupervisionSegment, SupervisionSet
from lhotse.supervision import AlignmentItem

from mlvae.score.experiment import score_experiment
from mlvae.score.reference import read_reference
from mlvae.score.words import word_calibration, word_metrics
from mlvae.tiers import with_tiers
from tests.score.experiments import SYSTEMS


def said(make_reference, tmp_path):
    """Two utterances: the first word of x and the second of y are mispronounced."""
    units = [make_reference("x", "1234", "1634"), make_reference("y", "123", "129")]
    SupervisionSet.from_segments(units).to_file(tmp_path / "reference.jsonl.gz")
    return read_reference(tmp_path / "reference.jsonl.gz")


def hypothesis(name: str, units: str, word_of: list[int], chances: list[float]) -> MonoCut:
    words = [f"w{number}" for number in range(word_of[-1] + 1)]
    custom = {"units": list(units), "words": words, "word_of_unit": word_of}
    supervision = SupervisionSegment(name, name, 0.0, 2.0, custom=custom)
    items = [AlignmentItem("w", 0.1 * i, 0.1, chance) for i, chance in enumerate(chances)]
    cut = MonoCut(name, 0.0, 2.0, 0, supervisions=[supervision])
    return with_tiers(cut, {"mlvae_word": items})


def test_a_word_is_mispronounced_if_any_of_its_units_is(make_reference, tmp_path):
    reference = said(make_reference, tmp_path)
    cuts = [
        hypothesis("y", "123", [0, 1, 1], [0.1, 0.7]),
        hypothesis("x", "1234", [0, 0, 1, 1], [0.8, 0.3]),
    ]
    metrics = word_calibration(reference, cuts)
    assert (metrics.num_units, metrics.base_rate) == (4, 0.5)
    brier = (0.1**2 + 0.3**2 + 0.2**2 + 0.3**2) / 4
    assert metrics.brier_score == pytest.approx(brier)
    assert word_metrics(reference, {"ours": cuts, "none": []}) == {
        "ours": {
            "average_precision": metrics.average_precision,
            "area_under_curve": metrics.area_under_curve,
            "brier_score": pytest.approx(brier),
            "brier_skill": pytest.approx(1 - brier / 0.25),
            "expected_calibration_error": metrics.expected_calibration_error,
            "num_words": 4,
            "mispronounced_rate": 0.5,
        }
    }


def test_words_of_one_unit_and_cuts_without_words_are_omitted(make_reference, tmp_path):
    reference = said(make_reference, tmp_path)
    assert word_calibration(reference, [hypothesis("y", "123", [0, 1, 2], [0.1, 0.7, 0.2])]) is None
    plain = SupervisionSegment("x", "x", 0.0, 2.0, custom={"units": list("1234")})
    bare = MonoCut("x", 0.0, 2.0, 0, supervisions=[plain])
    metrics = word_calibration(reference, [bare, hypothesis("y", "123", [0, 0, 1], [0.1, 0.7])])
    assert metrics.num_units == 2


def test_what_does_not_fit_the_reference_is_refused(make_reference, tmp_path):
    reference = said(make_reference, tmp_path)
    with pytest.raises(ValueError, match="no reference for utterance z"):
        word_calibration(reference, [hypothesis("z", "123", [0, 1, 1], [0.1, 0.7])])
    for cut in (
        hypothesis("x", "123", [0, 1, 1], [0.1, 0.7]),
        hypothesis("x", "1234", [0, 1, 1, 1], [0.1, 0.7, 0.2]),
    ):
        with pytest.raises(ValueError, match="utterance x has"):
            word_calibration(reference, [cut])


def test_results_have_the_metrics_of_words(folders):
    data, exp = folders
    assert score_experiment(data, exp, SYSTEMS, num_resamples=20) == 0
    assert json.loads((exp / "results.json").read_text())["words"] == {}  # no cut has words
    path = exp / "ml-vae" / "cuts_test.jsonl.gz"
    cuts = []
    for cut in CutSet.from_file(path):
        units = [item.symbol for item in cut.supervisions[0].alignment["mlvae"]]
        word_of = [number // 2 for number in range(len(units))]
        words = [f"w{number}" for number in range(word_of[-1] + 1)]
        cut.supervisions[0].custom = {"units": units, "words": words, "word_of_unit": word_of}
        items = [AlignmentItem(word, 0.0, 0.1, 0.25) for word in words]
        cuts.append(with_tiers(cut, {"mlvae_word": items}))
    CutSet.from_cuts(cuts).to_file(path)
    assert score_experiment(data, exp, SYSTEMS, num_resamples=20) == 0
    found = json.loads((exp / "results.json").read_text())["words"]
    assert list(found) == ["ML-VAE"]
    assert found["ML-VAE"]["num_words"] == sum(len(c.supervisions[0].custom["words"]) for c in cuts)
