from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from lhotse import CutSet

from mlvae.systems import align
from mlvae.systems.align import Aligner, _flat_start, _with_margins, drawn
from mlvae.tiers import has_tier, tier, with_tiers
from mlvae.train.targets import items_of_spans
from tests.systems.small import ALIGN
from tests.train.tiny import (
    CPU,
    NUM_FEATURES,
    TABLE,
    dataset,
    make_cut,
    spoken_cuts,
    unit_spans,
)

CONFIG = replace(ALIGN, rounds=5, epochs_per_round=4, batch_frames=64)


def make_aligner(config=CONFIG, silence=False, num_features=NUM_FEATURES) -> Aligner:
    return Aligner(num_features, len(TABLE), silence, config, CPU)


def without_tiers(cuts: CutSet) -> CutSet:
    bare = []
    for cut in cuts:
        cut = with_tiers(cut, {})
        cut.supervisions[0].alignment = None
        bare.append(cut)
    return CutSet.from_cuts(bare)


@pytest.fixture(scope="module")
def cuts() -> CutSet:
    """With the true edges in the tier ``fa``."""
    return spoken_cuts(40, wrong_rate=0.0)[0]


@pytest.fixture(scope="module")
def trained(cuts):
    aligner = make_aligner()
    return aligner, aligner.train(without_tiers(cuts), dataset(), seed=0)


def test_a_flat_start_divides_evenly():
    assert _flat_start(6, [2, 0, 2], 1).tolist() == [2, 2, 0, 0, 2, 2]
    assert _flat_start(8, [3, 1], 2).tolist() == [6, 6, 7, 7, 2, 2, 3, 3]
    assert _flat_start(7, [3, 1], 2).tolist() == [6, 6, 7, 7, 2, 2, 3]
    assert _flat_start(3, [0, 1, 2], 1).tolist() == [0, 1, 2]


def test_a_flat_start_with_silence_begins_and_ends_with_it():
    found = _flat_start(12, [3], 2, silence=8).tolist()
    assert found == [8, 8, 8, 8, 6, 6, 7, 7, 8, 8, 8, 8]


@pytest.mark.parametrize("context", [0, 1, 3])
def test_windows_lie_within_their_cut(context):
    """Training reads windows from one matrix of all frames: no cut may see its neighbour."""
    features = [torch.full((length, 2), float(length)) for length in (3, 1, 4)]
    padded, position = _with_margins(features, [3, 1, 4], context)
    assert torch.equal(padded[position], torch.cat(features))
    offsets = torch.arange(2 * context + 1) - context
    windows = padded[position.unsqueeze(1) + offsets]
    row = 0
    for matrix in features:
        alone = torch.nn.functional.pad(matrix, (0, 0, context, context))
        for frame in range(len(matrix)):
            assert torch.equal(windows[row], alone[frame : frame + 2 * context + 1])
            row += 1
    assert row == len(windows)


def test_it_finds_the_edges_of_sounds_it_was_never_told(cuts, trained):
    aligner, training = trained
    aligned, short = aligner.align(without_tiers(cuts), dataset())
    assert short == []
    assert [cut.id for cut in aligned] == [cut.id for cut in cuts]
    overlap = total = 0.0
    for found, true in zip(aligned, cuts):
        items = tier(found, "fa")
        assert [item.symbol for item in items] == true.supervisions[0].custom["units"]
        assert items[0].start == 0
        assert items[-1].end == pytest.approx(found.duration)
        for item, following in zip(items[:-1], items[1:]):
            assert item.end == pytest.approx(following.start, abs=1e-6)
        for item, other in zip(items, tier(true, "fa")):
            inside = min(item.end, other.end) - max(item.start, other.start)
            union = max(item.end, other.end) - min(item.start, other.start)
            overlap += max(inside, 0) / union
            total += 1
    assert overlap / total > 0.85
    assert training["num_params"] == sum(p.numel() for p in aligner.model.parameters())
    assert training["training_seconds"] > 0
    scores = training["path_scores"]
    assert len(scores) == CONFIG.rounds
    assert scores[-1] > scores[0]
    json.dumps(training, allow_nan=False)


def test_scores_are_a_frame_and_input_cuts_stay_as_they_are(cuts, trained):
    aligner, training = trained
    bare = without_tiers(cuts)
    aligned, _ = aligner.align(bare, dataset())
    assert not any(has_tier(cut, "fa") for cut in bare)
    frames = score = 0.0
    for cut in aligned:
        for item in tier(cut, "fa"):
            length = round(item.duration * 100)
            frames += length
            score += item.score * length
    # The last round's search over the same cuts, but for the prior of its own answer.
    assert score / frames == pytest.approx(training["path_scores"][-1], abs=0.1)


def test_the_prior_is_that_of_the_states_and_scores_are_divided_by_it(cuts):
    aligner = make_aligner()
    aligner._set_prior(torch.tensor([0, 0, 3, 7]))
    expected = torch.tensor([3.0, 1, 1, 2, 1, 1, 1, 2]) / 12  # smoothed
    torch.testing.assert_close(aligner.model.log_prior.exp(), expected)

    (first,), _ = aligner.align(CutSet.from_cuts(list(cuts)[:1]), dataset())
    before = [tuple(item) for item in tier(first, "fa")]
    aligner.model.log_prior += 0.7
    (second,), _ = aligner.align(CutSet.from_cuts(list(cuts)[:1]), dataset())
    after = [tuple(item) for item in tier(second, "fa")]
    assert [item[:3] for item in after] == [item[:3] for item in before]
    scores = [item[3] - 0.7 for item in before]
    assert [item[3] for item in after] == pytest.approx(scores, abs=1e-4)


