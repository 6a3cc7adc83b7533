from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from mlvae.config import RecipeConfig, System, load_config
from mlvae.device import num_parameters
from mlvae.nn import MlVae
from mlvae.nn.generator import RewardBaseline
from mlvae.systems import KINDS
from mlvae.systems.ml_vae import MlVaeSettings
from mlvae.train import Decoding, TrainConfig

CONF = Path(__file__).resolve().parents[1] / "recipes" / "audiomnist" / "conf"


def write(folder: Path, text: str) -> Path:
    path = folder / "some.yaml"
    path.write_text(text)
    return path


def settings_of(config: RecipeConfig, name: str) -> MlVaeSettings:
    return config.system(name).settings


def test_what_a_file_leaves_out_has_its_default(tmp_path):
    config = load_config(
        write(
            tmp_path,
            "align:\n  model:\n    context: 2\n"
            "systems:\n"
            "  one:\n"
            "    kind: ml_vae\n"
            "    train: {decoding: {acoustic_scale: 0.5}, learning_rate: 1.0e-2}\n"
            "    model: {generator: {num_variants: 1}}\n"
            "  two:\n"
            "    base: one\n"
            "    label: Two\n"
            "    compare: [one]\n"
            "    train: {topology: substitution, estimate_after: 2, learning_rate: 1.0e-3}\n"
            "    boundaries: aligner\n",
        )
    )
    expected = RecipeConfig()
    expected.align.model.context = 2
    one = MlVaeSettings()
    one.train.decoding.acoustic_scale = 0.5
    one.train.learning_rate = 0.01
    one.model.generator.num_variants = 1
    train = TrainConfig(
        decoding=Decoding(0.5), topology="substitution", estimate_after=2, learning_rate=1e-3
    )
    expected.systems = {
        "one": System("one", "ml_vae", settings=one),
        "two": System(
            "two",
            "ml_vae",
            base="one",
            label="Two",
            compare=["one"],
            settings=MlVaeSettings(one.model, train, boundaries="aligner"),
        ),
    }
    assert config == expected
    assert (config.systems["one"].label, config.systems["two"].label) == ("one", "Two")


def test_reading_twice_does_not_mix_files(tmp_path):
    load_config(write(tmp_path, "align:\n  rounds: 3\n"))
    assert load_config(write(tmp_path, "deltas: true\n")).align.rounds == 8


def entry(text: str) -> str:
    return f"systems: {{one: {{kind: ml_vae, {text}}}}}\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ml_vea:\n  boundaries: path\n", "ml_vea"),
        ("train:\n  iterations: 3\n", "train"),
        (entry("trian: {iterations: 3}"), "trian"),
        (entry("train: {iterationes: 3}"), "iterationes"),
        (entry("train: {iterations: many}"), "iterations"),
        (entry("train: {selection: best}"), "selection must be"),
        (entry("train: {topology: circle}"), "topology must be"),
        (
            entry("train: {pseudo_labels_after: 3}"),
            "systems.one.train: pseudo_labels_after goes with",
        ),
        (entry("calibration: {scales: [0.1, wide]}"), "scales"),
        (entry("calibration: {corruption_rate: 0}"), "corruption_rate must be a number "),
        (entry("boundaries: narrow"), "boundaries must be one of path, aligner, both"),
        (entry("compare: two"), "systems.one.compare must be a list"),
        (entry("compare: [two]"), "systems.one.compare: there is no 'two'"),
        (entry("model_of: one"), "systems.one.model_of: kind ml_vae has a model of its own"),
        (
            "systems: {one: {kind: gop, model_of: two}}\n",
            "systems.one.model_of: there is no system 'two'",
        ),
        (
            entry("train: {generator: false, algorithm: joint}"),
            "systems.one.train: algorithm joint trains q(pi): it needs the generator",
        ),
        ("systems: {one: {kind: gop}}\n", "systems.one has no model_of: kind gop uses another"),
        (
            "systems: {one: {kind: gop, model_of: two}, two: {kind: two_pass}}\n",
            "systems.one.model_of: 'two' is of kind two_pass, which is not one of align, ml_vae",
        ),
        (
            "systems: {a: {kind: gop, model_of: b}, b: {kind: gop, model_of: c}, c: {kind: align}}",
            "systems.a.model_of: 'b' is of kind gop",
        ),
        (
            "systems: {a: {kind: gop, model_of: b, score: mean}, b: {kind: align}}",
            "systems.a.score must be one of posterior, ratio",
        ),
        (entry("base: two"), "systems.one: there is no system 'two' to be its base"),
        (entry("base: one"), "systems.one: base leads back to 'one'"),
        (
            "systems: {one: {kind: hmm}}\n",
            "kind must be one of align, two_pass, w2v_ctc, ml_vae, acoustic, gop",
        ),
        ("systems: {one: {label: One}}\n", "systems.one has no kind"),
        ("systems: {one: {base: two}, two: {base: one}}\n", "base leads back"),
        (
            "systems: {one: {kind: align, train: {iterations: 3}}}\n",
            "systems.one.train: there is no",
        ),
        ("systems: {a/b: {kind: align}}\n", "cannot be the name of a folder"),
        ("systems: {a: {kind: align, base: b}, b: 3}\n", "systems.b must hold settings by name"),
        ("systems: {a: {kind: align, base: [b]}}\n", "systems.a.base must be text"),
        ("systems: [one]\n", "systems must hold entries by name"),
        ("deltas: perhaps\n", "deltas"),
        ("align: [1\n", "some.yaml"),
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
        "deltas: true\n" + entry("train: {iterations: 3, max_frames: 900}"), encoding="utf-8"
    )
    changes = "base: base.yaml\nsystems: {one: {train: {iterations: 5}, boundaries: aligner}}\n"
    config = load_config(write(tmp_path, changes))
    assert config.deltas
    settings = config.systems["one"].settings
    assert (settings.train.iterations, settings.train.max_frames) == (5, 900)
    assert settings.boundaries == "aligner"


