"""What is too large for one search: the answer is that of the whole."""

from __future__ import annotations

import re

import pytest
import torch
from lhotse import CutSet

import mlvae.data.dataset
import mlvae.train.stretches
from mlvae.fsa import MlFsaCompiler, UnitSpan, best_path
from mlvae.fsa.search import open_ended, pruned_path
from mlvae.nn import MlVae, TrunkConfig
from mlvae.nn.trunk import ConvolutionConfig
from mlvae.tiers import tier, with_tiers, with_units
from mlvae.train import Decoding, EStep, TrainConfig, Trainer
from mlvae.train.estep import search_compiler
from mlvae.train.stretches import (
    Answer,
    Junction,
    Stretch,
    Wanted,
    WordTime,
    divide,
    junctions,
    locate,
    searched,
    stretch_size,
)
from tests.train.long import page, pages
from tests.train.tiny import DEVICE, NUM_FEATURES, TABLE, dataset, tiny_model_config
from tests.train.trainers import make_trainer

#: So that a page of 150 units comes in some stretches of about 250 frames.
CELLS = {"ml": 250_000, "substitution": 500_000, "separate": 250_000}


def trained(silence: bool, folder) -> MlVae:
    torch.manual_seed(0)
    sizes = tiny_model_config()
    sizes.estimator = TrunkConfig(
        kind="convolution", convolution=ConvolutionConfig(16, dilations=[1, 2], dropout=0.0)
    )
    model = MlVae(NUM_FEATURES, len(TABLE), silence, sizes)
    train = pages(40, 6, pause_rate=0.3 if silence else 0.0)
    config = TrainConfig(iterations=1, max_frames=300, learning_rate=2e-2)
    valid = pages(2, 6, seed=1)
    trainer = Trainer(model, train, valid, dataset(), config, folder, DEVICE, 0)
    for epoch in range(5):
        trainer.algorithm.train_estimator(epoch)
        trainer.algorithm.train_boundary(100 + epoch, trainer.algorithm.aligned)
    return model


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[bool, MlVae]:
    """Real networks that have learned a little, with silence and without."""
    folder = tmp_path_factory.mktemp("models")
    return {silence: trained(silence, folder / str(silence)) for silence in (False, True)}


def search(cut, model, topology, decoding, max_cells) -> tuple[Answer, bool]:
    """The answer for a cut, and whether it was searched in stretches."""
    compiler = search_compiler(model, topology, decoding)
    estep = EStep(compiler, CutSet.from_cuts([cut]), dataset(), 3000, max_cells=max_cells)
    wanted = Wanted(posteriors=True, words=topology == "ml")
    ((name, answer),) = estep.answers(model, decoding, DEVICE, wanted)
    assert name == cut.id
    return answer, not estep.batches[0].whole


def without_score(spans) -> list[UnitSpan]:
    return [span._replace(score=0.0) for span in spans]


def num_different(spans, others) -> int:
    """Spans that are not among the others; where cuts are others, close calls may be, too."""
    return len(set(without_score(spans)) - set(without_score(others)))


@pytest.mark.parametrize("in_words", [False, True])
@pytest.mark.parametrize("silence", [False, True])
@pytest.mark.parametrize(
    ("topology", "deletions"),
    [("ml", False), ("ml", True), ("substitution", False), ("substitution", True), ("separate", 0)],
)
def test_stretches_answer_as_the_whole_does(models, topology, deletions, silence, in_words):
    pause_rate = 0.1 if silence else 0.0
    cut = page("page", 150, 7, 0.15, pause_rate=pause_rate, in_words=in_words)[0]
    model, decoding = models[silence], Decoding(0.5, deletions=bool(deletions))
    whole, is_long = search(cut, model, topology, decoding, 10**9)
    assert not is_long
    parts, is_long = search(cut, model, topology, decoding, CELLS[topology])
    assert is_long
    assert without_score(parts.spans) == without_score(whole.spans)
    for name in ("unit", "word"):
        assert torch.equal(getattr(parts.posteriors, name), getattr(whole.posteriors, name))
    for name in ("used", "mispronounced", "deleted", "perceived"):
        mine, theirs = getattr(parts.posteriors, name), getattr(whole.posteriors, name)
        assert mine.shape == theirs.shape
        # Ambiguous places hang together over more than the margins of these small stretches.
        assert (mine - theirs).abs().mean() < 1e-2, name
        assert (mine - theirs).abs().max() < 0.3, name
    with_words = in_words and topology == "ml"
    assert (parts.words is None) == (whole.words is None) == (not with_words)
    if with_words:
        assert (parts.words - whole.words).abs().mean() < 1e-2
    assert parts.can_skip == whole.can_skip == deletions


