"""The E-step from networks to assignments.

Networks are stand-ins that read their answers off the features, so that the way from
``MlVae.forward`` through the emissions to the spans is tested as it is used.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from lhotse import CutSet
from torch import nn

from mlvae.data.dataset import UnitDataset
from mlvae.data.units import canonical_units
from mlvae.fsa import MlFsaCompiler, search
from mlvae.nn import MlVae
from mlvae.train import Decoding, EStep
from mlvae.train import estep as estep_module
from mlvae.train.estep import search_compiler
from mlvae.train.stretches import Wanted
from tests.fsa.pretended_gpu import PRETENDED, pretended_gpu
from tests.train.tiny import DEVICE, TABLE, make_cut, tiny_model_config

NUM_UNITS = len(TABLE)
BOUNDARY, CORRECTNESS = NUM_UNITS, NUM_UNITS + 1


class GivenFeatures(UnitDataset):
    """Features as they are stored, not normalised."""

    def features(self, cut):
        return torch.from_numpy(cut.load_features().copy())


class Estimator(nn.Module):
    def forward(self, features, num_frames):
        return features[..., :NUM_UNITS].log_softmax(2)


class Boundary(nn.Module):
    """The mean of the Beta distribution is the sigmoid of a feature."""

    def forward(self, features, num_frames):
        rate = features[..., BOUNDARY].sigmoid()
        return 7.0 * rate, 7.0 * (1 - rate)


def stand_in(log_prior: torch.Tensor | None = None, generator: bool = True) -> MlVae:
    model = MlVae(NUM_UNITS + 2, NUM_UNITS, False, tiny_model_config(), generator=generator)
    model.estimator, model.boundary = Estimator(), Boundary()
    if generator:
        model.generator.correctness_logits = lambda features, units, boundary: features[
            ..., CORRECTNESS
        ]
    uniform = torch.full((NUM_UNITS,), -math.log(NUM_UNITS))
    model.log_prior.copy_(uniform if log_prior is None else log_prior)
    return model.to(DEVICE)


def run(cuts, model, decoding=None, max_frames=1000, units=None, silence=False):
    compiler = MlFsaCompiler(NUM_UNITS, topology="ml", silence=silence)
    estep = EStep(compiler, CutSet.from_cuts(cuts), GivenFeatures(TABLE), max_frames, units)
    return estep.run(model, decoding or Decoding(), DEVICE)


def features_of(num_frames: int, units=None, starts=(), wrong=(), sure: float = 3.0) -> np.ndarray:
    """Logits; where nothing is said of units or starts, the networks know nothing."""
    features = np.zeros((num_frames, NUM_UNITS + 2))
    if units is not None:
        features[np.arange(num_frames), units] = sure
    features[:, BOUNDARY] = -sure
    features[list(starts), BOUNDARY] = sure
    features[:, CORRECTNESS] = -sure
    features[list(wrong), CORRECTNESS] = sure
    return features


def edges(spans) -> list[tuple[int, int]]:
    return [(span.start, span.end) for span in spans]


def test_starts_are_where_the_boundary_detector_says():
    """A swap of hold and start on the way would put starts anywhere but there."""
    cut = make_cut("x", features_of(12, starts=[0, 3, 8]), ["a", "b", "c"])
    result = run([cut], stand_in())
    assert edges(result.spans["x"]) == [(0, 3), (3, 8), (8, 12)]


def test_segments_do_not_collapse_to_a_frame_where_starts_are_rare():
    """The best-known mistake: with the two weights swapped, every unit but one lasts a frame."""
    said = [0] * 5 + [1] * 4 + [2] * 6
    cut = make_cut("x", features_of(15, said, sure=1.0), ["a", "b", "c"])
    assert edges(run([cut], stand_in()).spans["x"]) == [(0, 5), (5, 9), (9, 15)]


def test_a_unit_is_flagged_where_q_of_pi_says():
    """The estimator cannot decide. A swap of the two columns would flag the others."""
    starts = [0, 3, 8]
    cut = make_cut("x", features_of(12, starts=starts, wrong=[3]), ["a", "b", "c"])
    result = run([cut], stand_in())
    assert [span.mispronounced for span in result.spans["x"]] == [False, True, False]
    assert result.flag_rate == pytest.approx(1 / 3)


def test_pi_is_charged_where_a_unit_starts_and_nowhere_else():
    starts = [0, 3, 8]
    inside = [1, 2, 4, 5, 6, 7, 9, 10, 11]
    cut = make_cut("x", features_of(12, starts=starts, wrong=inside), ["a", "b", "c"])
    assert not any(span.mispronounced for span in run([cut], stand_in()).spans["x"])


def test_a_unit_is_flagged_where_other_units_are_perceived():
    said = [0] * 4 + [3] * 4 + [2] * 4
    cut = make_cut("x", features_of(12, said, starts=[0, 4, 8]), ["a", "b", "c"])
    spans = run([cut], stand_in()).spans["x"]
    assert [span.mispronounced for span in spans] == [False, True, False]
    assert edges(spans) == [(0, 4), (4, 8), (8, 12)]


def enumerate_best(features, units, log_prior, scale=1.0, generator=True):
    """Best (score, edges, flags) over all segmentations and flags, by the paper's appendix."""
    frames = len(features)
    tensor = torch.from_numpy(features)
    q = tensor[:, :NUM_UNITS].double().softmax(1).numpy()
    prior = log_prior.double().exp().numpy()
    start_rate = tensor[:, BOUNDARY].double().sigmoid().numpy()
    wrong_rate = tensor[:, CORRECTNESS].double().sigmoid().numpy()
    best = None
    for inner in itertools.combinations(range(1, frames), len(units) - 1):
        bounds = [0, *inner, frames]
        for flags in itertools.product([False, True], repeat=len(units)):
            score = 0.0
            for unit, flag, begin, end in zip(units, flags, bounds[:-1], bounds[1:]):
                for t in range(begin, end):
                    ratio = q[t, unit] / prior[unit]
                    if flag:
                        ratio = (1 - q[t, unit]) / (1 - prior[unit])
                    score += scale * math.log(ratio)
                    if t > begin:
                        score += math.log(1 - start_rate[t])
                    elif t > 0:
                        score += math.log(start_rate[t])
                rate = wrong_rate[begin] if generator else 0.15
                score += math.log(rate if flag else 1 - rate)
            if best is None or score > best[0]:
                best = score, bounds, list(flags)
    return best


