"""An hour of digits, read window by window, was aligned 20 s beside the text from its middle on.

In one window a few words in a row were said otherwise than written. There the right path was worse
than others by more than the beam of k2's pruned search, which went on elsewhere in the text, and
each window behind it began in the wrong place.
"""

from __future__ import annotations

import pytest
import torch

import mlvae.train.stretches
from mlvae.fsa import Emissions, MlFsaCompiler, best_path
from mlvae.fsa.search import SEARCH_BEAMS, _within, open_ended, pruned_path
from mlvae.train.stretches import locate

NUM_UNITS, FRAMES_EACH, SHARP = 5, 8, 15.0
#: Places of the words that were said otherwise than written.
WRONG = range(30, 42)


class Spoken:
    """Words of a unit each, of 8 frames, which an acoustic model hears very clearly."""

    def __init__(self, num_words: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.compiler = MlFsaCompiler(NUM_UNITS, "single", states_per_unit=2, silence=True)
        self.written = torch.randint(NUM_UNITS, (num_words,), generator=generator).tolist()
        said = [(u + 2) % NUM_UNITS if i in WRONG else u for i, u in enumerate(self.written)]
        self.num_frames = FRAMES_EACH * num_words
        columns = torch.tensor([2 * u + state for u in said for state in (0,) * 4 + (1,) * 4])
        scores = torch.randn(self.num_frames, 2 * NUM_UNITS + 1, generator=generator)
        scores[torch.arange(self.num_frames), columns] += SHARP
        self.log_posteriors = scores.log_softmax(1)

    def emissions(self, begin: int, end: int, starts: torch.Tensor | None = None) -> Emissions:
        if starts is None:
            starts = torch.tensor([0.9, 0.1]).log().expand(1, end - begin, 2)
        return self.compiler.emissions(
            self.log_posteriors[None, begin:end], torch.tensor([end - begin]), log_boundary=starts
        )


def test_a_path_beyond_the_first_beam_is_found():
    spoken = Spoken(60)
    emissions = spoken.emissions(0, spoken.num_frames)
    graph = spoken.compiler.compile([spoken.written])
    assert pruned_path(graph, emissions) == best_path(graph, emissions)[0]


def test_two_beams_in_one_search_find_what_each_finds_alone():
    spoken = Spoken(60)
    emissions = spoken.emissions(0, spoken.num_frames)
    graph = spoken.compiler.compile([spoken.written])
    narrow, wide = SEARCH_BEAMS[0] / 4, 4 * SEARCH_BEAMS[0]
    (lost,), (found,) = _within((narrow,), graph, emissions), _within((wide,), graph, emissions)
    assert lost != found
    both = _within((narrow, wide), graph, emissions)
    scores = torch.tensor([[span.score for span in spans] for spans in (lost, found)])
    assert [[(s.unit, s.start, s.end) for s in spans] for spans in both] == [
        [(s.unit, s.start, s.end) for s in spans] for spans in (lost, found)
    ]
    for spans, alone in zip(both, scores):
        torch.testing.assert_close(torch.tensor([span.score for span in spans]), alone)


def test_an_open_end_is_no_way_out():
    spoken = Spoken(60)
    emissions = spoken.emissions(0, spoken.num_frames)
    graph = open_ended(spoken.compiler.compile([spoken.written * 2]))
    starts = [span.start for span in pruned_path(graph, emissions) if span.kind == "unit"]
    assert starts[45:] == [FRAMES_EACH * place for place in range(45, 60)]


@pytest.mark.parametrize("window", [300, 500])
def test_words_behind_others_than_were_written_are_found_where_they_are(monkeypatch, window):
    monkeypatch.setattr(mlvae.train.stretches, "WINDOW", window)
    spoken = Spoken(200)
    words = [[[unit]] for unit in spoken.written]
    times = locate(words, spoken.num_frames, spoken.compiler, spoken.emissions)
    starts = [time.start for time in times]
    assert starts[45:] == [FRAMES_EACH * place for place in range(45, 200)]
