from __future__ import annotations

import pytest
import torch
from torch.distributions import Beta

from mlvae.nn import BoundaryDetector, MlVae, MlVaeConfig, TrunkConfig
from tests.nn.padding import batch, check_padding


def detector(bidirectional=False):
    torch.manual_seed(0)
    config = TrunkConfig(2, 6, bidirectional, fc_size=5)
    return BoundaryDetector(3, config).eval()


def log_probs(alpha, beta):
    """Of a model whose boundary detector says these concentrations."""
    model = MlVae(3, 2, False, MlVaeConfig(TrunkConfig(1, 2), TrunkConfig(1, 2)), generator=False)
    del model.boundary
    model.boundary = lambda features, num_frames: (alpha, beta)
    return model.boundary_log_probs(torch.zeros(*alpha.shape, 3), torch.tensor([alpha.shape[1]]))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_shapes_and_padding(bidirectional):
    module = detector(bidirectional)
    inputs, num_frames = batch(3)
    alpha, beta = module(inputs, num_frames)
    assert alpha.shape == beta.shape == (4, 9)
    for index in range(2):
        check_padding(lambda *args, index=index: module(*args)[index], inputs, num_frames)


def test_the_two_outputs_are_separate_and_positive_however_sure_the_network_is():
    module = detector()
    inputs, num_frames = batch(3)
    with torch.no_grad():
        module.alpha.bias.fill_(-1000.0)
        module.beta.bias.fill_(7.0)
    alpha, beta = module(inputs, num_frames)
    assert float(alpha.min()) > 0 and float(alpha.max()) < 0.01
    assert float(beta.min()) > 5
    assert torch.isfinite(log_probs(alpha, beta)).all()
    assert torch.isfinite(Beta(alpha, beta).rsample()).all()


def test_decoding_takes_the_mean_of_the_beta_distribution():
    alpha, beta = torch.tensor([[1.0, 3.0, 0.2]]), torch.tensor([[9.0, 1.0, 0.6]])
    found = log_probs(alpha, beta).exp()
    torch.testing.assert_close(found[..., 1], Beta(alpha, beta).mean)
    torch.testing.assert_close(found[0, :, 1], torch.tensor([0.1, 0.75, 0.25]))
    torch.testing.assert_close(found[0, :, 0], torch.tensor([0.9, 0.25, 0.75]))
