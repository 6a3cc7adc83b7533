"""Features adapted to a speaker: a voice is mapped back, and little is learned of little."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.utils import fastcopy

from mlvae.data.dataset import UnitDataset
from mlvae.nn import MlVae
from mlvae.score.ranking import area_under_curve
from mlvae.systems.judge import SearchedModel
from mlvae.train import Decoding
from mlvae.train.adaptation import (
    BATCH_SECONDS,
    MOST_SECONDS,
    PIECE_SECONDS,
    PRIOR_SECONDS,
    AdaptedDataset,
    _batches,
    fit_maps,
)
from mlvae.train.goodness import UnitModel
from tests.train.tiny import (
    CPU,
    DEVICE,
    NUM_FEATURES,
    TABLE,
    aligned,
    dataset,
    make_cut,
    spoken_cuts,
    tiny_model_config,
)

#: Of a voice whose sounds each resemble another one more than themselves.
ANGLE = math.radians(52)


def estimator(given: UnitDataset) -> UnitModel:
    """A model that takes the feature of a unit for its log odds, as in the voice of ``tiny``."""

    def log_probs(features, lengths):
        return (4 * features[..., : len(TABLE)]).log_softmax(-1)

    return UnitModel(log_probs, given, CPU)


def voiced(cuts: CutSet, speaker: str | None, angle: float = ANGLE) -> list[Cut]:
    """Cuts of a voice that mixes the first two features, and the next two."""
    turn = np.eye(NUM_FEATURES)
    for first in (0, 2):
        turn[first : first + 2, first : first + 2] = [
            [math.cos(angle), math.sin(angle)],
            [-math.sin(angle), math.cos(angle)],
        ]
    found = []
    for cut in cuts:
        name = f"{speaker}-{cut.id}"
        units = cut.supervisions[0].custom["units"]
        changed = make_cut(name, cut.load_features() @ turn, units)
        edges = [round(item.start * 100) for item in cut.supervisions[0].alignment["fa"]]
        changed = aligned(changed, [*edges, cut.num_frames])
        supervision = fastcopy(changed.supervisions[0], speaker=speaker)
        found.append(fastcopy(changed, supervisions=[supervision]))
    return found


def goodness(cuts: list[Cut], given: UnitDataset) -> np.ndarray:
    """GOP of the units of all cuts."""
    model = estimator(given)
    found = [model.goodness(cut, probs).gop for cut, probs in model.of_cuts(CutSet(cuts))]
    return torch.cat(found).numpy()


def test_a_voice_is_mapped_back_although_its_text_is_wrong_in_places():
    cuts, wrong = spoken_cuts(200, wrong_rate=0.2)
    marks = np.concatenate([wrong[cut.id] for cut in cuts])
    known, unknown = voiced(cuts, "known", angle=0.0), voiced(cuts, "unknown")
    given = dataset()
    adapted = AdaptedDataset(given, fit_maps([*known, *unknown], estimator(given), silence=False))
    before, after = (goodness(unknown, some) for some in (given, adapted))
    assert area_under_curve(-after, marks) > area_under_curve(-before, marks) + 0.01
    gain = after - before
    assert gain[~marks].mean() > 0.05  # of the text, and more so where it was spoken
    assert gain[~marks].mean() > gain[marks].mean() + 0.02
    own, mapped_too = (goodness(known, some) for some in (given, adapted))
    assert area_under_curve(-mapped_too, marks) > area_under_curve(-own, marks) - 0.001


def test_each_speaker_has_a_map_and_each_recording_of_nobody_its_own():
    some = list(spoken_cuts(12)[0])
    cuts = [*voiced(some[:4], "x"), *voiced(some[4:8], "y", 0.5), *voiced(some[8:], None)]
    model = estimator(dataset())
    maps = fit_maps(cuts, model, silence=False)
    assert list(maps) == [cut.id for cut in cuts]
    assert all(one.shape == (NUM_FEATURES, NUM_FEATURES + 1) for one in maps.values())
    different = {tuple(one.flatten().tolist()) for one in maps.values()}
    assert len(different) == 2 + 4
    again = fit_maps([cuts[8], *reversed(cuts[:4])], model, silence=False)
    for cut_id, one in again.items():  # neither the others nor the order count
        torch.testing.assert_close(one, maps[cut_id], rtol=0, atol=1e-6)


def test_of_little_speech_little_is_learned():
    cuts = voiced(spoken_cuts(60)[0], "x")
    model = estimator(dataset())
    sizes = [
        fit_maps(cuts[:count], model, silence=False)[cuts[0].id].norm().item()
        for count in (1, 8, 60)
    ]
    assert 0 < sizes[0] < sizes[1] < sizes[2]


def test_a_map_is_the_step_that_the_head_of_the_module_says():
    """By one large system of equations, and gradients frame by frame."""
    cuts = voiced(spoken_cuts(5)[0], "x")
    model = estimator(dataset())
    gradient, loss_products, feature_products = 0.0, 0.0, 0.0
    num_frames = 0
    for cut in cuts:
        items = cut.supervisions[0].alignment["fa"]
        for item in items:
            unit = TABLE.ids([item.symbol], cut.id)[0]
            for frame in range(round(item.start * 100), round(item.end * 100)):
                x = model.dataset.features(cut)[frame].requires_grad_()
                log_probs = model.log_probs(x[None, None], torch.tensor([1]))
                (slope,) = torch.autograd.grad(-log_probs[0, 0, unit], [x])
                seen = torch.cat([x.detach(), torch.ones(1)])
                gradient = gradient + torch.outer(slope, seen).double()
                loss_products = loss_products + torch.outer(slope, slope).double()
                feature_products = feature_products + torch.outer(seen, seen).double()
                num_frames += 1
    curvature = torch.kron(loss_products, feature_products / num_frames)
    curvature += 2 * 100 * PRIOR_SECONDS * torch.eye(len(curvature))
    expected = -torch.linalg.solve(curvature, gradient.flatten()).reshape(gradient.shape)
    found = fit_maps(cuts, model, silence=False)[cuts[0].id]
    torch.testing.assert_close(found, expected.float(), rtol=1e-3, atol=1e-6)


def test_batches_of_pieces_are_short_and_cover_all_recordings():
    lengths = {"short": 40, "middle": 1300, "long": 9070}
    cuts = [make_cut(name, np.zeros((size, 2)), ["a"]) for name, size in lengths.items()]
    seen = {name: np.zeros(size, dtype=int) for name, size in lengths.items()}
    for pieces in _batches(cuts):
        sizes = [end - begin for _, begin, end in pieces]
        assert max(sizes) <= 150 * PIECE_SECONDS and min(sizes) > 0
        assert max(sizes) * len(sizes) <= 100 * max(BATCH_SECONDS, 1.5 * PIECE_SECONDS)
        for cut, begin, end in pieces:
            seen[cut.id][begin:end] += 1
    assert all((times == 1).all() for times in seen.values())


def test_of_much_speech_a_part_is_listened_to_from_its_beginning_to_its_end():
    cut = make_cut("hour", np.zeros((300000, 1)), ["a"])
    places = sorted(piece[1:] for pieces in _batches([cut]) for piece in pieces)
    assert sum(end - begin for begin, end in places) == pytest.approx(100 * MOST_SECONDS, rel=0.01)
    between = [later - sooner for (sooner, _), (later, _) in zip(places[:-1], places[1:])]
    assert max(between) - min(between) <= 100 * PIECE_SECONDS + 10
    assert places[0][0] == 0 and places[-1][1] > 290000


def test_adapted_features_leave_other_cuts_and_plain_features_as_they_are():
    cuts = voiced(spoken_cuts(3)[0], "x")
    given = UnitDataset(TABLE, deltas=True)
    change = torch.zeros(18, 19)
    change[2, 5], change[4, 18] = 1.0, -3.0
    adapted = AdaptedDataset(given, {cuts[0].id: change})
    features = given.features(cuts[0])
    expected = features.clone()
    expected[:, 2] += features[:, 5]
    expected[:, 4] -= 3.0
    torch.testing.assert_close(adapted.features(cuts[0]), expected)
    assert adapted.features(cuts[0]) is adapted.features(cuts[0])  # a long one is mapped once
    assert torch.equal(adapted.features(cuts[1]), given.features(cuts[1]))
    assert torch.equal(adapted.plain().features(cuts[0]), features[:, :NUM_FEATURES])
    batch = adapted[CutSet(cuts)]
    torch.testing.assert_close(batch["features"][0, : len(expected)], expected)


@pytest.mark.parametrize("silence", [False, True])
@pytest.mark.parametrize("deltas", [False, True])
def test_a_model_with_lstm_and_silence_can_be_adapted_wherever_it_runs(silence, deltas):
    """Where all of a recording is of no unit, too; and the networks stay as they are."""
    cuts = voiced(spoken_cuts(6)[0], "x")
    nothing = make_cut("nothing", np.zeros((40, NUM_FEATURES)), ["a"])
    cuts.append(aligned(nothing, [3, 3]))
    given = UnitDataset(TABLE, deltas)
    size = NUM_FEATURES * (3 if deltas else 1)
    torch.manual_seed(0)
    model = MlVae(size, len(TABLE), silence, tiny_model_config(), states_per_unit=2).to(DEVICE)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    system = SearchedModel(model, "substitution", Decoding(), given, DEVICE, adapted=True)
    with torch.no_grad():
        adapted = system.adapted_to(cuts)
    assert not adapted.adapted
    assert torch.equal(adapted.dataset.plain().features(cuts[0]), dataset().features(cuts[0]))
    assert set(adapted.dataset.maps) == {cut.id for cut in cuts}
    for change in adapted.dataset.maps.values():
        assert change.isfinite().all() and not change.requires_grad
    assert adapted.dataset.maps[cuts[0].id].norm() > 0
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())


def test_a_model_that_is_not_adapted_is_itself():
    system = SearchedModel(None, "substitution", Decoding(), dataset(), CPU)
    assert system.adapted_to([]) is system


def test_a_cut_that_was_not_aligned_is_named():
    cut = make_cut("lonely", np.zeros((40, NUM_FEATURES)), ["a"])
    with pytest.raises(ValueError, match="lonely: no tier fa"):
        fit_maps([cut], estimator(dataset()), silence=False)