def test_a_variant_is_one_entry(tmp_path):
    """Of a base that a file further down declares; what is changed there later counts, too."""
    base = f"base: {CONF}/small.yaml\n"
    variant = "  mine: {base: ml-vae-sub, compare: [ml-vae-sub], train: {label_smoothing: 0.1}}\n"
    config = load_config(write(tmp_path, f"{base}systems:\n{variant}"), ["mine"])
    small = load_config(CONF / "small.yaml")
    ours, theirs = settings_of(config, "mine"), settings_of(small, "ml-vae-sub")
    assert ours == replace(theirs, train=replace(theirs.train, label_smoothing=0.1))
    assert list(config.systems) == [*small.systems, "mine"]
    assert config.systems["mine"].kind == "ml_vae"
    changed = "  ml-vae: {model: {boundary: {lstm_size: 5}}}\n"
    config = load_config(write(tmp_path, f"{base}systems:\n{variant}{changed}"))
    assert settings_of(config, "mine").model.boundary.lstm_size == 5


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
        assert settings_of(varied, "ml-vae-sub") != settings_of(small, "ml-vae-sub")
        for name in small.answering("ml-vae-sub"):
            varied.systems[name] = small.systems[name]
        assert varied == small


def test_an_absent_file(tmp_path):
    with pytest.raises(ValueError, match=r"there is no configuration .*gone.yaml"):
        load_config(tmp_path / "gone.yaml")


