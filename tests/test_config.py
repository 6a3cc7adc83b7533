from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from mlvae.config import TRAINED, RecipeConfig, SystemConfig, load_config
from mlvae.device import num_parameters
from mlvae.em import Decoding, TrainConfig
from mlvae.nn import MlVae
from mlvae.nn.baseline import RewardBaseline

CONF = Path(__file__).resolve().parents[1] / "recipes" / "audiomnist" / "conf"


def write(folder: Path, text: str) -> Path:
    path = folder / "some.yaml"
    path.write_text(text)
    return path


def test_what_a_file_leaves_out_has_its_default(tmp_path):
    config = load_config(
        write(
            tmp_path,
            "ml_vae:\n  train: {decoding: {acoustic_scale: 0.5}, learning_rate: 1.0e-2}\n"
            "  model: {generator: {num_variants: 1}}\n"
            "align:\n  model:\n    context: 2\n"
            "ml_vae_sub:\n  train: {label_smoothing: 0.1, relabel_after: 9, estimate_after: 2}\n"
            "  edges: aligner\n",
        )
    )
    expected = RecipeConfig()
    expected.ml_vae.train.decoding.acoustic_scale = 0.5
    expected.ml_vae.train.learning_rate = 0.01
    expected.ml_vae.model.generator.num_variants = 1
    expected.align.model.context = 2
    expected.ml_vae_sub.train.label_smoothing = 0.1
    expected.ml_vae_sub.train.relabel_after = 9
    expected.ml_vae_sub.train.estimate_after = 2
    expected.ml_vae_sub.edges = "aligner"
    assert expected.ml_vae_sub.train.topology == "substitution"
    assert config == expected
    assert config != RecipeConfig()


def test_reading_twice_does_not_mix_files(tmp_path):
    load_config(write(tmp_path, "ml_vae:\n  train:\n    iterations: 3\n"))
    assert load_config(write(tmp_path, "deltas: true\n")).ml_vae.train.iterations == 50


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ml_vea:\n  edges: path\n", "ml_vea"),
        ("train:\n  iterations: 3\n", "train"),
        ("ml_vae: {trian: {iterations: 3}}\n", "trian"),
        ("ml_vae: {train: {iterationes: 3}}\n", "iterationes"),
        ("ml_vae_sub: {train: {iterations: many}}\n", "iterations"),
        ("ml_vae: {train: {selection: best}}\n", "selection must be"),
        ("ml_vae_sub: {train: {topology: circle}}\n", "topology must be"),
        ("ml_vae: {train: {relabel_after: 3}}\n", "relabel_after goes with"),
        ("ml_vae_sub: {calibration: {scales: [0.1, wide]}}\n", "scales"),
        ("ml_vae_sub: {calibration: {corruption_rate: 0}}\n", "corruption_rate must be a number "),
        ("ml_vae_sub: {edges: narrow}\n", "edges must be one of path, aligner"),
        ("deltas: perhaps\n", "deltas"),
        ("ml_vae: [1\n", "some.yaml"),
        ("", "some.yaml"),
        ("just text\n", "some.yaml"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(tmp_path, text, reason):
    with pytest.raises(ValueError, match="some.yaml") as caught:
        load_config(write(tmp_path, text))
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_may_say_what_differs_from_another(tmp_path):
    (tmp_path / "base.yaml").write_text(
        "deltas: true\nml_vae: {train: {iterations: 3, max_frames: 900}}\n", encoding="utf-8"
    )
    changes = "base: base.yaml\nml_vae: {train: {iterations: 5}, edges: aligner}\n"
    config = load_config(write(tmp_path, changes))
    assert config.deltas
    assert (config.ml_vae.train.iterations, config.ml_vae.train.max_frames) == (5, 900)
    assert config.ml_vae.edges == "aligner"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("base: gone.yaml\n", "there is no configuration"),
        ("base: some.yaml\n", "leads back"),
        ("base: 3\n", "must be the name of a file"),
    ],
)
def test_a_base_that_cannot_be_read(tmp_path, text, reason):
    with pytest.raises(ValueError, match="some.yaml.*" + reason):
        load_config(write(tmp_path, text))


def test_every_configuration_of_the_recipe_can_be_read():
    variants = [path for path in CONF.glob("sub-*.yaml") if load_config(path)]
    small = load_config(CONF / "small.yaml")
    assert len(variants) >= 3
    for path in variants:
        varied = load_config(path)
        assert varied.ml_vae_sub != small.ml_vae_sub
        varied.ml_vae_sub = small.ml_vae_sub
        assert varied == small


def test_an_absent_file(tmp_path):
    with pytest.raises(ValueError, match=r"there is no configuration .*gone.yaml"):
        load_config(tmp_path / "gone.yaml")


