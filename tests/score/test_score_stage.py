import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lhotse import (
    CutSet,
    MonoCut,
    SupervisionSegment,
)

from mlvae.score import experiment
from mlvae.score.experiment import choose_example, score_experiment
from mlvae.score.metrics import METRICS
from mlvae.score.reference import reference_of
from mlvae.score.tables import format_count
from tests.score.experiments import LIKE, PERCEIVED, SYSTEMS, SYSTEMS_FILE, make_experiment

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "local" / "score.py"
ROWS = ["oracle", "flag-all (FA)", "flag-all (ours)", "FA", "ML-VAE"]
ALL_ROWS = [
    "oracle",
    "flag-all (FA)",
    "flag-all (ours)",
    "flag-all (sub)",
    "FA",
    "ML-VAE",
    "ML-VAE-sub",
    "GOP-sub",
]


def rows_of(table):
    """Names in the first column of the metrics."""
    lines = table.split("\n\n")[1].splitlines()
    assert lines[0].startswith("system")
    return [name for line in lines[2:] if (name := line.split("  ")[0])]


def test_end_to_end(folders, capsys):
    data, exp = folders
    assert score_experiment(data, exp, SYSTEMS, seed=3, num_resamples=50) == 0

    results = json.loads((exp / "results.json").read_text())
    assert results["seed"] == 3
    assert results["counts"] == {
        "num_utterances": 4,
        "num_units": 17,
        "num_mismatched": 2,
        "mismatch_rate": pytest.approx(2 / 17),
    }
    assert {"torch", "k2", "lhotse", "mlvae", "python"} <= set(results["versions"])
    assert results["corpus"]["title"] == "Mismatch-tiny"
    assert list(results["systems"]) == ROWS
    for row in results["systems"].values():
        for metric in METRICS:
            low, high = row[f"{metric}_interval"]
            assert 0 <= low <= high <= 1
    ours = results["systems"]["ML-VAE"]
    # Three flags, two of them right, on spans with IoU 0.4 / 0.6.
    assert ours["pooled_precision"] == pytest.approx(2 * (0.4 / 0.6) / 3)
    assert ours["pooled_recall"] == pytest.approx(0.4 / 0.6)
    assert ours["hard_f1"] == pytest.approx(0.8)
    assert (ours["num_params"], ours["training_seconds"]) == (1_500_000, 1.5)
    assert results["systems"]["oracle"]["pooled_f1"] == 1.0
    assert results["systems"]["oracle"]["macro_f1"] == 0.5
    assert results["systems"]["FA"]["hard_f1"] == 0.0
    assert results["systems"]["flag-all (FA)"]["hard_recall"] == 1.0

    table = (exp / "table.txt").read_text()
    heading = table.splitlines()[0]
    assert heading == (
        "Mismatch-tiny (synthetic speech): 4 test utterances, 17 units, 11.8 % of them mismatched"
    )
    assert rows_of(table) == ROWS
    assert "perceived" not in table and list(results["differences"]) == [
        "ML-VAE minus flag-all (ours)"
    ]
    assert results["unavailable"] == {}
    for shown in ("1.5 M", "20 k", "80.0", "66.7", "100", "pooled", "macro", "hard", "average IoU"):
        assert shown in table
    out = capsys.readouterr().out
    assert table in out
    assert "stage 6 score: 4 in = 4 done + 0 skipped" in out
    for picture in ("utterance.png", "reliability.png"):
        assert (exp / picture).read_bytes().startswith(b"\x89PNG")