@pytest.mark.parametrize("scale", [1.0, 0.4])
@pytest.mark.parametrize("generator", [True, False])
def test_against_listing_every_path(scale, generator):
    rng = np.random.default_rng(0)
    log_prior = torch.tensor([0.1, 0.2, 0.3, 0.4]).log()
    cuts, expected = [], {}
    for number in range(12):
        frames, count = int(rng.integers(3, 8)), int(rng.integers(1, 4))
        units = rng.integers(0, NUM_UNITS, count).tolist()
        features = (2 * rng.standard_normal((frames, NUM_UNITS + 2))).astype(np.float32)
        cuts.append(make_cut(f"x{number}", features, TABLE.units(units)))
        expected[f"x{number}"] = enumerate_best(features, units, log_prior, scale, generator)
    result = run(cuts, stand_in(log_prior, generator), Decoding(scale))
    for name, (score, bounds, flags) in expected.items():
        spans = result.spans[name]
        assert edges(spans) == list(zip(bounds[:-1], bounds[1:]))
        assert [span.mispronounced for span in spans] == flags
        assert sum(span.score for span in spans) == pytest.approx(score, abs=1e-3)
    num_frames = sum(cut.num_frames for cut in cuts)
    total = sum(score for score, *_ in expected.values())
    assert result.score == pytest.approx(total / num_frames, abs=1e-4)
    flags = [flag for *_, flags in expected.values() for flag in flags]
    assert result.flag_rate == pytest.approx(sum(flags) / len(flags))
    assert 0 < result.flag_rate < 1


def random_cuts(count: int = 9):
    rng = np.random.default_rng(1)
    cuts = []
    for number in range(count):
        frames = int(rng.integers(6, 30))
        units = rng.integers(0, NUM_UNITS, int(rng.integers(1, 5))).tolist()
        features = rng.standard_normal((frames, NUM_UNITS + 2))
        cuts.append(make_cut(f"x{number}", features, TABLE.units(units)))
    return cuts


def test_batches_do_not_matter_for_the_networks_of_training():
    torch.manual_seed(0)
    model = MlVae(NUM_UNITS + 2, NUM_UNITS, False, tiny_model_config())
    model.log_prior.fill_(-math.log(NUM_UNITS))
    cuts = random_cuts()
    together, alone = run(cuts, model), run(cuts, model, max_frames=1)
    assert together.spans.keys() == alone.spans.keys() == {cut.id for cut in cuts}
    for name, spans in together.spans.items():
        assert edges(spans) == edges(alone.spans[name])
        flags = [span.mispronounced for span in spans]
        assert flags == [span.mispronounced for span in alone.spans[name]]
    assert together.score == pytest.approx(alone.score, abs=1e-5)


