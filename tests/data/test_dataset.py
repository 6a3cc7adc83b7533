from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from lhotse import CutSet, MonoCut

from mlvae.data.dataset import (
    FeatureCache,
    UnitDataset,
    append_deltas,
    load_cuts,
    make_sampler,
    usable_cuts,
)
from mlvae.data.units import UnitTable
from mlvae.stage import StageReport


@pytest.fixture(scope="module")
def cuts(featured_corpus):
    return load_cuts(featured_corpus / "fbank" / "cuts_train.jsonl.gz")


@pytest.fixture(scope="module")
def table(featured_corpus):
    return UnitTable.load(featured_corpus / "units" / "tokens.txt")


@pytest.mark.parametrize("deltas", [False, True])
@pytest.mark.parametrize("cache_mb", [0, 0.06, 100])
def test_a_cut_is_the_same_alone_and_in_a_batch(cuts, table, deltas, cache_mb):
    dataset = UnitDataset(table, deltas=deltas, cache_mb=cache_mb)
    some = cuts.subset(first=5)
    batch = dataset[some]
    size = 120 if deltas else 40
    longest = max(cut.num_frames for cut in some)
    assert batch["features"].shape == (5, longest, size)
    assert batch["features"].dtype == torch.float32
    assert batch["num_frames"].dtype == torch.int64
    assert batch["num_frames"].tolist() == [cut.num_frames for cut in some]
    assert batch["cut_ids"] == [cut.id for cut in some]
    for i, cut in enumerate(some):
        alone = UnitDataset(table, deltas=deltas)[CutSet.from_cuts([cut])]
        assert torch.equal(batch["features"][i, : cut.num_frames], alone["features"][0])
        assert not batch["features"][i, cut.num_frames :].any()
    assert torch.equal(dataset[some]["features"], batch["features"])  # from the cache


def test_features_have_no_mean_over_the_cut(cuts, table):
    cut = cuts[0]
    features = UnitDataset(table).features(cut)
    torch.testing.assert_close(features.mean(dim=0), torch.zeros(40), atol=1e-4, rtol=0)
    raw = torch.from_numpy(cut.load_features())
    torch.testing.assert_close(features - features[0], raw - raw[0])


def test_the_cache_reads_a_cut_once(cuts, table, monkeypatch):
    read = []
    load = MonoCut.load_features
    monkeypatch.setattr(MonoCut, "load_features", lambda cut: read.append(cut.id) or load(cut))
    for cache_mb, expected in ((1, 3), (0, 6)):
        read.clear()
        dataset = UnitDataset(table, cache_mb=cache_mb)
        for _ in range(2):
            dataset[cuts.subset(first=3)]
        assert len(read) == expected


def test_the_cache_keeps_what_was_asked_for_last_within_its_bound():
    made = []

    def ask(name, frames=10):
        return cache.get(("plain", name), lambda: made.append(name) or torch.ones(frames, 40))

    cache = FeatureCache(2 * 1600)
    for name in "abaca":  # b is the oldest when c comes
        ask(name)
    assert made == ["a", "b", "c"]
    ask("long", 30)  # alone larger than the bound: it drives nothing out
    assert (len(cache), cache.num_bytes) == (2, 3200)
    ask("long", 30)  # for its next section
    ask("b")
    ask("long", 30)
    assert made[3:] == ["long", "b", "long"]
    cache.clear()
    assert (len(cache), cache.num_bytes) == (0, 0)
    ask("long", 30)
    assert made[6:] == ["long"]


def test_features_with_and_without_deltas_share_the_bound(cuts, table):
    dataset = UnitDataset(table, deltas=True)
    plain = dataset.plain()
    assert plain.plain() is plain
    some = cuts.subset(first=3)
    wide, narrow = dataset[some]["features"], plain[some]["features"]
    assert torch.equal(wide[..., :40], narrow)
    frames = sum(cut.num_frames for cut in some)
    assert dataset.cache.num_bytes == 4 * (120 + 40) * frames
    dataset.forget()
    assert len(plain.cache) == 0


