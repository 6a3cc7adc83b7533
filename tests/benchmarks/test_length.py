"""The benchmark of long recordings: what it measures with and compares, not how fast it is."""

from __future__ import annotations

import json

import numpy as np
import pytest
from lhotse import CutSet
from lhotse.supervision import AlignmentItem

from benchmarks import length
from mlvae.data.audio import write_wav
from mlvae.data.dataset import load_cuts
from mlvae.data.manifests import write_manifest
from mlvae.tiers import with_tiers


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Five parts, and recordings of two and of five of them."""
    folder = tmp_path_factory.mktemp("work")
    length.prepare(length.tones(0), [1, 2, 5], 3, 0, False, folder)
    return folder


def test_longer_recordings_are_the_parts_one_after_the_other(work):
    parts = load_cuts(work / "length1.jsonl.gz")
    assert len(parts) == 5 and {part.num_frames for part in parts} == {length.PART}
    for count in (2, 5):
        (long,) = load_cuts(work / f"length{count}.jsonl.gz")
        features = [part.load_features() for part in parts.subset(first=count)]
        assert np.array_equal(long.load_features(), np.concatenate(features))
        units = [u for p in parts.subset(first=count) for u in p.supervisions[0].custom["units"]]
        assert long.supervisions[0].custom["units"] == units
    assert all(np.abs(part.load_features().mean(axis=0)).max() < 1e-4 for part in parts)
    (other,) = load_cuts(work / "first.jsonl.gz")
    assert not np.array_equal(other.load_features(), features[0])


def test_a_unit_agrees_in_what_is_perceived_and_in_both_edges(work):
    def answered(cut, perceived, late):
        units = cut.supervisions[0].custom["units"]
        items = [
            AlignmentItem(u, round(0.3 * i + d, 6), 0.3)
            for i, (u, d) in enumerate(zip(units, late))
        ]
        said = [replace_symbol(item, h or item.symbol) for item, h in zip(items, perceived)]
        return with_tiers(cut, {"mlvae": items, "mlvae_perceived": said})

    def replace_symbol(item, symbol):
        return AlignmentItem(symbol, item.start, item.duration)

    parts = list(load_cuts(work / "length1.jsonl.gz").subset(first=2))
    answers, perceived, late, offset = [], [], [], 0
    for number, part in enumerate(parts):
        count = len(part.supervisions[0].custom["units"])
        answers.append(answered(part, [None] * count, [0.0] * count))
        perceived += [None] * count
        late += [10.0 * number - 0.3 * offset] * count
        offset += count
    write_manifest(work / "answers1.jsonl.gz", CutSet.from_cuts(answers))
    (long,) = load_cuts(work / "length2.jsonl.gz")

    def agreement(perceived, late):
        write_manifest(
            work / "answers2.jsonl.gz", CutSet.from_cuts([answered(long, perceived, late)])
        )
        return length.agreement(work, 2)

    assert agreement(perceived, late) == (offset, offset)
    assert agreement(["*", *perceived[1:]], late) == (offset - 1, offset)
    assert agreement(perceived, [late[0] + 0.02, *late[1:]]) == (offset, offset)
    assert agreement(perceived, [late[0] + 0.03, *late[1:]]) == (offset - 1, offset)


def test_digits_of_the_corpus_are_read(tmp_path, capsys):
    with pytest.raises(ValueError, match="has no recordings of all digits"):
        length.fsdd(tmp_path, "ann")
    for digit in range(10):
        for name in ("ann", "bob"):
            write_wav(tmp_path / f"{digit}_{name}_0.wav", np.full(800, 0.1), 8000)
    assert [len(clips) for clips in length.fsdd(tmp_path, "ann").clips.values()] == [1] * 10
    assert [len(clips) for clips in length.fsdd(tmp_path, "").clips.values()] == [2] * 10
    assert length.main(["--corpus-dir", str(tmp_path / "none")]) == 1
    assert length.main(["--lengths", "[2, 5]"]) == 1
    assert "--lengths must rise from 1" in capsys.readouterr().err


def test_bounds_that_are_passed_are_said(work, monkeypatch):
    measured = {
        "audio_seconds": 10.0,
        "align_seconds": 1.0,
        "localize_seconds": 1.0,
        "recordings": 1,
    }
    options = length.make_parser().parse_args(["--lengths", "[1, 2, 5]"])
    for name in ("prepare", "train"):
        monkeypatch.setattr(length, name, lambda *_: None)
    slow = {1: measured, 2: measured | {"align_seconds": 2.5}, 5: measured}
    for count, one in slow.items():
        one = one | {"peak_bytes": 5e9 if count == 5 else 1e9}
        (work / f"measured{count}.json").write_text(json.dumps(one))
    monkeypatch.setattr(length, "machine", lambda: {"load_average": 0.0})  # may run a program
    monkeypatch.setattr(length.subprocess, "run", lambda *_, **options: None)
    monkeypatch.setattr(length, "agreement", lambda work, count: (98 if count == 5 else 99, 100))
    report = length.measured(options, None, length.tones(0), work)
    assert report["failed"] == [
        "20 s: 1.75 times the time a second",
        "50 s: 5.0 GB",
        "50 s: units differ from the parts'",
    ]