@pytest.mark.parametrize("topology", ["substitution", "separate"])
def test_graphs_that_are_compiled_when_they_are_needed_give_the_same(topology, monkeypatch):
    model, cuts = stand_in(), CutSet.from_cuts(random_cuts())
    decided = {cut.id: [True] + [None] * (len(canonical_units(cut)) - 1) for cut in cuts}
    wanted, found, kept = Wanted(posteriors=True), [], []
    for most in (500_000_000, 8_000, 0):
        monkeypatch.setattr(estep_module, "GRAPH_BYTES", most)
        compiler = search_compiler(model, topology)
        search = EStep(compiler, cuts, GivenFeatures(TABLE), 60, max_cells=5000)
        kept.append(sum(batch.graphs is not None for batch in search.batches))
        free = search.answers(model, Decoding(), DEVICE, wanted)
        found.append([(name, a.spans, a.posteriors.mispronounced.tolist()) for name, a in free])
        bound = search.answers(model, Decoding(), DEVICE, Wanted(), decided=decided)
        found[-1] += [(name, answer.spans) for name, answer in bound]
    assert kept[0] > kept[1] > kept[2] == 0
    assert found[0] == found[1] == found[2]


@pytest.mark.filterwarnings("ignore:.*too few frames.*")
def test_a_cut_that_is_too_short_is_omitted_and_others_are_not_harmed():
    cuts = random_cuts()
    short = make_cut("short", np.zeros((2, NUM_UNITS + 2)), ["a", "b", "c"])
    expected, found = run(cuts, stand_in()), run([short, *cuts], stand_in())
    assert found.spans == expected.spans
    assert (found.score, found.flag_rate) == (expected.score, expected.flag_rate)


def test_other_units_than_the_cuts_own():
    cut = make_cut("x", features_of(12, [0] * 6 + [1] * 6, starts=[0, 6]), ["a", "b"])
    result = run([cut], stand_in(), units={"x": [0, 3]})
    assert [span.unit for span in result.spans["x"]] == [0, 3]
    assert [span.mispronounced for span in result.spans["x"]] == [False, True]
    assert not any(span.mispronounced for span in run([cut], stand_in()).spans["x"])


@pytest.mark.parametrize("training", [True, False])
def test_the_model_evaluates_and_is_put_back(training):
    model = stand_in().train(training)
    modes = []
    model.estimator.register_forward_hook(lambda module, *_: modes.append(module.training))
    run(random_cuts(2), model)
    assert set(modes) == {False}
    assert model.training is training


def test_silence_takes_frames_and_is_no_unit():
    model = MlVae(NUM_UNITS + 2, NUM_UNITS, True, tiny_model_config())

    class WithSilence(nn.Module):
        def forward(self, features, num_frames):
            return features[..., : NUM_UNITS + 1].log_softmax(2)

    model.estimator = WithSilence()
    model.generator.correctness_logits = lambda features, *_: torch.full(features.shape[:2], -3.0)
    model.log_prior.fill_(-math.log(NUM_UNITS + 1))
    features = np.zeros((12, NUM_UNITS + 2))
    said = [4] * 3 + [0] * 5 + [4] * 4
    features[np.arange(12), said] = 4.0
    model.boundary.forward = lambda features, num_frames: (
        torch.full(features.shape[:2], 0.1),
        torch.full(features.shape[:2], 0.9),
    )
    result = run([make_cut("x", features, ["a"])], model, silence=True)
    assert [(s.kind, s.start, s.end) for s in result.spans["x"]] == [
        ("silence", 0, 3),
        ("unit", 3, 8),
        ("silence", 8, 12),
    ]
    assert result.flag_rate == 0


@pytest.mark.parametrize("topology", ["ml", "substitution"])
def test_a_batch_waits_a_few_times_for_a_gpu(topology, monkeypatch):
    """From features to answers, networks included, whatever the number of cuts."""
    monkeypatch.setattr(search, "parts", search.stretches)  # as on a GPU
    torch.manual_seed(0)
    model = MlVae(NUM_UNITS + 2, NUM_UNITS, False, tiny_model_config())
    model.log_prior.fill_(-math.log(NUM_UNITS))
    compiler = MlFsaCompiler(NUM_UNITS, topology=topology)
    wanted = Wanted(log_posteriors=True)

    def answers(count: int, device: torch.device) -> list:
        cuts = CutSet.from_cuts(random_cuts(count))
        estep = EStep(compiler, cuts, GivenFeatures(TABLE), max_frames=10_000)
        assert len(estep.batches) == 1
        return [
            (name, answer.spans, answer.log_posteriors.tolist())
            for name, answer in estep.answers(model, Decoding(), device, wanted)
        ]

    waits = []
    for count in (4, 40):
        expected = answers(count, torch.device("cpu"))
        with pretended_gpu() as gpu:
            for tensor in (*model.parameters(), *model.buffers()):
                gpu.put(tensor)
            found = answers(count, PRETENDED)
        for tensor in (*model.parameters(), *model.buffers()):
            gpu.put(tensor, False)
        assert found == expected and gpu.wrong == []
        waits.append(sum(gpu.waits.values()))
    assert 3 < waits[0] == waits[1] < 12