def test_deltas_of_a_ramp_are_its_slope():
    ramp = torch.arange(20.0).unsqueeze(1) * torch.tensor([1.0, -2.0])
    features = append_deltas(ramp)
    assert features.shape == (20, 6)
    assert torch.equal(features[:, :2], ramp)
    torch.testing.assert_close(features[4:-4, 2:4], torch.tensor([1.0, -2.0]).expand(12, 2))
    torch.testing.assert_close(features[4:-4, 4:], torch.zeros(12, 2))
    assert append_deltas(torch.ones(1, 3)).shape == (1, 9)


def test_a_cut_without_features_is_named(cuts, table):
    bare = cuts[0].drop_features()
    with pytest.raises(ValueError, match=f"{bare.id}: no features"):
        UnitDataset(table)[CutSet.from_cuts([bare])]


def test_usable_cuts_keeps_the_good_and_reports_the_others(cuts, table, tmp_path):
    good, bare = cuts[0], cuts[1].drop_features()
    (supervision,) = cuts[2].supervisions
    foreign = replace(cuts[2], supervisions=[replace(supervision, custom={"units": ["1", "x"]})])
    crowded = replace(cuts[3], supervisions=[replace(supervision, custom={"units": ["1"] * 5000})])
    silent = replace(cuts[4], supervisions=[])
    report = StageReport("test", tmp_path)
    kept = usable_cuts(CutSet.from_cuts([good, bare, foreign, crowded, silent]), table, report)
    assert [cut.id for cut in kept] == [good.id]
    reasons = {line["id"]: line["reason"] for line in report.skipped}
    assert "no features" in reasons[bare.id]
    assert "unit 'x'" in reasons[foreign.id]
    assert "frames for 5000 units" in reasons[crowded.id]
    assert "0 supervisions" in reasons[silent.id]


def epoch_of(sampler, epoch):
    sampler.set_epoch(epoch)
    return [[cut.id for cut in batch] for batch in sampler]


@pytest.mark.parametrize("copies", [1, 3])  # few cuts go unbucketed
def test_shuffled_batches_depend_on_seed_and_epoch_alone(cuts, copies):
    many = CutSet.from_cuts(
        replace(cut, id=f"{cut.id}-{copy}") for cut in cuts for copy in range(copies)
    )
    lengths = {cut.id: cut.num_frames for cut in many}

    def sampler(seed=0):
        return make_sampler(many, max_frames=900, shuffle=True, seed=seed)

    one, two = sampler(), sampler()
    first = epoch_of(one, 0)
    assert epoch_of(two, 1) != first  # epochs differ, and may be taken in any order
    assert epoch_of(two, 0) == first == epoch_of(one, 0)
    assert epoch_of(sampler(seed=1), 0) != first
    for batches in (first, epoch_of(one, 1)):
        assert Counter(name for batch in batches for name in batch) == Counter(list(lengths))
        for batch in batches:
            assert len(batch) * (max(lengths[name] for name in batch) - 0.5) <= 900


def test_unshuffled_batches_come_longest_first(cuts):
    batches = epoch_of(make_sampler(cuts, max_frames=900, shuffle=False), 0)
    names = [name for batch in batches for name in batch]
    durations = [cuts[name].duration for name in names]
    assert durations == sorted(durations, reverse=True)
    assert len(set(names)) == len(cuts)


def test_a_cut_longer_than_a_batch_is_not_lost(cuts):
    for shuffle in (True, False):
        batches = epoch_of(make_sampler(cuts, max_frames=10, shuffle=shuffle), 0)
        assert sorted(name for batch in batches for name in batch) == sorted(cuts.ids)
        assert {len(batch) for batch in batches} == {1}


def test_no_cuts_no_sampler():
    with pytest.raises(ValueError, match="no cut"):
        make_sampler(CutSet.from_cuts([]), max_frames=100, shuffle=True)


def test_a_missing_manifest_is_named(tmp_path):
    with pytest.raises(ValueError, match="no manifest .*cuts_train"):
        load_cuts(tmp_path / "cuts_train.jsonl.gz")
