"""What stands in the place of the networks where posteriors are given."""

from __future__ import annotations

import math

import pytest
import torch

from mlvae.acoustic.models import Wav2Vec
from mlvae.systems.acoustic import ANY_UNIT, AcousticSettings, PosteriorNetwork, pack_acoustic
from tests.systems.sounds import tiny_model
from tests.train.tiny import CPU

#: Three units, the last of which no symbol stands for.
SHARES = torch.tensor([[0.0, 0, 0], [1, 0, 0], [0.5, 0.5, 0]])
PRIOR = torch.tensor([0.1, 0.05, 0.0001, 0.8499])
#: A frame of unit 0, one of unit 1, and one of nothing.
FRAMES = torch.tensor([[0.8, 0.1, 1e-5, 0.1], [0.1, 0.8, 1e-5, 0.1], [1e-5, 1e-5, 1e-5, 1.0]])
LENGTHS = torch.tensor([3])


@pytest.fixture
def network() -> PosteriorNetwork:
    network = PosteriorNetwork(SHARES.clone())
    network.log_prior.copy_(PRIOR.log())
    network.log_boundary.copy_(torch.tensor([0.8, 0.2]).log())
    return network


def test_posteriors_are_as_given_but_of_units_without_a_symbol(network):
    features = FRAMES.log()[None]
    found = network(features, LENGTHS)
    known = [0, 1, 3]
    assert torch.equal(found.units[..., known], features[..., known])
    ratio = (found.units - network.log_prior)[0]
    torch.testing.assert_close(ratio[:, 2], ratio[:, :2].amax(1))
    torch.testing.assert_close(found.boundary[0, 2], torch.tensor([0.8, 0.2]).log())
    assert found.correctness.shape == (1, 3, 2)
    network.shares.fill_(1)
    assert torch.equal(network(features, LENGTHS).units, features)


def test_given_a_unit_they_sum_to_one_and_tend_to_the_prior_where_there_is_none(network):
    network.shares.fill_(1)
    found = network.unit_probs(network.estimator(FRAMES.log()[None], LENGTHS))[0]
    torch.testing.assert_close(found.sum(1), torch.ones(3))
    assert found[0, 0] == pytest.approx(0.8 / 0.9, abs=2 * ANY_UNIT)
    torch.testing.assert_close(found[2], PRIOR[:3] / PRIOR[:3].sum(), atol=0.01, rtol=0.01)


def test_goodness_of_a_unit_without_a_symbol_is_that_of_the_best(network):
    found = network.estimator(FRAMES.log()[None], LENGTHS)[0]
    assert torch.equal(found[:, 2], found[:, :2].amax(1))
    assert float(found.max()) <= 0 and float(found.min()) > math.log(1e-4)


def test_a_checkpoint_of_torch_is_packed_as_safetensors(tmp_path):
    path, folder = tmp_path / "somebodys.pth", tmp_path / "packed"
    torch.save(tiny_model(num_out=4).state_dict(), path)
    folder.mkdir()
    settings = AcousticSettings(adapter="wav2vec2", path=str(path))
    assert pack_acoustic(settings, folder) == {"adapter": "wav2vec2", "package": None}
    assert [one.name for one in (folder / "acoustic").iterdir()] == ["model.safetensors"]
    samples = 0.1 * torch.randn(1, 8000)
    before, after = (
        Wav2Vec(place, ("<blk>", "a", "b", "c"), CPU)(samples, torch.tensor([8000]))[0]
        for place in (path, folder / "acoustic" / "model.safetensors")
    )
    assert torch.equal(before, after)
    path.unlink()
    (folder / "acoustic" / "model.safetensors").unlink()
    (folder / "acoustic").rmdir()
    with pytest.raises(ValueError, match="somebodys.pth cannot be read as weights"):
        pack_acoustic(settings, folder)
