"""Alignment of recordings that are too large to be searched whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from lhotse import CutSet

from mlvae.systems.align import Aligner, _even_times, _flat_start, _speech
from mlvae.tiers import tier
from mlvae.train.stretches import WordTime
from tests.systems.test_align import CONFIG
from tests.train.long import page, pages
from tests.train.tiny import CPU, NUM_FEATURES, TABLE, dataset

CONFIG = replace(CONFIG, batch_frames=256, rounds=4, epochs_per_round=3, search_frames=5000)
#: Cells of a search; a page of 200 units has twenty times as many.
CELLS = 100_000


def make_aligner(silence: bool, max_cells: int = CELLS) -> Aligner:
    return Aligner(NUM_FEATURES, len(TABLE), silence, CONFIG, CPU, max_cells)


def start_errors(aligned: CutSet) -> np.ndarray:
    """Seconds between starts that were found and the true ones."""
    pairs = ((tier(cut, "fa"), tier(cut, "true")) for cut in aligned)
    return np.array([abs(a.start - b.start) for fa, true in pairs for a, b in zip(fa, true)])


@pytest.fixture(scope="module")
def trained() -> Aligner:
    """From a flat start on nothing but pages."""
    aligner = make_aligner(silence=True)
    aligner.train(pages(6, 200, tier="true"), dataset(), seed=0)
    return aligner


def test_pages_alone_are_enough_to_train_on(trained):
    aligned, short = trained.align(pages(2, 200, seed=1, tier="true"), dataset())
    assert short == []
    assert (start_errors(aligned) <= 0.021).mean() > 0.98


def test_without_silence_too():
    aligner = make_aligner(silence=False)
    cuts = pages(6, 200, tier="true", pause_rate=0.0)
    aligner.train(cuts, dataset(), seed=0)
    assert (start_errors(aligner.align(cuts, dataset())[0]) <= 0.021).mean() > 0.98


def test_a_page_that_one_search_would_hold_also_has_its_first_alignments_in_stretches(monkeypatch):
    """A flat start is as far off in it, whatever the memory could hold."""
    monkeypatch.setattr("mlvae.systems.align.FLAT_FRAMES", 1000)
    aligner = make_aligner(silence=True, max_cells=10**9)
    cuts = pages(6, 200, tier="true")
    aligner.train(cuts, dataset(), seed=0)
    assert (start_errors(aligner.align(cuts, dataset())[0]) <= 0.021).mean() > 0.98


@pytest.mark.parametrize("in_words", [False, True])
def test_a_long_recording_is_aligned_as_it_would_be_whole(trained, in_words):
    cuts = CutSet.from_cuts([page("long", 800, 9, tier="true", in_words=in_words)[0]])
    found = {}
    for cells in (10**9, CELLS):
        trained.max_cells = cells
        (found[cells],), short = trained.align(cuts, dataset())
        assert short == []
    trained.max_cells = CELLS
    for name in ("fa", "fa_variant") if in_words else ("fa",):
        whole, parts = (tier(cut, name) for cut in found.values())
        assert [item.symbol for item in parts] == [item.symbol for item in whole]
        assert [item.start for item in parts] == [item.start for item in whole]
        scores = [abs(a.score - b.score) for a, b in zip(parts, whole)]
        assert np.mean(scores) < 0.01


def test_what_cannot_be_read_from_its_beginning_is_aligned_by_sweeps(trained, monkeypatch):
    monkeypatch.setattr("mlvae.systems.align.locate", lambda *_: None)
    aligned, short = trained.align(pages(1, 200, seed=2, tier="true"), dataset())
    assert short == []
    assert (start_errors(aligned) <= 0.021).mean() > 0.98


def test_a_text_that_does_not_fit_is_one_cut_without_an_answer(trained):
    cut = page("long", 200, 3, tier="true")[0]
    too_much = page("text", 3000, 4)[0].supervisions[0].custom["units"]
    cut.supervisions[0].custom["units"] = too_much
    aligned, short = trained.align(
        CutSet.from_cuts([cut, *pages(1, 200, seed=2, tier="true")]), dataset()
    )
    assert short == ["long"]
    assert len(aligned) == 1


def test_a_flat_start_divides_what_is_no_pause():
    speech = torch.tensor([False, True, True, False, False, True, True])
    assert _flat_start(7, [2, 0], 1, None, speech).tolist() == [2, 2, 2, 2, 2, 0, 0]
    assert _flat_start(7, [2, 0], 1, 4, speech).tolist() == [4, 2, 2, 4, 4, 0, 0]
    assert _even_times(speech, [1, 1]) == [WordTime(0, 3, 0.0), WordTime(5, 7, 0.0)]


def test_pauses_are_long_and_quiet():
    features = torch.zeros(200, 3)
    features[50:100] = -4.0  # half a second
    features[120:124] = -4.0  # a stop consonant
    speech = _speech(features, fewest=10)
    assert not speech[65:85].any()
    assert speech[:45].all() and speech[105:].all()
    assert _speech(features, fewest=90).all()
