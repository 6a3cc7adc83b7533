"""run.sh with recipes that have a corpus and options of their own."""

from __future__ import annotations

import pytest

from tests.shell_project import Project
from tests.test_run import run, stages

L2ARCTIC = ("--recipe", "l2arctic")
OWN = ("--recipe", "own", "--corpus-dir", "mine.csv")
SPEECHOCEAN = ("--recipe", "speechocean762", "--corpus-dir", "so")


@pytest.fixture
def project(tmp_path) -> Project:
    return Project(tmp_path)


def test_each_recipe_has_its_default_corpus(project):
    assert run(project, *L2ARCTIC).returncode == 0
    prepare, _, units, *_, score = stages(project)
    assert prepare.endswith(
        "l2arctic/prepare.py --corpus simulate --data-dir data/simulate --seed 0 "
        "--corpus-dir data/simulate/corpus --protocol text --unit phone --unknown-words stop"
    )
    assert units.endswith("units.py --data-dir data/simulate")
    assert score.endswith(
        "--exp-dir exp/l2arctic/simulate/small --config ./recipes/l2arctic/conf/small.yaml --seed 0"
    )


def test_a_folder_of_the_real_corpus_is_enough(project):
    (project.root / "l2").mkdir()
    assert run(project, "--corpus-dir", "l2", "--recipe=l2arctic").returncode == 0
    assert " --corpus l2arctic --data-dir data/l2arctic " in stages(project)[0]
    assert " --corpus-dir l2 " in stages(project)[0]


def test_a_recipe_is_one_file(project):
    """One without configurations has those of recipes/own."""
    (project.root / "recipes" / "mine").mkdir()
    (project.root / "recipes" / "mine" / "prepare.py").touch()
    assert run(project, "--recipe", "mine", "--corpus", "three").returncode == 0
    *_, score = stages(project)
    assert score.endswith(
        "--exp-dir exp/mine/three/small --config ./recipes/own/conf/small.yaml --seed 0"
    )
    failed = run(project, "--recipe", "mine", "--corpus", "three", "--config", "huge")
    assert "there is no config 'huge' (found: paper, small)" in failed.stderr


def test_options_of_a_recipe_reach_their_stages(project):
    (project.root / "words.txt").touch()
    phones = ("--unknown-words", "skip", "--suitcase", "true", "--lexicon", "words.txt")
    assert run(project, *L2ARCTIC, *phones, "--stop-stage", "0").returncode == 0
    (prepare,) = stages(project)
    assert prepare.endswith(
        "--protocol text --unit phone --unknown-words skip --lexicon words.txt --suitcase"
    )
    tokens = ("--unit", "bpe", "--vocab-size=50", "--stage", "2", "--stop-stage", "2")
    assert run(project, *L2ARCTIC, *tokens).returncode == 0
    assert stages(project)[-1].endswith("--data-dir data/simulate-bpe --vocab-size 50")


def test_recordings_of_ones_own_may_come_as_a_file(project):
    (project.root / "mine.csv").touch()
    (project.root / "words.txt").touch()
    assert run(project, *OWN, "--lexicon", "words.txt").returncode == 0
    prepare, *_, train, _, _ = stages(project)
    assert prepare.endswith(
        "--corpus own --data-dir data/own --seed 0 --corpus-dir mine.csv --unit phone "
        "--unknown-words skip --lexicon words.txt"
    )
    assert "--systems ml-vae-sub" in train and "--exp-dir exp/own/own/small" in train
    others = ("--systems", "ml-vae", "--corpus=anna", "--allow-commands=true", "--unit", "bpe")
    assert run(project, *OWN, *others, "--vocab-size=50", "--stop-stage", "4").returncode == 0
    prepare, fbank, units, _, train = stages(project)[-5:]
    assert " --data-dir data/anna-bpe " in prepare
    assert prepare.endswith("--unit bpe --unknown-words skip --allow-commands true")
    assert fbank.endswith("--allow-commands true") and units.endswith("--vocab-size 50")
    assert train.endswith("--systems ml-vae")
    assert run(project, *OWN[:2], "--stage", "6").returncode == 0  # no recordings are needed
    (project.root / "m").mkdir()
    (project.root / "m" / "model.json").touch()
    assert run(project, *OWN, "--unit=lexicon", "--init", "m").returncode == 0
    found = stages(project)[-7:]
    assert [number for number in range(7) if found[number].endswith("--init m")] == [0, 2, 3, 4]
    rules = ("--unit", "lexicon", "--g2p=de", "--g2p-table", "words.txt", "--stop-stage", "0")
    assert run(project, *OWN, *rules).returncode == 0
    assert stages(project)[-1].endswith("skip --g2p de --g2p-table words.txt")


def test_protocols_lie_side_by_side_and_share_the_simulated_corpus(project):
    assert run(project, *L2ARCTIC, "--protocol", "annotation", "--data-dir", "d").returncode == 0
    prepare, *_, score = stages(project)
    assert " --data-dir d/simulate-annotation --seed 0 --corpus-dir d/simulate/corpus " in prepare
    assert "--exp-dir exp/l2arctic/simulate-annotation/small" in score