def test_every_system(all_folders, capsys):
    data, exp = all_folders
    assert score_experiment(data, exp, SYSTEMS, num_resamples=50) == 0
    results = json.loads((exp / "results.json").read_text())
    systems = results["systems"]
    assert list(systems) == ALL_ROWS
    shown = {name: (row["num_params"], row["training_seconds"]) for name, row in systems.items()}
    assert shown["ML-VAE-sub"] == shown["flag-all (sub)"] == (1_500_000, 1.5)
    assert shown["GOP-sub"] == (1_500_000, 1.5)
    assert shown["FA"] == (20_000, 1.5)

    assert systems["ML-VAE-sub"]["pooled_f1"] == systems["ML-VAE-sub"]["average_iou"] == 1.0
    # Of two substitutions found, one is named rightly; the deleted one is not named.
    assert (
        systems["ML-VAE-sub"]["perceived_accuracy"],
        systems["ML-VAE-sub"]["num_perceived"],
    ) == (0.5, 2)
    alone = systems["GOP-sub"]
    assert (alone["perceived_accuracy"], alone["num_perceived"]) == (1.0, 1)
    assert systems["flag-all (sub)"]["perceived_accuracy"] is None
    for name in ("FA", "oracle", "flag-all (ours)"):
        assert systems[name]["brier_score"] is None
        assert systems[name]["expected_calibration_error"] is None
        assert systems[name]["average_precision"] is systems[name]["area_under_curve"] is None
    brier = (16 * 0.1**2 + 0.9**2) / 17
    assert systems["ML-VAE-sub"]["brier_score"] == pytest.approx(brier)
    rate = 2 / 17
    # P is 0.9 for both units that are wrong and for one that is not, the 7, and 0.1 for the others.
    assert systems["ML-VAE-sub"]["average_precision"] == pytest.approx(2 / 3)
    assert systems["ML-VAE-sub"]["area_under_curve"] == pytest.approx(1 - 0.5 / 15)
    assert systems["ML-VAE-sub"]["brier_skill"] == pytest.approx(1 - brier / (rate * (1 - rate)))
    # One bin: mean P is (14 * 0.1 + 3 * 0.9) / 17.
    error = systems["ML-VAE-sub"]["expected_calibration_error"]
    assert error == pytest.approx((14 * 0.1 + 3 * 0.9) / 17 - rate)

    differences = results["differences"]
    assert list(differences) == [
        "ML-VAE minus flag-all (ours)",
        "ML-VAE-sub minus flag-all (ours)",
        "GOP-sub minus flag-all (FA)",
        "ML-VAE-sub minus ML-VAE",
        "ML-VAE-sub minus GOP-sub",
    ]
    first = differences["ML-VAE-sub minus ML-VAE"]
    assert first["hard_f1"] == pytest.approx(1.0 - systems["ML-VAE"]["hard_f1"])
    low, high = first["average_iou_interval"]
    assert low <= first["average_iou"] <= high

    table = (exp / "table.txt").read_text()
    assert rows_of(table) == ALL_ROWS
    assert "of 2" in table and "P(mispronounced)" in table
    probabilities = table.split("\n\n")[2]
    for name in ("ML-VAE ", "ML-VAE-sub ", "GOP-sub "):
        assert f"\n{name}" in probabilities
    (line,) = [line for line in probabilities.splitlines() if line.startswith("ML-VAE-sub ")]
    assert line.split()[1:3] == ["0.667", "0.967"]
    lines = table.split("\n\n")[3].splitlines()[2:]
    assert [line.split("  ")[0] for line in lines] == list(differences)
    assert f"{100 * first['pooled_f1']:+.1f} [" in lines[3]
    assert max(map(len, table.splitlines())) <= 120
    assert "4 in = 4 done" in capsys.readouterr().out


def test_any_system_will_do(corpus, tmp_path, capsys):
    data, cuts = corpus
    expected = {
        "fa": ["oracle", "flag-all (FA)", "FA"],
        "ml-vae": ["oracle", "flag-all (ours)", "ML-VAE"],
        "ml-vae-rl": ["oracle", "ML-VAE-RL"],
        "ml-vae-sub": ["oracle", "flag-all (sub)", "ML-VAE-sub"],
    }
    for system, rows in expected.items():
        exp = tmp_path / f"exp-{system}"
        make_experiment(exp, cuts, [system])
        assert score_experiment(data, exp, SYSTEMS, num_resamples=20) == 0
        assert rows_of((exp / "table.txt").read_text()) == rows
        assert (exp / "utterance.png").exists()
        assert (exp / "reliability.png").exists() == (system != "fa")
        differences = json.loads((exp / "results.json").read_text())["differences"]
        assert len(differences) == (system == "ml-vae")
    with pytest.raises(
        FileNotFoundError, match=r"no cuts_test.jsonl.gz in any .*\(localize\) make"
    ):
        score_experiment(data, tmp_path / "nowhere", SYSTEMS)

    # Trained, but its hypotheses are not there yet.
    capsys.readouterr()
    (exp / "ml-vae").mkdir()
    assert score_experiment(data, exp, SYSTEMS, num_resamples=20) == 0
    missing = exp / "ml-vae" / "cuts_test.jsonl.gz"
    note = f"no row for ML-VAE: {missing} is missing; stage 5 (localize) makes it"
    assert note in capsys.readouterr().out


