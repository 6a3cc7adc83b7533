"""Training never opens the reference: scrambled or absent, it changes no weight and no answer."""

from __future__ import annotations

import random

import pytest
from lhotse import SupervisionSet
from safetensors.torch import load_file

from mlvae.data.manifests import write_manifest
from tests.recipes.conftest import Recipe


def scramble(path) -> None:
    """Other perceived and canonical units, other times, in an order of its own."""
    rng = random.Random(0)
    items = list(SupervisionSet.from_file(path))
    for item in items:
        for name, units in item.alignment.items():
            item.alignment[name] = [
                unit._replace(symbol=str(rng.randrange(10)), start=rng.random(), duration=0.01)
                for unit in units
            ]
    rng.shuffle(items)
    write_manifest(path, items)


TRAINED = ("ml-vae", "ml-vae-rl", "ablation-1", "ablation-2", "ablation-3", "ml-vae-sub")


@pytest.mark.parametrize(("how", "systems"), [("scrambled", TRAINED), ("absent", ("ml-vae-sub",))])
def test_reference_changes_no_weight_and_no_answer(prepared, tmp_path, how, systems):
    prepared.systems = " ".join(systems)
    assert prepared.run(3, 4, 5) == [0] * 3
    reference = prepared.data / "reference.jsonl.gz"
    before = reference.read_bytes()
    if how == "scrambled":
        scramble(reference)
        assert reference.read_bytes() != before
    else:
        reference.unlink()
    other = Recipe(prepared.data, tmp_path / "other", prepared.config, systems=prepared.systems)
    assert other.run(3, 4, 5) == [0] * 3
    for name in (
        "fa/model.safetensors",
        *(f"{system}/model.safetensors" for system in systems),
        "ml-vae-sub/boundaries.safetensors",
        *(f"fa/cuts_{split}.jsonl.gz" for split in ("train", "valid", "test")),
        *(f"{system}/cuts_test.jsonl.gz" for system in systems),
        "gop-fa/cuts_test.jsonl.gz",
        "gop-sub/cuts_test.jsonl.gz",
    ):
        assert (other.exp / name).read_bytes() == (prepared.exp / name).read_bytes(), name
    for system in systems:
        mine, theirs = (
            load_file(recipe.exp / system / "checkpoint.safetensors")
            for recipe in (prepared, other)
        )
        assert mine.keys() == theirs.keys()
        assert all(mine[name].equal(theirs[name]) for name in mine)


def test_the_text_does_not_tell_it_either(prepared):
    """What training reads of a cut: no field but the canonical units differs with the reference."""
    from mlvae.data.dataset import load_cuts

    for split in ("train", "valid", "test"):
        for cut in load_cuts(prepared.data / "fbank" / f"cuts_{split}.jsonl.gz"):
            (supervision,) = cut.supervisions
            assert set(supervision.custom) == {"units", "words", "sources"}
            assert supervision.alignment is None
            assert len(supervision.text.split()) == len(supervision.custom["units"])