def test_protocols_and_splits_of_speechocean762_lie_side_by_side(project):
    (project.root / "so").mkdir()
    assert run(project, *SPEECHOCEAN, "--stop-stage", "0").returncode == 0
    assert stages(project)[-1].endswith(
        "--corpus speechocean762 --data-dir data/speechocean762 --seed 0 --corpus-dir so "
        "--unknown-words skip"
    )
    other = ("--protocol", "text", "--split", "speakers", "--stop-stage", "0")
    assert run(project, *SPEECHOCEAN, *other).returncode == 0
    prepare = stages(project)[-1]
    assert " --data-dir data/speechocean762-text-speakers " in prepare
    assert prepare.endswith("--split speakers --unknown-words skip --protocol text")
    assert run(project, *SPEECHOCEAN[:2], "--stage", "6").returncode == 0  # no folder is needed
    digits = ("--digit-strings", "true", "--stop-stage", "0")
    assert run(project, *SPEECHOCEAN, *digits).returncode == 0
    assert " --data-dir data/speechocean762-digits " in stages(project)[-1]
    assert stages(project)[-1].endswith("--unknown-words skip --digit-strings")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--protocol", "text"], "unknown option --protocol for recipe audiomnist"),
        (["--vocab-size=5"], "unknown option --vocab-size for recipe audiomnist"),
        ([*L2ARCTIC, "--protocol", "test"], "--protocol must be text or annotation, not 'test'"),
        ([*L2ARCTIC, "--unit", "word"], "--unit must be phone or bpe, not 'word'"),
        ([*L2ARCTIC, "--suitcase", "--stage", "1"], "--suitcase needs a value"),
        ([*L2ARCTIC, "--suitcase", "yes"], "--suitcase must be true or false"),
        ([*L2ARCTIC, "--lexicon", "nowhere"], "--lexicon nowhere is not a file"),
        ([*L2ARCTIC, "--lexicon", "run.sh", "--unit=bpe"], "--lexicon goes with --protocol text"),
        ([*L2ARCTIC, "--vocab-size", "9"], "--vocab-size goes with --unit bpe"),
        ([*L2ARCTIC, "--unit", "bpe", "--vocab-size", "no"], "--vocab-size must be a positive"),
        ([*L2ARCTIC, "--unit", "bpe", "--protocol=annotation"], "bpe goes with --protocol text"),
        ([*L2ARCTIC, "--corpus", "espeak"], "has the corpora simulate and l2arctic, not 'espeak'"),
        ([*SPEECHOCEAN[:2]], "needs --corpus-dir"),
        (
            [*SPEECHOCEAN, "--protocol", "annotation"],
            "--protocol must be text or corpus, not 'anno",
        ),
        ([*SPEECHOCEAN, "--split", "speaker:0001"], "--split must be official or speakers, not 's"),
        ([*SPEECHOCEAN, "--digit-strings", "1"], "--digit-strings must be true or false, not '1'"),
        ([*SPEECHOCEAN, "--corpus", "l2"], "has the corpus speechocean762, not 'l2'"),
        ([*OWN[:2]], "recipe own needs --corpus-dir: a folder of recordings and texts, a table"),
        ([*OWN, "--split", "speaker"], "recipe own takes all recordings and splits them by itself"),
        ([*OWN, "--unknown-words", "guess"], "--unknown-words must be stop or skip, not 'guess'"),
        ([*OWN, "--lexicon", "run.sh", "--unit=bpe"], "--unit bpe needs no --lexicon"),
        ([*OWN, "--unit", "lexicon"], "--unit lexicon goes with --lexicon FILE"),
        ([*OWN, "--unit=bpe", "--g2p", "de"], "--unit bpe needs no --g2p"),
        ([*OWN, "--g2p", "en-us", "--g2p-table", "run.sh"], "goes with --g2p LANGUAGE and --unit"),
        ([*OWN, "--init", "nowhere"], "--init nowhere is no model folder: it has no model.json"),
        ([*OWN, "--unit", "word"], "--unit must be phone, lexicon or bpe, not 'word'"),
        ([*OWN, "--vocab-size", "9"], "--vocab-size goes with --unit bpe"),
        (["--recipe", "none"], "there is no recipe 'none' (found: audiomnist, l2arctic, own, spee"),
    ],
)
def test_a_wrong_option_is_one_line(project, options, reason):
    result = run(project, *options)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert reason in line
    assert not stages(project)


def test_help_lists_the_options_of_the_recipe(project):
    assert "--protocol " not in run(project, "--help").stdout
    assert "--protocol " in run(project, *L2ARCTIC, "--help").stdout


def test_a_recipe_without_options_names_its_corpus(project):
    (project.root / "recipes" / "l2arctic" / "options.sh").unlink()
    assert "no default corpus" in run(project, *L2ARCTIC).stderr
    result = run(project, *L2ARCTIC, "--corpus", "own")
    assert result.returncode == 0, result.stderr
    assert "--corpus own --data-dir data/own" in stages(project)[0]