def test_all_systems_of_the_paper(corpus, tmp_path, capsys):
    data, cuts = corpus
    exp = tmp_path / "exp"
    make_experiment(
        exp, cuts, ["w2v-ctc", *PERCEIVED, *(name for name in LIKE if name != "w2v-ctc")]
    )
    without_weights(exp / "w2v-ctc")
    assert score_experiment(data, exp, SYSTEMS, num_resamples=50) == 0
    results = json.loads((exp / "results.json").read_text())
    assert results["unavailable"] == {"w2v-CTC": "no weights at hand"}
    assert "w2v-CTC" not in results["systems"]
    table = (exp / "table.txt").read_text()
    main = rows_of(table)
    assert main[4:] == [
        *("FA", "Two-Pass-FA", "w2v-CTC", "ML-VAE", "ML-VAE-RL"),
        *("Ablation 1", "Ablation 2", "Ablation 3", "ML-VAE-sub", "GOP-sub"),
    ]
    (row,) = [line for line in table.splitlines() if line.startswith("w2v-CTC  ") and "-  " in line]
    assert row.split() == ["w2v-CTC", "-", "no", "weights", "at", "hand"]
    assert max(map(len, table.splitlines())) <= 120
    learned = [name for name in main[5:] if name not in ("w2v-CTC", "GOP-sub")]
    assert list(results["differences"]) == [
        *(f"{name} minus flag-all (ours)" for name in learned),
        "GOP-sub minus flag-all (FA)",
        *("ML-VAE-RL minus ML-VAE", "Ablation 1 minus ML-VAE-RL", "Ablation 2 minus ML-VAE"),
        *("Ablation 3 minus ML-VAE-RL", "ML-VAE-sub minus ML-VAE", "ML-VAE-sub minus GOP-sub"),
    ]
    assert "no row for" not in capsys.readouterr().out


def without_weights(folder):
    """What a system leaves that could not be trained; hypotheses are of another time."""
    (folder / "training.json").write_text('{"unavailable": "no weights at hand"}')


def test_an_interval_that_excludes_zero_is_marked(all_folders):
    data, exp = all_folders
    assert score_experiment(data, exp, SYSTEMS, num_resamples=50) == 0
    differences = json.loads((exp / "results.json").read_text())["differences"]
    excluded = {name: row["average_iou_excludes_zero"] for name, row in differences.items()}
    assert len(set(excluded.values())) == 2  # one of each kind, or this shows nothing
    for row in differences.values():
        for metric in METRICS:
            low, high = row[f"{metric}_interval"]
            assert row[f"{metric}_excludes_zero"] == (low > 0 or high < 0)
    blocks = (exp / "table.txt").read_text().split("\n\n")
    (place,) = [i for i, block in enumerate(blocks) if block.startswith("difference ")]
    lines = [line for line in blocks[place].splitlines()[2:] if "[" in line]
    assert [line.endswith("]*") for line in lines] == list(excluded.values())
    within = [name for name, row in differences.items() if not row["pooled_f1_excludes_zero"]]
    assert " ".join(blocks[place + 1].split()) == (
        f"* the 95 % interval excludes 0: for pooled F1 in {5 - len(within)} of 5 differences, "
        f"not in {'; '.join(within)}"
    )


def test_training_file_without_a_key(all_folders):
    data, exp = all_folders
    (exp / "ml-vae-sub" / "training.json").write_text('{"num_params": 1}')
    with pytest.raises(ValueError, match="training.json has no 'training_seconds'"):
        score_experiment(data, exp, SYSTEMS)


