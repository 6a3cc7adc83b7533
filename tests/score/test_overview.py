"""Stage 6 without a reference: what is said of answers, and what speaks against them."""

from __future__ import annotations

import json
import shutil

import pytest
from lhotse import CutSet
from lhotse.utils import fastcopy

from mlvae.score.overview import has_reference, write_overview
from tests.data.conftest import load_script
from tests.formats import PAGE, check_records, read_page
from tests.score.experiments import SYSTEMS, SYSTEMS_FILE, make_experiment

SPEAKERS = {"t0": "ann", "t1": "ann", "t2": "bob", "t3": None}


def named(cut):
    speaker = SPEAKERS[cut.id]
    return fastcopy(cut, supervisions=[fastcopy(cut.supervisions[0], speaker=speaker)])


@pytest.fixture
def unscored(corpus, tmp_path):
    """The folders of a corpus without a reference, and of an experiment."""
    data, cuts = corpus
    about = {"title": "mine", "sampling_rate": 8000, "test": "all", "reference": False}
    (data / "corpus.json").write_text(json.dumps(about))
    (data / "reference.jsonl.gz").write_text("of another corpus; nobody looks at it")
    cuts = [named(cut) for cut in cuts]
    (data / "fbank").mkdir()
    CutSet.from_cuts(cuts).to_file(data / "fbank" / "cuts_test.jsonl.gz")
    CutSet.from_cuts(cuts[:3]).to_file(data / "fbank" / "cuts_train.jsonl.gz")
    make_experiment(tmp_path / "exp", cuts, ["fa", "ml-vae", "ml-vae-sub", "gop-sub"])
    return data, tmp_path / "exp"


def stage(data, exp, *options: str) -> int:
    said = ["--data-dir", str(data), "--exp-dir", str(exp), "--config", str(SYSTEMS_FILE)]
    return load_script("local/score.py")([*said, "--seed", "3", *options])


def test_what_can_be_said_without_a_reference(unscored, capsys):
    data, exp = unscored
    path = exp / "ml-vae-sub" / "training.json"
    training = json.loads(path.read_text()) | {
        "best_iteration": 2,
        "history": [{"corrupted_f1": 0.1}, {"corrupted_f1": 0.5}, {"corrupted_f1": 0.4}],
        "acoustic_scale": 0.2,
        "scale_log_loss": {"0.1": 0.4, "0.2": 0.35},
        "judge": {"expected_rate": 0.1, "rate": 0.15},
        "warnings": ["the acoustic scale lies at the edge"],
    }
    path.write_text(json.dumps(training))
    assert stage(data, exp) == 0
    out = capsys.readouterr().out
    text = (exp / "overview.txt").read_text()
    assert text in out and "4 in = 4 done + 0 skipped" in out
    assert not (exp / "results.json").exists()
    assert (exp / "ml-vae-sub" / "learning_curves.png").exists()
    assert text.startswith("mine: 4 recordings; no reference, so that nothing here says how often")
    assert "learned from 3 utterances (0.1 minutes, speakers named: 2)" in text
    assert "warning: 3 sentences and 0.1 minutes to learn from" in text
    assert "replaced on purpose in the validation part are found with F1 50.0 (iteration 2)" in text
    assert "log loss of P(mispronounced) there 0.350, with acoustic scale 0.2" in text
    assert "holds 15.0 % of the units of the validation part for mispronounced, where 10.0" in text
    assert "warning: the acoustic scale lies at the edge" in text
    assert "GOP" not in text  # it has no threshold that was chosen for these recordings

    content = json.loads((exp / "overview.json").read_text())
    assert check_records(exp / "overview.json", read_page(PAGE.read_text())["overview.json"]) == 1
    assert content["num_utterances"] == 4 and content["seed"] == 3
    assert list(content["systems"]) == ["ML-VAE", "ML-VAE-sub"]
    assert content["systems"]["ML-VAE"]["replaced_f1"] is None
    ours = content["systems"]["ML-VAE-sub"]
    assert (ours["replaced_f1"], ours["log_loss"], ours["rate"]) == (0.5, 0.35, 0.15)
    # 0 was perceived as 4 in t2, and 5 as 2 in t3.
    assert ours["units"]["0"]["num_flagged"] == ours["units"]["5"]["num_flagged"] == 1
    assert (ours["units"]["0"]["num_units"], ours["units"]["5"]["num_units"]) == (1, 3)
    assert list(ours["units"])[:2] == ["0", "5"]
    assert {name: row["flagged"] for name, row in ours["speakers"].items()} == {
        "(not named)": 0.25,
        "bob": 0.2,
        "ann": 0.0,
    }
    assert list(ours["speakers"]) == ["(not named)", "bob", "ann"]
    rows = [line.split() for line in text.splitlines()]
    assert ["bob", "1", "5", "0", "20.0"] in rows and ["0", "1", "1", "0", "100.0"] in rows


