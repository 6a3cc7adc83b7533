from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from mlvae.config import RecipeConfig, load_config
from mlvae.em import TrainConfig

CONF = Path(__file__).resolve().parents[1] / "recipes" / "audiomnist" / "conf"


def write(folder: Path, text: str) -> Path:
    path = folder / "some.yaml"
    path.write_text(text)
    return path


def test_what_a_file_leaves_out_has_its_default(tmp_path):
    config = load_config(
        write(
            tmp_path,
            "train:\n  decoding:\n    acoustic_scale: 0.5\n  learning_rate: 1.0e-2\n"
            "align:\n  model:\n    context: 2\nmodel:\n  generator:\n    num_variants: 1\n",
        )
    )
    expected = RecipeConfig()
    expected.train.decoding.acoustic_scale = 0.5
    expected.train.learning_rate = 0.01
    expected.align.model.context = 2
    expected.model.generator.num_variants = 1
    assert config == expected
    assert config != RecipeConfig()


def test_reading_twice_does_not_mix_files(tmp_path):
    load_config(write(tmp_path, "train:\n  iterations: 3\n"))
    assert load_config(write(tmp_path, "deltas: true\n")).train.iterations == 50


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("trian:\n  iterations: 3\n", "trian"),
        ("train:\n  iterationes: 3\n", "iterationes"),
        ("train:\n  iterations: many\n", "iterations"),
        ("train:\n  prior: uniform\n", "prior must be"),
        ("train:\n  component_unit: true\n", "component_unit"),
        ("deltas: perhaps\n", "deltas"),
        ("train: [1\n", "some.yaml"),
        ("", "some.yaml"),
        ("just text\n", "some.yaml"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(tmp_path, text, reason):
    with pytest.raises(ValueError, match="some.yaml") as caught:
        load_config(write(tmp_path, text))
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_absent_file(tmp_path):
    with pytest.raises(ValueError, match=r"there is no configuration .*gone.yaml"):
        load_config(tmp_path / "gone.yaml")


def test_paper_is_the_paper():
    config = load_config(CONF / "paper.yaml")
    assert asdict(config.model) == asdict(RecipeConfig().model)
    assert config.deltas
    lstm = {"lstm_layers": 2, "lstm_size": 512, "bidirectional": False, "fc_size": 128}
    assert asdict(config.model.boundary) == {**lstm, "dropout": 0.0}
    assert asdict(config.model.estimator) == {**lstm, "dropout": 0.0}
    assert asdict(config.model.generator) == {
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
    train = config.train
    assert (train.iterations, train.learning_rate) == (50, 1e-3)
    lambdas = train.boundary_kl_weight, train.generator_kl_weight, train.correctness_weight
    assert lambdas == (0.01, 1.0, 0.001)
    assert (train.boundary_prior_strength, train.component_unit) == (10.0, "estimated")
    assert train == TrainConfig(max_frames=train.max_frames)


def test_small_is_small_and_aligns_with_one_frame_on_each_side():
    config = load_config(CONF / "small.yaml")
    assert not config.deltas
    assert config.model.boundary.lstm_size <= 128
    for name in ("small", "paper"):
        align = load_config(CONF / f"{name}.yaml").align.model
        assert align.context == 1
        assert align.states_per_unit > 1