def test_same_command_same_files(folders):
    data, exp = folders
    files = ("results.json", "table.txt", "utterance.png", "reliability.png")
    score_experiment(data, exp, SYSTEMS, num_resamples=20)
    first = [(exp / file).read_bytes() for file in files]
    score_experiment(data, exp, SYSTEMS, num_resamples=20)
    assert first == [(exp / file).read_bytes() for file in files]


def test_skipped_utterances_are_counted(folders, capsys):
    data, exp = folders
    path = exp / "ml-vae" / "cuts_test.jsonl.gz"
    CutSet.from_cuts([cut for cut in CutSet.from_file(path) if cut.id != "t2"]).to_file(path)
    assert score_experiment(data, exp, SYSTEMS, num_resamples=20) == 0
    out, err = capsys.readouterr()
    assert "4 in = 3 done + 1 skipped" in out
    assert "no hypothesis for 1 of 4 utterances" in out and "(t2)" in out
    assert "  flag-all (ours); ML-VAE\n" in out
    assert "skipped t2: no hypothesis of ML-VAE; scored as missed" in err
    ours = json.loads((exp / "results.json").read_text())["systems"]["ML-VAE"]
    assert ours["num_missing"] == 1
    assert ours["hard_recall"] == 0.5
    skipped = [json.loads(line) for line in (exp / "skipped.jsonl").read_text().splitlines()]
    assert [line["id"] for line in skipped] == ["t2"]


def test_the_utterance_of_the_picture_can_be_asked_for(folders, monkeypatch):
    data, exp = folders
    path = exp / "ml-vae" / "cuts_test.jsonl.gz"
    CutSet.from_cuts([cut for cut in CutSet.from_file(path) if cut.id != "t3"]).to_file(path)
    drawn = []
    monkeypatch.setattr(
        experiment, "draw_utterance", lambda cut, **rest: drawn.append((cut.id, rest))
    )
    for wanted in ("t0", "t3", None):
        score_experiment(data, exp, SYSTEMS, num_resamples=5, utterance=wanted)
    assert [cut_id for cut_id, _ in drawn] == ["t0", "t3", "t2"]
    assert [rest["found"]["ML-VAE"] is None for _, rest in drawn] == [False, True, False]
    assert ["asked for" in rest["caption"] for _, rest in drawn] == [True, True, False]
    with pytest.raises(ValueError, match="no test utterance 'v0' to draw"):
        score_experiment(data, exp, SYSTEMS, num_resamples=5, utterance="v0")


def test_learning_curves_are_drawn_where_there_is_a_history(all_folders, capsys):
    data, exp = all_folders
    training = json.loads((exp / "ml-vae" / "training.json").read_text())
    training |= {"history": [{"loss/kl": 2.0}, {"loss/kl": 1.0}], "best_iteration": 2}
    (exp / "ml-vae" / "training.json").write_text(json.dumps(training))
    assert score_experiment(data, exp, SYSTEMS, num_resamples=5) == 0
    drawn = [str(path.relative_to(exp)) for path in exp.glob("*/learning_curves.png")]
    assert drawn == ["ml-vae/learning_curves.png"]
    assert "reliability.png, ml-vae/learning_curves.png in" in capsys.readouterr().out


def test_an_utterance_that_is_not_there_is_refused_before_anything_is_written(all_folders):
    data, exp = all_folders
    with pytest.raises(ValueError, match="no test utterance 'v0' to draw"):
        score_experiment(data, exp, SYSTEMS, num_resamples=5, utterance="v0")
    assert not (exp / "results.json").exists() and not (exp / "table.txt").exists()


def test_a_system_of_another_seed_is_named(all_folders, capsys):
    data, exp = all_folders
    path = exp / "ml-vae" / "training.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "seed": 3}))
    assert score_experiment(data, exp, SYSTEMS, seed=3, num_resamples=5) == 0
    assert json.loads((exp / "results.json").read_text())["other_seeds"] == {}
    assert "was trained with seed" not in capsys.readouterr().out
    assert score_experiment(data, exp, SYSTEMS, seed=0, num_resamples=5) == 0
    assert json.loads((exp / "results.json").read_text())["other_seeds"] == {"ML-VAE": 3}
    assert "ML-VAE was trained with seed 3, not 0" in capsys.readouterr().out


