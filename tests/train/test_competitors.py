"""Few competitors for each unit, and units that may be left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from lhotse import CutSet
from torch import nn

import mlvae.train.algorithms
from mlvae.train import Decoding
from mlvae.train.confusion import acoustic_confusions, estimate_confusions
from mlvae.train.estep import likeliest, search_compiler
from tests.train.test_estep import NUM_UNITS, GivenFeatures, random_cuts, stand_in
from tests.train.tiny import DEVICE, TABLE, spoken_cuts, unit_spans
from tests.train.trainers import CONFIG, assert_same_files, figures, make_trainer

FEW = Decoding(acoustic_scale=0.3, competitors=2, deletions=True)
SEARCHED = replace(CONFIG, topology="substitution", estimate_after=1, decoding=FEW)


def table_of(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows).log()


def test_the_likeliest_are_kept_and_sum_to_one():
    table = table_of([0, 0.5, 0.3, 0.2], [0.1, 0, 0.1, 0.8], [0.4, 0.4, 0, 0.2], [0.1, 0.6, 0.3, 0])
    kept = likeliest(table, 1).exp()
    assert kept.argmax(1)[[0, 1, 3]].tolist() == [1, 3, 1]
    assert (kept > 0).sum(1).tolist() == [1, 1, 1, 1]
    two = likeliest(table, 2).exp()
    torch.testing.assert_close(two[0], torch.tensor([0, 0.625, 0.375, 0]))
    torch.testing.assert_close(two.sum(1), torch.ones(4))
    for count in (0, 3, 9):
        assert likeliest(table, count) is table


def test_the_acceptor_has_the_paths_that_decoding_names():
    model = stand_in()
    units = [[0, 1, 2]]

    def perceived(decoding: Decoding) -> set[tuple[int, int]]:
        graphs = search_compiler(model, "substitution", decoding).compile(units)
        pairs = zip(graphs.unit.tolist(), graphs.perceived.tolist(), graphs.is_start.tolist())
        return {(unit, other) for unit, other, start in pairs if start == 1}

    assert len(perceived(Decoding())) == 3 * NUM_UNITS
    model.log_confusion.copy_(
        table_of([0, 0.5, 0.3, 0.2], [0.1, 0, 0.1, 0.8], [0.4, 0.3, 0, 0.3], [0.1, 0.6, 0.3, 0])
    )
    few = perceived(Decoding(competitors=1))
    assert few == {(0, 0), (1, 1), (2, 2), (0, 1), (1, 3), (2, 0)}
    graphs = search_compiler(model, "substitution").compile(units)
    assert not (graphs.num_deleted > 0).any()
    graphs = search_compiler(model, "ml", Decoding(deletions=True)).compile(units)
    assert (graphs.num_deleted > 0).any()


def test_competitors_are_what_the_estimator_takes_units_for():
    cuts = random_cuts(6)
    model = stand_in()
    spans = {}
    for cut in cuts:
        units = TABLE.ids(cut.supervisions[0].custom["units"], cut.id)
        step = cut.num_frames // len(units)
        edges = [step * place for place in range(len(units))] + [cut.num_frames]
        spans[cut.id] = unit_spans(units, edges)
    expected = torch.full((NUM_UNITS, NUM_UNITS), 1e-3)
    for cut in cuts:
        probs = torch.from_numpy(cut.load_features().copy())[:, :NUM_UNITS].softmax(1)
        for span in spans[cut.id]:
            expected[span.unit] += probs[span.start : span.end].sum(0)
    expected.fill_diagonal_(0.0)
    found = acoustic_confusions(model, cuts, GivenFeatures(TABLE), spans, DEVICE, max_frames=40)
    torch.testing.assert_close(found.exp(), expected / expected.sum(1, keepdim=True))
    assert isinstance(model.estimator, nn.Module)


def test_a_prior_divides_the_pseudo_counts():
    prior = table_of([0, 0.75, 0.25], [0.5, 0, 0.5], [1.0, 0, 0])
    _, confusion = estimate_confusions({}, 3, log_prior=prior)
    torch.testing.assert_close(confusion.exp(), prior.exp())
    perceived = unit_spans([0], [0, 4], wrong=(0,))[0]._replace(perceived=2)
    _, confusion = estimate_confusions({"x": [perceived]}, 3, log_prior=prior)
    torch.testing.assert_close(confusion[0].exp(), torch.tensor([0, 1.5 / 3, 1.5 / 3]))


def test_training_ranks_them_before_it_searches(tmp_path, monkeypatch):
    """By the estimator first, then by perceived units; a run that is killed goes on with both."""
    cuts = spoken_cuts(16)[0], spoken_cuts(6, seed=1)[0]
    tables = []
    original = mlvae.train.algorithms.search_compiler

    def noted(model, topology, decoding):
        tables.append(model.log_confusion.exp().clone())
        return original(model, topology, decoding)

    monkeypatch.setattr(mlvae.train.algorithms, "search_compiler", noted)
    trainer = make_trainer(cuts, tmp_path / "whole", SEARCHED)
    tables.clear()  # of the compiler that nothing was searched with yet
    training = trainer.fit()
    flat = torch.full((len(TABLE), len(TABLE)), 1 / 3).fill_diagonal_(0)
    assert len(tables) == 1 + SEARCHED.iterations
    assert not any(torch.allclose(table, flat, atol=1e-3) for table in tables)
    shorter = replace(SEARCHED, iterations=1)
    make_trainer(cuts, tmp_path / "parts", shorter).fit()
    assert figures(make_trainer(cuts, tmp_path / "parts", SEARCHED).fit()) == figures(training)
    assert_same_files(tmp_path / "parts", tmp_path / "whole")


def test_no_cut_gives_no_ranking():
    with pytest.raises(ValueError, match="no cut"):
        acoustic_confusions(stand_in(), CutSet.from_cuts([]), GivenFeatures(TABLE), {}, DEVICE)
