"""Systems that answer with the goodness of pronunciation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from lhotse import CutSet
from lhotse.supervision import AlignmentItem

from mlvae.config import RecipeConfig, System
from mlvae.data.dataset import NETWORK_FRAMES, UnitDataset
from mlvae.score.ranking import area_under_curve
from mlvae.systems import Setup, load_localizers
from mlvae.systems.align import Aligner
from mlvae.systems.gop import Gop, GopSettings, UnitModel
from mlvae.systems.ml_vae import MlVaeSettings, new_model
from mlvae.tiers import has_tier, tier, with_tiers
from mlvae.train import TrainConfig
from mlvae.train.loop import save_model
from tests.systems.small import ALIGN
from tests.train.test_goodness import listed
from tests.train.tiny import (
    CPU,
    NUM_FEATURES,
    TABLE,
    aligned,
    dataset,
    make_cut,
    spoken_cuts,
    tiny_model_config,
)

NUM_UNITS = len(TABLE)


def gop_of(name: str, model: str, score: str = "posterior") -> System:
    return System(name, "gop", model_of=model, settings=GopSettings(score))


CONFIG = RecipeConfig(
    silence=True,
    align=ALIGN,
    systems={
        "fa": System("fa", "align"),
        "gop-fa": gop_of("gop-fa", "fa"),
        "gop-fa-ratio": gop_of("gop-fa-ratio", "fa", "ratio"),
        "sub": System(
            "sub",
            "ml_vae",
            settings=MlVaeSettings(tiny_model_config(), TrainConfig(states_per_unit=2)),
        ),
        "gop-sub": gop_of("gop-sub", "sub"),
    },
)


def setup_of(name: str, folder, data=None) -> Setup:
    return Setup(name, CONFIG, data or dataset(), CPU, 0, folder)


def given_model(data=None) -> UnitModel:
    """Features are logits of the units."""
    return UnitModel(lambda x, _: x[..., :NUM_UNITS].log_softmax(-1), data or dataset(), CPU)


def given_cut(name: str, sounds: str, units: str, frames: int = 5):
    """A cut whose units last some frames each and sound as other units, surely."""
    features = np.zeros((frames * len(sounds), NUM_FEATURES))
    for place, sound in enumerate(sounds):
        features[frames * place : frames * (place + 1), TABLE.symbols.index(sound)] = 4.0
    return aligned(make_cut(name, features, list(units)), range(0, len(features) + 1, frames))


@pytest.mark.parametrize("score", ["posterior", "ratio"])
def test_tiers_say_what_fits_worse_than_another_unit(score):
    cut = given_cut("x", "abdb", "abcb")
    cut.supervisions[0].custom.update(words=["AB", "CB"], word_of_unit=[0, 0, 1, 1])
    (found,), without = Gop(given_model(), score).localize(CutSet.from_cuts([cut]))
    assert without == []
    units, perceived, words = (tier(found, f"mlvae{t}") for t in ("", "_perceived", "_word"))
    assert "".join(item.symbol for item in units) == "abcb"
    assert "".join(item.symbol for item in perceived) == "abdb"
    times = [(item.start, item.duration) for item in tier(cut, "fa")]
    assert [(item.start, item.duration) for item in units] == times
    assert [(item.start, item.duration) for item in perceived] == times
    assert [item.score for item in perceived] == [item.score for item in units]
    log_probs = given_model().log_probs(dataset().features(cut), None)
    gop, ratio, _ = listed(log_probs, 10, 15, TABLE.symbols.index("c"))
    expected = 1 - math.exp(gop) if score == "posterior" else 1 / (1 + math.exp(ratio))
    assert units[2].score == pytest.approx(expected) and units[2].score > 0.5
    assert max(units[place].score for place in (0, 1, 3)) < 0.5
    assert [item.symbol for item in words] == ["AB", "CB"]
    assert [item.score for item in words] == [
        max(units[0].score, units[1].score),
        units[2].score,
    ]


@pytest.mark.parametrize("sound", ["b", "c", "d"])
def test_another_correct_pronunciation_is_right(sound):
    """Said "ad" or "ab" the second unit is right, whichever of them the alignment took."""
    cut = given_cut("x", f"a{sound}", "ab")
    items = [AlignmentItem(s, i.start, i.duration) for s, i in zip("ad", tier(cut, "fa"))]
    cut = with_tiers(cut, {"fa_variant": items})
    (found,), _ = Gop(given_model(), "ratio").localize(CutSet.from_cuts([cut]))
    wrong = sound == "c"
    assert tier(found, "mlvae_perceived")[1].symbol == ("c" if wrong else "b")
    assert (tier(found, "mlvae")[1].score > 0.5) is wrong


@pytest.mark.parametrize("score", ["posterior", "ratio"])
def test_a_unit_that_the_pronunciation_lacks_is_right(score):
    cut = given_cut("x", "ac", "ab")
    first, second = tier(cut, "fa")
    end = first.end
    cut = with_tiers(cut, {"fa": [first, AlignmentItem("b", end, 0.0)], "fa_variant": [first]})
    (found,), _ = Gop(given_model(), score).localize(CutSet.from_cuts([cut]))
    assert tier(found, "mlvae")[1] == AlignmentItem("b", end, 0.0, 0.0)
    assert tier(found, "mlvae_perceived")[1].symbol == "b"


def test_a_long_recording_is_read_in_sections():
    """With the same numbers as at once, and beside short ones, in any order."""
    sounds = "abcd" * 500
    long = given_cut("long", sounds, sounds[1:] + "b", frames=4)
    assert long.num_frames > NETWORK_FRAMES
    cuts = CutSet.from_cuts([given_cut("x", "ab", "ab"), long, given_cut("y", "abd", "abc")])
    seen = []

    def log_probs(features, lengths):
        seen.append(features.shape[1])
        # What a frame is, its neighbours 100 frames off say, too.
        return (features[..., :NUM_UNITS] + features.roll(100, 1)[..., :NUM_UNITS]).log_softmax(-1)

    model = UnitModel(log_probs, dataset(), CPU)
    found = dict((cut.id, matrix) for cut, matrix in model.of_cuts(cuts))
    assert max(seen) < NETWORK_FRAMES and len(seen) > 2
    whole = log_probs(dataset().features(long)[None], None)[0]
    assert found["long"].shape == whole.shape
    assert torch.allclose(found["long"][100:], whole[100:], atol=1e-5)
    answered, _ = Gop(given_model(), "ratio").localize(cuts)
    assert [cut.id for cut in answered] == ["x", "long", "y"]
    assert [item.symbol for item in tier(answered[1], "mlvae_perceived")] == list(sounds)


@pytest.fixture(scope="module")
def fa(tmp_path_factory):
    """The folder of a trained aligner."""
    folder = tmp_path_factory.mktemp("exp") / "fa"
    aligner = Aligner(NUM_FEATURES, NUM_UNITS, True, ALIGN, CPU)
    aligner.train(spoken_cuts(60)[0], dataset(), 0)
    aligner.save(folder / "model.safetensors")
    return folder


def test_the_aligners_model_ranks_what_was_said_otherwise_first(fa):
    cuts, wrong = spoken_cuts(30, seed=2)
    # Features with deltas are those of other systems.
    ways = load_localizers(setup_of("fa", fa, UnitDataset(TABLE, deltas=True)), cuts)
    assert list(ways) == ["gop-fa", "gop-fa-ratio"]
    flags = {}
    for name, way in ways.items():
        found, without = way(cuts)
        assert without == [] and all(has_tier(cut, "mlvae_perceived") for cut in found)
        items = [(cut.id, *pair) for cut in found for pair in enumerate(tier(cut, "mlvae"))]
        positive = np.array([wrong[cut_id][place] for cut_id, place, _ in items])
        scores = np.array([item.score for *_, item in items])
        assert ((scores >= 0) & (scores <= 1)).all()
        assert area_under_curve(scores, positive) > 0.9
        flags[name] = [
            a.symbol != b.symbol
            for cut in found
            for a, b in zip(tier(cut, "mlvae"), tier(cut, "mlvae_perceived"))
        ]
        if name == "gop-fa-ratio":
            assert flags[name] == [score > 0.5 for score in scores]
    assert flags["gop-fa"] == flags["gop-fa-ratio"]


def test_the_estimator_of_a_system_answers_beside_it(tmp_path):
    cuts = spoken_cuts(5)[0]
    setup = setup_of("sub", tmp_path)
    model = new_model(setup, cuts)
    save_model(tmp_path / "model.safetensors", model, {})
    ways = load_localizers(setup, cuts)
    assert list(ways) == ["sub", "gop-sub"]
    cut = cuts[0]
    (found,), _ = ways["gop-sub"](CutSet.from_cuts([cut]))
    model.eval()
    with torch.no_grad():
        features = dataset().features(cut)[None]
        probs = model.unit_probs(model(features, torch.tensor([cut.num_frames])).units)[0]
    units = TABLE.ids([item.symbol for item in tier(cut, "fa")], cut.id)
    for item, unit, span in zip(tier(found, "mlvae"), units, tier(cut, "fa")):
        frames = slice(round(100 * span.start), round(100 * span.end))
        assert item.score == pytest.approx(1 - probs[frames, unit].log().mean().exp().item())


def test_what_is_missing_is_named(fa, tmp_path):
    cuts = spoken_cuts(2)[0]
    with pytest.raises(ValueError, match="there is no model .*model.safetensors"):
        load_localizers(setup_of("fa", tmp_path), cuts)
    bare = CutSet.from_cuts([make_cut("x", np.zeros((9, NUM_FEATURES)), ["a"])])
    with pytest.raises(ValueError, match="x: no tier fa, run the stage that makes it"):
        load_localizers(setup_of("fa", fa), cuts)["gop-fa"](bare)