def test_paper_is_the_paper():
    config = load_config(CONF / "paper.yaml")
    settings = settings_of(config, "ml-vae")
    assert settings == MlVaeSettings(train=settings.train)
    assert config.deltas
    lstm = {"lstm_layers": 2, "lstm_size": 512, "bidirectional": False, "fc_size": 128}
    for module in (settings.model.boundary, settings.model.estimator):
        assert {name: asdict(module)[name] for name in (*lstm, "dropout", "kind")} == {
            **lstm,
            "dropout": 0.0,
            "kind": "lstm",
        }
    assert asdict(settings.model.generator) == {
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
    train = settings.train
    assert (train.iterations, train.learning_rate) == (50, 1e-3)
    lambdas = train.boundary_kl_weight, train.generator_kl_weight, train.correctness_weight
    assert lambdas == (0.01, 1.0, 0.001)
    assert train.boundary_prior_strength == 10.0
    assert train == TrainConfig(max_frames=train.max_frames)


@pytest.mark.parametrize("name", ["small", "paper"])
def test_phones_have_one_ml_vae_sub_whoever_made_the_corpus(name):
    recipes = CONF.parents[1]
    paths = [
        recipes / recipe / "conf" / f"{name}.yaml" for recipe in ("l2arctic", "speechocean762")
    ]
    if name == "small":
        paths.append(recipes / "own" / "conf" / "small.yaml")
    first, *others = (settings_of(load_config(path), "ml-vae-sub") for path in paths)
    assert all(other == first for other in others)
    words = settings_of(load_config(CONF / f"{name}.yaml"), "ml-vae-sub")
    assert first.train.trusted_f1 == words.train.trusted_f1 > 0 and first.judged


@pytest.mark.parametrize("name", ["small", "paper"])
def test_rl_and_the_ablations_differ_from_the_paper_in_what_their_names_say(name):
    config = load_config(CONF / f"{name}.yaml")
    paper = settings_of(config, "ml-vae")
    differences = {
        "ml-vae-rl": {"algorithm": "reinforce"},
        "ablation-1": {"algorithm": "reinforce", "boundary_target": "found"},
        "ablation-2": {"algorithm": "joint"},
        "ablation-3": {"algorithm": "reinforce", "topology": "separate"},
    }
    of_kind = {one.name for one in config.systems.values() if one.kind == "ml_vae"}
    assert {*differences, "ml-vae", "ml-vae-sub"} == of_kind
    for system, difference in differences.items():
        reinforce = settings_of(config, system).train.reinforce
        assert (reinforce.samples, reinforce.entropy_weight) == (5, 0.05)
        expected = replace(paper.train, **difference, reinforce=reinforce)
        assert settings_of(config, system) == replace(paper, train=expected)


def test_with_the_baseline_of_rl_the_paper_has_25_million_parameters():
    config = settings_of(load_config(CONF / "paper.yaml"), "ml-vae-rl")
    model = MlVae(120, 10, False, config.model)
    baseline = RewardBaseline(120, config.train.reinforce.baseline_size)
    assert num_parameters(model) == pytest.approx(24e6, rel=0.03)
    assert num_parameters(model) + num_parameters(baseline) == pytest.approx(25e6, rel=0.005)


def test_small_is_small_and_aligns_with_one_frame_on_each_side():
    config = load_config(CONF / "small.yaml")
    assert not config.deltas
    paper, ours = (settings_of(config, name).model for name in ("ml-vae", "ml-vae-sub"))
    assert paper.boundary.lstm_size <= 128
    assert ours.boundary == paper.boundary
    for name in ("small", "paper"):
        align = load_config(CONF / f"{name}.yaml").align.model
        assert align.context == 1
        assert align.states_per_unit > 1


@pytest.mark.parametrize("name", ["small", "paper"])
def test_the_second_system_hears_minds_wrong_labels_and_is_calibrated(name):
    config = load_config(CONF / f"{name}.yaml")
    paper, ours = (settings_of(config, system) for system in ("ml-vae", "ml-vae-sub"))
    assert (paper.model.estimator.kind, ours.model.estimator.kind) == ("lstm", "convolution")
    assert paper.model.boundary == ours.model.boundary
    assert (paper.train.generator, ours.train.generator) == (True, False)
    assert (paper.train.topology, paper.train.states_per_unit) == ("ml", 1)
    assert (paper.train.pseudo_labels_after, paper.train.label_smoothing) == (0, 0.0)
    assert paper.train.estimate_after == 0
    assert (paper.boundaries, list(paper.calibration.scales)) == ("path", [])
    assert paper.train.decoding == Decoding()
    assert (ours.train.topology, ours.train.states_per_unit) == ("substitution", 3)
    assert ours.train.estimate_after == 1
    assert ours.boundaries == "aligner"
    scales = list(ours.calibration.scales)
    assert scales == sorted(set(scales)) and 0 < scales[0] < scales[-1] <= 1
    assert ours.train.decoding.acoustic_scale in scales


def test_there_are_no_other_systems():
    config = load_config(CONF / "small.yaml")
    for name in ("ml_vae", "gop-sub", "align", ""):  # one has no model of its own
        with pytest.raises(ValueError, match=f"there is no system '{name}'; there are: fa, two-"):
            config.system(name)
    with pytest.raises(ValueError, match="small.yaml: no system is named; there are: fa, two-"):
        load_config(CONF / "small.yaml", [])


def test_a_system_that_nobody_gave_a_size_is_never_that_of_the_paper():
    path = CONF.parents[1] / "systems.yaml"
    config = load_config(path, ["fa", "two-pass-fa", "w2v-ctc"])
    for name in ("ml-vae", "ablation-3", "ml-vae-sub"):
        with pytest.raises(ValueError, match=f"systems.{name} has no section model"):
            config.system(name)
        with pytest.raises(ValueError, match=f"systems.yaml: systems.{name} has no section model"):
            load_config(path, [name])


def test_every_kind_has_a_system():
    config = load_config(CONF / "small.yaml")
    of_the_users_own = {"acoustic"}  # no system without somebody's model
    assert {system.kind for system in config.systems.values()} == set(KINDS) - of_the_users_own
    with pytest.raises(
        ValueError, match="kind must be one of align, two_pass, w2v_ctc, ml_vae, acoustic, gop"
    ):
        System("x", "ml-vae")