def test_the_score_is_that_of_the_path(models):
    cut = page("page", 150, 7, 0.15)[0]
    whole, parts = (
        search(cut, models[True], "ml", Decoding(0.5), cells)[0] for cells in (10**9, CELLS["ml"])
    )
    total, joined = (sum(span.score for span in answer.spans) for answer in (whole, parts))
    # Where a stretch begins, a start is certain.
    assert joined == pytest.approx(total, abs=5)


@pytest.mark.parametrize("silence", [False, True])
def test_a_cut_that_was_not_aligned_is_aligned_first(models, silence):
    cut = page("page", 150, 7, 0.15, pause_rate=0.1 if silence else 0.0)[0]
    bare = with_units(cut, cut.supervisions[0].custom["units"])
    aligned, alone = (
        search(one, models[silence], "ml", Decoding(0.5), CELLS["ml"])[0] for one in (cut, bare)
    )
    assert num_different(alone.spans, aligned.spans) <= 2


def test_an_alignment_that_is_a_little_wrong_does_not_matter(models):
    cut = page("page", 150, 7, 0.15)[0]
    items = tier(cut, "fa")
    moved = [
        item._replace(start=round(item.start + 0.03 * (number % 3), 2))
        for number, item in enumerate(items)
    ]
    model, decoding = models[True], Decoding(0.5)
    expected = search(cut, model, "ml", decoding, CELLS["ml"])[0]
    found = search(with_tiers(cut, {"fa": moved}), model, "ml", decoding, CELLS["ml"])[0]
    assert num_different(found.spans, expected.spans) <= 2


def test_networks_see_sections_with_margins(models, monkeypatch):
    cut = page("page", 150, 7, 0.15)[0]
    expected = search(cut, models[True], "ml", Decoding(0.5), CELLS["ml"])[0]
    monkeypatch.setattr(mlvae.data.dataset, "NETWORK_FRAMES", 400)
    found = search(cut, models[True], "ml", Decoding(0.5), CELLS["ml"])[0]
    assert without_score(found.spans) == without_score(expected.spans)
    difference = found.posteriors.mispronounced - expected.posteriors.mispronounced
    assert 0 < difference.abs().max() < 0.01


def test_training_sees_every_frame_of_a_long_cut_once(monkeypatch, tmp_path):
    monkeypatch.setattr(mlvae.data.dataset, "NETWORK_FRAMES", 120)
    cuts = pages(2, 60), pages(1, 20, seed=1)
    algorithm = make_trainer(cuts, tmp_path, silence=True).algorithm
    seen: dict[str, list[tuple[int, int]]] = {}
    starts = 0
    for batch in algorithm.batches.epoch(3, algorithm.aligned, "test"):
        assert batch.features.shape[1] <= 120
        starts += int(batch.targets.boundary.sum())
        for row, name in enumerate(batch.cut_ids):  # such as page[100:200]
            cut_id, begin, end = re.fullmatch(r"(.+)\[(\d+):(\d+)\]", name).groups()
            section = slice(int(begin), int(end))
            seen.setdefault(cut_id, []).append((section.start, section.stop))
            (cut,) = (cut for cut in cuts[0] if cut.id == cut_id)
            own = algorithm.model.scale(dataset().features(cut))[section]
            assert torch.equal(batch.features[row, : len(own)], own)
    for cut in cuts[0]:
        ends = sorted(seen[cut.id])
        assert ends[0][0] == 0 and ends[-1][1] == cut.num_frames
        assert all(before[1] == after[0] for before, after in zip(ends[:-1], ends[1:]))
    borders = sum(map(len, seen.values())) - len(seen)
    assert 120 <= starts <= 120 + borders


def test_it_is_cut_in_the_longest_pause_or_where_the_alignment_is_surest():
    times = [WordTime(10 * i, 10 * i + 10, float(i == 6)) for i in range(20)]
    times[7] = times[7]._replace(score=1.0)
    assert divide(times, 200, 100)[0] == Stretch(0, 7, 0, 70)
    times[8] = times[8]._replace(start=84)
    assert divide(times, 200, 100)[0] == Stretch(0, 8, 0, 82)
    assert divide(times, 200, 200) == [Stretch(0, 20, 0, 200)]


@pytest.mark.parametrize("size", [5, 17, 60, 1000])
def test_stretches_tile_words_and_frames(size):
    times = [WordTime(7 * i, 7 * i + 5, 0.0) for i in range(50)]
    times[20] = WordTime(140, 300, 0.0)  # a long one, and what it covers
    found = divide(times, 360, size)
    assert found[0][:1] == (0,) and found[0].begin == 0
    assert found[-1].end_word == 50 and found[-1].end == 360
    for one, other in zip(found[:-1], found[1:]):
        assert one.end_word == other.first_word and one.end == other.begin
        assert one.first_word < one.end_word and one.begin < one.end


