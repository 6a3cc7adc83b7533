"""Shards: what they are called, how work is dealt to them, and how their folders go."""

from __future__ import annotations

import pytest

from mlvae.made import Record, atomic_path
from mlvae.shard import Shard, dealt, found_shards, remove_shards


def test_names_of_shards():
    assert Shard.of("3/8") == Shard(8, 3) and str(Shard(8, 3)) == "3/8"
    for wrong in ("", "3", "0/8", "9/8", "1/0", "-1/8", "03/8", "1/8 ", "1/200000", "٣/8"):
        with pytest.raises(ValueError, match="--shard must be i/n, as in 3/8"):
            Shard.of(wrong)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_each_item_has_one_shard(count):
    shards = [Shard(count, number) for number in range(1, count + 1)]
    for index in range(20):
        assert sum(shard.takes(index) for shard in shards) == 1
        assert Shard.of_id(f"utt{index}", count) in shards
    speakers = [(f"speaker{index % 9}", 1.0 + index % 4) for index in range(200)]
    found = dealt(speakers, count)
    assert found.keys() == {speaker for speaker, _ in speakers}
    loads = [sum(w for name, w in speakers if found[name] == n) for n in range(1, count + 1)]
    assert max(loads) - min(loads) <= max(
        sum(w for name, w in speakers if name == one) for one in found
    )


def test_joined_shards_are_removed_but_for_what_somebody_put_there(tmp_path):
    homes = [Shard(2, number).folder(tmp_path) for number in (2, 1)]
    for home in homes:
        record = Record.begin(home)
        for name in ("parts/one", "changed"):
            with atomic_path(home / name, record) as temporary:
                temporary.write_text("made")
    (homes[0] / "changed").write_text("mine")
    (tmp_path / "shards" / "notes-of-mine").mkdir()
    assert list(found_shards(tmp_path)) == [Shard(2, 1), Shard(2, 2)]
    remove_shards(homes)
    left = sorted(str(path.relative_to(tmp_path / "shards")) for path in tmp_path.rglob("*"))
    assert "2-of-2/changed" in left and "2-of-2/parts" not in left and "1-of-2" not in left