def test_alone_as_in_a_batch(cuts, trained):
    aligner, _ = trained
    together, _ = aligner.align(cuts, dataset())
    for cut, expected in list(zip(cuts, together))[:8]:
        (alone,), _ = aligner.align(CutSet.from_cuts([cut]), dataset())
        found = [(item.start, item.duration) for item in tier(alone, "fa")]
        assert found == [(item.start, item.duration) for item in tier(expected, "fa")]


def test_an_existing_tier_is_not_read(cuts, trained):
    """It is replaced: whatever was in it, the answer is the same."""
    aligner, _ = trained
    bare, _ = aligner.align(without_tiers(cuts), dataset())
    found, _ = aligner.align(cuts, dataset())
    assert [tier(cut, "fa") for cut in found] == [tier(cut, "fa") for cut in bare]


def test_the_same_seed_gives_the_same_model(cuts):
    config = replace(CONFIG, rounds=1, epochs_per_round=1)

    def weights(seed: int, noise: int):
        torch.manual_seed(noise)
        aligner = make_aligner(config)
        aligner.train(cuts, dataset(), seed)
        return aligner.model.state_dict()

    first, again, other = weights(0, 1), weights(0, 2), weights(1, 1)
    for name, value in first.items():
        assert torch.equal(value, again[name]), name
    assert not torch.equal(first["output.weight"], other["output.weight"])


def test_saved_and_loaded(cuts, trained, tmp_path):
    aligner, _ = trained
    aligner.save(tmp_path / "fa.safetensors")
    other = make_aligner()
    other.load(tmp_path / "fa.safetensors")
    assert torch.equal(other.model.log_prior, aligner.model.log_prior)
    expected, found = aligner.align(cuts, dataset())[0], other.align(cuts, dataset())[0]
    assert [tier(cut, "fa") for cut in found] == [tier(cut, "fa") for cut in expected]
    wider = replace(CONFIG, model=replace(CONFIG.model, context=2))
    with pytest.raises(ValueError, match=r"fa\.safetensors is not of this configuration"):
        make_aligner(wider).load(tmp_path / "fa.safetensors")


@pytest.mark.filterwarnings("ignore:.*too few frames.*")
def test_cuts_with_fewer_frames_than_states_are_named_and_others_go_on(cuts, trained):
    aligner, _ = trained
    short = make_cut("short", np.zeros((5, NUM_FEATURES)), ["a", "b", "c"])
    enough = make_cut("enough", np.zeros((6, NUM_FEATURES)), ["a", "b", "c"])
    some = list(cuts)[:3]
    aligned, names = aligner.align(CutSet.from_cuts([some[0], short, *some[1:], enough]), dataset())
    assert names == ["short"]
    assert [cut.id for cut in aligned] == [some[0].id, some[1].id, some[2].id, "enough"]
    expected, _ = aligner.align(CutSet.from_cuts(some), dataset())
    assert [tier(cut, "fa") for cut in list(aligned)[:3]] == [tier(c, "fa") for c in expected]


def silent_cuts(count: int = 40) -> CutSet:
    """Units between stretches without sound; the true tier says where."""
    rng = np.random.default_rng(0)
    cuts = []
    for number in range(count):
        units = rng.integers(0, len(TABLE), rng.integers(2, 5)).tolist()
        lead, tail = (int(n) for n in rng.integers(4, 9, 2))
        edges = lead + np.concatenate([[0], np.cumsum(rng.integers(5, 9, len(units)))])
        features = 0.2 * rng.standard_normal((edges[-1] + tail, NUM_FEATURES))
        for unit, start, end in zip(units, edges[:-1], edges[1:]):
            features[start:end, unit] += 2.0
            features[start, -1] += 2.0
        symbols = TABLE.units(units)
        cut = make_cut(f"s{number}", features, symbols)
        spans = unit_spans(units, edges.tolist())
        items = items_of_spans(cut, spans, symbols, [0.0] * len(units))
        cuts.append(with_tiers(cut, {"true": items}))
    return CutSet.from_cuts(cuts)


def test_silence_at_the_ends_is_in_no_unit():
    cuts = silent_cuts()
    aligner = make_aligner(silence=True)
    aligner.train(cuts, dataset(), seed=0)
    aligned, short = aligner.align(cuts, dataset())
    assert short == []
    first_errors, last_errors = [], []
    for cut in aligned:
        found, true = tier(cut, "fa"), tier(cut, "true")
        first_errors.append(abs(found[0].start - true[0].start))
        last_errors.append(abs(found[-1].end - true[-1].end))
    # Within a frame, where the silences have four to eight.
    assert np.median(first_errors) < 0.015
    assert np.median(last_errors) < 0.015


def test_of_many_hours_some_are_drawn(monkeypatch, capsys):
    sizes = {f"x{number}": 10 + number for number in range(20)}
    assert drawn(sizes, 0) == set(sizes)
    monkeypatch.setattr(align, "TRAIN_FRAMES", 100)
    some = drawn(sizes, 0)
    assert 100 <= sum(map(sizes.get, some)) < 100 + max(sizes.values())
    assert some == drawn(dict(reversed(sizes.items())), 0) != drawn(sizes, 1)
    assert "is trained on" in capsys.readouterr().out
    assert len(drawn({"long": 1000, "longer": 2000}, 0)) == 1