def test_a_stretch_has_a_quarter_of_the_largest_search():
    assert stretch_size(40_000, 200, 10_000, 1000) == 50  # 50 of 200 frames: a sixteenth
    assert stretch_size(40_000, 200, 10**9, 70) == 70


def span(word: int, start: int, end: int, kind: str = "unit") -> UnitSpan:
    return UnitSpan(word, 0, start, end, kind, False, 0, 0.0, word, word)


def test_paths_meet_where_a_spoken_unit_leads_to_a_spoken_word():
    spans = [span(0, 0, 4), span(1, 4, 4), span(2, 4, 8), span(-1, 8, 9, "silence"), span(3, 9, 12)]
    found = junctions(Stretch(10, 14, 100, 112), Answer(spans))
    assert found == [Junction(10, 100), Junction(13, 109), Junction(14, 112)]


def test_a_stretch_without_a_path_is_searched_with_its_neighbour():
    times = [WordTime(10 * i, 10 * i + 10, 0.0) for i in range(12)]
    asked = []

    def some(stretches):
        asked.extend(stretches)
        return [
            Answer(
                []
                if one == Stretch(5, 10, 50, 100)
                else [
                    span(word, 10 * word, 10 * word + 10)
                    for word in range(one.end_word - one.first_word)
                ]
            )
            for one in stretches
        ]

    words = [[[0]]] * 12
    answer = searched(words, times, 120, some, 50, 20)
    assert [(s.word, s.start, s.end) for s in answer.spans] == [
        (i, 10 * i, 10 * i + 10) for i in range(12)
    ]
    assert Stretch(5, 10, 50, 100) in asked
    assert searched(words, times, 120, lambda some: [Answer([]) for _ in some], 50, 20) is None


class TestLocate:
    """Reading on window by window."""

    @staticmethod
    def spoken(num_units: int, sharp: float = 3.0, pause: int = 0, seed: int = 0):
        """Words of a unit each, 8 frames long, with a pause in the middle; and what emits them."""
        generator = torch.Generator().manual_seed(seed)
        units = torch.randint(5, (num_units,), generator=generator).tolist()
        compiler = MlFsaCompiler(5, "single", states_per_unit=2, silence=True)
        columns = torch.tensor(
            [2 * unit + state for unit in units for state in (0,) * 4 + (1,) * 4]
        )
        half = 4 * num_units
        columns = torch.cat([columns[:half], torch.full((pause,), 10), columns[half:]])
        log_posteriors = torch.randn(len(columns), 11, generator=generator)
        log_posteriors[torch.arange(len(columns)), columns] += sharp
        log_posteriors = log_posteriors.log_softmax(1)

        def emissions_of(begin, end, starts):
            length = torch.tensor([end - begin])
            return compiler.emissions(log_posteriors[None, begin:end], length, log_boundary=starts)

        return units, compiler, emissions_of, len(columns)

    @pytest.mark.parametrize("pause", [0, 700])
    def test_words_are_found_where_they_are(self, monkeypatch, pause):
        monkeypatch.setattr(mlvae.train.stretches, "WINDOW", 300)
        units, compiler, emissions_of, num_frames = self.spoken(400, pause=pause)
        times = locate([[[unit]] for unit in units], num_frames, compiler, emissions_of)
        late = [0 if place < 200 else pause for place in range(400)]
        errors = [abs(t.start - 8 * i - late_by) for i, (t, late_by) in enumerate(zip(times, late))]
        assert sum(error > 2 for error in errors) < 8
        assert max(errors) < 20

    def test_a_text_that_is_too_long_for_the_recording_is_not_found(self, monkeypatch):
        monkeypatch.setattr(mlvae.train.stretches, "WINDOW", 300)
        units, compiler, emissions_of, num_frames = self.spoken(100)
        assert locate([[[u]] for u in units * 5], num_frames, compiler, emissions_of) is None

    def test_the_pruned_path_is_the_best(self):
        units, compiler, emissions_of, num_frames = self.spoken(30, sharp=1.0)
        starts = torch.tensor([0.9, 0.1]).log().expand(1, num_frames, 2)
        emissions = emissions_of(0, num_frames, starts)
        graph = compiler.compile([units])
        assert pruned_path(graph, emissions) == best_path(graph, emissions)[0]

    def test_an_open_graph_takes_as_much_of_the_text_as_was_said(self):
        units, compiler, emissions_of, num_frames = self.spoken(30, sharp=5.0)
        graph = open_ended(compiler.compile([units + [4, 0, 3, 1]]))
        starts = torch.tensor([0.9, 0.1]).log().expand(1, 80, 2)
        said = [s for s in pruned_path(graph, emissions_of(0, 80, starts)) if s.kind == "unit"]
        assert [(s.unit, s.start) for s in said] == [(u, 8 * i) for i, u in enumerate(units[:10])]