def test_more_than_a_third_flagged_is_warned_of(unscored):
    data, exp = unscored
    path = exp / "ml-vae" / "cuts_test.jsonl.gz"
    cuts = [cut for cut in CutSet.from_file(path) if cut.id == "t1"]  # 1 of 5
    for cut in cuts:
        perceived = cut.supervisions[0].alignment["mlvae_perceived"]
        perceived[:2] = [item._replace(symbol="*") for item in perceived[:2]]
    CutSet.from_cuts(cuts).to_file(path)
    assert write_overview(data, exp, SYSTEMS) == 0
    warnings = json.loads((exp / "overview.json").read_text())["warnings"]
    assert (
        list(warnings) == ["ML-VAE"] and "60.0 % of the units are flagged" in warnings["ML-VAE"][0]
    )
    assert f"  warning: {warnings['ML-VAE'][0]}\n" in (exp / "overview.txt").read_text()


def test_utterances_without_an_answer_are_skipped_by_name(unscored, capsys):
    data, exp = unscored
    path = exp / "ml-vae" / "cuts_test.jsonl.gz"
    CutSet.from_cuts([cut for cut in CutSet.from_file(path) if cut.id != "t2"]).to_file(path)
    assert stage(data, exp) == 0
    out, err = capsys.readouterr()
    assert "4 in = 3 done + 1 skipped" in out
    assert "skipped t2: no answer of ML-VAE\n" in err


def test_nobody_is_named_where_nobody_is(unscored, tmp_path):
    data, exp = unscored
    path = exp / "ml-vae" / "cuts_test.jsonl.gz"
    CutSet.from_cuts([cut for cut in CutSet.from_file(path) if cut.id == "t3"]).to_file(path)
    assert write_overview(data, exp, SYSTEMS) == 0
    assert json.loads((exp / "overview.json").read_text())["systems"]["ML-VAE"]["speakers"] == {}


def test_the_same_answers_give_the_same_files(unscored):
    data, exp = unscored
    first = None
    for _ in range(2):
        assert write_overview(data, exp, SYSTEMS) == 0
        written = [(exp / name).read_bytes() for name in ("overview.json", "overview.txt")]
        assert first in (None, written)
        first = written


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        ("exp/ml-vae", None),
        ("exp", "no cuts_test.jsonl.gz in any of the folders"),
        ("exp/ml-vae-sub/training.json", "training.json is missing; stage 4 (train) makes it"),
        ("data/fbank/cuts_train.jsonl.gz", "cuts_train.jsonl.gz: run the stage before this one"),
        ("data/corpus.json", "corpus.json is missing; stage 0 (prepare) makes it"),
    ],
)
def test_what_is_missing_is_named_in_one_line(unscored, tmp_path, capsys, lost, reason):
    place = tmp_path / lost
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    assert stage(*unscored) == (reason is not None)
    if reason:
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("score.py: ") and reason in line
        assert not (tmp_path / "exp" / "overview.json").exists()


def test_alignment_alone_is_no_answer(unscored, capsys):
    data, exp = unscored
    for name in ("ml-vae", "ml-vae-sub", "gop-sub"):
        shutil.rmtree(exp / name)
    assert stage(data, exp) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "no system that flags units has answers" in line


def test_no_utterance_is_drawn(unscored, capsys):
    assert stage(*unscored, "--utterance", "t0") == 1
    assert "no utterance is drawn (--utterance)" in capsys.readouterr().err


def test_a_corpus_has_a_reference_unless_it_says_otherwise(tmp_path):
    path = tmp_path / "corpus.json"
    assert has_reference(tmp_path)
    for content, expected in (('{"title": "x"}', True), ('{"reference": false}', False)):
        path.write_text(content)
        assert has_reference(tmp_path) == expected


@pytest.mark.parametrize(
    ("content", "reason"), [("{", "is no JSON: "), ("[]", "holds no JSON object")]
)
def test_a_damaged_corpus_file_is_named_in_one_line(unscored, capsys, content, reason):
    data, exp = unscored
    (data / "corpus.json").write_text(content)
    assert stage(data, exp) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"score.py: {data / 'corpus.json'} {reason}")