def test_what_is_flagged_is_said_at_the_end_and_what_looks_wrong(all_folders, capsys):
    """Of 17 units; a fraction that is usual is no reason to warn."""
    data, exp = all_folders
    path = exp / "ml-vae-sub" / "training.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "warnings": ["the acoustic scale lies at the edge"]}))
    assert score_experiment(data, exp, SYSTEMS, num_resamples=20) == 0
    out = capsys.readouterr().out
    assert "stage 6 score: ML-VAE: 17.6 % of 17 units flagged, 0.0 % deleted" in out
    assert "GOP-sub: 11.8 % of 17 units flagged, 5.9 % deleted" in out
    assert "ML-VAE-sub: warning: the acoustic scale lies at the edge" in out
    results = json.loads((exp / "results.json").read_text())
    assert list(results["flagged"]) == ["ML-VAE", "ML-VAE-sub", "GOP-sub"]
    assert results["flagged"]["ML-VAE"]["num_flagged"] == 3
    assert results["warnings"] == {"ML-VAE-sub": ["the acoustic scale lies at the edge"]}


def test_nothing_covered_is_a_failure(folders):
    data, exp = folders
    CutSet.from_cuts(
        MonoCut("t0", 0.0, 1.5, 0, supervisions=[SupervisionSegment("t0", "t0", 0.0, 1.5)])
        for _ in range(1)
    ).to_file(exp / "ml-vae" / "cuts_test.jsonl.gz")
    assert score_experiment(data, exp, SYSTEMS, num_resamples=20) == 1
    assert not (exp / "utterance.png").exists()
    assert not (exp / "reliability.png").exists()


@pytest.mark.parametrize(
    ("folder", "name", "stage"),
    [
        (0, "corpus.json", "stage 0 (prepare)"),
        (0, "reference.jsonl.gz", "stage 0 (prepare)"),
        (1, "fa/training.json", "stage 3 (align)"),
        (1, "ml-vae/training.json", "stage 4 (train)"),
        (1, "ml-vae-sub/training.json", "stage 4 (train)"),
    ],
)
def test_missing_inputs(all_folders, folder, name, stage):
    missing = all_folders[folder] / name
    missing.unlink()
    with pytest.raises(FileNotFoundError) as caught:
        score_experiment(*all_folders, SYSTEMS)
    assert str(caught.value) == f"{missing} is missing; {stage} makes it"


def test_script(folders):
    data, exp = folders
    command = [sys.executable, str(SCRIPT), "--data-dir", str(data), "--exp-dir", str(exp)]
    command += ["--config", str(SYSTEMS_FILE)]
    options = ["--seed", "5", "--num-resamples", "20", "--cluster", "speaker"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([*command, *options], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    results = json.loads((exp / "results.json").read_text())
    assert results["seed"] == 5
    # There is one speaker only, which cannot be resampled.
    assert results["intervals"]["over"] == "speaker"
    assert results["systems"]["ML-VAE"]["pooled_f1_interval"] is None


def test_script_says_what_is_missing_in_one_line(folders, capsys):
    data, exp = folders
    (data / "reference.jsonl.gz").unlink()
    spec = importlib.util.spec_from_file_location("score_script", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    folders = ["--data-dir", str(data), "--exp-dir", str(exp)]
    assert script.main([*folders, "--config", str(SYSTEMS_FILE)]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith("score.py: ") and "stage 0 (prepare) makes it" in err


def test_the_picture_is_chosen_by_rule(make_reference):
    items = [
        make_reference("long-right", "12345", "12345"),
        make_reference("short-wrong", "12", "13"),
        make_reference("long-wrong", "12345", "12845"),
    ]
    reference = reference_of(items)
    assert choose_example(reference, set())[0] == "long-wrong"
    assert choose_example(reference, {"long-wrong"})[0] == "short-wrong"
    chosen, rule = choose_example(reference, {"long-wrong", "short-wrong"})
    assert chosen == "long-right" and "none has a mismatch" in rule
    with pytest.raises(ValueError, match="no test utterance"):
        choose_example(reference, set(reference.utterances))


def test_format_count():
    shown = [format_count(count) for count in (None, 0, 9999, 81_234, 999_499, 24_321_000)]
    assert shown == ["-", "0", "9999", "81 k", "999 k", "24.3 M"]