def test_paper_is_the_paper():
    config = load_config(CONF / "paper.yaml")
    assert config.ml_vae == SystemConfig(train=config.ml_vae.train)
    assert config.deltas
    lstm = {"lstm_layers": 2, "lstm_size": 512, "bidirectional": False, "fc_size": 128}
    assert asdict(config.ml_vae.model.boundary) == {**lstm, "dropout": 0.0}
    estimator = asdict(config.ml_vae.model.estimator)
    assert {name: estimator[name] for name in (*lstm, "dropout", "kind")} == {
        **lstm,
        "dropout": 0.0,
        "kind": "lstm",
    }
    assert asdict(config.ml_vae.model.generator) == {
        "encoder_fc_size": 32,
        "encoder_lstm_layers": 4,
        "encoder_lstm_size": 512,
        "bidirectional": False,
        "latent_size": 32,
        "num_variants": 3,
        "gumbel_temperature": 0.1,
        "variant_fc_size": 128,
        "correctness_fc_size": 128,
        "decoder_layers": 4,
        "decoder_size": 512,
    }
    train = config.ml_vae.train
    assert (train.iterations, train.learning_rate) == (50, 1e-3)
    lambdas = train.boundary_kl_weight, train.generator_kl_weight, train.correctness_weight
    assert lambdas == (0.01, 1.0, 0.001)
    assert train.boundary_prior_strength == 10.0
    assert train == TrainConfig(max_frames=train.max_frames)


@pytest.mark.parametrize("name", ["small", "paper"])
def test_rl_and_the_ablations_differ_from_the_paper_in_what_their_names_say(name):
    config = load_config(CONF / f"{name}.yaml")
    train = config.ml_vae.train
    differences = {
        "ml-vae-rl": {"algorithm": "reinforce"},
        "ablation-1": {"algorithm": "reinforce", "boundary_target": "found"},
        "ablation-2": {"algorithm": "joint"},
        "ablation-3": {"algorithm": "reinforce", "topology": "separate"},
    }
    assert {*differences, "ml-vae", "ml-vae-sub"} == set(TRAINED)
    for system, difference in differences.items():
        reinforce = config.system(system).train.reinforce
        assert (reinforce.samples, reinforce.entropy_weight) == (5, 0.05)
        expected = replace(train, **difference, reinforce=reinforce)
        assert config.system(system) == replace(config.ml_vae, train=expected)


def test_with_the_baseline_of_rl_the_paper_has_25_million_parameters():
    config = load_config(CONF / "paper.yaml").ml_vae_rl
    model = MlVae(120, 10, False, config.model)
    baseline = RewardBaseline(120, config.train.reinforce.baseline_size)
    assert num_parameters(model) == pytest.approx(24e6, rel=0.03)
    assert num_parameters(model) + num_parameters(baseline) == pytest.approx(25e6, rel=0.005)


def test_small_is_small_and_aligns_with_one_frame_on_each_side():
    config = load_config(CONF / "small.yaml")
    assert not config.deltas
    assert config.ml_vae.model.boundary.lstm_size <= 128
    paper, ours = config.ml_vae.model, config.ml_vae_sub.model
    assert (ours.boundary, ours.generator) == (paper.boundary, paper.generator)
    for name in ("small", "paper"):
        align = load_config(CONF / f"{name}.yaml").align.model
        assert align.context == 1
        assert align.states_per_unit > 1


@pytest.mark.parametrize("name", ["small", "paper"])
def test_the_second_system_hears_minds_wrong_labels_and_is_calibrated(name):
    config = load_config(CONF / f"{name}.yaml")
    paper, ours = (config.system(system) for system in ("ml-vae", "ml-vae-sub"))
    assert (paper, ours) == (config.ml_vae, config.ml_vae_sub)
    assert (paper.model.estimator.kind, ours.model.estimator.kind) == ("lstm", "convolution")
    assert (paper.model.boundary, paper.model.generator) == (
        ours.model.boundary,
        ours.model.generator,
    )
    assert (paper.train.topology, paper.train.states_per_unit) == ("ml", 1)
    assert (paper.train.relabel_after, paper.train.label_smoothing) == (0, 0.0)
    assert paper.train.estimate_after == 0
    assert (paper.edges, list(paper.calibration.scales)) == ("path", [])
    assert paper.train.decoding == Decoding()
    assert (ours.train.topology, ours.train.states_per_unit) == ("substitution", 3)
    assert ours.train.estimate_after == 1
    assert ours.edges == "aligner"
    scales = list(ours.calibration.scales)
    assert scales == sorted(set(scales)) and 0 < scales[0] < scales[-1] <= 1
    assert ours.train.decoding.acoustic_scale in scales
    assert ours.train.decoding.use_correctness


def test_there_are_no_other_systems():
    config = RecipeConfig()
    for name in ("ml_vae", "ml-vae-sub-no-generator", "align", ""):
        with pytest.raises(ValueError, match=f"has a system '{name}', only ml-vae, ml-vae-rl"):
            config.system(name)
